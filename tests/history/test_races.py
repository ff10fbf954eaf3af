"""TR-38: of all who race for one claim, exactly one wins, among threads and among processes; so for an abandoned claim."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from jmsclient.history import State, open_history

PROGRAM = Path(__file__).with_name("race_program.py")
THREADS = 50
PROCESSES = 10
ROUNDS = 10


@pytest.mark.parametrize("take_over", [False, True], ids=["claim", "take_over"])
def test_tr38_of_fifty_threads_one_wins_each_time(shared_url: str, take_over: bool) -> None:
    trigger = uuid4().hex
    start = threading.Barrier(THREADS)
    with open_history(shared_url) as history, ThreadPoolExecutor(THREADS) as threads:
        if take_over:
            abandon(shared_url, trigger)

        def race(_: int) -> list[tuple[int, int]]:
            won = []
            for number in range(ROUNDS):
                start.wait(timeout=30)
                claimed = history.claim(trigger, str(number), take_over=take_over)
                if claimed.claimed:
                    won.append((number, claimed.attempt))
            return won

        wins = [pair for found in threads.map(race, range(THREADS)) for pair in found]
    assert sorted(wins) == [(number, 2 if take_over else 1) for number in range(ROUNDS)]


@pytest.mark.parametrize("take_over", [False, True], ids=["claim", "take_over"])
def test_tr38_of_ten_processes_one_wins_each_time(shared_url: str, take_over: bool) -> None:
    trigger = uuid4().hex
    if take_over:
        abandon(shared_url, trigger)
    command = [sys.executable, str(PROGRAM), shared_url, trigger, str(ROUNDS), "take_over" if take_over else "claim"]
    racers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)]
    try:
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        answers = [racer.communicate(timeout=60)[0] for racer in racers]
    finally:
        for racer in racers:
            racer.kill()
            racer.wait()
    wins = Counter(number for answer in answers for number in json.loads(answer))
    assert wins == Counter(range(ROUNDS))
    with open_history(shared_url) as history:
        entries = history.lookup_many(trigger, [(str(number), "JMSMessageID") for number in range(ROUNDS)])
    assert [entry.state for entry in entries if entry is not None] == [State.PROCESSING] * ROUNDS


def abandon(url: str, trigger: str) -> None:
    with open_history(url) as history:
        for number in range(ROUNDS):
            history.claim(trigger, str(number), lease=0.0)


@pytest.mark.parametrize("minutes", [-20, 20])
def test_tr43_a_clients_wrong_clock_changes_nothing(shared_url: str, minutes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    trigger = uuid4().hex
    real = time.time
    with open_history(shared_url) as right:
        right.claim(trigger, "alive", token="right", lease=60.0)
        right.claim(trigger, "over", token="right", lease=0.0)
        right.complete(trigger, "done", token="right", history_ttl=600.0)
        monkeypatch.setattr(time, "time", lambda: real() + minutes * 60)
        with open_history(shared_url) as wrong:
            assert not wrong.claim(trigger, "alive", take_over=True).claimed
            assert wrong.claim(trigger, "over", take_over=True, lease=60.0).claimed
            assert wrong.lookup(trigger, "done") is not None
            wrong.claim(trigger, "theirs", lease=60.0)
        monkeypatch.undo()
        theirs = right.claim(trigger, "theirs", take_over=True)
        assert not theirs.claimed
        assert theirs.entry is not None
        assert 50.0 < theirs.entry.lease_left <= 60.0
