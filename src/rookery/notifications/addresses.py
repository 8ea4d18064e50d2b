"""Checks of the addresses of channels. No I/O: the egress guard checks where they lead."""

from __future__ import annotations

import base64
import re
from urllib.parse import urlsplit

from rookery.kernel.urls import MASK, MAX_URL_LENGTH, find_url_error, hide_secrets, is_host, make_mask
from rookery.notifications.messages import ChannelType
from rookery.notifications.ntfy_address import parse_ntfy_address

_MAX_EMAIL_LENGTH = 254
_MAX_LOCAL_PART_LENGTH = 64
_MAX_APPRISE_LENGTH = 2_048
_LOCAL_PART = re.compile(r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*")
_APPRISE_URL = re.compile(r"[a-z][a-z0-9+.-]{0,31}://[!-~]+")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_P256DH_BYTES = 65
_AUTH_BYTES = 16
_UNCOMPRESSED_POINT = 4

ADDRESS_FIELDS = {
    ChannelType.WEBHOOK: "url",
    ChannelType.NTFY: "url",
    ChannelType.APPRISE: "url",
    ChannelType.EMAIL: "address",
    ChannelType.WEBPUSH: "endpoint",
}
"""The field of a channel that holds its address, by type."""

WEB_TYPES = frozenset({ChannelType.WEBHOOK, ChannelType.NTFY, ChannelType.WEBPUSH})
"""The types whose address is a URL that Rookery connects to."""


def find_address_error(kind: ChannelType, address: str) -> str | None:
    """Return the error in an address, or None if its form is valid."""
    if kind is ChannelType.EMAIL:
        return _find_email_error(address)
    if kind is ChannelType.APPRISE:
        is_valid = len(address) <= _MAX_APPRISE_LENGTH and _APPRISE_URL.fullmatch(address) is not None
        return None if is_valid else "must be an Apprise URL, such as tgram://token/chat"
    if kind is not ChannelType.NTFY:
        return find_url_error(address)
    try:
        parse_ntfy_address(address)
    except ValueError as error:
        return str(error)
    return None if len(address) <= MAX_URL_LENGTH else f"must be at most {MAX_URL_LENGTH} characters"


def find_push_key_errors(p256dh: str, auth: str) -> dict[str, str]:
    """Return the errors in the keys of a push subscription, by name."""
    errors: dict[str, str] = {}
    point = _decode(p256dh)
    if point is None or len(point) != _P256DH_BYTES or point[0] != _UNCOMPRESSED_POINT:
        errors["p256dh"] = "must be an uncompressed P-256 public key in base64url, as PushSubscription.getKey('p256dh') has it"
    secret = _decode(auth)
    if secret is None or len(secret) != _AUTH_BYTES:
        errors["auth"] = "must be 16 bytes in base64url, as PushSubscription.getKey('auth') has them"
    return errors


def get_host(kind: ChannelType, address: str) -> str:
    """Return the host and port that receives the messages of a valid address; empty if Rookery does not connect to it itself."""
    return urlsplit(address).netloc.rpartition("@")[2].lower() if kind in WEB_TYPES else ""


def mask_address(kind: ChannelType, address: str) -> str:
    """Return an address for responses: without the tokens and logins that those of webhooks, ntfy and Apprise may contain."""
    if kind is ChannelType.WEBHOOK:
        return hide_secrets(address)
    if kind is ChannelType.APPRISE:
        return f"{address.partition('://')[0]}://{make_mask(address)}"
    login, at, rest = address.partition("://")[2].rpartition("@")
    return address if kind is not ChannelType.NTFY or not at or not login else f"{address.partition('://')[0]}://{MASK}@{rest}"


def _find_email_error(address: str) -> str | None:
    local, _, domain = address.rpartition("@")
    if len(address) > _MAX_EMAIL_LENGTH or len(local) > _MAX_LOCAL_PART_LENGTH:
        return f"must be at most {_MAX_EMAIL_LENGTH} characters, {_MAX_LOCAL_PART_LENGTH} of them before the @"
    if _LOCAL_PART.fullmatch(local) is None or "." not in domain or not is_host(domain.lower()):
        return "must be an e-mail address, such as kim@example.org; write other letters of its domain as xn--…"
    return None


def _decode(text: str) -> bytes | None:
    if _BASE64URL.fullmatch(text) is None:
        return None
    try:
        return base64.urlsafe_b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4))
    except ValueError:
        return None
