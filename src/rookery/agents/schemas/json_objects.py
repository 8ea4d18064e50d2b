"""JSON objects of a caller's own, within bounds."""

from __future__ import annotations

from typing import Annotated

import orjson
from pydantic import AfterValidator, Field

MAX_STATE_BYTES = 256 * 1024
"""Of a checkpoint (D-62)."""

MAX_OBJECT_BYTES = 64 * 1024
"""Of a context, an event's data, a hand-off's refs."""

_BYTES_PER_KIB = 1024


def _require_size(max_bytes: int, value: dict[str, object]) -> dict[str, object]:
    size = len(orjson.dumps(value))
    if size > max_bytes:
        msg = f"takes {size:,} bytes as JSON; at most {max_bytes // _BYTES_PER_KIB} KiB are kept"
        raise ValueError(msg)
    return value


def _limit_object(value: dict[str, object]) -> dict[str, object]:
    return _require_size(MAX_OBJECT_BYTES, value)


def _limit_state(value: dict[str, object]) -> dict[str, object]:
    return _require_size(MAX_STATE_BYTES, value)


Object = Annotated[dict[str, object], AfterValidator(_limit_object), Field(description="Any JSON object, at most 64 KiB.")]
State = Annotated[
    dict[str, object],
    AfterValidator(_limit_state),
    Field(description="Of a checkpoint: whatever lets the work go on from there, at most 256 KiB."),
]
