"""
Hash chain of audit entries: hashing and verification. No I/O, so that an exported file can be verified anywhere.

An entry is the JSON object that the API returns and the export contains. Its hash covers every field except `hash`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NoReturn, cast

GENESIS_HASH = hashlib.sha256(b"rookery audit").hexdigest()
"""The `previous` hash of the first entry of every chain."""

_ENTRY_FIELDS = frozenset("workspace_id seq at actor action subject before after previous hash".split())


def hash_entry(fields: Mapping[str, object]) -> str:
    """
    Return the SHA-256 of an entry as hexadecimal digits.

    The hashed text is the JSON of all fields except `hash`: names sorted, no spaces, only the necessary escapes, UTF-8.
    Any language can compute it from an export.

    Raises:
        ValueError: A text contains a lone surrogate, so it has no UTF-8 encoding.
    """
    hashed_fields = {name: value for name, value in fields.items() if name != "hash"}
    text = json.dumps(hashed_fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


@dataclass(slots=True, kw_only=True)
class ChainVerifier:
    """The state of verifying one chain: the number of entries verified, and the hash of the last one."""

    workspace_id: int
    entry_count: int = 0
    last_hash: str = GENESIS_HASH

    def add_entry(self, fields: Mapping[str, object]) -> str:
        """Verify the next entry; return the error, or an empty string. Do not add more entries after an error."""
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
    """A verifier of exported lines, which may mix several chains; each chain starts at its first entry."""

    def __init__(self, *, known_hashes: Collection[str] = ()) -> None:
        self._known_hashes = frozenset(known_hashes)
        self.chains: dict[int, ChainVerifier] = {}
        self.found_hashes: set[str] = {GENESIS_HASH} & self._known_hashes
        """The hashes of *known_hashes* that the lines contained so far."""

    def add_line(self, line: bytes) -> str:
        """Verify the next line, line end included; return the error, or an empty string. Do not add more lines after an error."""
        if not line.endswith(b"\n"):
            return "the line has no line end: the file is truncated"
        try:
            fields = cast(
                "object", json.loads(line.decode("utf-8"), object_pairs_hook=_reject_duplicate_names, parse_constant=_reject_constant)
            )
            if not isinstance(fields, dict):
                return "the line is not a JSON object"
            return self._add_entry(cast("dict[str, object]", fields))
        except (ValueError, RecursionError) as error:  # ValueError covers invalid UTF-8 and invalid JSON.
            return f"the line is invalid: {error}"

    def _add_entry(self, fields: Mapping[str, object]) -> str:
        if _ENTRY_FIELDS.symmetric_difference(fields):
            return "the line is not an audit entry: its fields differ"
        workspace_id = fields["workspace_id"]
        if not isinstance(workspace_id, int) or isinstance(workspace_id, bool):
            return "workspace_id is not an integer"
        chain = self.chains.setdefault(workspace_id, ChainVerifier(workspace_id=workspace_id))
        fault = chain.add_entry(fields)
        if fault:
            return f"workspace {workspace_id}: {fault}"
        if chain.last_hash in self._known_hashes:
            self.found_hashes.add(chain.last_hash)
        return ""


def _reject_duplicate_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Raise an error for a duplicate name, of which another JSON parser might take the other value."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        msg = "a name occurs twice in one object"
        raise ValueError(msg)
    return fields


def _reject_constant(name: str) -> NoReturn:
    msg = f"{name} is not valid JSON"
    raise ValueError(msg)
