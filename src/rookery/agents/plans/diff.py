"""What a change changed, as its event keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_MAX_SHORT_LENGTH = 200


def diff_fields(old: object, new: object, *fields: str) -> Mapping[str, object]:
    """Return those of *fields* in which the two differ: {from, to} of what is short, else `true`."""
    changed = dict[str, object]()
    for field in fields:
        before: object = getattr(old, field)
        after: object = getattr(new, field)
        if before != after:
            changed[field] = {"from": before, "to": after} if _is_short(before) and _is_short(after) else True
    return changed


def _is_short(value: object) -> bool:
    return value is None or isinstance(value, int) or (isinstance(value, str) and len(value) <= _MAX_SHORT_LENGTH)
