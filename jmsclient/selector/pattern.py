"""Owns LIKE: a pattern, read once, and a matcher that goes through a value once.

A pattern is cut at its percent signs into pieces of fixed length. The first piece stands at the beginning, the last at the end, and
each one between them at the first place after its forerunner: if any placing works, that one does, so nothing is ever tried
again. Source: Jakarta Messaging 3.1 section 3.8.1.1. `_` stands for one character, counted as Python counts them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

_ONE, _MANY = object(), object()


class PatternError(ValueError):
    """A pattern that is none. `offset` is where in the pattern, counted from 0."""

    def __init__(self, text: str, offset: int) -> None:
        super().__init__(text, offset)
        self.offset = offset

    def __str__(self) -> str:
        return str(self.args[0])


def compile_pattern(pattern: str, escape: str | None = None) -> Callable[[str], bool]:
    """Whether a whole value matches `pattern`. `escape` is one character or None. Raises PatternError where the escape
    character comes at the end or before a character that needs none."""
    pieces = [_Piece(marks) for marks in _cut(_read(pattern, escape))]
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        if first.text is not None:
            return first.text.__eq__
        return lambda value: len(value) == first.length and first.at(value, 0)
    inner, least = pieces[1:-1], first.length + last.length

    def matches(value: str) -> bool:
        end = len(value) - last.length
        if len(value) < least or not first.at(value, 0) or not last.at(value, end):
            return False
        start = first.length
        for piece in inner:
            start = piece.find(value, start, end)
            if start < 0:
                return False
            start += piece.length
        return True

    return matches


def _read(pattern: str, escape: str | None) -> list[object]:
    """The characters of a pattern, the special ones as marks."""
    marks: list[object] = []
    characters = iter(enumerate(pattern))
    for offset, character in characters:
        if character == escape:
            _, character = next(characters, (0, ""))
            if character not in ("_", "%", escape):
                what = f"before {character!r}, which needs none" if character else "at the end of the pattern"
                raise PatternError(f"the escape character {escape!r} {what}", offset)
            marks.append(character)
        elif character == "_":
            marks.append(_ONE)
        elif character == "%":
            marks.append(_MANY)
        else:
            marks.append(character)
    return marks


def _cut(marks: list[object]) -> list[list[object]]:
    """The pieces between the percent signs; inner ones that are empty are left out."""
    cuts = [-1, *(index for index, mark in enumerate(marks) if mark is _MANY), len(marks)]
    pieces = [marks[before + 1 : after] for before, after in pairwise(cuts)]
    return [pieces[0], *(piece for piece in pieces[1:-1] if piece), pieces[-1]] if len(pieces) > 1 else pieces


class _Piece:
    """A part of fixed length: runs of plain text, each with its offset; what lies between them are `_`."""

    __slots__ = ("length", "runs", "text")

    def __init__(self, marks: list[object]) -> None:
        self.length = len(marks)
        self.runs: list[tuple[int, str]] = []
        run: list[str] = []
        for offset, mark in enumerate([*marks, _ONE]):
            if isinstance(mark, str):
                run.append(mark)
            elif run:
                self.runs.append((offset - len(run), "".join(run)))
                run = []
        whole = "".join(text for _, text in self.runs)
        self.text = whole if len(whole) == self.length else None
        """The piece itself, where it has no `_`."""

    def at(self, value: str, start: int) -> bool:
        """Whether it stands at `start`; the caller has made sure that there is room."""
        return all(value.startswith(text, start + offset) for offset, text in self.runs)

    def find(self, value: str, start: int, end: int) -> int:
        """The first place at or after `start` where it stands and ends by `end`; -1 if there is none."""
        if self.text is not None:
            return value.find(self.text, start, end)
        if not self.runs:
            return start if start + self.length <= end else -1
        offset, text = self.runs[0]
        last = end - self.length
        while start <= last:
            start = value.find(text, start + offset, last + offset + len(text)) - offset
            if start < 0:
                return -1
            if self.at(value, start):
                return start
            start += 1
        return -1
