"""Signatures that receivers accept, and forgeries that they reject."""

from __future__ import annotations

import base64
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook, WebhookVerificationError

from rookery.kernel.signing import find_secret_error, sign, to_library_secret
from tests.deadlines import HANG_S

GENERATED = "whsec_" + base64.b64encode(bytes(range(32))).decode()
CHOSEN = "a-secret-that-somebody-chose"

secrets = st.binary(min_size=16, max_size=64).map(lambda key: "whsec_" + base64.b64encode(key).decode()) | st.text(
    st.characters(min_codepoint=33, max_codepoint=126), min_size=16, max_size=128
).filter(lambda text: not text.startswith("whsec_"))


def verify(secret: str, body: bytes, headers: dict[str, str]) -> None:
    """Verify as a receiver with the Standard Webhooks library does; raise if the signature is invalid."""
    Webhook(secret if secret.startswith("whsec_") else secret.encode()).verify(body.decode(), headers)


@given(secrets, secrets, st.text(max_size=200))
def test_the_standard_library_accepts_both_secrets_of_a_grace_period(current: str, previous: str, text: str) -> None:
    """The headers of Standard Webhooks, with both secrets during a grace period."""
    body = b'{"said": "' + text.encode("ascii", "backslashreplace").replace(b"\\", b"/").replace(b'"', b"'") + b'"}'
    body = bytes(max(code, 32) for code in body)
    headers = sign(body, event_id="evt_1", at=datetime.now(UTC), secrets=[current, previous])

    verify(current, body, headers)
    verify(previous, body, headers)


@pytest.mark.parametrize("changed", ["body", "webhook-id", "webhook-timestamp", "secret"])
def test_any_change_makes_the_signature_invalid(changed: str) -> None:
    """The signature covers the event's id, the time and the body."""
    body, secret = b'{"id": "evt_1"}', GENERATED
    headers = sign(body, event_id="evt_1", at=datetime.now(UTC), secrets=[GENERATED])
    verify(secret, body, headers)
    if changed == "body":
        body = b'{"id": "evt_2"}'
    elif changed == "secret":
        secret = "whsec_" + base64.b64encode(b"another secret").decode()
    else:
        headers[changed] = headers[changed][:-1] + chr(ord(headers[changed][-1]) ^ 1)

    with pytest.raises(WebhookVerificationError):
        verify(secret, body, headers)


@pytest.mark.parametrize("secret", [GENERATED, CHOSEN])
def test_plain_openssl_verifies_the_platforms_own_header(secret: str, tmp_path: Path) -> None:
    """The header is the SHA-256 HMAC of the raw body with the secret as it was shown."""
    body = tmp_path / "body"
    body.write_bytes(b'{"type":"memory.stored"}')
    output = subprocess.run(
        ["openssl", "dgst", "-sha256", "-hmac", secret, str(body)], capture_output=True, check=True, text=True, timeout=HANG_S
    ).stdout

    headers = sign(body.read_bytes(), event_id="evt_1", at=datetime.now(UTC), secrets=[secret])

    assert headers["X-Webhook-Signature"] == "sha256=" + output.split("= ")[1].strip()


def test_during_a_grace_period_the_own_header_uses_the_previous_secret() -> None:
    """That header has one signature, and receivers may not have the new secret yet."""
    at, body = datetime.now(UTC), b"{}"
    alone = sign(body, event_id="evt_1", at=at, secrets=[CHOSEN])
    both = sign(body, event_id="evt_1", at=at, secrets=[GENERATED, CHOSEN])

    assert both["X-Webhook-Signature"] == alone["X-Webhook-Signature"]
    assert len(both["webhook-signature"].split(" ")) == 2


def test_the_signature_equals_the_example_of_the_standard() -> None:
    """The example of the specification's libraries, byte for byte."""
    headers = sign(
        b'{"test": 2432232314}',
        event_id="msg_p5jXN8AQM9LWM0D4loKWxJek",
        at=datetime.fromtimestamp(1614265330, UTC),
        secrets=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )

    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


_KEY = bytes(range(200, 224))
_BASE64 = base64.b64encode(_KEY + b"\xfb\xff").decode()


@pytest.mark.parametrize("secret", [_BASE64, f"whsec_{_BASE64}", "0123456789abcdef" * 4, "c2VjcmV0IG9mIG1pbmUgb3du", GENERATED])
def test_the_library_takes_what_was_given_and_what_is_shown(secret: str) -> None:
    """base64 with and without the prefix, and hexadecimal text, which libraries take for base64 too."""
    body = b'{"id": "evt_1"}'
    headers = sign(body, event_id="evt_1", at=datetime.now(UTC), secrets=[secret])

    Webhook(secret).verify(body.decode(), headers)
    Webhook(to_library_secret(secret)).verify(body.decode(), headers)


@pytest.mark.parametrize("secret", [CHOSEN, "3f2a1b4c-5d6e-4f70-8a9b-0c1d2e3f4a5b", f"whsec_{_BASE64.rstrip('=')}", "whsec_-_" + "a" * 22])
def test_the_library_takes_the_form_that_is_shown(secret: str) -> None:
    """Some libraries refuse plain text, the alphabet of URLs, and base64 without padding, so they get another form."""
    body = b'{"id": "evt_1"}'
    headers = sign(body, event_id="evt_1", at=datetime.now(UTC), secrets=[secret])

    Webhook(to_library_secret(secret)).verify(body.decode(), headers)
    Webhook(secret.encode()).verify(body.decode(), headers)


@pytest.mark.parametrize(
    ("secret", "is_refused"), [("whsec_not base64!", True), ("whsec_c2hvcnQ=", True), (CHOSEN, False), (GENERATED, False)]
)
def test_a_prefix_without_base64_is_refused(secret: str, *, is_refused: bool) -> None:
    """No library takes it, and the error says which form it needs."""
    assert ("base64" in (find_secret_error(secret) or "")) == is_refused
