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


def rookery_signature(body: bytes, secret: str) -> str:
    """Return the value of X-Webhook-Signature."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def standard_headers(body: bytes, *keys: bytes, at: datetime = NOW) -> dict[str, str]:
    """Return the three headers of Standard Webhooks 1.0.0, with a signature of each of *keys*."""
    timestamp = str(int(at.timestamp()))
    content = b".".join((b"evt_1", timestamp.encode(), body))
    signatures = [base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode() for key in keys]
    return {
        "webhook-id": "evt_1",
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


def key_of(secret: str) -> bytes:
    """Return the signing key of *secret* as Standard Webhooks defines it."""
    return base64.b64decode(secret.removeprefix("whsec_")) if secret == SECRET else secret.encode()


def rejection_reason(body: bytes, signature: Mapping[str, str] | str, secret: str = SECRET) -> str:
    """Return the reason why the delivery is rejected."""
    with pytest.raises(WebhookRejected) as error:
        verify_webhook(body, signature, secret, now=NOW)
    assert secret not in str(error.value)
    return error.value.reason


@pytest.mark.parametrize("secret", [SECRET, OTHER, "whsec_ is not base64"])
def test_a_signed_delivery_is_accepted_by_either_signature(secret: str) -> None:
    """X-Webhook-Signature is computed with the text of the secret, the standard signature with its bytes."""
    headers = {**standard_headers(BODY, key_of(secret)), "X-Webhook-Signature": rookery_signature(BODY, secret)}

    assert verify_webhook(BODY, headers, secret, now=NOW) == EVENT
    assert verify_webhook(BODY, headers["X-Webhook-Signature"], secret) == EVENT
    assert verify_webhook(BODY.decode(), headers["X-Webhook-Signature"], secret) == EVENT


def test_during_a_rotation_a_delivery_is_accepted_with_either_secret() -> None:
    """In the grace period the standard header has both signatures, and X-Webhook-Signature that of the old secret."""
    headers = {**standard_headers(BODY, key_of(SECRET), key_of(OTHER)), "X-Webhook-Signature": rookery_signature(BODY, OTHER)}

    for secret in (SECRET, OTHER, [SECRET, OTHER], [OTHER, SECRET]):
        assert verify_webhook(BODY, headers, secret, now=NOW) == EVENT
    assert verify_webhook(BODY, headers["X-Webhook-Signature"], [SECRET, OTHER]) == EVENT
    with pytest.raises(WebhookRejected):
        verify_webhook(BODY, headers["X-Webhook-Signature"], SECRET)


@given(st.integers(0, len(BODY) * 8 - 1))
def test_one_changed_bit_of_the_body_is_rejected(bit: int) -> None:
    """A receiver rejects a mismatch."""
    changed_body = bytearray(BODY)
    changed_body[bit // 8] ^= 1 << bit % 8

    assert rejection_reason(bytes(changed_body), standard_headers(BODY, key_of(SECRET))) == "wrong_signature"
    assert rejection_reason(bytes(changed_body), rookery_signature(BODY, SECRET)) == "wrong_signature"


@given(
    st.binary(),
    st.dictionaries(st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature", "X-Webhook-Signature"]), st.text()),
)
def test_random_deliveries_are_rejected(body: bytes, headers: dict[str, str]) -> None:
    """A forged delivery is rejected and never makes the receiver fail."""
    assert rejection_reason(body, headers)
    assert rejection_reason(body, headers.get("X-Webhook-Signature", ""))


@pytest.mark.parametrize(
    ("age", "expected"),
    [(timedelta(minutes=6), "too_old"), (timedelta(minutes=-6), "too_new"), (timedelta(minutes=4), None), (timedelta(minutes=-4), None)],
)
def test_an_old_delivery_is_rejected_unless_the_tolerance_allows_it(age: timedelta, expected: str | None) -> None:
    """The timestamp of the standard prevents a replay of recorded deliveries."""
    headers = standard_headers(BODY, key_of(SECRET), at=NOW - age)

    assert (rejection_reason(BODY, headers) if expected else verify_webhook(BODY, headers, SECRET, now=NOW)) == (expected or EVENT)
    assert verify_webhook(BODY, headers, SECRET, now=NOW, tolerance=None) == EVENT
    assert verify_webhook(BODY, headers, SECRET, now=NOW, tolerance=timedelta(minutes=7)) == EVENT


def test_the_timestamp_cannot_be_bypassed_by_removing_its_headers() -> None:
    """A recorded delivery cannot be replayed without the headers that have its time."""
    without_timestamp = {"X-Webhook-Signature": rookery_signature(BODY, SECRET)}

    assert rejection_reason(BODY, without_timestamp) == "no_signature"
    assert verify_webhook(BODY, without_timestamp, SECRET, tolerance=None) == EVENT


def test_a_changed_timestamp_or_id_is_rejected() -> None:
    """Standard Webhooks 1.0.0: id and time are signed with the body."""
    headers = standard_headers(BODY, key_of(SECRET))

    assert rejection_reason(BODY, {**headers, "webhook-id": "evt_2"}) == "wrong_signature"
    assert rejection_reason(BODY, {**headers, "webhook-timestamp": str(int(NOW.timestamp()) + 1)}) == "wrong_signature"


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
def test_missing_or_repeated_headers_are_rejected_with_a_reason(change: dict[str, str], expected: str) -> None:
    """House rule: a message names the problem; repeated headers are not resolved by a guess."""
    assert rejection_reason(BODY, {**standard_headers(BODY, key_of(SECRET)), **change}) == expected


def test_header_names_are_accepted_in_any_case() -> None:
    """The headers of `http.server` are an email.message.Message."""
    message = Message()
    for name, value in standard_headers(BODY, key_of(SECRET)).items():
        message[name.title()] = value

    assert verify_webhook(BODY, message, SECRET, now=NOW) == EVENT


@pytest.mark.parametrize("secret", ["", [], ["", SECRET]])
def test_an_invalid_secret_raises_value_error(secret: str | list[str]) -> None:
    """House rule: an unset variable must not look like an attack, nor be accepted as a secret."""
    with pytest.raises(ValueError, match="secret") as error:
        verify_webhook(BODY, standard_headers(BODY, b""), secret, now=NOW)

    assert not isinstance(error.value, WebhookRejected)


@pytest.mark.parametrize(
    "body", [b"[]", b"{}", b"not JSON", b'{"id":"1","type":"t","created_at":"x","workspace_id":1,"data":{}}', b"[" * 100_000]
)
def test_a_signed_body_that_is_no_event_is_rejected(body: bytes) -> None:
    """{id, type, created_at, workspace_id, data}."""
    assert rejection_reason(body, standard_headers(body, key_of(SECRET))) == "bad_body"


NOTIFICATION = {"id": "n1", "type": "notification", "campaign_id": "c1", "title": "Hello", "body": "Text", "url": None}


@pytest.mark.parametrize(
    ("stated_at", "created_at"),
    [("2026-11-22T02:00:00.000000Z", datetime(2026, 11, 22, 2, tzinfo=UTC)), (None, NOW)],
)
def test_a_notification_is_an_event_whose_data_is_the_message(stated_at: str | None, created_at: datetime) -> None:
    """One receiver takes what subscribers get too, also the test of a campaign that was not sent and has no time."""
    body = json.dumps({**NOTIFICATION, "created_at": stated_at, "workspace_id": 7}).encode()

    event = verify_webhook(body, standard_headers(body, key_of(SECRET)), SECRET, now=NOW)

    assert (event.id, event.type, event.created_at, event.workspace_id) == ("n1", "notification", created_at, 7)
    assert event.data == {"campaign_id": "c1", "title": "Hello", "body": "Text", "url": None}
    assert rejection_reason(body.replace(b"Hello", b"Bye"), standard_headers(body, key_of(SECRET))) == "wrong_signature"


@pytest.mark.parametrize("form", [SECRET, SECRET.removeprefix("whsec_"), SECRET.replace("+", "-").replace("/", "_").rstrip("=")])
def test_a_secret_is_taken_in_each_form_of_base64(form: str) -> None:
    """With and without the prefix and the padding, and in the alphabet of URLs."""
    assert verify_webhook(BODY, standard_headers(BODY, key_of(SECRET)), form, now=NOW) == EVENT
