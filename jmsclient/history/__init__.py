"""Document histories: `open_history(url)` gives one by URL; the contract says what each promises."""

from jmsclient.history.contract import Claimed, DocumentHistory, ParkedMessage
from jmsclient.history.entries import Claim, Complete, Decide, Entry, Park, Release, Renew, Reply, State
from jmsclient.history.opening import open_history

__all__ = [
    "Claim",
    "Claimed",
    "Complete",
    "Decide",
    "DocumentHistory",
    "Entry",
    "Park",
    "ParkedMessage",
    "Release",
    "Renew",
    "Reply",
    "State",
    "open_history",
]
