"""
How a delivery is signed. Pure: no I/O, no clock, no settings.

Two signatures go out side by side (D-81): the platform's own, over the raw body alone, which one line of openssl verifies; and
the three headers of the Standard Webhooks specification 1.0.0, whose signature covers the event's id and the time too, so that
a receiver can refuse a body that somebody sends again later.
"""

from __future__ import annotations

import base64
import hmac
from collections.abc import Sequence
from datetime import datetime
from hashlib import sha256

SECRET_PREFIX = "whsec_"  # noqa: S105 - its beginning alone
"""What a secret of ours begins with; the rest is its key in base64, as the Standard Webhooks specification writes secrets."""

SIGNATURE_HEADER = "X-Webhook-Signature"
ID_HEADER, TIMESTAMP_HEADER, STANDARD_SIGNATURE_HEADER = "webhook-id", "webhook-timestamp", "webhook-signature"


def sign(body: bytes, *, event_id: str, at: datetime, secrets: Sequence[str]) -> dict[str, str]:
    """
    Return the headers that prove *body* to be ours.

    Args:
        event_id: The same at each attempt: a receiver knows by it what it has had already.
        at: When this attempt is made.
        secrets: The newest first; while an earlier one is still good, both. The platform's own header has room for one signature:
            it is by the last of these, which every receiver still knows.
    """
    timestamp = str(int(at.timestamp()))
    return {
        SIGNATURE_HEADER: signature(body, secrets[-1]),
        ID_HEADER: event_id,
        TIMESTAMP_HEADER: timestamp,
        STANDARD_SIGNATURE_HEADER: " ".join(standard_signature(body, secret, event_id=event_id, timestamp=timestamp) for secret in secrets),
    }


def signature(body: bytes, secret: str) -> str:
    """Return `sha256=` and HMAC-SHA256 of *body* in hex; the key is the secret as it was shown, every character of it."""
    return "sha256=" + hmac.digest(secret.encode(), body, sha256).hex()


def standard_signature(body: bytes, secret: str, *, event_id: str, timestamp: str) -> str:
    """Return `v1,` and HMAC-SHA256 of id, time and *body*, with dots between them, in base64."""
    covered = b".".join((event_id.encode(), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.digest(decode_standard_key(secret), covered, sha256)).decode()


def decode_standard_key(secret: str) -> bytes:
    """Return the key that the Standard Webhooks specification makes of a secret; one that is not written in its way is its own bytes."""
    if secret.startswith(SECRET_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except ValueError:  # binascii.Error, or characters that base64 has not
            pass
    return secret.encode()
