"""
Signatures of webhooks and webhook notifications. No I/O, clock or settings.

Each request has two signatures (D-81): the platform's own over the raw body, which one line of openssl verifies, and the
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
        STANDARD_SIGNATURE_HEADER: " ".join(standard_signature(body, secret, event_id=event_id, timestamp=timestamp) for secret in secrets),
    }


def signature(body: bytes, secret: str) -> str:
    """Return `sha256=` and the HMAC-SHA256 of *body* in hexadecimal. The key is the whole secret, prefix included."""
    return "sha256=" + hmac.digest(secret.encode(), body, sha256).hex()


def standard_signature(body: bytes, secret: str, *, event_id: str, timestamp: str) -> str:
    """Return `v1,` and the HMAC-SHA256 of id, time and *body*, joined by dots, in base64."""
    covered = b".".join((event_id.encode(), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.digest(decode_standard_key(secret), covered, sha256)).decode()


def decode_standard_key(secret: str) -> bytes:
    """Return the key of a secret by the Standard Webhooks specification. A secret in another format is its own key."""
    if secret.startswith(SECRET_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except ValueError:  # Invalid base64.
            pass
    return secret.encode()
