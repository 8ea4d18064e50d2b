"""Field types for JSON objects with any fields and a limited size."""

from __future__ import annotations

from typing import Annotated

import orjson
from pydantic import AfterValidator, Field

MAX_STATE_BYTES = 256 * 1024
"""Maximum size of the state of a checkpoint as JSON, in bytes (D-62)."""

MAX_OBJECT_BYTES = 64 * 1024
"""Maximum size of a session context, the data of an event and the refs of a hand-off as JSON, in bytes."""

_BYTES_PER_KIB = 1024


def _require_size(max_bytes: int, value: dict[str, object]) -> dict[str, object]:
    size = len(orjson.dumps(value))
    if size > max_bytes:
        msg = f"must take at most {max_bytes // _BYTES_PER_KIB} KiB as JSON; it takes {size:,} bytes"
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
    Field(description="The state of a checkpoint, from which the work can continue: any JSON object, at most 256 KiB."),
]
