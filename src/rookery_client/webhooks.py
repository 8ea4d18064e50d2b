"""Is this delivery from Rookery, and of now? What it says, if so."""

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

from rookery_client.errors import WebhookRejected

TOLERANCE = timedelta(minutes=5)
"""How far a delivery's time may be from ours; what Standard Webhooks' own libraries take."""

PLAIN = "X-Webhook-Signature"
_PLAIN_MARK = "sha256="
_STANDARD = ("webhook-id", "webhook-timestamp", "webhook-signature")
_STANDARD_MARK = "v1,"
_ENCODED = "whsec_"
_MOST_SIGNATURES = 16
"""A rotation makes two; each further one is a digest that a stranger could have us compare."""

_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)


class Headers(Protocol):
    """Headers of a request, as a dict, `http.server`, Starlette, Flask, Django or aiohttp have them; names in any case."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return each header's name and value."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookEvent:
    """
    What a delivery tells.

    Attributes:
        id: The same in every attempt, every resend and to every endpoint: what was handled once need not be handled again.
        type: As `GET /api/v1/events` lists them, for example `memory.stored`.
        created_at: When it became true; attempts may come much later, and in another order.
        data: The resource as its GET gives it.
    """

    id: str
    type: str
    created_at: datetime
    workspace_id: int
    data: Mapping[str, object]

    @classmethod
    def of(cls, body: bytes | str) -> WebhookEvent:
        """Return what a body says, which was verified before; WebhookRejected if it is no event."""
        try:
            event = cast("Mapping[str, object]", json.loads(body))
            return cls(
                id=str(event["id"]),
                type=str(event["type"]),
                created_at=datetime.fromisoformat(str(event["created_at"])),
                workspace_id=int(cast("int", event["workspace_id"])),
                data=dict(cast("Mapping[str, object]", event["data"])),
            )
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise WebhookRejected("bad_body", "The body is no event as Rookery sends them.") from None


def verify_webhook(
    body: bytes | str,
    signed: Headers | str,
    secret: str | Sequence[str],
    *,
    tolerance: timedelta | None = TOLERANCE,
    now: datetime | None = None,
) -> WebhookEvent:
    """
    Return the event of a delivery, if it was signed with *secret*; compared in constant time.

    Args:
        body: The body as it came, byte for byte: parsed and written again it is another one.
        signed: All headers of the request, of which those of Standard Webhooks are checked, the time with them; or the value of
            `X-Webhook-Signature` alone, which says nothing of time: whoever overheard a delivery could send it again.
        secret: As it was shown or given; several while it is being changed, any of which may have signed.
        tolerance: How far the delivery's time may be from ours. None: it may be of any time, and headers may have
            `X-Webhook-Signature` alone.
        now: Our time, where it is not the clock's.

    Raises:
        WebhookRejected: It is not to be trusted; answer 401.
        ValueError: There is no secret, or an empty one.
    """
    raw = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
    secrets = [secret] if isinstance(secret, str) else list(secret)
    if not secrets or not all(secrets):
        msg = "there is no secret to verify with, or an empty one; is it set?"
        raise ValueError(msg)
    keys = [_standard_key(each) for each in secrets]
    if isinstance(signed, str):
        _must_be_plain(raw, signed, secrets)
    else:
        found = _known(signed)
        if tolerance is None and _STANDARD[2] not in found and PLAIN.lower() in found:
            _must_be_plain(raw, found[PLAIN.lower()], secrets)
        else:
            _must_be_standard(raw, found, keys)
            _must_be_of_now(found[_STANDARD[1]], tolerance, now or datetime.now(UTC))
    return WebhookEvent.of(raw)


def _must_be_plain(raw: bytes, signature: str, secrets: Sequence[str]) -> None:
    """The secret as it is shown, text and all, is the key: one line of openssl can check it."""
    if not signature.strip():
        raise WebhookRejected("no_signature", f"The header {PLAIN} is missing or empty.")
    mark, digest = signature.strip()[: len(_PLAIN_MARK)], signature.strip()[len(_PLAIN_MARK) :]
    if mark.lower() != _PLAIN_MARK:
        raise WebhookRejected("bad_signature", f"The header {PLAIN} is not of the form {_PLAIN_MARK}HEX.")
    expected = [hmac.new(each.encode(), raw, hashlib.sha256).hexdigest() for each in secrets]
    _must_match([digest.lower()], expected)


def _must_be_standard(raw: bytes, headers: Mapping[str, str], keys: Sequence[bytes]) -> None:
    id_, sent_at, signatures = (headers.get(name, "") for name in _STANDARD)
    if not signatures:
        raise WebhookRejected("no_signature", f"The header {_STANDARD[2]} is missing or empty; have all headers been handed over?")
    if not id_:
        raise WebhookRejected("no_signature", f"The header {_STANDARD[0]}, which is signed too, is missing or empty.")
    if not sent_at:
        raise WebhookRejected("no_timestamp", f"The header {_STANDARD[1]} is missing or empty.")
    if not _SECONDS.fullmatch(sent_at):
        raise WebhookRejected("bad_timestamp", f"The header {_STANDARD[1]} is no count of seconds since 1970.")
    given = [each.removeprefix(_STANDARD_MARK) for each in signatures.split(" ") if each.startswith(_STANDARD_MARK)]
    if not given:
        raise WebhookRejected("bad_signature", f"The header {_STANDARD[2]} has no signature of the form {_STANDARD_MARK}BASE64.")
    if len(given) > _MOST_SIGNATURES:
        raise WebhookRejected("bad_signature", f"The header {_STANDARD[2]} has more than {_MOST_SIGNATURES} signatures.")
    content = f"{id_}.{sent_at}.".encode("utf-8", "surrogatepass") + raw
    _must_match(given, [base64.b64encode(hmac.digest(key, content, "sha256")).decode() for key in keys])


def _must_match(given: Sequence[str], expected: Sequence[str]) -> None:
    """Every pair is compared, so that neither time nor order tells which was near."""
    pairs = [(one.encode("utf-8", "surrogatepass"), other.encode()) for one in given for other in expected]
    if not sum(hmac.compare_digest(one, other) for one, other in pairs):
        raise WebhookRejected(
            "wrong_signature", "No signature is of this body by this secret. Is the body as it came, and the secret this endpoint's?"
        )


def _must_be_of_now(sent_at: str, tolerance: timedelta | None, now: datetime) -> None:
    if tolerance is None:
        return
    late_s, allowed_s = now.timestamp() - int(sent_at), tolerance.total_seconds()
    if late_s > allowed_s:
        raise WebhookRejected(
            "too_old", f"The delivery was sent {late_s:,.0f} s ago, and {allowed_s:,.0f} s are allowed: sent again, or a clock is wrong."
        )
    if -late_s > allowed_s:
        raise WebhookRejected("too_new", f"The delivery is from {-late_s:,.0f} s in the future: a clock is wrong.")


def _known(headers: Headers) -> dict[str, str]:
    """Return the headers that are looked at, by lower-case name; one that is there twice could be read in two ways."""
    found: dict[str, str] = {}
    for name, value in headers.items():
        lower = name.lower()
        if lower in {*_STANDARD, PLAIN.lower()}:
            if lower in found:
                raise WebhookRejected("bad_signature", f"The header {lower} is there more than once.")
            found[lower] = value.strip()
    return found


def _standard_key(secret: str) -> bytes:
    """Return the key of Standard Webhooks: what `whsec_` says in base64, or any other secret's own bytes."""
    if secret.startswith(_ENCODED):
        try:
            return base64.b64decode(secret.removeprefix(_ENCODED), validate=True)
        except ValueError:
            pass
    return secret.encode()
