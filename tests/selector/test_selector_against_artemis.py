"""The same selectors and messages through Artemis's own selector classes: equal verdicts, or a difference that is named here.

Needs a Java 17 compiler and Maven. The generator is seeded; the seed and the case are printed on failure. Rules C07, C08, C09.
"""

from __future__ import annotations

import base64
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from jmsclient.errors import InvalidSelectorError
from jmsclient.message import MessageKind, PlainContent
from jmsclient.selector import compile_selector

JAVA = Path(__file__).parent / "java"
CASES = 1500
SEED = 20260301
pytestmark = [pytest.mark.real, pytest.mark.slow]

Verdicts = Callable[[list["Case"]], list[str]]


@dataclass(frozen=True, slots=True)
class Case:
    """One question: does this selector match a message with these properties?"""

    selector: str
    properties: dict[str, Any]

    def line(self) -> str:
        """As SelectorPeer.java reads it."""
        parts = [_encoded(self.selector)]
        for name, value in self.properties.items():
            if isinstance(value, bool):
                parts.append(f"{name}=b:{str(value).lower()}")
            elif isinstance(value, str):
                parts.append(f"{name}=s:{_encoded(value)}")
            else:
                parts.append(f"{name}={'l' if isinstance(value, int) else 'd'}:{value!r}")
        return " ".join(parts)

    def ours(self) -> str:
        """Our verdict, in the same letters."""
        try:
            selector = compile_selector(self.selector)
        except InvalidSelectorError:
            return "E"
        assert selector is not None
        return "T" if selector(PlainContent(kind=MessageKind.TEXT, body="", properties=self.properties)) else "F"


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


