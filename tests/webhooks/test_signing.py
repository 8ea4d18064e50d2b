"""Signatures that receivers accept, and forgeries that they reject (D-81)."""

from __future__ import annotations

import base64
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from rookery.webhooks.signing import sign

OURS = "whsec_" + base64.b64encode(bytes(range(32))).decode()
GIVEN = "a-secret-that-somebody-chose"

secrets = st.binary(min_size=16, max_size=64).map(lambda key: "whsec_" + base64.b64encode(key).decode()) | st.text(
    st.characters(min_codepoint=33, max_codepoint=126), min_size=16, max_size=128
).filter(lambda text: not text.startswith("whsec_"))


def verified(secret: str, body: bytes, headers: dict[str, str]) -> None:
    """Do as a receiver with the Standard Webhooks' own library does; it raises unless *body* is ours."""
    Webhook(secret if secret.startswith("whsec_") else secret.encode()).verify(body.decode(), headers)


@given(secrets, secrets, st.text(max_size=200))
def test_the_standards_own_library_believes_each_secret_of_a_grace(current: str, previous: str, text: str) -> None:
    """D-81: the Standard Webhooks headers, in grace by both."""
    body = b'{"said": "' + text.encode("ascii", "backslashreplace").replace(b"\\", b"/").replace(b'"', b"'") + b'"}'
    body = bytes(max(each, 32) for each in body)
    headers = sign(body, event_id="evt_1", at=datetime.now(UTC), secrets=[current, previous])

    verified(current, body, headers)
    verified(previous, body, headers)


@pytest.mark.parametrize("changed", ["body", "webhook-id", "webhook-timestamp", "secret"])
def test_whatever_is_changed_is_not_believed(changed: str) -> None:
    """D-81: the signature covers the event's id, the time and the body."""
    body, secret = b'{"id": "evt_1"}', OURS
    headers = sign(body, event_id="evt_1", at=datetime.now(UTC), secrets=[OURS])
    verified(secret, body, headers)
    if changed == "body":
        body = b'{"id": "evt_2"}'
    elif changed == "secret":
        secret = "whsec_" + base64.b64encode(b"another secret").decode()
    else:
        headers[changed] = headers[changed][:-1] + chr(ord(headers[changed][-1]) ^ 1)

    with pytest.raises(WebhookVerificationError):
        verified(secret, body, headers)


@pytest.mark.parametrize("secret", [OURS, GIVEN])
def test_plain_openssl_verifies_the_platforms_own_header(secret: str, tmp_path: Path) -> None:
    """Spec 6.2, D-81: sha256 by the secret as it was shown, over the raw body: a line of openssl tells whether it is ours."""
    body = tmp_path / "body"
    body.write_bytes(b'{"type":"memory.stored"}')
    said = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", secret, str(body)], capture_output=True, check=True, text=True, timeout=30
    ).stdout

    headers = sign(body.read_bytes(), event_id="evt_1", at=datetime.now(UTC), secrets=[secret])

    assert headers["X-Webhook-Signature"] == "sha256=" + said.split("= ")[1].strip()


def test_in_grace_the_platforms_own_header_is_by_the_secret_that_every_receiver_knows() -> None:
    """D-81: that header has room for one signature, and a receiver that was not told the new secret yet must not be lost."""
    at, body = datetime.now(UTC), b"{}"
    alone = sign(body, event_id="evt_1", at=at, secrets=[GIVEN])
    both = sign(body, event_id="evt_1", at=at, secrets=[OURS, GIVEN])

    assert both["X-Webhook-Signature"] == alone["X-Webhook-Signature"]
    assert len(both["webhook-signature"].split(" ")) == 2


def test_the_signature_of_the_standards_own_example_is_made() -> None:
    """D-81: the example of the specification's libraries, byte for byte."""
    headers = sign(
        b'{"test": 2432232314}',
        event_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=datetime.fromtimestamp(1614265330, UTC),
        secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
