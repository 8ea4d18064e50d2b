"""
Metadata of a memory: a JSON object from its author, and filtering by it. Pure functions.

A filter compares top-level values as text, so that `42` and `"42"` are equal: a query string has no types. The indexes store a label, a
digest of each key and value. Objects and lists are stored, but cannot be filtered by.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Literal, TypeVar, get_args

import orjson

MAX_BYTES = 16 * 1024
MAX_KEYS = 64
MAX_KEY_CHARS = 100
MAX_FILTER_VALUE_CHARS = 1_000
"""Maximum length of a text that can be filtered by. Longer texts are only stored."""

_DIGEST_BYTES = 12

Metadata = Mapping[str, object]
MetadataObject = TypeVar("MetadataObject", bound=Metadata)

ForeignId = Literal[
    "basic_memory_id",
    "claude_code_id",
    "graphiti_id",
    "langgraph_id",
    "letta_id",
    "mcp_memory_service_id",
    "mem0_id",
    "memori_id",
    "mempalace_id",
    "open_webui_id",
    "server_memory_id",
]
"""The key of the id that an imported memory had in its program."""

FOREIGN_IDS: frozenset[str] = frozenset(get_args(ForeignId))


def validate_metadata(metadata: MetadataObject) -> MetadataObject:
    """
    Return *metadata* if it is within the limits.

    Raises:
        ValueError: It has too many keys, an empty or too long key, or too many bytes.
    """
    if len(metadata) > MAX_KEYS:
        msg = f"may have at most {MAX_KEYS} keys, not {len(metadata)}"
        raise ValueError(msg)
    for key in metadata:
        if not 0 < len(key) <= MAX_KEY_CHARS:
            msg = f"each key must have 1 to {MAX_KEY_CHARS} characters, not {len(key)}"
            raise ValueError(msg)
    encoded = to_json(metadata)
    if len(encoded) > MAX_BYTES:
        msg = f"may have at most {MAX_BYTES:,} bytes as JSON, not {len(encoded):,}"
        raise ValueError(msg)
    if b"\\u0000" in encoded:
        msg = "must not contain the character NUL (U+0000)"
        raise ValueError(msg)
    return metadata


def to_json(metadata: Metadata) -> bytes:
    """
    Return *metadata* as JSON.

    Raises:
        ValueError: A value has no JSON form, such as an integer of more than 64 bits.
    """
    try:
        return orjson.dumps(metadata)
    except TypeError as error:
        raise ValueError(str(error)) from error


def to_filter_text(value: object) -> str | None:
    """Return the text by which *value* is compared. None if it cannot be filtered by."""
    if isinstance(value, str):
        return value if len(value) <= MAX_FILTER_VALUE_CHARS else None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if value is None or isinstance(value, bool | int | float):
        return orjson.dumps(value).decode() if not isinstance(value, int) or isinstance(value, bool) else str(value)
    return None


def build_label(key: str, text: str) -> str:
    """Return the label of one pair, as stored in the indexes: a digest of fixed length."""
    return blake2b(orjson.dumps((key, text)), digest_size=_DIGEST_BYTES).hexdigest()


def build_facet_label(field: str, value: str) -> str:
    """Return the label of a facet field. It differs from those of metadata, whose keys have no NUL."""
    return build_label(f"\0{field}", value)


def build_labels(metadata: Metadata, facets: Mapping[str, str | None]) -> frozenset[str]:
    """Return the labels of *facets* that are not None, and of all pairs of *metadata* that can be filtered by."""
    if not metadata and not facets:
        return frozenset()
    pairs = [build_label(key, text) for key, value in metadata.items() if (text := to_filter_text(value)) is not None]
    return frozenset([*pairs, *(build_facet_label(field, value) for field, value in facets.items() if value is not None)])
