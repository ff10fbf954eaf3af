"""The command line: which commands there are, and how their failures look.

One file a command, imported when it is asked for. A failure is one line on stderr that begins with `jmsclient:` and says what was
given and what to do; no traceback for what the library raises on purpose. It knows nothing of what the commands do.
Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted. Source: api.md "Command line".
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

import click

from jmsclient.errors import ConfigurationError, JmsClientError, StoreError, UnsupportedFeatureError

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

COMMANDS = {
    "run": "jmsclient.cli.run:run",
    "send": "jmsclient.cli.send:send",
    "receive": "jmsclient.cli.receive:receive",
    "browse": "jmsclient.cli.browse:browse",
    "destinations": "jmsclient.cli.destinations:destinations",
    "triggers": "jmsclient.cli.triggers:triggers",
    "in-doubt": "jmsclient.cli.in_doubt:in_doubt",
    "history": "jmsclient.cli.history:history",
    "demo": "jmsclient.cli.demo_command:demo",
}


class LazyGroup(click.Group):
    """A group that imports a command's module when the command is asked for, so that no command pays for another."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 done, 1 failed, 2 usage, 130 interrupted.",
)
@click.version_option(package_name="jmsclient", prog_name="jmsclient")
def jmsclient() -> None:
    """JMS-style consumers: read ahead, duplicate detection, and no stranded message."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (None: the process's own arguments); returns the exit code."""
    try:
        result = jmsclient.main(arguments, prog_name="jmsclient", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as asked:
        asked.show()
        return USAGE
    except click.ClickException as wrong:
        complain(_with_hint(wrong))
        return wrong.exit_code
    except (ConfigurationError, StoreError, UnsupportedFeatureError) as wrong:
        complain(str(wrong))
        return USAGE
    except JmsClientError as failed:
        complain(f"{type(failed).__name__}: {failed}")
        return FAILED
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted")
        return INTERRUPTED
    return result if isinstance(result, int) else DONE


def complain(text: str) -> None:
    """One line on stderr, whatever the text has in it."""
    click.echo(f"jmsclient: {' '.join(text.split())}", err=True)


def _with_hint(wrong: click.ClickException) -> str:
    text = wrong.format_message()
    if isinstance(wrong, click.UsageError) and wrong.ctx is not None:
        text = f"{text.rstrip('.')} (see {wrong.ctx.command_path} --help)"
    return text
