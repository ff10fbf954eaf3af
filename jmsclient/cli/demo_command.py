"""`jmsclient demo`: the command around `cli.demo`, which is imported when it runs."""

from __future__ import annotations

import click


@click.command(short_help="See that every message is handled exactly once.")
@click.option("--seed", type=click.IntRange(min=0), metavar="N", help="The dice: repeat a run with the seed that it printed.")
@click.option("--broker", metavar="URL", help="Send there, such as amqp://user:secret@host:5672; without it an embedded broker.")
@click.option("--history", metavar="URL", help="The worker's history, such as redis://localhost; without it a SQLite file.")
@click.option("--keep", type=click.Path(file_okay=False), metavar="FOLDER", help="Leave store, history, ledger and journal there.")
def demo(*, seed: int | None, broker: str | None, history: str | None, keep: str | None) -> int:
    """Announce every departure exactly once, although a sender repeats itself and the worker is killed three times."""
    from jmsclient.cli.demo import run_demo

    return run_demo(seed=seed, broker=broker, history_url=history, keep=keep)
