"""Log lines: one event each, to standard error, never with a key in it."""

from __future__ import annotations

import logging
import re
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

_KEYS = re.compile(r"\b((?:sk_(?:live|test)|ak|whsec)_)[A-Za-z0-9+/=]{6,}")


def redact(text: str) -> str:
    """Return *text* with every key in it cut to its prefix."""
    return _KEYS.sub(r"\1…", text)


def configure(level: str, stream: TextIO) -> None:
    """
    Send every line of this process, libraries' too, to *stream*: for people on a terminal, else as JSON.

    Args:
        level: debug, info, warning or error.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _redacted,
    ]
    renderer: Processor = structlog.dev.ConsoleRenderer() if stream.isatty() else structlog.processors.JSONRenderer()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for noisy in ("httpx2", "httpcore2", "mcp", "alembic"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def _redacted(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    for name, value in event.items():
        if isinstance(value, str):
            event[name] = redact(value)
        elif not isinstance(value, (int, float, bool, type(None))):
            event[name] = redact(str(value)) if _KEYS.search(str(value)) else value
    return event
