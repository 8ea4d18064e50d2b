"""The formats of imports and exports of subscribers: JSON Lines and CSV."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Literal, cast

from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.kernel.http import parse_json
from rookery.kernel.schema import parse_model
from rookery.notifications.models import ImportLine, SubscriberView
from rookery.notifications.schemas.csv_lines import MAX_LINE_BYTES, OWN_COLUMNS, format_csv, iter_csv, to_attribute_column, to_cells
from rookery.notifications.schemas.subscribers import ImportedSubscriberBody, serialize_subscriber

SubscriberFormat = Literal["jsonl", "csv"]
MEDIA_TYPES: Mapping[SubscriberFormat, str] = {"jsonl": "application/x-ndjson", "csv": "text/csv"}

_BATCH_SIZE = 500


def iter_batches(text_lines: Iterable[bytes], format: SubscriberFormat) -> Generator[list[ImportLine]]:
    """
    Yield the parsed lines of a file in batches. A bad line becomes an `ImportLine` with its errors.

    Args:
        text_lines: The lines as bytes, with or without their ends.
        format: CSV has a header; JSON Lines has one object per line.

    Raises:
        ValidationFailed: The file has no header, or an unusable one.
    """
    lines = iter_csv(text_lines) if format == "csv" else _iter_jsonl(text_lines)
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


def _parse_line(number: int, fields: Mapping[str, object]) -> ImportLine:
    try:
        return ImportLine(number=number, change=parse_model(ImportedSubscriberBody, fields))
    except ValidationFailed as error:
        return ImportLine(number=number, errors=error.field_errors)


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
        yield format_csv([[*OWN_COLUMNS, *map(to_attribute_column, attribute_names)]])
    async for batch in batches:
        if format == "csv":
            yield format_csv([to_cells(view, attribute_names) for view in batch])
        else:
            yield b"".join(serialize_subscriber(view, masked=False).model_dump_json().encode() + b"\n" for view in batch)


def list_attribute_names(batch: Iterable[SubscriberView]) -> set[str]:
    return {name for view in batch for name in view.subscriber.attributes}
