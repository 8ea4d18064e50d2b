"""Verification of webhook deliveries, and their events."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol, cast

from rookery_client.client_errors import WebhookRejected

TOLERANCE = timedelta(minutes=5)
"""Maximum difference between the time of a delivery and the clock; the default of Standard Webhooks' own libraries."""

PLAIN = "X-Webhook-Signature"
_PLAIN_PREFIX = "sha256="
_STANDARD = ("webhook-id", "webhook-timestamp", "webhook-signature")
_STANDARD_PREFIX = "v1,"
_BASE64_PREFIX = "whsec_"
_MAX_SIGNATURES = 16
"""Maximum number of signatures. A rotation has two; each further one costs a comparison."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_TIMESTAMP_S = 100_000_000_000
"""The year 5138, which a datetime can hold."""

NOTIFICATION = "notification"
"""The type of the messages that subscribers get. Their `data` has title, body and URL."""

_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


class Headers(Protocol):
    """Headers of a request, as a dict, `http.server`, Starlette, Flask, Django and aiohttp have them. Names may have any case."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return the name and value of each header."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """
    The event of a delivery, or the notification of a campaign, whose type is `notification`.

    Attributes:
        id: Identifier that stays the same in every attempt, resend and endpoint. Use it to skip events that you have handled.
        type: Name of the event, such as `memory.stored`. `GET /api/v1/events` lists all.
        created_at: Time of the change. Attempts may arrive much later and in a different order.
        data: The resource, as its GET route returns it. Of a notification: `title`, `body`, `url`, `campaign_id` and others.
    """

    id: str
    type: str
    created_at: datetime
    workspace_id: int
    data: Mapping[str, object]

    @classmethod
    def of(cls, body: bytes | str, *, sent_at: datetime | None = None) -> WebhookEvent:
        """
        Return the event of a verified body.

        Args:
            body: The body.
            sent_at: The time of a message without one of its own, such as the test of a campaign that was not sent. Default: now.

        Raises:
            WebhookRejected: The body is not an event.
        """
        try:
            event = cast("Mapping[str, object]", json.loads(body))
            if event["type"] == NOTIFICATION and "data" not in event:
                event = _wrap_notification(event, sent_at)
            return cls(
                id=str(event["id"]),
                type=str(event["type"]),
                created_at=datetime.fromisoformat(str(event["created_at"])),
                workspace_id=int(cast("int", event["workspace_id"])),
                data=dict(cast("Mapping[str, object]", event["data"])),
            )
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise WebhookRejected("bad_body", "The body is not an event of Rookery.") from None


def _wrap_notification(message: Mapping[str, object], sent_at: datetime | None) -> dict[str, object]:
    """Return a notification in the form of an event: what it says is its data."""
    own = {"id": message["id"], "type": NOTIFICATION}
    own["created_at"] = message.get("created_at") or (sent_at or datetime.now(UTC)).isoformat()
    own["workspace_id"] = message["workspace_id"]
    return {**own, "data": {name: value for name, value in message.items() if name not in own}}


def verify_webhook(
    body: bytes | str,
    signed: Headers | str,
    secret: str | Sequence[str],
    *,
    tolerance: timedelta | None = TOLERANCE,
    now: datetime | None = None,
) -> WebhookEvent:
    """
    Verify the signature of a delivery and return its event. It also takes the notifications of campaigns.

    Signatures are compared in constant time.

    Args:
        body: The body exactly as received. Parsed and serialised JSON has different bytes and fails.
        signed: All headers of the request: the headers of Standard Webhooks are verified, including the time. Or only the value of
            `X-Webhook-Signature`, which does not include the time, so a recorded delivery could be replayed.
        secret: The endpoint's secret. During a rotation, several secrets, of which any may match.
        tolerance: Maximum difference between the delivery's time and *now*. None accepts any time, and headers with only
            `X-Webhook-Signature`.
        now: The current time, if it is not the clock's.

    Raises:
        WebhookRejected: The delivery must not be trusted; answer 401.
        ValueError: *secret* is missing or empty.
    """
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
    secrets = [secret] if isinstance(secret, str) else list(secret)
    if not secrets or not all(secrets):
        msg = "the secret is missing or empty; set the secret of the endpoint"
        raise ValueError(msg)
    keys = [key for value in secrets for key in _standard_keys(value)]
    sent_at = None
    if isinstance(signed, str):
        _verify_plain(raw, signed, secrets)
    else:
        headers = _select_headers(signed)
        if tolerance is None and _STANDARD[2] not in headers and PLAIN.lower() in headers:
            _verify_plain(raw, headers[PLAIN.lower()], secrets)
        else:
            _verify_standard(raw, headers, keys)
            _verify_time(headers[_STANDARD[1]], tolerance, now or datetime.now(UTC))
            sent_at = _EPOCH + timedelta(seconds=min(int(headers[_STANDARD[1]]), _MAX_TIMESTAMP_S))
    return WebhookEvent.of(raw, sent_at=sent_at)


