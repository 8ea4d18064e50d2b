"""The session cookie: the keys with which a browser is signed in, encrypted. The server stores only which of them signed out."""

from __future__ import annotations

import base64
import binascii
import secrets
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from rookery.console.store import LIFETIME_S, SignOuts
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.sealing import DecryptionFailed, SealContext, Sealer

COOKIE = "rookery_console"
MAX_KEYS = 8
"""Keys in one session. Browsers store at most 4,096 bytes of a cookie."""

_CONTEXT = SealContext(purpose="console session", workspace_id=0, id="sign-ins")


@dataclass(frozen=True, slots=True)
class SignedInKey:
    """
    A key of the session, with the names that the menu shows.

    Attributes:
        sign_in_id: The random id of its sign-in, which all cookies with this key have.
    """

    key: str = field(repr=False)
    name: str
    workspace: str
    sign_in_id: str = field(default_factory=lambda: secrets.token_urlsafe(16))


@dataclass(frozen=True, slots=True)
class ConsoleSession:
    """
    The content of a session cookie.

    Attributes:
        keys: The keys, in the order of sign-in. There is at least one.
        active: The index of the key that the pages use.
        expires_at_s: Unix time at which the session ends.
    """

    keys: tuple[SignedInKey, ...]
    active: int
    expires_at_s: int

    @property
    def key(self) -> str:
        """The key that the pages use."""
        return self.keys[self.active].key

    def select(self, index: int) -> ConsoleSession:
        """Return the session with another active key; this session if *index* is out of range."""
        return replace(self, active=index) if 0 <= index < len(self.keys) else self

    def remove(self, sign_in_ids: Collection[str]) -> ConsoleSession | None:
        """Return the session without some of its keys; None if there is no other. Another key is active if the active one is removed."""
        others = tuple(entry for entry in self.keys if entry.sign_in_id not in sign_in_ids)
        active = self.keys[self.active]
        return replace(self, keys=others, active=others.index(active) if active in others else 0) if others else None


class SessionCookies:
    """Reads and writes the session cookie."""

    def __init__(self, db: Database, sealer: Sealer, clock: Clock, sign_outs: SignOuts) -> None:
        self._db = db
        self._sealer = sealer
        self._clock = clock
        self._sign_outs = sign_outs

    async def read(self, request: Request) -> ConsoleSession | None:
        """
        Return the session of *request* without the keys that have signed out.

        Return None without a cookie, if no key is left, or if the cookie has expired or cannot be decrypted.

        Raises:
            EngineUnavailable: The record store is down.
        """
        session = self._decrypt(request)
        if session is None:
            return None
        return session.remove(await self._sign_outs.list_ended([entry.sign_in_id for entry in session.keys]))

    async def sign_out(self, session: ConsoleSession) -> ConsoleSession | None:
        """
        End the sign-in of the active key. Return the session of the others; None if there is no other.

        Raises:
            EngineUnavailable: The record store is down.
        """
        sign_in_id = session.keys[session.active].sign_in_id
        await self._sign_outs.add(sign_in_id)
        return session.remove([sign_in_id])

    def _decrypt(self, request: Request) -> ConsoleSession | None:
        text = request.cookies.get(COOKIE)
        if text is None:
            return None
        try:
            content = self._sealer.open(base64.urlsafe_b64decode(text.encode("ascii")), _CONTEXT)
        except (DecryptionFailed, binascii.Error, ValueError):
            return None
        fields = cast("Mapping[str, object]", orjson.loads(content))
        session = ConsoleSession(
            keys=tuple(SignedInKey(*values) for values in cast("list[tuple[str, str, str, str]]", fields["sign_ins"])),
            active=cast("int", fields["active"]),
            expires_at_s=cast("int", fields["expires_at_s"]),
        )
        return session if self._now_s() < session.expires_at_s else None

    def add_key(self, session: ConsoleSession | None, key: SignedInKey) -> ConsoleSession:
        """Return a session that also has *key*, and uses it. The oldest of more than `MAX_KEYS` keys is removed."""
        signed_in = () if session is None else session.keys
        earlier = next((entry for entry in signed_in if entry.key == key.key), key)
        entry = replace(key, sign_in_id=earlier.sign_in_id)  # so that its sign-out ends earlier cookies too
        keys = (*(other for other in signed_in if other.key != key.key), entry)[-MAX_KEYS:]
        return ConsoleSession(keys, len(keys) - 1, self._now_s() + LIFETIME_S)

    async def write(self, request: Request, response: Response, session: ConsoleSession) -> None:
        """
        Set the cookie. The response must be to a request one level below `/console/`.

        The cookie has no Path: the browser takes the folder of the URL, which a proxy in front may have given a prefix.
        """
        sign_ins = [(entry.key, entry.name, entry.workspace, entry.sign_in_id) for entry in session.keys]
        content = orjson.dumps({"sign_ins": sign_ins, "active": session.active, "expires_at_s": session.expires_at_s})
        sealed = await self._db.write(lambda tx: self._sealer.seal(tx, content, _CONTEXT))
        value = base64.urlsafe_b64encode(sealed).decode("ascii")
        _set_cookie(request, response, value, max_age_s=session.expires_at_s - self._now_s())

    def delete(self, request: Request, response: Response) -> None:
        """Delete the cookie. The response must be to a request one level below `/console/`."""
        _set_cookie(request, response, "", max_age_s=0)

    def _now_s(self) -> int:
        return int(self._clock().timestamp())


def _set_cookie(request: Request, response: Response, value: str, *, max_age_s: int) -> None:
    is_secure = "https" in {request.url.scheme, request.headers.get("x-forwarded-proto", "").partition(",")[0].strip()}
    response.set_cookie(COOKIE, value, max_age=max_age_s, path=None, secure=is_secure, httponly=True, samesite="strict")
