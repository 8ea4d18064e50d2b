"""The session cookie: the keys with which a browser is signed in, encrypted. Nothing is stored on the server (D-90)."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import cast

import orjson
from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.sealing import DecryptionFailed, SealContext, Sealer

COOKIE = "rookery_console"
MAX_KEYS = 8
"""Keys in one session. Browsers store at most 4,096 bytes of a cookie."""

_LIFETIME_S = 12 * 3600
_CONTEXT = SealContext(purpose="console session", workspace_id=0, id="cookie")


@dataclass(frozen=True, slots=True)
class SignedInKey:
    """A key of the session, with the names that the menu shows."""

    key: str = field(repr=False)
    name: str
    workspace: str


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

    def remove_active(self) -> ConsoleSession | None:
        """Return the session without its active key; None if there is no other."""
        others = self.keys[: self.active] + self.keys[self.active + 1 :]
        return replace(self, keys=others, active=0) if others else None


class SessionCookies:
    """Reads and writes the session cookie."""

    def __init__(self, db: Database, sealer: Sealer, clock: Clock) -> None:
        self._db = db
        self._sealer = sealer
        self._clock = clock

    def read(self, request: Request) -> ConsoleSession | None:
        """Return the session of *request*; None without a cookie, or if it has expired or cannot be decrypted."""
        text = request.cookies.get(COOKIE)
        if text is None:
            return None
        try:
            content = self._sealer.open(base64.urlsafe_b64decode(text.encode("ascii")), _CONTEXT)
        except (DecryptionFailed, binascii.Error, ValueError):
            return None
        fields = cast("Mapping[str, object]", orjson.loads(content))
        session = ConsoleSession(
            keys=tuple(SignedInKey(*values) for values in cast("list[tuple[str, str, str]]", fields["keys"])),
            active=cast("int", fields["active"]),
            expires_at_s=cast("int", fields["expires_at_s"]),
        )
        return session if self._now_s() < session.expires_at_s else None

    def add_key(self, session: ConsoleSession | None, key: SignedInKey) -> ConsoleSession:
        """Return a session that also has *key*, and uses it. The oldest of more than `MAX_KEYS` keys is removed."""
        others = () if session is None else tuple(entry for entry in session.keys if entry.key != key.key)
        keys = (*others, key)[-MAX_KEYS:]
        return ConsoleSession(keys, len(keys) - 1, self._now_s() + _LIFETIME_S)

    async def write(self, request: Request, response: Response, session: ConsoleSession) -> None:
        """
        Set the cookie. The response must be to a request one level below `/console/`.

        The cookie has no Path: the browser takes the folder of the URL, which a proxy in front may have given a prefix.
        """
        keys = [(entry.key, entry.name, entry.workspace) for entry in session.keys]
        content = orjson.dumps({"keys": keys, "active": session.active, "expires_at_s": session.expires_at_s})
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