def _verify_plain(raw: bytes, signature: str, secrets: Sequence[str]) -> None:
    """Verify `X-Webhook-Signature`. Its key is the secret's text itself, so one line of openssl can check it."""
    if not signature.strip():
        raise WebhookRejected("no_signature", f"The header {PLAIN} is missing or empty.")
    prefix, digest = signature.strip()[: len(_PLAIN_PREFIX)], signature.strip()[len(_PLAIN_PREFIX) :]
    if prefix.lower() != _PLAIN_PREFIX:
        raise WebhookRejected("bad_signature", f"The header {PLAIN} does not have the form {_PLAIN_PREFIX}HEX.")
    expected = [hmac.new(value.encode(), raw, hashlib.sha256).hexdigest() for value in secrets]
    _verify_signature([digest.lower()], expected)


def _verify_standard(raw: bytes, headers: Mapping[str, str], keys: Sequence[bytes]) -> None:
    id_, sent_at, signatures = (headers.get(name, "") for name in _STANDARD)
    if not signatures:
        raise WebhookRejected("no_signature", f"The header {_STANDARD[2]} is missing or empty; pass all headers of the request.")
    if not id_:
        raise WebhookRejected("no_signature", f"The header {_STANDARD[0]} is missing or empty; it is part of the signature.")
    if not sent_at:
        raise WebhookRejected("no_timestamp", f"The header {_STANDARD[1]} is missing or empty.")
    if not _SECONDS.fullmatch(sent_at):
        raise WebhookRejected("bad_timestamp", f"The header {_STANDARD[1]} is not a number of seconds since 1970.")
    received = [value.removeprefix(_STANDARD_PREFIX) for value in signatures.split(" ") if value.startswith(_STANDARD_PREFIX)]
    if not received:
        raise WebhookRejected("bad_signature", f"The header {_STANDARD[2]} has no signature of the form {_STANDARD_PREFIX}BASE64.")
    if len(received) > _MAX_SIGNATURES:
        raise WebhookRejected("bad_signature", f"The header {_STANDARD[2]} has more than {_MAX_SIGNATURES} signatures.")
    content = f"{id_}.{sent_at}.".encode("utf-8", "surrogatepass") + raw
    _verify_signature(received, [base64.b64encode(hmac.digest(key, content, "sha256")).decode() for key in keys])


def _verify_signature(received: Sequence[str], expected: Sequence[str]) -> None:
    """Compare all pairs, so that the duration does not depend on which one matches."""
    pairs = [(signature.encode("utf-8", "surrogatepass"), candidate.encode()) for signature in received for candidate in expected]
    if not sum(hmac.compare_digest(signature, candidate) for signature, candidate in pairs):
        raise WebhookRejected(
            "wrong_signature", "No signature matches. Pass the body exactly as received, and the secret of this endpoint."
        )


def _verify_time(sent_at: str, tolerance: timedelta | None, now: datetime) -> None:
    if tolerance is None:
        return
    late_s, allowed_s = now.timestamp() - int(sent_at), tolerance.total_seconds()
    if late_s > allowed_s:
        raise WebhookRejected(
            "too_old",
            f"The delivery was sent {late_s:,.0f} s ago; at most {allowed_s:,.0f} s are allowed. It was replayed, or a clock is wrong.",
        )
    if -late_s > allowed_s:
        raise WebhookRejected("too_new", f"The delivery was sent {-late_s:,.0f} s in the future: a clock is wrong.")


def _select_headers(headers: Headers) -> dict[str, str]:
    """Return the relevant headers by lower-case name. A repeated header is rejected as ambiguous."""
    selected: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower in {*_STANDARD, PLAIN.lower()}:
            if lower in selected:
                raise WebhookRejected("bad_signature", f"The header {lower} is repeated.")
            selected[lower] = value.strip()
    return selected


def _standard_keys(secret: str) -> list[bytes]:
    """Return the keys that a secret may stand for: base64 with or without `whsec_`, as libraries take it, and the bytes of its text."""
    has_prefix = secret.startswith(_BASE64_PREFIX)
    text = secret.removeprefix(_BASE64_PREFIX)
    if has_prefix:
        text = text.replace("-", "+").replace("_", "/")
    digits = text.rstrip("=")
    try:
        decoded = base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError:
        decoded = b""
    return [secret.encode(), *([decoded] if decoded else [])]
