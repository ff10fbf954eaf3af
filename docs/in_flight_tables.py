"""Makes `reference/in-flight.md` and its diagram from the tables of the embedded broker: `python docs/in_flight_tables.py`.

A test holds both files to what this makes, so that they cannot tell another story than the code.
"""

from __future__ import annotations

from pathlib import Path

from jmsclient.transport.contract import Verb
from jmsclient_embedded.pauses import PAUSE_TABLE
from jmsclient_embedded.states import CURRENT, PENDING, SETTLEMENT, TRANSITIONS, State

FOLDER = Path(__file__).parent / "reference"
PAGE = FOLDER / "in-flight.md"
DIAGRAM = FOLDER / "in-flight.svg"

_HEAD = """# In-flight work: states, transitions, pauses, settlements

This page is made from the tables that the embedded broker runs on (`states.py` and `pauses.py` in `jmsclient_embedded`); the
[rules](../rules.md) say why they are so. The [walk](../explanation/in-flight-work.md) shows a message on its way through them.

![The states of a message and the transitions between them](in-flight.svg)
"""
_NO_MESSAGE = "(no message)"


def page() -> str:
    """The whole page."""
    return "\n".join((_HEAD, _states(), _transitions(), _pauses(), _settlements()))


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [" | ".join(columns), " | ".join("---" for _ in columns), *(" | ".join(row) for row in rows)]
    return f"## {title}\n\n" + "".join(f"| {line} |\n" for line in lines)


def _states() -> str:
    rows = [
        (
            f"`{state.value}`",
            "1" if state in CURRENT else "",
            "1" if state in PENDING else "",
            "yes" if state is State.VISIBLE else "no",
        )
        for state in State
        if state is not State.GONE
    ]
    return _table("States", ("state", "current", "pending", "a consumer may take it"), rows)


def _transitions() -> str:
    by_trigger: dict[tuple[str, str], list[tuple[State | None, State]]] = {}
    for one in TRANSITIONS:
        by_trigger.setdefault((one.rule, one.trigger), []).append((one.source, one.target))
    rows = []
    for (rule, trigger), pairs in by_trigger.items():
        sources = list(dict.fromkeys(_name(source) for source, _ in pairs))
        targets = list(dict.fromkeys(_name(target) for _, target in pairs))
        rows.append((rule, ", ".join(sources), ", ".join(targets), trigger))
    return _table("Transitions", ("rule", "from", "to", "when"), rows)


def _name(state: State | None) -> str:
    return _NO_MESSAGE if state is None else f"`{state.value}`"


def _pauses() -> str:
    rows = [(one.event, one.production, one.insertion, one.consumption) for one in PAUSE_TABLE]
    return _table("Pauses", ("event", "production paused", "insertion paused", "consumption paused"), rows)


def _settlements() -> str:
    def counts(verb: Verb) -> str:
        counted = SETTLEMENT[verb].counted
        return "if it was handed over" if counted is None else "yes" if counted else "no"

    rows = [
        (
            f"`{verb.value}`",
            SETTLEMENT[verb].rule,
            counts(verb),
            "leaves the queue" if SETTLEMENT[verb].leaves else "goes back to its place",
            "not offered to this consumer again" if SETTLEMENT[verb].barred else "",
        )
        for verb in Verb
    ]
    return _table("Settlements", ("verb", "rule", "counts as a delivery", "the message", ""), rows)


# -- the diagram ------------------------------------------------------------------------------------------------------

_THERE = "on its destination"
"""Stands for the four states in which nobody holds a message; an arrow that all four have is drawn once."""
_FOUR = frozenset((State.DELAYED, State.PAUSED, State.VISIBLE, State.ORDERED))
_Node = State | str | None
_PLACES: dict[_Node, tuple[int, int]] = {  # where each stands, by hand: the middle of its box
    None: (90, 120),
    State.SEND: (90, 280),
    State.DELAYED: (400, 90),
    State.PAUSED: (400, 190),
    State.VISIBLE: (640, 190),
    State.ORDERED: (640, 90),
    State.RECEIVE: (540, 362),
    State.EXPIRED: (920, 140),
    State.REDELIVERY_COUNT_EXCEEDED: (920, 362),
    State.GONE: (1120, 260),
    _THERE: (520, 140),
}
_HALF = (72, 20)
_HALF_THERE = (220, 105)


