"""docs/architecture.md speaks of the code as it is: its names exist, its tree exists, its lines are the walls'."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from .conftest import ROOT

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
JOURNEY = PAGE[PAGE.index("## The journey of one delivery") : PAGE.index("## The tree")]
QUOTED = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL))
SOURCES = [path for folder in ("jmsclient", "backends") for path in sorted((ROOT / folder).rglob("*.py"))]


def names_in_the_code() -> tuple[dict[str, set[str]], set[str]]:
    """Members by class name, and every name that a module defines. Members include those that a base class of ours has."""
    members: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    top: set[str] = set()
    for path in SOURCES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                top.add(node.name)
            if isinstance(node, ast.ClassDef):
                bases.setdefault(node.name, []).extend(base.id for base in node.bases if isinstance(base, ast.Name))
                found = members.setdefault(node.name, set())
                for part in ast.walk(node):
                    if isinstance(part, ast.FunctionDef):
                        found.add(part.name)
                    elif isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                        found.add(part.target.id)
                    elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
                        found.add(part.attr)

    def with_inherited(name: str) -> set[str]:
        return members.get(name, set()).union(*map(with_inherited, bases.get(name, [])))

    return {name: with_inherited(name) for name in members}, top


MEMBERS, TOP = names_in_the_code()
METHODS = sorted(set(re.findall(r"\b[A-Z]\w+\.[a-z_]\w*\b", " ".join(QUOTED))))
PLAIN = sorted(set(re.findall(r"`([A-Z]\w+|history_id|apply|classify|bind)`", JOURNEY)))


@pytest.mark.parametrize("name", METHODS)
def test_each_method_is_in_the_code(name: str) -> None:
    owner, _, method = name.partition(".")
    assert method in MEMBERS.get(owner, set())


@pytest.mark.parametrize("name", PLAIN)
def test_each_name_of_the_journey_is_in_the_code(name: str) -> None:
    assert name in TOP


def test_the_journey_visits_the_stations_of_the_grep_line() -> None:
    (line,) = [quoted for quoted in QUOTED if quoted.startswith("Sink.delivered → ")]
    stations = re.findall(r"[A-Z]\w+\.\w+", line)
    assert len(stations) == 8
    for station in stations:
        assert f"`{station}`" in JOURNEY


def test_each_file_of_the_page_is_there() -> None:
    tree = re.findall(r"\b\w+\.py\b", PAGE[PAGE.index("## The tree") : PAGE.index("## The walls")])
    quoted = [name for name in QUOTED if re.fullmatch(r"[\w/]+\.py", name)]
    present = [f"/{path.relative_to(ROOT)}" for path in SOURCES]
    assert [name for name in (*tree, *quoted) if not any(one.endswith(f"/{name}") for one in present)] == []


def test_the_layers_of_the_page_are_those_that_are_checked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    described = re.sub(r"\s+", " ", PAGE[PAGE.index("Layers, from top to bottom:") :].partition(": ")[2].partition(". The list")[0])
    assert described.replace("`", "") == " > ".join(layers)
