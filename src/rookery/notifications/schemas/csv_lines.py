"""Subscribers as CSV: the lines of imports, and the cells of exports."""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import orjson

from rookery.kernel.errors import ValidationFailed
from rookery.kernel.placeholders import NAME_PATTERN, to_text
from rookery.kernel.schema import parse_model
from rookery.kernel.sentences import format_count
from rookery.notifications.addresses import ADDRESS_FIELDS
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import RESERVED_NAMES, ChannelStatus, ImportColumns, ImportLine, SubscriberChannel, SubscriberView
from rookery.notifications.schemas.subscribers import ImportedSubscriberBody

MAX_LINE_BYTES = 64 * 1024
_SEPARATOR = ";"
_URL_SEPARATOR = re.compile(r";(?=\s*(?:[A-Za-z][A-Za-z0-9+.-]*://|$))")
"""A separator of URLs, which may contain semicolons."""

_LIST_COLUMNS = {"webhook": ChannelType.WEBHOOK, "email": ChannelType.EMAIL, "ntfy": ChannelType.NTFY, "apprise": ChannelType.APPRISE}
_WEBPUSH_COLUMN = "webpush"
_CHANNEL_COLUMNS = {**_LIST_COLUMNS, _WEBPUSH_COLUMN: ChannelType.WEBPUSH}
OWN_COLUMNS = ("external_id", "locale", "tags", *_CHANNEL_COLUMNS)
_IGNORED_COLUMNS = frozenset({"id", "created_at", "updated_at"})
_ATTRIBUTE_PREFIX = "attributes."
"""Begins the column of an attribute with the name of another column, such as `attributes.email`."""

_ATTRIBUTE_NAME = re.compile(NAME_PATTERN)
_CHANNEL_ERROR = re.compile(r"channels\.(\d+)(?:\..*)?")
_FORMULA = re.compile(r"'*[=+\-@\t\r\uff1d\uff0b\uff0d\uff20]")
"""A cell that spreadsheets interpret as a formula (OWASP, CSV injection), or one that was escaped."""


@dataclass(frozen=True, slots=True)
class _TextLine:
    """A line of the file; *fault*: why it cannot be used."""

    number: int
    text: str
    fault: str | None = None


@dataclass(slots=True)
class _CsvReader:
    """
    Reads records one by one. A record that is no valid CSV is only its first line.

    So a quote that is never closed does not take the lines after it along.
    """

    lines: Iterator[_TextLine]
    _pushed_back: deque[_TextLine] = field(default_factory=deque[_TextLine])

    def read_record(self, cell_count: int | None) -> tuple[int, list[str] | str] | None:
        """
        Return the number of the first line of a record with its cells or its error; None at the end.

        Args:
            cell_count: The cells that a record has to have; None: any number.
        """
        first = self._next_line()
        if first is None:
            return None
        record_lines = [first]
        try:
            cells = next(csv.reader(self._take_lines(record_lines), strict=True))
        except csv.Error as error:
            fault = "a quote is not closed, or is in the middle of a cell" if '"' in first.text else str(error)
            return self._reject(record_lines, f"is not valid CSV: {fault}")
        except StopIteration:
            return first.number, []
        fault_line = next((line for line in record_lines if line.fault is not None), None)
        if fault_line is not None:
            if len(record_lines) == 1 or cell_count is None or len(cells) == cell_count:
                return fault_line.number, fault_line.fault or ""
            return self._reject(record_lines, f"has {format_count(len(cells), 'cell')}, and the header has {cell_count}")
        if cell_count is not None and any(cells) and len(cells) != cell_count:
            return self._reject(record_lines, f"has {format_count(len(cells), 'cell')}, and the header has {cell_count}")
        return first.number, cells

    def _reject(self, record_lines: Sequence[_TextLine], error: str) -> tuple[int, str]:
        """Return the error of the first line, and read the others again."""
        self._pushed_back.extendleft(reversed(record_lines[1:]))
        return record_lines[0].number, record_lines[0].fault or error

    def _take_lines(self, record_lines: list[_TextLine]) -> Iterator[str]:
        """Yield the texts of *record_lines*, and of further lines, which are added to it, while the record is not too long."""
        yield record_lines[0].text
        size = len(record_lines[0].text)
        while size <= MAX_LINE_BYTES and (line := self._next_line()) is not None:
            record_lines.append(line)
            size += len(line.text)
            yield line.text

    def _next_line(self) -> _TextLine | None:
        return self._pushed_back.popleft() if self._pushed_back else next(self.lines, None)