def diagram() -> str:
    """The states as boxes, an arrow for each pair of states that some rule joins, labelled with those rules."""
    edges: dict[tuple[_Node, _Node], list[str]] = {}
    for rule, source, target in dict.fromkeys(_joined()):
        edges.setdefault((source, target), []).append(rule)
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1210 400" font-family="sans-serif" font-size="13">',
        "<title>The states of a message in the embedded broker</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#667"/></marker></defs>',
        '<rect width="1210" height="400" fill="#fff"/>',
        _box(_THERE),
    ]
    parts += [_arrow(source, target, rules) for (source, target), rules in edges.items() if source is not target]
    parts += [_box(state) for state in _PLACES if state != _THERE]
    return "\n".join([*parts, "</svg>", ""])


def _joined() -> list[tuple[str, _Node, _Node]]:
    """(rule, from, to), the four taken together where a rule has all of them."""
    found: list[tuple[str, _Node, _Node]] = []
    for one in TRANSITIONS:
        same = [other for other in TRANSITIONS if (other.rule, other.trigger) == (one.rule, one.trigger)]
        source: _Node = _THERE if {other.source for other in same if other.target is one.target} >= _FOUR else one.source
        target: _Node = _THERE if {other.target for other in same if other.source is one.source} >= _FOUR else one.target
        found.append((one.rule, source, target))
    return found


def _box(node: _Node) -> str:
    (x, y), (across, down) = _PLACES[node], _half(node)
    colour = "#d9f2d9" if node in CURRENT else "#fdeecb" if node in PENDING else "#f6f7fa" if node == _THERE else "#eceff4"
    name = node.value if isinstance(node, State) else node or "no message"
    name = name.replace("redelivery-count-exceeded", "count exceeded")
    label = y - down + 16 if node == _THERE else y + 5
    return (
        f'<rect x="{x - across}" y="{y - down}" width="{2 * across}" height="{2 * down}" rx="8" fill="{colour}" '
        f'stroke="#99a"/><text x="{x}" y="{label}" text-anchor="middle">{name}</text>'
    )


def _half(node: _Node) -> tuple[int, int]:
    return _HALF_THERE if node == _THERE else _HALF


def _arrow(source: _Node, target: _Node, rules: list[str]) -> str:
    """From edge to edge of the boxes, bent to the right of its direction, so that there and back do not meet."""
    (x1, y1), (x2, y2) = _edge(source, target), _edge(target, source)
    length = max(1.0, ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5)
    bend = 22.0
    middle_x, middle_y = (x1 + x2) / 2 - (y2 - y1) / length * bend, (y1 + y2) / 2 + (x2 - x1) / length * bend
    nearer = 0.36  # of the way, so that the labels of two arrows that cross stand apart
    label_x, label_y = (
        (1 - nearer) ** 2 * first + 2 * nearer * (1 - nearer) * middle + nearer**2 * last
        for first, middle, last in ((x1, middle_x, x2), (y1, middle_y, y2))
    )
    return (
        f'<path d="M{x1:.0f} {y1:.0f}Q{middle_x:.0f} {middle_y:.0f} {x2:.0f} {y2:.0f}" fill="none" stroke="#778" '
        f'marker-end="url(#head)"/><text x="{label_x:.0f}" y="{label_y:.0f}" font-size="11" fill="#224" stroke="#fff" '
        f'stroke-width="3" paint-order="stroke" text-anchor="middle">{", ".join(rules)}</text>'
    )


def _edge(start: _Node, end: _Node) -> tuple[float, float]:
    """Where the line between two boxes leaves the first."""
    (x1, y1), (x2, y2), (half_across, half_down) = _PLACES[start], _PLACES[end], _half(start)
    across, down = x2 - x1, y2 - y1
    part = min(half_across / abs(across) if across else 9.0, half_down / abs(down) if down else 9.0)
    return x1 + across * part, y1 + down * part


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    DIAGRAM.write_text(diagram(), encoding="utf-8")
