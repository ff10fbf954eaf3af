"""From a history URL to a history. Filled in with the stores."""

from __future__ import annotations

from jmsclient.history.contract import DocumentHistory


def open_history(url: str, *, namespace: str = "default") -> DocumentHistory:
    raise NotImplementedError
