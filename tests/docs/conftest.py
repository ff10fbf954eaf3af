"""What the tests of the documents share: the documents, and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<text>.*?)^```\s*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced code block: its language, the words after it, its text."""

    document: Path
    line: int
    language: str
    words: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        """The file that the document says to save it in (`python file=app.py`)."""
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)


def documents() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if "_build" not in path.parts]


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(document, line, language, tuple(words), match["text"]))
    return found


def block_of(document: str, file: str) -> str:
    """The text of the block that the document says to save as `file`."""
    (found,) = [block.text for block in blocks(ROOT / document) if block.file == file]
    return found
