"""Run as a program by test_races.py: claims a list of ids as soon as it is told to, and prints which it won.

Arguments: history URL, trigger, rounds, whether to take over. Says `ready`, then waits for a line.
"""

from __future__ import annotations

import json
import sys

from jmsclient.history import open_history


def main(url: str, trigger: str, rounds: str, take_over: str) -> None:
    with open_history(url) as history:
        history.lookup(trigger, "warm")
        print("ready", flush=True)
        sys.stdin.readline()
        won = [n for n in range(int(rounds)) if history.claim(trigger, str(n), take_over=take_over == "take_over").claimed]
    print(json.dumps(won), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