def iter_csv(text_lines: Iterable[bytes]) -> Iterator[ImportLine]:
    """
    Yield the lines of a CSV file.

    A column changes only what it is about: a column of a channel replaces the active channels of its type, and a column of an attribute
    sets it, or removes it if the cell is empty.

    Raises:
        ValidationFailed: The file has no header, or an unusable one.
    """
    reader = _CsvReader(_decode_lines(text_lines))
    header = _read_header(reader)
    while (record := reader.read_record(len(header))) is not None:
        number, cells = record
        if isinstance(cells, str):
            yield ImportLine(number=number, errors={"line": (cells,)})
        elif any(cells):
            yield _parse_row(number, cells, header)


def format_csv(rows: Iterable[Sequence[str]]) -> bytes:
    """Return rows as CSV. A cell that a spreadsheet would interpret as a formula gets an apostrophe, which an import removes."""
    buffer = io.StringIO()
    csv.writer(buffer).writerows([f"'{cell}" if _FORMULA.match(cell) else cell for cell in row] for row in rows)
    return buffer.getvalue().encode()


def to_attribute_column(name: str) -> str:
    return f"{_ATTRIBUTE_PREFIX}{name}" if name in OWN_COLUMNS or name in _IGNORED_COLUMNS else name


def to_cells(view: SubscriberView, attribute_names: Sequence[str]) -> list[str]:
    """Return the cells of a subscriber. Only active channels are among them."""
    active = [channel for channel in view.channels if channel.status is ChannelStatus.ACTIVE]
    lists = [_SEPARATOR.join(channel.address for channel in active if channel.type is kind) for kind in _LIST_COLUMNS.values()]
    subscriptions = [_to_subscription(channel) for channel in active if channel.type is ChannelType.WEBPUSH]
    webpush = orjson.dumps(subscriptions[0] if len(subscriptions) == 1 else subscriptions).decode() if subscriptions else ""
    subscriber = view.subscriber
    attributes = [to_text(subscriber.attributes.get(name)) for name in attribute_names]
    return [subscriber.external_id, subscriber.locale or "", _SEPARATOR.join(subscriber.tags), *lists, webpush, *attributes]


def _decode_lines(text_lines: Iterable[bytes]) -> Iterator[_TextLine]:
    for number, raw in enumerate(text_lines, 1):
        text = raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
        fault = None if len(text) <= MAX_LINE_BYTES else f"must be at most {MAX_LINE_BYTES:,} bytes"
        try:
            decoded = text[:MAX_LINE_BYTES].decode("utf-8")
        except UnicodeDecodeError as error:
            fault = fault or f"is not UTF-8 (byte {error.start + 1})"
            decoded = text[:MAX_LINE_BYTES].decode("utf-8", "replace")
        if "\x00" in decoded:
            fault = fault or "must not contain the character NUL (U+0000)"
            decoded = decoded.replace("\x00", "")
        yield _TextLine(number, decoded, fault)


def _read_header(reader: _CsvReader) -> list[str]:
    record = reader.read_record(None)
    while record is not None and not isinstance(record[1], str) and not any(record[1]):
        record = reader.read_record(None)
    if record is None:
        raise ValidationFailed({"body": ["must begin with a header line, such as external_id,email,tags,first_name"]})
    if isinstance(record[1], str):
        raise ValidationFailed({"header": [record[1]]})
    names = [name.strip() for name in record[1]]
    if len(names) == 1 and any(separator in names[0] for separator in ";\t|"):
        raise ValidationFailed({"header": ["must be separated by commas; the header has one column " + repr(names[0][:100])]})
    errors = _find_column_errors(names)
    if errors:
        raise ValidationFailed({"header": errors})
    return names


