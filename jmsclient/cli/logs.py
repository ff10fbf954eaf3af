"""How a program run from the command line logs: one line a record on stderr, for people or as JSON.

The library itself only speaks to `logging`; this is the one place that installs a handler. Never a body, never a secret: what is
logged is what `events.emit` was given.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from jmsclient.cli.printing import printable

LEVELS = ("debug", "info", "warning", "error", "critical")
FORMATS = ("text", "json")
_PREFIX = "jms_"  # events.emit puts it before each field, so that none can hide an attribute of LogRecord


class JsonFormatter(logging.Formatter):
    """A record as one JSON object: time, level, logger, message, the event's name and its fields, the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if hasattr(record, "event"):
            line["event"] = record.event
        for key, value in vars(record).items():
            if key.startswith(_PREFIX):
                line.setdefault(key.removeprefix(_PREFIX), value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class LineFormatter(logging.Formatter):
    """A record as one line: what it says has ids and texts of others in it, which must neither steer a terminal nor look like
    records of their own. A traceback follows as it is."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the name of logging's
        record.message = printable(record.message)
        return super().formatMessage(record)


def set_up_logging(level: str, form: str) -> None:
    """Send what this process logs from `level` on to stderr. Once, at the start of a command."""
    handler = logging.StreamHandler(sys.stderr)
    if form == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(LineFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler])
