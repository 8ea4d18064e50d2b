from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.message import Message

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery_client import WebhookEvent, WebhookRejected, verify_webhook

SECRET = "whsec_" + base64.b64encode(b"twenty-four bytes of key").decode()
OTHER = "a plain secret of somebody"
NOW = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
BODY = json.dumps(
    {"id": "evt_1", "type": "memory.stored", "created_at": "2026-11-22T02:59:59.000000Z", "workspace_id": 7, "data": {"text": "ü"}}
).encode()
EVENT = WebhookEvent(
    id="evt_1", type="memory.stored", created_at=datetime(2026, 11, 22, 2, 59, 59, tzinfo=UTC), workspace_id=7, data={"text": "ü"}
)


def plain(body: bytes, secret: str) -> str:
    """The value of X-Webhook-Signature, by D-81's sentence."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def standard(body: bytes, *keys: bytes, at: datetime = NOW) -> dict[str, str]:
    """The three headers of Standard Webhooks 1.0.0, signed by each of *keys*."""
    seconds = str(int(at.timestamp()))
    content = b".".join((b"evt_1", seconds.encode(), body))
    signatures = [base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode() for key in keys]
    return {"webhook-id": "evt_1", "webhook-timestamp": seconds, "webhook-signature": " ".join(f"v1,{each}" for each in signatures)}


def key_of(secret: str) -> bytes:
    """Return the signing key of *secret* as Standard Webhooks define it."""
    return base64.b64decode(secret.removeprefix("whsec_")) if secret == SECRET else secret.encode()


def reason(body: bytes, signed: Mapping[str, str] | str, secret: str = SECRET) -> str:
    """Why the delivery is refused."""
    with pytest.raises(WebhookRejected) as refused:
        verify_webhook(body, signed, secret, now=NOW)
    assert secret not in str(refused.value)
    return refused.value.reason


@pytest.mark.parametrize("secret", [SECRET, OTHER, "whsec_ is not base64"])
def test_what_was_signed_by_the_secret_is_believed_by_either_signature(secret: str) -> None:
    """D-81, D-91: X-Webhook-Signature by the text of the secret, the standard's by its bytes."""
    headers = {**standard(BODY, key_of(secret)), "X-Webhook-Signature": plain(BODY, secret)}

    assert verify_webhook(BODY, headers, secret, now=NOW) == EVENT
    assert verify_webhook(BODY, headers["X-Webhook-Signature"], secret) == EVENT
    assert verify_webhook(BODY.decode(), headers["X-Webhook-Signature"], secret) == EVENT


def test_in_a_rotation_old_and_new_receivers_and_those_with_both_secrets_believe() -> None:
    """D-80, D-81: in grace the standard's header has both signatures, X-Webhook-Signature the old secret's."""
    headers = {**standard(BODY, key_of(SECRET), key_of(OTHER)), "X-Webhook-Signature": plain(BODY, OTHER)}

    for secret in (SECRET, OTHER, [SECRET, OTHER], [OTHER, SECRET]):
        assert verify_webhook(BODY, headers, secret, now=NOW) == EVENT
    assert verify_webhook(BODY, headers["X-Webhook-Signature"], [SECRET, OTHER]) == EVENT
    with pytest.raises(WebhookRejected):
        verify_webhook(BODY, headers["X-Webhook-Signature"], SECRET)


@given(st.integers(0, len(BODY) * 8 - 1))
def test_one_changed_bit_of_the_body_is_refused(bit: int) -> None:
    """Spec 6.2: a receiver rejects a mismatch."""
    changed = bytearray(BODY)
    changed[bit // 8] ^= 1 << bit % 8

    assert reason(bytes(changed), standard(BODY, key_of(SECRET))) == "wrong_signature"
    assert reason(bytes(changed), plain(BODY, SECRET)) == "wrong_signature"


@given(
    st.binary(),
    st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "X-Webhook-Signature"]), st.text()),
)
def test_no_garbage_does_anything_but_be_refused(body: bytes, headers: dict[str, str]) -> None:
    """Spec 6.2: what a stranger sends is answered 401, never by a failure of the receiver."""
    assert reason(body, headers)
    assert reason(body, headers.get("X-Webhook-Signature", ""))


