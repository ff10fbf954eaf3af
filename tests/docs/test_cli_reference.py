"""docs/reference/cli.md has every command, every option and every environment variable, and none that is not there."""

from __future__ import annotations

import importlib
import re

import click

from jmsclient.cli.main import COMMANDS

from .conftest import ROOT

PAGE = (ROOT / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def commands() -> list[tuple[str, click.Command]]:
    found = []
    for name, place in COMMANDS.items():
        module, _, attribute = place.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        if isinstance(command, click.Group):
            found += [(f"{name} {part}", one) for part, one in command.commands.items()]
        else:
            found.append((name, command))
    return found


def options() -> list[click.Option]:
    return [parameter for _, command in commands() for parameter in command.params if isinstance(parameter, click.Option)]


def test_every_command_has_a_heading() -> None:
    for name, _ in commands():
        assert f"`jmsclient {name}" in PAGE


def test_the_options_are_those_of_the_page() -> None:
    documented = set(re.findall(r"^\| `(--[a-z-]+)", PAGE, re.MULTILINE))
    assert documented == {option.opts[0] for option in options()}


def test_the_environment_variables_are_those_of_the_page() -> None:
    documented = set(re.findall(r"`(JMSCLIENT_[A-Z_]+)`", PAGE))
    assert documented == {option.envvar for option in options() if option.envvar}


def test_every_option_says_what_it_is_for() -> None:
    assert [option.name for option in options() if not option.help] == []
