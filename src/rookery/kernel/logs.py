"""Log lines: one event each, to standard error, with the request they belong to, never with a key in them."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import threading
import traceback
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from rookery.kernel.redaction import redact
from rookery.kernel.request_context import CURRENT_REQUEST

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["LogFormat", "configure_logging", "log_uncaught_errors", "redact"]

LogFormat = Literal["auto", "json", "console"]
"""`auto`: for people on a terminal, else JSON."""

_NOISY_LOGGERS = ("httpx2", "httpcore2", "mcp", "alembic", "urllib3")
_PAYLOAD_LOGGERS = ("mcp.client",)
"""They log what upstreams answered, which is some workspace's; that it could not be read, the caller and our own lines are told."""

_MAX_DEPTH = 6
_MAX_ITEMS = 200
"""A line is for reading: what is nested deeper, or longer, is cut."""

_UNSAFE_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MULTILINE_FIELDS = frozenset({"exception", "stack"})

_log = structlog.stdlib.get_logger("rookery.process")


def configure_logging(level: str, stream: TextIO, *, log_format: LogFormat = "auto") -> None:
    """
    Send every line of this process, libraries' and warnings too, to *stream*.

    A key is cut out of the finished line, so that it does not matter how it came there: as a field, an argument, in an
    exception, in the repr of something.

    Args:
        level: debug, info, warning or error.
        stream: Standard error.
        log_format: How lines look.
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
    Log what would else be printed as it is: exceptions that nobody caught, in whichever thread, and warnings.

    What asyncio says of lost tasks is logged by itself. A crash of the interpreter prints places in files, and no values.
    """
    logging.captureWarnings(capture=True)
    sys.excepthook = _log_uncaught
    threading.excepthook = _log_uncaught_in_thread
    sys.unraisablehook = _log_unraisable


class _RedactingFormatter(structlog.stdlib.ProcessorFormatter):
    """Cuts keys out of each finished line."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _SafeHandler(logging.StreamHandler[TextIO]):
    """Says of a line that cannot be made where it comes from; logging's own handler prints its arguments as they are."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        with contextlib.suppress(Exception):
            why = redact("".join(traceback.format_exception(*sys.exc_info())))
            self.stream.write(f"A log line of {record.name} ({record.pathname}:{record.lineno}) could not be written.\n{why}")
            self.flush()


def _console_processors(stream: TextIO) -> list[Processor]:
    renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)
    return [_escape_line_breaks, renderer]


def _add_request_fields(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    serving = CURRENT_REQUEST.get()
    if serving is not None:
        for name, value in serving.log_fields().items():
            event.setdefault(name, value)
    return event


def _to_plain_values(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """
    Make every value one that JSON knows, whatever was given: a line that fails to be written helps nobody.

    Keys are cut out here too, for handlers beside ours, which see the event and not the line: a test's, an operator's.
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
        return {str(_redact_value(name, _MAX_DEPTH + 1)): _redact_value(each, depth + 1) for name, each in pairs}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_redact_value(each, depth + 1) for each in list(cast("Collection[object]", value))[:_MAX_ITEMS]]
    try:
        return redact(repr(value))
    except Exception as error:  # noqa: BLE001 - a repr may fail in any way
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


def _escape_line_breaks(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Escape what would begin a new line, or steer a terminal: a path may hold it, and so forge a line."""
    for name, value in event.items():
        if isinstance(value, str) and name not in _MULTILINE_FIELDS and _UNSAFE_CHARACTER.search(value) is not None:
            event[name] = _UNSAFE_CHARACTER.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), value)
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
    # The object's repr is not asked for: it is being destroyed, and its name is enough.
    if args.exc_value is not None:
        what = args.err_msg or "Exception ignored in"
        with contextlib.suppress(Exception):
            _log.error(
                "process.ignored", what=what, of=type(args.object).__name__, exc_info=(args.exc_type, args.exc_value, args.exc_traceback)
            )
