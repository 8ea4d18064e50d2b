"""
The ids of MCP client sessions. An id contains, encrypted, what a process needs to revive its session.

The encryption binds an id to its key and path, so for other keys and paths it does not exist. Only the sessions that their clients have
ended are stored, because their ids would otherwise still be valid.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from typing import NamedTuple, cast

import orjson

from rookery.kernel.clock import Clock, from_micros
from rookery.kernel.db import Database
from rookery.kernel.sealing import DecryptionFailed, SealContext, Sealer
from rookery.kernel.server_group import ServerGroup
from rookery.tools.models import JsonObject
from rookery.tools.store import mcp_sessions as store

_SESSION_ENDED: JsonObject = {
    "code": -32600,
    "message": "Session terminated",
    "data": {"error": "session_ended", "message": "The session does not exist or has ended. Open another one with `initialize`."},
}
SESSION_ENDED_BODY = orjson.dumps({"jsonrpc": "2.0", "id": None, "error": _SESSION_ENDED})
"""
The body of the 404 to a request in a session that has ended.

Some clients, such as Google ADK, open another session only after exactly this code and message, which SDKs of the protocol use.
"""

_LIFETIME = timedelta(days=90)
"""Time after its opening in which a session can be revived. As long as its process has it, a session has no such limit."""
_PURPOSE = "MCP client session"
_MAX_CONTENT_BYTES = 1024
"""Limit on the compressed content of an id. Proxies limit header lines, to 4 KiB at the least."""
_MAX_NAME_LENGTH = 200
_CORE_CAPABILITIES = frozenset({"elicitation", "roots", "sampling", "tasks"})
_SESSION_ID = re.compile(r"(?:([1-9][0-9]{0,3})-)?s([0-9A-Za-z_-]{70,4000})")

_MAX_IDS = 4
_MAX_ID_CHARS = 200
_NAME = re.compile(r"(?:^|[/._-])(?:session|thread|conversation)[_-]?id$", re.IGNORECASE)
"""`sessionId` and `threadId` of Codex, and the like in the keys of other clients."""


class SessionOwner(NamedTuple):
    """The key and the path that a session belongs to."""

    workspace_id: int
    key_id: str
    view: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHandshake:
    """The result of the handshake of a session: the protocol version, and the software and capabilities of the client."""

    protocol_version: str
    name: str
    version: str
    capabilities: JsonObject


class ClientSessionIds:
    """Issues and reads the ids of MCP client sessions. All processes on one record store accept each other's ids."""

    def __init__(self, db: Database, sealer: Sealer, group: ServerGroup, clock: Clock) -> None:
        self._db = db
        self._sealer = sealer
        self._group = group
        self._clock = clock

    async def issue(self, owner: SessionOwner, handshake: ClientHandshake) -> str:
        """Return the id of a new session of this process."""
        sealed = await self._sealer.seal_token(self._encode(handshake), _to_context(owner, self._group.mark_owner("")))
        return self._group.mark_owner("s" + base64.urlsafe_b64encode(sealed).rstrip(b"=").decode("ascii"))

    async def read(self, session_id: str, owner: SessionOwner) -> ClientHandshake | None:
        """Return the handshake of a session. None: the id is not of *owner*, has expired, or the client has ended the session."""
        content = self._open(session_id, owner)
        if content is None:
            return None
        handshake, expires_at_s = content
        if self._clock().timestamp() >= expires_at_s:
            return None
        digest = _compute_digest(session_id)
        return None if await self._db.lookup(lambda tx: store.is_ended(tx, digest)) else handshake

    async def end(self, session_id: str, owner: SessionOwner) -> None:
        """Store that the client has ended a session, so that no process revives it. No effect on ids that are not of *owner*."""
        content = self._open(session_id, owner)
        if content is None:
            return
        _, expires_at_s = content
        digest, expires_at = _compute_digest(session_id), from_micros(expires_at_s * 1_000_000)
        await self._db.write(lambda tx: store.insert_ended(tx, digest, workspace_id=owner.workspace_id, expires_at=expires_at))

    def _encode(self, handshake: ClientHandshake) -> bytes:
        expires_at_s = int((self._clock() + _LIFETIME).timestamp())
        head = [expires_at_s, handshake.protocol_version, handshake.name[:_MAX_NAME_LENGTH], handshake.version[:_MAX_NAME_LENGTH]]
        for capabilities in _iter_capabilities(handshake.capabilities):
            content = zlib.compress(orjson.dumps([*head, capabilities]))
            if len(content) <= _MAX_CONTENT_BYTES:
                return content
        return zlib.compress(orjson.dumps([*head, {}]))

    def _open(self, session_id: str, owner: SessionOwner) -> tuple[ClientHandshake, int] | None:
        match = _SESSION_ID.fullmatch(session_id)
        if match is None:
            return None
        mark, text = "" if match[1] is None else f"{match[1]}-", match[2].encode("ascii")
        try:
            sealed = base64.urlsafe_b64decode(text + b"=" * (-len(text) % 4))
            if base64.urlsafe_b64encode(sealed).rstrip(b"=") != text:  # another spelling of the same bytes would be another id
                return None
            content = self._sealer.open(sealed, _to_context(owner, mark))
        except (DecryptionFailed, binascii.Error):
            return None
        expires_at_s, protocol_version, name, version, capabilities = orjson.loads(zlib.decompress(content))
        return ClientHandshake(protocol_version=protocol_version, name=name, version=version, capabilities=capabilities), expires_at_s


def _to_context(owner: SessionOwner, mark: str) -> SealContext:
    """Return the context that an id is bound to; *mark* is the number of its process as in the id."""
    return SealContext(_PURPOSE, owner.workspace_id, f"{mark} {owner.key_id} {owner.view}")


def _compute_digest(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("ascii")).hexdigest()[:40]


def _iter_capabilities(capabilities: JsonObject) -> list[JsonObject]:
    """Return *capabilities*, then with less and less detail, because the length of an id is limited."""
    core = {name: value for name, value in capabilities.items() if name in _CORE_CAPABILITIES}
    extensions = capabilities.get("extensions")
    names: JsonObject = {name: {} for name in cast("JsonObject", extensions)} if isinstance(extensions, dict) else {}
    return [capabilities, {**core, "extensions": names}, core]


def list_client_sessions(meta: Mapping[str, object]) -> tuple[str, ...]:
    """Return the texts in the `_meta` of a message, or in an object in it, that may be the client's id of its session."""
    return tuple(dict.fromkeys(islice(_find_ids(meta), _MAX_IDS)))


def _find_ids(meta: Mapping[str, object]) -> Iterator[str]:
    nested = (cast("Mapping[str, object]", value) for value in meta.values() if isinstance(value, Mapping))
    for fields in (meta, *nested):
        for name, value in fields.items():
            if _NAME.search(name) and isinstance(value, str) and 0 < len(value) <= _MAX_ID_CHARS and value.isprintable():
                yield value