@pytest.fixture(scope="module")
def artemis_says(java: None, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """Asks Artemis's classes, compiled here, in one process a list of cases."""
    folder = tmp_path_factory.mktemp("artemis-selector")
    _run("mvn", "-q", "-B", "-f", str(JAVA / "pom.xml"), "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'lib'}")
    classes = f"{folder / 'lib'}/*"
    _run("javac", "-cp", classes, "-d", str(folder), str(JAVA / "SelectorPeer.java"))

    def ask(cases: list[Case]) -> list[str]:
        lines = "".join(case.line() + "\n" for case in cases)
        return _run("java", "-cp", f"{folder}:{classes}", "SelectorPeer", given=lines).split()

    return ask


def _run(*command: str, given: str = "") -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, f"{command[0]} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


# -- the cases -------------------------------------------------------------------------------------------------------------

NUMBERS = ("a", "b")
TEXTS = ("s", "t")
FLAGS = ("f", "g")
LONGS = (-3, 0, 1, 2, 7, 100, 2**31, 2**53 + 1)
DOUBLES = (-1.5, 0.0, 0.5, 2.0, 100.0, 1e15)
WORDS = ("", "a", "A", "ab", "a.c", "100%", "_key", "it's", "x\ny", "größe")
PATTERNS = (("a%", None), ("_", None), ("%", None), ("a.c", None), ("100\\%", "\\"), ("$_%", "$"), ("%b%", None), ("it's", None))


class Maker:
    """Conditions that grow from a seed."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)

    def case(self) -> Case:
        return Case(self.condition(self.chance.randint(0, 3)), self.properties())

    def properties(self) -> dict[str, Any]:
        pick = self.chance
        values: dict[str, Any] = {}
        for names, pool in ((NUMBERS, (*LONGS, *DOUBLES)), (TEXTS, WORDS), (FLAGS, (True, False))):
            for name in names:
                if pick.random() < 0.75:
                    values[name] = pick.choice(pool)
        return values

    def condition(self, depth: int) -> str:
        pick = self.chance
        if depth == 0:
            return pick.choice((self.comparison, self.equality, self.between, self.among, self.like, self.null, self.flag))()
        shape = pick.choice(("and", "or", "not", "bare"))
        if shape == "not":
            return f"NOT ({self.condition(depth - 1)})"
        if shape == "bare":
            return self.condition(depth - 1)
        return f"({self.condition(depth - 1)}) {shape.upper()} ({self.condition(depth - 1)})"

    def number(self, depth: int = 1) -> str:
        pick = self.chance
        if depth and pick.random() < 0.4:
            return f"({self.number(depth - 1)} {pick.choice('+-*')} {self.number(depth - 1)})"
        return pick.choice((*NUMBERS, self.literal()))

    def literal(self) -> str:
        return self.chance.choice((str(self.chance.choice(LONGS[1:-1])), repr(self.chance.choice(DOUBLES[1:5]))))

    def text(self) -> str:
        return "'" + self.chance.choice(WORDS).replace("'", "''") + "'"

    def negated(self) -> str:
        return self.chance.choice(("", "NOT "))

    def comparison(self) -> str:
        return f"{self.number()} {self.chance.choice(('<', '<=', '>', '>='))} {self.number()}"

    def equality(self) -> str:
        operator = self.chance.choice(("=", "<>"))
        kind = self.chance.choice(("number", "text", "flag"))
        if kind == "number":
            return f"{self.number()} {operator} {self.literal()}"  # see DIFFERENCES for what may be NULL on the right
        if kind == "text":
            return f"{self.chance.choice(TEXTS)} {operator} {self.text()}"
        return f"{self.chance.choice(FLAGS)} {operator} {self.chance.choice(('TRUE', 'FALSE'))}"

    def between(self) -> str:
        return f"{self.chance.choice(NUMBERS)} {self.negated()}BETWEEN {self.number(0)} AND {self.number(0)}"

    def among(self) -> str:
        words = ", ".join(self.text() for _ in range(self.chance.randint(1, 3)))
        return f"{self.chance.choice(TEXTS)} {self.negated()}IN ({words})"

    def like(self) -> str:
        pattern, escape = self.chance.choice(PATTERNS)
        quoted = "'" + pattern.replace("'", "''") + "'"
        return f"{self.chance.choice(TEXTS)} {self.negated()}LIKE {quoted}" + (f" ESCAPE '{escape}'" if escape else "")

    def null(self) -> str:
        return f"{self.chance.choice((*NUMBERS, *TEXTS, *FLAGS))} IS {self.negated()}NULL"

    def flag(self) -> str:
        return self.chance.choice(FLAGS)


def test_generated_selectors_have_the_verdicts_of_artemis(artemis_says: Verdicts) -> None:
    maker = Maker(SEED)
    cases = [maker.case() for _ in range(CASES)]
    differing = [
        f"{case.selector!r} on {case.properties}: Artemis {theirs}, ours {case.ours()}"
        for case, theirs in zip(cases, artemis_says(cases), strict=True)
        if theirs != case.ours()
    ]
    assert not differing, f"seed {SEED}: {len(differing)} of {CASES} differ:\n" + "\n".join(differing[:20])


MESSAGE = {"city": "Oslo", "load": 70, "unit": "kg", "t": True, "f": False, "n": 5}
UNKNOWN_IS_NOT_UNEQUAL = (
    "JM 3.8.1.2: a comparison with NULL is unknown; Artemis takes it for unequal where the NULL is on the right"
)
UNLIKE_TYPES = "JM 3.8.1.1: a comparison of unlike types is false; Artemis takes it for unequal"
NO_NUMBER = "a division by zero is unknown here; Artemis compares with infinity"
NOT_TEXT = "what is no text is IN nothing here; in Artemis it is unknown"
ORDER_OF_BOOLEANS = "JM 3.8.1.1: booleans have no order"
ESCAPED_ORDINARY = "an escape before an ordinary character, or at the end, is refused here; Artemis takes it for no match"
NOT_IN_THE_GRAMMAR = "not in the grammar of JM 3.8.1"
DIFFERENCES = {  # selector: (Artemis, ours, why)
    "load <> nope": ("T", "F", UNKNOWN_IS_NOT_UNEQUAL),
    "NOT (load = nope)": ("T", "F", UNKNOWN_IS_NOT_UNEQUAL),
    "city <> nope": ("T", "F", UNKNOWN_IS_NOT_UNEQUAL),
    "t <> nope": ("T", "F", UNKNOWN_IS_NOT_UNEQUAL),
    "city <> 70": ("T", "F", UNLIKE_TYPES),
    "load <> '70'": ("T", "F", UNLIKE_TYPES),
    "load / 0 <> 1": ("T", "F", NO_NUMBER),
    "n NOT IN ('5')": ("F", "T", NOT_TEXT),
    "t > f": ("T", "F", ORDER_OF_BOOLEANS),
    "city LIKE 'a$' ESCAPE '$'": ("F", "E", ESCAPED_ORDINARY),
    "city LIKE 'Os$lo' ESCAPE '$'": ("F", "E", ESCAPED_ORDINARY),
    'city = "Oslo"': ("F", "E", NOT_IN_THE_GRAMMAR),
    "load = 70 /* note */": ("T", "E", NOT_IN_THE_GRAMMAR),
    "load % 2 = 0": ("T", "E", NOT_IN_THE_GRAMMAR),
    "NULL": ("F", "E", NOT_IN_THE_GRAMMAR),
    "load = 70.0f": ("E", "T", "Java's float literals are literals of the grammar"),
}
AGREED = (
    *("load = nope", "nope = load", "nope <> load", "t = nope", "load / 0 = 1", "n LIKE '5'", "n NOT LIKE '5'", "n IN ('5')"),
    *("city = 70", "load = '70'", "t = 'true'", "load > '5'", "city > 'A'", "load", "city", "NOT city", "nope", "TRUE", "FALSE"),
    *("9223372036854775807 + 1 < 0", "load = 70L", "load = 0x46", "load = 7e1", "load = 70.", "- load = -70", "+load = 70"),
    *("load == 70", "load != 70", "3 + 5", "city IN ()", "load = 70 -- note", "(load = 70", "city = 'Oslo' junk AND load = 1"),
    *("load BETWEEN 'a' AND 'b'", "city LIKE '%' ESCAPE 'ab'", "load IS NULL OR TRUE", "city LIKE nope", "load = 70 AND"),
)


def test_c09_what_is_at_the_edge_of_the_language_is_taken_as_artemis_takes_it(artemis_says: Verdicts) -> None:
    cases = [Case(text, MESSAGE) for text in AGREED]
    assert {case.selector: case.ours() for case in cases} == dict(zip(AGREED, artemis_says(cases), strict=True))


def test_c07_c08_each_difference_is_known_and_has_a_reason(artemis_says: Verdicts) -> None:
    cases = [Case(text, MESSAGE) for text in DIFFERENCES]
    found = {case.selector: (theirs, case.ours()) for case, theirs in zip(cases, artemis_says(cases), strict=True)}
    assert found == {text: (theirs, ours) for text, (theirs, ours, _) in DIFFERENCES.items()}
