"""Document histories: `open_history(url)` gives one by URL; the contract says what each promises."""

from jmsclient.history.contract import Claimed, DocumentHistory, HistoryTransaction, ParkedMessage, Sent
from jmsclient.history.entries import Alike, Claim, Complete, Decide, Entry, Join, Park, Release, Renew, Reply, State
from jmsclient.history.opening import open_history
from jmsclient.history.sql import SqlHistory

__all__ = [
    "Alike",
    "Claim",
    "Claimed",
    "Complete",
    "Decide",
    "DocumentHistory",
    "Entry",
    "Join",
    "HistoryTransaction",
    "Park",
    "ParkedMessage",
    "Release",
    "Renew",
    "Reply",
    "Sent",
    "SqlHistory",
    "State",
    "open_history",
]
