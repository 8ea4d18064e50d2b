"""
What makes a chain of audit entries whole (D-29). Pure: no I/O, no store, so that an exported file can be checked anywhere.

An entry is its JSON object, as it is shown and exported; its hash covers all of it but the hash itself.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn, cast

GENESIS_HASH = hashlib.sha256(b"rookery audit").hexdigest()
"""What the first entry of every chain names as the one before."""

_ENTRY_FIELDS = frozenset("workspace_id seq at actor action subject before after previous hash".split())


def hash_entry(fields: Mapping[str, object]) -> str:
    """
    Return the SHA-256 of an entry, hexadecimal.

    Of its fields without `hash`, as JSON with sorted names, no spaces, nothing escaped that need not be, in UTF-8: so that
    anybody can compute it from an export with the tools of any language.

    Raises:
        ValueError: A text in it is no Unicode, so it has no UTF-8.
    """
    signed = {name: value for name, value in fields.items() if name != "hash"}
    text = json.dumps(signed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(slots=True, kw_only=True)
class ChainVerifier:
    """A chain as far as it was followed: how many entries, and the hash of the last of them."""

    workspace_id: int
    entry_count: int = 0
    last_hash: str = GENESIS_HASH

    def add_entry(self, fields: Mapping[str, object]) -> str:
        """Take the next entry; return what is wrong with it, or nothing. After that, nothing more is to be followed."""
        seq = self.entry_count + 1
        if fields["seq"] != seq:
            return f"entry {seq} is missing"
        if fields["previous"] != self.last_hash:
            return f"entry {seq} does not follow the one before it"
        if hash_entry(fields) != fields["hash"]:
            return f"entry {seq} was altered"
        self.entry_count, self.last_hash = seq, str(fields["hash"])
        return ""


class ExportVerifier:
    """Reads exported lines, of one chain or of several, from each chain's first entry on."""

    def __init__(self, *, known_hashes: Collection[str] = ()) -> None:
        self._known_hashes = frozenset(known_hashes)
        self.chains: dict[int, ChainVerifier] = {}
        self.found_hashes: set[str] = {GENESIS_HASH} & self._known_hashes
        """Those of the *known_hashes* hashes that were met."""

    def add_line(self, line: bytes) -> str:
        """Take the next line, its end included; return what is wrong with it, or nothing. After that, nothing more is to be read."""
        if not line.endswith(b"\n"):
            return "the line does not end: the file was cut short"
        try:
            fields = cast(
                "object", json.loads(line.decode("utf-8"), object_pairs_hook=_reject_duplicate_names, parse_constant=_reject_constant)
            )
            if not isinstance(fields, dict):
                return "the line is no JSON object"
            return self._add_entry(cast("dict[str, object]", fields))
        except (ValueError, RecursionError) as error:  # of UTF-8 and of JSON too
            return f"the line cannot be read: {error}"

    def _add_entry(self, fields: Mapping[str, object]) -> str:
        if _ENTRY_FIELDS.symmetric_difference(fields):
            return "the line is no audit entry: it has other fields"
        workspace_id = fields["workspace_id"]
        if not isinstance(workspace_id, int) or isinstance(workspace_id, bool):
            return "workspace_id is no whole number"
        chain = self.chains.setdefault(workspace_id, ChainVerifier(workspace_id=workspace_id))
        wrong = chain.add_entry(fields)
        if wrong:
            return f"workspace {workspace_id}: {wrong}"
        if chain.last_hash in self._known_hashes:
            self.found_hashes.add(chain.last_hash)
        return ""


def _reject_duplicate_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Refuse a name that is there twice: another reader would take the other value."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        msg = "a name is there twice"
        raise ValueError(msg)
    return fields


def _reject_constant(name: str) -> NoReturn:
    msg = f"{name} is no JSON"
    raise ValueError(msg)