@pytest.mark.parametrize(
    ("late", "expected"),
    [(timedelta(minutes=6), "too_old"), (timedelta(minutes=-6), "too_new"), (timedelta(minutes=4), None), (timedelta(minutes=-4), None)],
)
def test_a_delivery_of_another_time_is_refused_unless_any_time_will_do(late: timedelta, expected: str | None) -> None:
    """D-81: the standard's time is there against deliveries that are overheard and sent again."""
    headers = standard(BODY, key_of(SECRET), at=NOW - late)

    assert (reason(BODY, headers) if expected else verify_webhook(BODY, headers, SECRET, now=NOW)) == (expected or EVENT)
    assert verify_webhook(BODY, headers, SECRET, now=NOW, tolerance=None) == EVENT
    assert verify_webhook(BODY, headers, SECRET, now=NOW, tolerance=timedelta(minutes=7)) == EVENT


def test_the_check_of_the_time_cannot_be_taken_away_with_its_headers() -> None:
    """D-81: who overheard a delivery cannot send it later without the headers that say when it was."""
    overheard = {"X-Webhook-Signature": plain(BODY, SECRET)}

    assert reason(BODY, overheard) == "no_signature"
    assert verify_webhook(BODY, overheard, SECRET, tolerance=None) == EVENT


def test_another_time_or_id_than_the_signed_one_is_refused() -> None:
    """Standard Webhooks 1.0.0: id and time are signed with the body."""
    headers = standard(BODY, key_of(SECRET))

    assert reason(BODY, {**headers, "webhook-id": "evt_2"}) == "wrong_signature"
    assert reason(BODY, {**headers, "webhook-timestamp": str(int(NOW.timestamp()) + 1)}) == "wrong_signature"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"webhook-signature": ""}, "no_signature"),
        ({"webhook-signature": "v1a,AAAA"}, "bad_signature"),
        ({"webhook-signature": "v1,AAAA " * 17}, "bad_signature"),
        ({"webhook-id": ""}, "no_signature"),
        ({"webhook-timestamp": ""}, "no_timestamp"),
        ({"webhook-timestamp": "soon"}, "bad_timestamp"),
        ({"webhook-timestamp": "9" * 5000}, "bad_timestamp"),
        ({"Webhook-Id": "evt_1"}, "bad_signature"),
    ],
)
def test_headers_that_are_incomplete_or_there_twice_are_refused_with_their_reason(change: dict[str, str], expected: str) -> None:
    """House rule: a message says what was wrong; which of two headers counts is not guessed."""
    assert reason(BODY, {**standard(BODY, key_of(SECRET)), **change}) == expected


def test_headers_are_taken_as_pythons_own_server_has_them_in_any_case() -> None:
    """D-91: `http.server` hands over an email.message.Message."""
    message = Message()
    for name, value in standard(BODY, key_of(SECRET)).items():
        message[name.title()] = value

    assert verify_webhook(BODY, message, SECRET, now=NOW) == EVENT


@pytest.mark.parametrize("secret", ["", [], ["", SECRET]])
def test_a_secret_that_cannot_be_one_is_the_receivers_mistake_not_the_senders(secret: str | list[str]) -> None:
    """House rule: an unset variable must not look like an attack, nor pass for a secret that anybody knows."""
    with pytest.raises(ValueError, match="secret") as refused:
        verify_webhook(BODY, standard(BODY, b""), secret, now=NOW)

    assert not isinstance(refused.value, WebhookRejected)


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b"not JSON", b'{"id":"1","type":"t","created_at":"x","workspace_id":1,"data":{}}', b"[" * 100_000]
)
def test_a_signed_body_that_is_no_event_is_refused(body: bytes) -> None:
    """D-81: {id, type, created_at, workspace_id, data}."""
    assert reason(body, standard(body, key_of(SECRET))) == "bad_body"
