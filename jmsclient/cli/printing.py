"""What goes to a terminal: text that cannot steer it, and tables that can be searched when they do not go to one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WIDE = 10_000  # columns of a table that is not shown on a terminal: nothing is cut, so that grep finds it


def printable(text: str) -> str:
    """Without what could steer the terminal: messages come from others."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table on stdout."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDE)
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*[Text(printable(cell)) for cell in row])
    console.print(table)
