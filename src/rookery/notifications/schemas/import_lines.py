"""The formats of imports and exports of subscribers: JSON Lines and CSV (D-70)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Literal, cast

import orjson

from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.kernel.http import parse_json
from rookery.kernel.placeholders import NAME_PATTERN
from rookery.kernel.schema import parse_model
from rookery.notifications.addresses import ADDRESS_FIELDS
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import ChannelStatus, ImportLine, SubscriberView
from rookery.notifications.schemas.subscribers import ImportedSubscriberBody, flatten_errors, serialize_subscriber

SubscriberFormat = Literal["jsonl", "csv"]
MEDIA_TYPES: Mapping[SubscriberFormat, str] = {"jsonl": "application/x-ndjson", "csv": "text/csv"}

MAX_LINE_BYTES = 64 * 1024
_BATCH_SIZE = 500
_SEPARATOR = ";"
_LIST_COLUMNS = {"webhook": ChannelType.WEBHOOK, "email": ChannelType.EMAIL, "ntfy": ChannelType.NTFY, "apprise": ChannelType.APPRISE}
_WEBPUSH_COLUMN = "webpush"
_OWN_COLUMNS = ("external_id", "locale", "tags", *_LIST_COLUMNS, _WEBPUSH_COLUMN)
_IGNORED_COLUMNS = frozenset({"id", "created_at", "updated_at"})
_ATTRIBUTE_NAME = re.compile(NAME_PATTERN)
_FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")
"""First characters that spreadsheets interpret as a formula (OWASP, CSV injection)."""


def iter_batches(text_lines: Iterable[bytes], format: SubscriberFormat) -> Generator[list[ImportLine]]:
    """
    Yield the parsed lines of a file in batches. A bad line becomes an `ImportLine` with its errors.

    Args:
        text_lines: The lines as bytes, with or without their ends.
        format: CSV has a header; JSON Lines has one object per line.

    Raises:
        ValidationFailed: The file has no header, or an unusable one.
    """
    lines = _iter_csv(text_lines) if format == "csv" else _iter_jsonl(text_lines)
    batch = list[ImportLine]()
    for line in lines:
        batch.append(line)
        if len(batch) == _BATCH_SIZE:
            yield batch
            batch = []
    if batch:
        yield batch


def _iter_jsonl(text_lines: Iterable[bytes]) -> Iterator[ImportLine]:
    for number, raw in enumerate(text_lines, 1):
        stripped = raw.strip().removeprefix(b"\xef\xbb\xbf") if number == 1 else raw.strip()
        if not stripped:
            continue
        if len(stripped) > MAX_LINE_BYTES:
            yield ImportLine(number=number, errors={"line": (f"must be at most {MAX_LINE_BYTES:,} bytes",)})
            continue
        try:
            value = parse_json(stripped)
        except RookeryError as error:
            yield ImportLine(number=number, errors={"line": (error.message.removeprefix("The body "),)})
            continue
        if isinstance(value, dict):
            yield _parse_line(number, cast("dict[str, object]", value))
        else:
            yield ImportLine(number=number, errors={"line": ('must be a JSON object, such as {"external_id": "user-42"}',)})


def _iter_csv(text_lines: Iterable[bytes]) -> Iterator[ImportLine]:
    bad = dict[int, str]()
    reader = csv.reader(_decode_lines(text_lines, bad), strict=True)
    header: list[str] | None = None
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            yield ImportLine(number=reader.line_num, errors={"line": (f"is not valid CSV: {error}",)})
            continue
        if row is None:
            break
        if header is None:
            header = _parse_header(row)
            continue
        if not any(row):
            continue
        yield _parse_row(reader.line_num, row, header, bad)
    if header is None:
        raise ValidationFailed({"body": ["must begin with a header line, such as external_id,email,tags,first_name"]})


def _decode_lines(text_lines: Iterable[bytes], bad: dict[int, str]) -> Iterator[str]:
    for number, raw in enumerate(text_lines, 1):
        text = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        try:
            decoded = text.decode("utf-8")
        except UnicodeDecodeError as error:
            bad[number] = f"is not UTF-8 (byte {error.start + 1})"
            decoded = text.decode("utf-8", "replace")
        if "\x00" in decoded:
            bad[number] = "must not contain the character NUL (U+0000)"
            decoded = decoded.replace("\x00", "")
        yield decoded


def _parse_header(row: Sequence[str]) -> list[str]:
    names = [name.strip() for name in row]
    errors = list[str]()
    if "external_id" not in names:
        errors.append("must have the column external_id")
    errors += [f"has the column {name!r} twice" for name in sorted(set(names)) if names.count(name) > 1]
    for name in names:
        if name not in _OWN_COLUMNS and name not in _IGNORED_COLUMNS and _ATTRIBUTE_NAME.fullmatch(name) is None:
            errors.append(f"has the column {name[:64]!r}; an attribute is a lower-case letter, then lower-case letters, digits and _")
    if errors:
        raise ValidationFailed({"header": errors})
    return names


def _parse_row(number: int, row: Sequence[str], header: Sequence[str], bad: Mapping[int, str]) -> ImportLine:
    if number in bad:
        return ImportLine(number=number, errors={"line": (bad[number],)})
    if len(row) != len(header):
        return ImportLine(number=number, errors={"line": (f"has {len(row)} cells, and the header has {len(header)}",)})
    cells = {name: _unescape(cell.strip()) for name, cell in zip(header, row, strict=True)}
    fields: dict[str, object] = {"external_id": cells["external_id"]}
    if "locale" in cells:
        fields["locale"] = cells["locale"] or None
    if "tags" in cells:
        fields["tags"] = _split(cells["tags"])
    columns = [name for name in (*_LIST_COLUMNS, _WEBPUSH_COLUMN) if name in cells]
    if columns:
        try:
            fields["channels"] = [channel for name in columns for channel in _parse_channels(name, cells[name])]
        except ValueError:
            return ImportLine(number=number, errors={_WEBPUSH_COLUMN: ("must be a JSON push subscription with endpoint and keys",)})
    attributes = [name for name in header if name not in _OWN_COLUMNS and name not in _IGNORED_COLUMNS]
    if attributes:
        fields["attributes"] = {name: cells[name] for name in attributes if cells[name]}
    return _parse_line(number, fields)


def _parse_channels(column: str, cell: str) -> list[dict[str, object]]:
    if column == _WEBPUSH_COLUMN:
        if not cell:
            return []
        value = orjson.loads(cell)
        subscription = cast("dict[str, object]", value) if isinstance(value, dict) else {}
        return [{"type": column, "endpoint": subscription.get("endpoint"), "keys": subscription.get("keys")}]
    return [{"type": column, ADDRESS_FIELDS[_LIST_COLUMNS[column]]: address} for address in _split(cell)]


def _parse_line(number: int, fields: Mapping[str, object]) -> ImportLine:
    try:
        return ImportLine(number=number, draft=parse_model(ImportedSubscriberBody, fields).to_model())
    except ValidationFailed as error:
        return ImportLine(number=number, errors=flatten_errors(error))


def _split(cell: str) -> list[str]:
    return [part.strip() for part in cell.split(_SEPARATOR) if part.strip()]


async def export_lines(
    batches: AsyncIterable[Sequence[SubscriberView]], format: SubscriberFormat, attribute_names: Sequence[str]
) -> AsyncGenerator[bytes]:
    """
    Yield an export in parts. An import of it restores the subscribers.

    CSV has only active channels and no statuses; JSON Lines has all. The file contains tokens and logins of addresses.

    Args:
        batches: The subscribers.
        format: The format.
        attribute_names: The attributes that CSV has as columns.
    """
    if format == "csv":
        yield _to_csv([[*_OWN_COLUMNS, *attribute_names]])
    async for batch in batches:
        if format == "csv":
            yield _to_csv([_to_cells(view, attribute_names) for view in batch])
        else:
            yield b"".join(serialize_subscriber(view, masked=False).model_dump_json().encode() + b"\n" for view in batch)


def list_attribute_names(batch: Iterable[SubscriberView]) -> set[str]:
    """Return the names of all attributes of subscribers."""
    return {name for view in batch for name in view.subscriber.attributes}


def _to_cells(view: SubscriberView, attribute_names: Sequence[str]) -> list[str]:
    active = [channel for channel in view.channels if channel.status is ChannelStatus.ACTIVE]
    lists = [_SEPARATOR.join(channel.address for channel in active if channel.type is kind) for kind in _LIST_COLUMNS.values()]
    push = next((channel for channel in active if channel.type is ChannelType.WEBPUSH), None)
    subscription = (
        "" if push is None else orjson.dumps({"endpoint": push.address, "keys": {"p256dh": push.p256dh, "auth": push.auth}}).decode()
    )
    subscriber = view.subscriber
    attributes = [str(subscriber.attributes.get(name, "")) for name in attribute_names]
    return [subscriber.external_id, subscriber.locale or "", _SEPARATOR.join(subscriber.tags), *lists, subscription, *attributes]


def _to_csv(rows: Iterable[Sequence[str]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer).writerows([_escape(cell) for cell in row] for row in rows)
    return buffer.getvalue().encode()


def _escape(cell: str) -> str:
    """Return a cell with an apostrophe before it if a spreadsheet would interpret it as a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA_PREFIXES) else cell


def _unescape(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA_PREFIXES) else cell
