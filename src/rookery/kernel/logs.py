"""
Logging: one event per line to standard error, with the request that it belongs to, and without keys.

`LimitedWarning` and `FailureLog` limit lines that repeat.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from rookery.kernel.errors import RookeryError
from rookery.kernel.request_context import CURRENT_REQUEST
from rookery.kernel.safe_texts import escape_control_characters, redact

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["FailureLog", "LimitedWarning", "LogFormat", "configure_logging", "log_uncaught_errors", "redact"]

LogFormat = Literal["auto", "json", "console"]
"""The format of log lines. `auto`: console on a terminal, else JSON."""

_NOISY_LOGGERS = ("httpx2", "httpcore2", "mcp", "alembic", "urllib3", "faiss")
_PAYLOAD_LOGGERS = ("mcp.client",)
"""Loggers of libraries that log payloads of tool servers, which belong to a workspace. Callers and Rookery's own lines get the errors."""

_MAX_DEPTH = 6
_MAX_ITEMS = 200
"""Maximum nesting levels and items of a value in a log line. The rest is cut."""

_MULTILINE_FIELDS = frozenset({"exception", "stack"})

_LOG_INTERVAL_S = 60.0
_DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_log = structlog.stdlib.get_logger("rookery.process")


def configure_logging(level: str, stream: TextIO, *, log_format: LogFormat = "auto") -> None:
    """
    Send all log lines of this process, including those of libraries and warnings, to *stream*.

    Keys are removed from the finished line, wherever they come from: a field, an argument, an exception or the repr of an object.

    Args:
        level: debug, info, warning or error.
        stream: Standard error.
        log_format: The format of the lines.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _add_request_fields,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        _to_plain_values,
    ]
    is_for_people = stream.isatty() if log_format == "auto" else log_format == "console"
    handler = _SafeHandler(stream)
    handler.setFormatter(
        _RedactingFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *(_console_processors(stream) if is_for_people else _JSON_PROCESSORS),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for noisy in _NOISY_LOGGERS:
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    for quoting in _PAYLOAD_LOGGERS:
        logging.getLogger(quoting).setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def log_uncaught_errors() -> None:
    """
    Log warnings, and uncaught exceptions of all threads, so that keys are removed from them.

    asyncio logs errors of lost tasks itself. A crash of the interpreter prints only file positions and no values.
    """
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    sys.unraisablehook = _log_unraisable


class LimitedWarning:
    """
    A warning that is logged at most once per minute, with the number of those left out.

    Args:
        log: The logger.
        event: The name of the event.
        monotonic: Seconds of a clock that never goes back; tests pass their own.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, event: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._event = event
        self._monotonic = monotonic
        self._last_s = float("-inf")
        self._suppressed_count = 0

    def warn(self, **fields: object) -> None:
        """Log the warning with *fields*, or only count it."""
        now_s = self._monotonic()
        if now_s - self._last_s < _LOG_INTERVAL_S:
            self._suppressed_count += 1
            return
        repeated = {"repeated": self._suppressed_count} if self._suppressed_count else {}
        self._last_s, self._suppressed_count = now_s, 0
        self._log.warning(self._event, **fields, **repeated)


class FailureLog:
    """
    A log of the failures of work that is retried.

    An outage (a `RookeryError`, or a full disk) is logged at most once per minute and without a traceback. Any other exception is a bug and
    is always logged with its traceback.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, event: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._event = event
        self._outages = LimitedWarning(log, event, monotonic=monotonic)

    def report(self, error: BaseException, **fields: object) -> None:
        if isinstance(error, RookeryError):
            self._outages.warn(**fields, reason=error.message)
        elif isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS:
            self._outages.warn(**fields, reason=str(error))
        else:
            self._log.error(self._event, **fields, exc_info=error)


class _RedactingFormatter(structlog.stdlib.ProcessorFormatter):
    """A formatter that removes keys from each finished line."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _SafeHandler(logging.StreamHandler[TextIO]):
    """A handler that reports a line it cannot format without its arguments. The default handler prints them unredacted."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        with contextlib.suppress(Exception):
            trace = redact("".join(traceback.format_exception(*sys.exc_info())))
            self.stream.write(f"A log line of {record.name} ({record.pathname}:{record.lineno}) could not be written.\n{trace}")
            self.flush()


def _console_processors(stream: TextIO) -> list[Processor]:
    renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)
    return [_escape_line_breaks, renderer]


def _add_request_fields(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    context = CURRENT_REQUEST.get()
    if context is not None:
        for name, value in context.log_fields().items():
            event.setdefault(name, value)
    return event


def _to_plain_values(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """
    Convert every value to a JSON value, so that no line fails to be written.

    Keys are also removed here, for other handlers that receive the event and not the line, such as those of tests.
    """
    return {name: value if name in _STRUCTLOG_FIELDS else _redact_value(value, 0) for name, value in event.items()}


_STRUCTLOG_FIELDS = frozenset({"_record", "_from_structlog"})
_JSON_PROCESSORS: list[Processor] = [structlog.processors.JSONRenderer()]


def _redact_value(value: object, depth: int) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, (int, float, bool, type(None))):
        return value
    if isinstance(value, (bytes, bytearray)):
        return redact(bytes(value).decode("utf-8", "backslashreplace"))
    if depth > _MAX_DEPTH and isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return "…"
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[object, object]", value).items())[:_MAX_ITEMS]
        return {str(_redact_value(name, _MAX_DEPTH + 1)): _redact_value(item, depth + 1) for name, item in pairs}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_redact_value(item, depth + 1) for item in list(cast("Collection[object]", value))[:_MAX_ITEMS]]
    try:
        return redact(repr(value))
    except Exception as error:  # noqa: BLE001 - a repr may fail in any way
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


def _escape_line_breaks(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Escape line breaks and control characters, so that a value such as a path cannot forge a line or control a terminal."""
    for name, value in event.items():
        if isinstance(value, str) and name not in _MULTILINE_FIELDS:
            event[name] = escape_control_characters(value)
    return event


def _log_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    _log.critical("process.failed", exc_info=(kind, error, trace))


def _log_uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        name = args.thread.name if args.thread is not None else None
        _log.error("process.thread_failed", thread=name, exc_info=(args.exc_type, args.exc_value, args.exc_traceback))


def _log_unraisable(args: UnraisableHookArgs) -> None:
    # The repr of the object is not logged, because the object is being destroyed. Its type is enough.
    if args.exc_value is not None:
        message = args.err_msg or "Exception ignored in"
        with contextlib.suppress(Exception):
            _log.error(
                "process.ignored", what=message, of=type(args.object).__name__, exc_info=(args.exc_type, args.exc_value, args.exc_traceback)
            )
