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
from rookery.kernel.request import CURRENT

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

__all__ = ["Form", "configure", "redact", "watch_process"]

Form = Literal["auto", "json", "console"]
"""`auto`: for people on a terminal, else JSON."""

_NOISY = ("httpx2", "httpcore2", "mcp", "alembic", "urllib3")
_QUOTING = ("mcp.client",)
"""They log what upstreams answered, which is some workspace's; that it could not be read, the caller and our own lines are told."""

_DEEPEST = 6
_MOST = 200
"""A line is for reading: what is nested deeper, or longer, is cut."""

_NOT_PLAIN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MANY_LINES = frozenset({"exception", "stack"})

_log = structlog.stdlib.get_logger("rookery.process")


def configure(level: str, stream: TextIO, *, form: Form = "auto") -> None:
    """
    Send every line of this process, libraries' and warnings too, to *stream*.

    A key is cut out of the finished line, so that it does not matter how it came there: as a field, an argument, in an
    exception, in the repr of something.

    Args:
        level: debug, info, warning or error.
        stream: Standard error.
        form: How lines look.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        _of_request,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        _plain,
    ]
    is_for_people = stream.isatty() if form == "auto" else form == "console"
    handler = _Handler(stream)
    handler.setFormatter(
        _Formatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *(_for_people(stream) if is_for_people else _AS_JSON)],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    for noisy in _NOISY:
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    for quoting in _QUOTING:
        logging.getLogger(quoting).setLevel(logging.CRITICAL)
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def watch_process() -> None:
    """
    Log what would else be printed as it is: exceptions that nobody caught, in whichever thread, and warnings.

    What asyncio says of lost tasks is logged by itself. A crash of the interpreter prints places in files, and no values.
    """
    logging.captureWarnings(capture=True)
    sys.excepthook = _uncaught
    threading.excepthook = _uncaught_in_thread
    sys.unraisablehook = _unraisable


class _Formatter(structlog.stdlib.ProcessorFormatter):
    """Cuts keys out of each finished line."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _Handler(logging.StreamHandler[TextIO]):
    """Says of a line that cannot be made where it comes from; logging's own handler prints its arguments as they are."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        with contextlib.suppress(Exception):
            why = redact("".join(traceback.format_exception(*sys.exc_info())))
            self.stream.write(f"A log line of {record.name} ({record.pathname}:{record.lineno}) could not be written.\n{why}")
            self.flush()


def _for_people(stream: TextIO) -> list[Processor]:
    renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=structlog.dev.plain_traceback)
    return [_on_one_line, renderer]


def _of_request(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    serving = CURRENT.get()
    if serving is not None:
        for name, value in serving.ids().items():
            event.setdefault(name, value)
    return event


def _plain(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """
    Make every value one that JSON knows, whatever was given: a line that fails to be written helps nobody.

    Keys are cut out here too, for handlers beside ours, which see the event and not the line: a test's, an operator's.
    """
    return {name: value if name in _OF_STRUCTLOG else _told(value, 0) for name, value in event.items()}


_OF_STRUCTLOG = frozenset({"_record", "_from_structlog"})
_AS_JSON: list[Processor] = [structlog.processors.JSONRenderer()]


def _told(value: object, depth: int) -> object:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, (int, float, bool, type(None))):
        return value
    if isinstance(value, (bytes, bytearray)):
        return redact(bytes(value).decode("utf-8", "backslashreplace"))
    if depth > _DEEPEST and isinstance(value, (Mapping, list, tuple, set, frozenset)):
        return "…"
    if isinstance(value, Mapping):
        pairs = list(cast("Mapping[object, object]", value).items())[:_MOST]
        return {str(_told(name, _DEEPEST + 1)): _told(each, depth + 1) for name, each in pairs}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_told(each, depth + 1) for each in list(cast("Collection[object]", value))[:_MOST]]
    try:
        return redact(repr(value))
    except Exception as error:  # noqa: BLE001 - a repr may fail in any way
        return f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"


def _on_one_line(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Escape what would begin a new line, or steer a terminal: a path may hold it, and so forge a line."""
    for name, value in event.items():
        if isinstance(value, str) and name not in _MANY_LINES and _NOT_PLAIN.search(value) is not None:
            event[name] = _NOT_PLAIN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), value)
    return event


def _uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        return
    _log.critical("process.failed", exc_info=(kind, error, trace))


def _uncaught_in_thread(args: threading.ExceptHookArgs) -> None:
    if args.exc_value is not None and not issubclass(args.exc_type, SystemExit):
        name = args.thread.name if args.thread is not None else None
        _log.error("process.thread_failed", thread=name, exc_info=(args.exc_type, args.exc_value, args.exc_traceback))


def _unraisable(args: UnraisableHookArgs) -> None:
    # The object's repr is not asked for: it is being destroyed, and its name is enough.
    if args.exc_value is not None:
        what = args.err_msg or "Exception ignored in"
        with contextlib.suppress(Exception):
            _log.error(
                "process.ignored", what=what, of=type(args.object).__name__, exc_info=(args.exc_type, args.exc_value, args.exc_traceback)
            )