def _find_column_errors(names: Sequence[str]) -> list[str]:
    """Return the errors of a header with the columns *names*."""
    errors = list[str]()
    if "external_id" not in names:
        errors.append("must have the column external_id")
    errors += [f"has the column {name!r} twice" for name in sorted(set(names)) if names.count(name) > 1]
    attributes = {name: attribute for name in names if (attribute := _find_attribute(name)) is not None}
    for name, attribute in attributes.items():
        if _ATTRIBUTE_NAME.fullmatch(attribute) is None:
            errors.append(f"has the column {name[:64]!r}; an attribute is a lower-case letter, then lower-case letters, digits and _")
        elif attribute in RESERVED_NAMES:
            errors.append(f"has the column {name!r}, but {attribute} is no attribute; write {attribute}")
        elif name != attribute and attribute in attributes:
            errors.append(f"has two columns of the attribute {attribute!r}: {attribute} and {name}")
    return errors


def _find_attribute(column: str) -> str | None:
    """Return the attribute of a column; None for another one."""
    is_other = column in OWN_COLUMNS or column in _IGNORED_COLUMNS
    return None if is_other else column.removeprefix(_ATTRIBUTE_PREFIX)


def _parse_row(number: int, row: Sequence[str], header: Sequence[str]) -> ImportLine:
    cells = {name: _unescape(cell.strip()) for name, cell in zip(header, row, strict=True)}
    fields: dict[str, object] = {"external_id": cells["external_id"]}
    if "locale" in cells:
        fields["locale"] = cells["locale"] or None
    if "tags" in cells:
        fields["tags"] = _split(cells["tags"])
    columns = [name for name in _CHANNEL_COLUMNS if name in cells]
    try:
        channels = [(name, channel) for name in columns for channel in _parse_channels(name, cells[name])]
    except ValueError:
        return ImportLine(number=number, errors={_WEBPUSH_COLUMN: ("must be a JSON push subscription with endpoint and keys, or a list",)})
    if columns:
        fields["channels"] = [channel for _, channel in channels]
    attributes = {attribute: cells[name] for name in header if (attribute := _find_attribute(name)) is not None}
    if attributes:
        fields["attributes"] = {name: cell for name, cell in attributes.items() if cell}
    try:
        change = parse_model(ImportedSubscriberBody, fields)
    except ValidationFailed as error:
        return ImportLine(number=number, errors=_name_columns(error.field_errors, [name for name, _ in channels]))
    types = frozenset(_CHANNEL_COLUMNS[name] for name in columns)
    return ImportLine(number=number, change=change, columns=ImportColumns(channel_types=types, attribute_names=frozenset(attributes)))


def _name_columns(errors: Mapping[str, tuple[str, ...]], columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return errors by the names of columns; *columns*: that of each channel."""
    by_column: dict[str, tuple[str, ...]] = {}
    for place, texts in errors.items():
        match = _CHANNEL_ERROR.fullmatch(place)
        column = place if match is None else columns[int(match[1])]
        own = "" if match is None else f"{ADDRESS_FIELDS[_CHANNEL_COLUMNS[column]]}: "
        by_column[column] = (*by_column.get(column, ()), *(text.removeprefix(own) for text in texts))
    return by_column


def _parse_channels(column: str, cell: str) -> list[dict[str, object]]:
    """Return the channels of a cell. Raises ValueError."""
    if column != _WEBPUSH_COLUMN:
        kind = _LIST_COLUMNS[column]
        addresses = _split(cell) if kind is ChannelType.EMAIL else _split_urls(cell)
        return [{"type": column, ADDRESS_FIELDS[kind]: address} for address in addresses]
    value: object = orjson.loads(cell) if cell else []
    subscriptions = cast("list[object]", value) if isinstance(value, list) else [value]
    return [_parse_subscription(subscription) for subscription in subscriptions]


def _parse_subscription(value: object) -> dict[str, object]:
    subscription = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    names = ("endpoint", "expirationTime", "keys")
    return {"type": _WEBPUSH_COLUMN, **{name: subscription.get(name) for name in names}}


def _to_subscription(channel: SubscriberChannel) -> dict[str, object]:
    return {"endpoint": channel.address, "keys": {"p256dh": channel.p256dh, "auth": channel.auth}}


def _split(cell: str) -> list[str]:
    return [part.strip() for part in cell.split(_SEPARATOR) if part.strip()]


def _split_urls(cell: str) -> list[str]:
    return [part.strip() for part in _URL_SEPARATOR.split(cell) if part.strip()]


def _unescape(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell
