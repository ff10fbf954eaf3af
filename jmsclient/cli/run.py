"""`jmsclient run MODULE:WORKER`: run a worker until a signal ends it.

It loads the worker, applies what the command line says, and leaves the rest to `worker.shutdown`, whose signals and exit codes
these are.
"""

from __future__ import annotations

import click

from jmsclient.cli.logs import FORMATS, LEVELS, set_up_logging


@click.command(short_help="Run a worker until a signal ends it.")
@click.argument("worker", metavar="MODULE:WORKER")
@click.option("--url", metavar="URL", help="Connect there, whatever the worker's own URL says.")
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    metavar="N",
    envvar="JMSCLIENT_CONCURRENCY",
    help="Handlers at once of each trigger, whatever the trigger says.",
)
@click.option(
    "--control",
    metavar="PATH",
    envvar="JMSCLIENT_CONTROL",
    help="A socket to be made there, for jmsclient triggers.",
)
@click.option(
    "--app-dir",
    default=".",
    show_default=True,
    metavar="FOLDER",
    envvar="JMSCLIENT_APP_DIR",
    help="The folder that MODULE is in.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    envvar="JMSCLIENT_LOG_LEVEL",
    help="The least level that is logged, to stderr.",
)
@click.option(
    "--log-format",
    type=click.Choice(FORMATS),
    default="text",
    show_default=True,
    envvar="JMSCLIENT_LOG_FORMAT",
    help="Lines for people, or a JSON object a line.",
)
def run(
    worker: str, *, url: str | None, concurrency: int | None, control: str | None, app_dir: str, log_level: str, log_format: str
) -> int:
    """Run the worker WORKER of the module MODULE, such as app:worker.

    The first Ctrl-C or SIGTERM stops gently: running handlers end, what is buffered goes back, and a line a trigger says what
    became of it. The second ends the drain at once (exit code 130); what still runs stays unacknowledged. The third kills.
    """
    set_up_logging(log_level, log_format)
    from jmsclient.cli.loading import load_worker
    from jmsclient.worker.shutdown import run_with_signals

    loaded = load_worker(worker, app_dir)
    loaded.override(url=url, concurrency=concurrency, control=control)
    return run_with_signals(loaded)
