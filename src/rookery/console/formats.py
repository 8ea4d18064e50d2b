"""Filters of the templates: times, numbers and sizes as people read them."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from markupsafe import Markup, escape

from rookery.kernel.clock import Clock
from rookery.kernel.money import format_money
from rookery.kernel.sentences import choose_noun

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_WEEK_S = 7 * _DAY_S
_KIB = 1024
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MARK_TAG = re.compile("(</?mark>)")
_MARK_TAGS = {"<mark>": Markup("<mark>"), "</mark>": Markup("</mark>")}
_STATE_COLORS = {
    **dict.fromkeys(("delivered", "sent", "succeeded", "active", "ok"), "good"),
    **dict.fromkeys(("failed", "missed", "invalid"), "bad"),
    **dict.fromkeys(("held", "paused", "unknown", "warning"), "warn"),
    **dict.fromkeys(("pending", "sending", "queued", "running", "scheduled"), "busy"),
}
_SECONDS_FROM_MS = 1_000
"""Durations from this many milliseconds are shown in seconds."""


def build_filters(clock: Clock) -> dict[str, Callable[..., object]]:
    """Return the filters by name. Relative times are relative to *clock*."""

    def ago(value: datetime | str | None) -> Markup:
        return Markup("–") if value is None else _render_time(_parse(value), clock())

    return {
        "ago": ago,
        "number": format_number,
        "quantity": format_quantity,
        "money": format_amount,
        "counted": format_counted,
        "code_marks": show_code_marks,
        "state": show_state,
        "short_id": shorten_id,
        "size": format_size,
        "duration": format_duration,
        "percent": format_percent,
        "json": to_json,
        "field_value": format_field_value,
        "highlighted": show_highlights,
        "pairs": to_options,
    }


def show_highlights(highlight: str) -> Markup:
    """Return a highlight of the API, which is HTML, with its `mark` elements. Everything else of it is escaped again."""
    return Markup("").join(_MARK_TAGS.get(part, escape(html.unescape(part))) for part in _MARK_TAG.split(highlight))


def to_options(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the options of a select whose values are what it shows."""
    return [(name, name) for name in names]


def format_number(value: float | None) -> str:
    """Return a number with thin spaces between thousands; `–` for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}".replace(",", "\u202f") if float(value).is_integer() else f"{value:,.2f}".replace(",", "\u202f")


def format_quantity(value: float | None) -> str:
    """Return a number that may be small, such as a cost, with at most four significant digits; `–` for None."""
    if value is None or float(value).is_integer():
        return format_number(value)
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}".replace(",", "\u202f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_amount(amount: float | None, currency: str | None) -> str:
    """Return an amount with its currency; `–` for None."""
    return "–" if amount is None else format_money(amount, currency or "", separator="\u202f").strip()


def format_counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 line`, `2 lines`."""
    return f"{format_number(count)} {choose_noun(count, noun, plural)}"


def show_code_marks(text: str) -> Markup:
    """Return *text* with `code` elements instead of backticks."""
    parts = text.split("`")
    return Markup("").join(Markup("<code>{}</code>").format(part) if index % 2 else escape(part) for index, part in enumerate(parts))


def show_state(name: str) -> Markup:
    """Return the name of a state in the colour of what it means."""
    return Markup('<span class="state {}">{}</span>').format(_STATE_COLORS.get(name, "off"), name.replace("_", " "))


def shorten_id(value: str) -> Markup:
    """Return the end of an id of the server, which sets it apart from others. Its title is the whole id. Other names stay as they are."""
    return Markup('<code title="{}">…{}</code>').format(value, value[-8:]) if _UUID.fullmatch(value) else escape(value)


def format_percent(value: float | None, digits: int = 1) -> str:
    """Return a share of 1 in percent; `–` for None."""
    return "–" if value is None else f"{value * 100:.{digits}f}\u202f%"


def format_size(count: float | None) -> str:
    """Return a number of bytes in B, KiB or MiB."""
    if count is None:
        return "–"
    if count < _KIB:
        return f"{count:.0f}\u202fB"
    return f"{count / _KIB:.1f}\u202fKiB" if count < _KIB * _KIB else f"{count / _KIB / _KIB:.1f}\u202fMiB"


def format_duration(milliseconds: float | None) -> str:
    """Return a duration in ms, s, min or h."""
    if milliseconds is None:
        return "–"
    seconds = milliseconds / 1000
    if milliseconds < _SECONDS_FROM_MS:
        return f"{milliseconds:.1f}\u202fms" if milliseconds < 100 else f"{milliseconds:.0f}\u202fms"
    if seconds < 2 * _MINUTE_S:
        return f"{seconds:.2f}\u202fs" if seconds < 10 else f"{seconds:.1f}\u202fs"
    return f"{seconds / _MINUTE_S:.0f}\u202fmin" if seconds < 2 * _HOUR_S else f"{seconds / _HOUR_S:.1f}\u202fh"


def to_json(value: object) -> str:
    """Return *value* as indented JSON. Models become objects."""
    return json.dumps(value, default=_to_plain, indent=2, ensure_ascii=False)


def format_field_value(value: object) -> str:
    """Return the value of a field on one line: a text as it is, any other value as JSON; `–` for None."""
    if value is None:
        return "–"
    return value if isinstance(value, str) else json.dumps(value, default=_to_plain, ensure_ascii=False)


def _to_plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)


def _parse(value: datetime | str) -> datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _render_time(moment: datetime, now: datetime) -> Markup:
    """Return a `time` element with the relative time. Its title is the exact time in UTC."""
    exact = moment.astimezone(UTC)
    text = _describe((now - moment).total_seconds(), exact)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(exact.isoformat(), f"{exact:%Y-%m-%d %H:%M:%S} UTC", escape(text))


def _describe(seconds: float, exact: datetime) -> str:
    elapsed = abs(seconds)
    if elapsed < 5:
        return "now"
    if elapsed >= 4 * _WEEK_S:
        return f"{exact:%Y-%m-%d}"
    units = ((_WEEK_S, "w"), (_DAY_S, "d"), (_HOUR_S, "h"), (_MINUTE_S, "min"), (1, "s"))
    size, name = next((size, name) for size, name in units if elapsed >= size)
    amount = f"{elapsed // size:.0f}\u202f{name}"
    return f"{amount} ago" if seconds > 0 else f"in {amount}"
