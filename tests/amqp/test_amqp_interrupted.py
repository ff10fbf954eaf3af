"""A signal handler raises while a send waits for credit: it is left at once, and what was not sent is not sent later. O07, IF-4."""

from __future__ import annotations

import math
import time

import pytest

import jmsclient

from ..lightning import GUARDED, lightning  # noqa: TID252  tests are no package that has a name
from .peer import TRANSFER, Link, Peer, grant

pytest.importorskip("jmsclient_amqp.transport", reason="python-qpid-proton is not installed", exc_type=ImportError)
pytestmark = GUARDED


def sending_link(peer: Peer) -> Link:
    found: Link = peer.last.wait_for(
        lambda: next((link for link in peer.last.links.values() if not link.receives), None), "no sender was attached"
    )
    return found


@pytest.mark.parametrize("many", [False, True], ids=["send", "send_many"])
def test_o07_a_send_that_waits_without_a_limit_stays_interruptible(peer: Peer, many: bool) -> None:
    peer.credit = 0
    with jmsclient.connect(peer.url, request_timeout=60.0) as connection:
        producer = connection.create_session().create_producer("q", send_timeout=math.inf)
        with lightning(0.2, 0.4) as storm:
            start = time.monotonic()
            assert storm.hits(lambda: producer.send_many(["a", "b"]) if many else producer.send("a"))
            assert time.monotonic() - start < 20.0, "it was left when the signal came"
        connection.create_session()  # so the I/O thread has come to what it was told before
        grant(peer.last, sending_link(peer), 5)
        producer.send("later")
        assert len(peer.last.heard(TRANSFER)) == 1, "what was not on its way then never goes"
        assert b"later" in peer.last.heard(TRANSFER)[0].payload
