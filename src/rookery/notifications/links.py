"""Signed links to the public pages: subscribing a browser, and unsubscribing. They need no key: the link itself is the right."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

import orjson

from rookery.access.models import Tenant
from rookery.kernel.clock import Clock, from_micros, to_micros
from rookery.kernel.errors import RookeryError
from rookery.notifications.models import SubscriberChannel

UNSUBSCRIBE_PATH, SUBSCRIBE_PATH = "/notify/unsubscribe", "/notify/subscribe"
MAX_TOKEN_CHARS = 500

_UNSUBSCRIBE, _SUBSCRIBE = "u", "s"


class LinkInvalid(RookeryError):
    """A link to a public page of notifications was changed, or is not one of this server."""

    status, code = 404, "link_invalid"

    def __init__(self, message: str = "This link is invalid. Open it exactly as you received it.") -> None:
        super().__init__(message)


class LinkExpired(LinkInvalid):
    """A link to a public page of notifications has expired, or its subscriber was deleted."""

    status, code = 410, "link_expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeGrant:
    """The right to add a browser to the channels of a subscriber."""

    workspace_id: int
    public_workspace_id: int
    subscriber_id: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeLink:
    """A link to the page on which a browser subscribes."""

    url: str
    expires_at: datetime


class PublicLinks:
    """
    Builds and verifies links.

    Args:
        get_key: Returns the key that signs them.
        base_url: The public address of the server. Without it (None), messages have no unsubscribe address.
        local_url: The address for links while there is no public one.
    """

    def __init__(self, get_key: Callable[[], Awaitable[bytes]], clock: Clock, *, base_url: str | None, local_url: str) -> None:
        self._get_key = get_key
        self._clock = clock
        self._base_url = base_url
        self._local_url = local_url

    async def build_unsubscribe_url(self, channel: SubscriberChannel) -> str | None:
        """Return the one-click address of a channel (RFC 8058). It does not expire; None: no public address leads to it."""
        if self._base_url is None:
            return None
        return f"{self._base_url}{UNSUBSCRIBE_PATH}/{await self._sign([_UNSUBSCRIBE, channel.id])}"

    async def build_subscribe_link(self, tenant: Tenant, subscriber_id: str, lifetime: timedelta) -> SubscribeLink:
        """Return a link for a subscriber of the tenant, which the caller has checked."""
        expires_at = self._clock() + lifetime
        content = [_SUBSCRIBE, tenant.workspace_id, tenant.public_workspace_id, subscriber_id, to_micros(expires_at)]
        url = f"{self._base_url or self._local_url}{SUBSCRIBE_PATH}/{await self._sign(content)}"
        return SubscribeLink(url=url, expires_at=expires_at)

    async def read_unsubscribe_token(self, token: str) -> str:
        """Return the id of the channel. Raises `LinkInvalid`."""
        _, channel_id = await self._verify(token, _UNSUBSCRIBE)
        return cast("str", channel_id)

    async def read_subscribe_token(self, token: str) -> SubscribeGrant:
        """Return the grant. Raises `LinkInvalid` or `LinkExpired`."""
        _, workspace_id, public_workspace_id, subscriber_id, expires_us = await self._verify(token, _SUBSCRIBE)
        expires_at = from_micros(cast("int", expires_us))
        if self._clock() >= expires_at:
            raise LinkExpired("This link has expired. Ask for a new one.")
        return SubscribeGrant(
            workspace_id=cast("int", workspace_id),
            public_workspace_id=cast("int", public_workspace_id),
            subscriber_id=cast("str", subscriber_id),
            expires_at=expires_at,
        )

    async def _sign(self, content: Sequence[object]) -> str:
        encoded = _encode(orjson.dumps(content))
        return f"{encoded}.{_encode(hmac.digest(await self._get_key(), encoded.encode(), 'sha256'))}"

    async def _verify(self, token: str, kind: str) -> list[object]:
        encoded, _, signature = token[:MAX_TOKEN_CHARS].partition(".")
        expected = _encode(hmac.digest(await self._get_key(), encoded.encode("utf-8", "replace"), "sha256"))
        if not hmac.compare_digest(signature.encode("utf-8", "replace"), expected.encode()):
            raise LinkInvalid
        content = cast("list[object]", orjson.loads(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))))
        if content[0] != kind:
            raise LinkInvalid
        return content


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
