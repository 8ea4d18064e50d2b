"""
Signatures of webhooks and webhook notifications. No I/O, clock or settings.

Each request has two signatures: the platform's own over the raw body, which one line of openssl verifies, and the
three headers of the Standard Webhooks specification 1.0.0. That signature also covers the event's id and the time, so a
receiver can reject a replayed body.
"""

from __future__ import annotations

import base64
import hmac
import os
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

from rookery.kernel.secret import Secret

SECRET_PREFIX = "whsec_"  # noqa: S105 - only the prefix
"""The prefix of generated secrets. The rest is the key in base64, as in the Standard Webhooks specification."""

SIGNATURE_HEADER = "X-Webhook-Signature"
ID_HEADER, TIMESTAMP_HEADER, STANDARD_SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"

_SECRET_LENGTH_BYTES = 32
_MIN_KEY_BYTES = 16


def generate_signing_secret() -> Secret:
    """Return a new random secret."""
    return Secret(SECRET_PREFIX + base64.b64encode(os.urandom(_SECRET_LENGTH_BYTES)).decode())


def sign(body: bytes, *, event_id: str, at: datetime, secrets: Sequence[str]) -> dict[str, str]:
    """
    Return the signature headers of *body*.

    Args:
        event_id: The same at each attempt, so that a receiver can recognise duplicates.
        at: The time of this attempt.
        secrets: The newest first; two during a grace period. The platform's own header has room for one signature, which
            uses the last secret, since every receiver still has that one.
    """
    timestamp = str(int(at.timestamp()))
    return {
        SIGNATURE_HEADER: signature(body, secrets[-1]),
        ID_HEADER: event_id,
        TIMESTAMP_HEADER: timestamp,
        STANDARD_SIGNATURE_HEADER: " ".join(
            signature for secret in secrets for signature in standard_signatures(body, secret, event_id=event_id, timestamp=timestamp)
        ),
    }


def signature(body: bytes, secret: str) -> str:
    """Return `sha256=` and the HMAC-SHA256 of *body* in hexadecimal. The key is the whole secret, prefix included."""
    return "sha256=" + hmac.digest(secret.encode(), body, sha256).hex()


def standard_signatures(body: bytes, secret: str, *, event_id: str, timestamp: str) -> list[str]:
    """Return `v1,` and the HMAC-SHA256 of id, time and *body*, joined by dots, in base64: one for each key that *secret* may stand for."""
    covered = b".".join((event_id.encode(), timestamp.encode(), body))
    return ["v1," + base64.b64encode(hmac.digest(key, covered, sha256)).decode() for key in list_standard_keys(secret)]


def list_standard_keys(secret: str) -> list[bytes]:
    """
    Return the keys that a secret may stand for by the Standard Webhooks specification. Receivers accept a signature of any of them.

    The libraries of the standard take a secret as base64, with or without `whsec_`. Rookery always took one without the prefix as text.
    So a text that is base64 too has both keys.
    """
    key = _decode_base64(secret)
    if secret.startswith(SECRET_PREFIX) and key is not None and secret.removeprefix(SECRET_PREFIX) == base64.b64encode(key).decode():
        return [key]
    return [secret.encode()] if key is None else [secret.encode(), key]


def find_secret_error(secret: str) -> str | None:
    """Return why no library of the standard can take a secret with the prefix; None if it can, or if it is plain text."""
    if not secret.startswith(SECRET_PREFIX) or len(_decode_base64(secret) or b"") >= _MIN_KEY_BYTES:
        return None
    return (
        f"after {SECRET_PREFIX}, must have at least {_MIN_KEY_BYTES} bytes in base64; leave out {SECRET_PREFIX} for a secret of plain text"
    )


def to_library_secret(secret: str) -> str:
    """Return the form of a secret that each library of the standard takes: `whsec_` and its key in padded base64."""
    return SECRET_PREFIX + base64.b64encode(list_standard_keys(secret)[-1]).decode()


def _decode_base64(secret: str) -> bytes | None:
    """Return the bytes of base64, padded or not, or None. Only after the prefix, it may have the alphabet of URLs."""
    text = secret.removeprefix(SECRET_PREFIX)
    if text != secret:
        text = text.replace("-", "+").replace("_", "/")
    digits = text.rstrip("=")
    if not digits or len(text) - len(digits) not in {0, -len(digits) % 4}:
        return None
    try:
        return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError:
        return None
