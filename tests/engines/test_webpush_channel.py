"""The Web Push channel against a strict push service on this host (RFC 8030, RFC 8291, RFC 8292)."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from rookery.engines import notification_channels
from rookery.engines.notification_channels.push_encryption import MAX_CONTENT_BYTES, decode_base64url, encode_base64url, encrypt
from rookery.engines.notification_channels.vapid import VapidKey, find_subject_warning, get_origin
from rookery.engines.notification_channels.webpush import WebPushChannel, render_content
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings, load_settings
from rookery.kernel.egress import EgressGuard
from rookery.kernel.errors import WrongSettings
from rookery.kernel.secret import Secret
from rookery.notifications.messages import ChannelTarget, ChannelType, SendOutcome
from tests.engines.channel_contract import (
    MESSAGE,
    FixedInstallationKeys,
    FixedKeys,
    NotificationChannelContract,
    ReceivedMessage,
    ServiceFault,
)
from tests.engines.engine_contracts import HowTested
from tests.engines.push_service import PushService, run_push_service
from tests.webhooks.receiver import Reply

RAW_KEY = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
KEY = VapidKey.parse(Secret(RAW_KEY))
OTHER_KEY = VapidKey(ec.generate_private_key(ec.SECP256R1()))
LOCAL_GUARD = EgressGuard(allow=["127.0.0.0/8"])


async def load_key() -> VapidKey:
    """Return the key of the installation."""
    return KEY


def open_channel() -> WebPushChannel:
    """Return the channel, with a short timeout."""
    return WebPushChannel(
        LOCAL_GUARD,
        load_key,
        utc_now,
        subject="mailto:admin@example.org",
        default_url="https://rookery.example/",
        max_concurrency=8,
        timeout_s=2,
    )


@dataclass
class WebPushRig:
    """The channel and a push service."""

    channel: WebPushChannel
    push: PushService
    service: AsyncExitStack
    target: ChannelTarget = field(init=False)
    forbidden_target: ChannelTarget | None = field(init=False)

    def __post_init__(self) -> None:
        self.target = self.push.subscribe(KEY.public_key)
        self.forbidden_target = replace(self.target, address="https://10.0.0.7/push/x")

    def received(self) -> Sequence[ReceivedMessage]:
        notifications = [message.content["notification"] for message in self.push.messages]
        return [ReceivedMessage(title=shown["title"], body=shown["body"], url=shown["navigate"]) for shown in notifications]

    def fail_next(self, fault: ServiceFault) -> None:
        replies = {
            ServiceFault.TRY_LATER: Reply(status=429, headers={"retry-after": "9"}),
            ServiceFault.REJECTED: Reply(status=413),
            ServiceFault.GONE: Reply(status=410),
            ServiceFault.CUT_AFTER: Reply(mode="no http"),
            ServiceFault.SILENT: Reply(mode="silence"),
        }
        self.push.replies.append(replies[fault])

    async def stop_service(self) -> None:
        await self.service.aclose()


@pytest.fixture
async def rig() -> AsyncIterator[WebPushRig]:
    """The channel and a push service with one subscription."""
    channel = open_channel()
    async with AsyncExitStack() as service:
        yield WebPushRig(channel, await service.enter_async_context(run_push_service()), service)
        await channel.close()


class TestWebPushChannel(NotificationChannelContract):
    """The contract of channels."""

    engine = "Web Push"
    tested_on = HowTested.STAND_IN
    tested_with = "a push service that decrypts each message"

    untested = frozenset({ServiceFault.CUT_BEFORE})  # its receiver reads the whole request


async def test_a_message_has_the_declarative_shape_and_headers(rig: WebPushRig) -> None:
    """It shows without a service worker where that is supported. A repeated attempt replaces the first by its topic."""
    results = [await rig.channel.send(replace(MESSAGE, target=rig.target, url=None, locale="de", ttl_s=10**9)) for _ in range(2)]
    first, second = rig.push.messages

    assert first.content == {
        "web_push": 8030,
        "notification": {
            "title": MESSAGE.title,
            "body": MESSAGE.body,
            "navigate": "https://rookery.example/",
            "tag": MESSAGE.delivery_id,
            "lang": "de",
        },
    }
    assert (first.headers["ttl"], first.headers["urgency"]) == ("2419200", "normal")
    assert first.headers["topic"] == second.headers["topic"]
    assert first.headers["authorization"] != second.headers["authorization"]
    assert [result.provider_id for result in results] == [f"{rig.push.origin}/message/{number}" for number in (1, 2)]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        *((status, SendOutcome.SENT) for status in (200, 201, 202)),
        *((status, SendOutcome.RETRY) for status in (429, 500, 502, 503)),
        *((status, SendOutcome.GONE) for status in (404, 410)),
        *((status, SendOutcome.REJECTED) for status in (301, 308, 400, 413)),
    ],
)
async def test_each_status_has_its_outcome(status: int, outcome: SendOutcome, rig: WebPushRig) -> None:
    """RFC 8030, 5: redirects are never followed."""
    rig.push.replies.append(Reply(status=status, headers={"location": rig.push.origin}))

    assert (await rig.channel.send(replace(MESSAGE, target=rig.target))).outcome is outcome


async def test_a_wrong_key_blocks_all_messages_after_a_few(rig: WebPushRig) -> None:
    """TaOS 2166: a key of the wrong kind failed all pushes, and was caught for each subscription alone."""
    targets = [rig.push.subscribe(OTHER_KEY.public_key) for _ in range(5)]
    results = [await rig.channel.send(replace(MESSAGE, target=target)) for target in targets]

    assert [result.outcome for result in results] == [*2 * [SendOutcome.RETRY], *3 * [SendOutcome.BLOCKED]]
    assert {result.status for result in results} == {403}
    assert "VAPID key" in (results[-1].reason or "")


async def test_one_subscription_that_is_refused_again_and_again_does_not_stop_others(rig: WebPushRig) -> None:
    """A fault of one subscription is not common to all."""
    stale = rig.push.subscribe(OTHER_KEY.public_key)
    outcomes = [(await rig.channel.send(replace(MESSAGE, target=stale))).outcome for _ in range(5)]
    assert set(outcomes) == {SendOutcome.RETRY}

    assert (await rig.channel.send(replace(MESSAGE, target=rig.target))).outcome is SendOutcome.SENT
    assert (await rig.channel.send(replace(MESSAGE, target=stale))).outcome is SendOutcome.REJECTED


async def test_a_push_service_that_refuses_the_key_does_not_stop_those_that_accept_it(rig: WebPushRig) -> None:
    """Pywebpush 175: Apple refuses a subject that other services accept."""
    await rig.channel.send(replace(MESSAGE, target=rig.target))
    async with run_push_service() as apple:
        apple.replies += [Reply(status=403, body=b'{"reason": "BadJwtToken"}') for _ in range(5)]
        targets = [apple.subscribe(KEY.public_key) for _ in range(5)]
        results = [await rig.channel.send(replace(MESSAGE, target=target)) for target in targets]

    assert [result.outcome for result in results] == [*2 * [SendOutcome.RETRY], *3 * [SendOutcome.REJECTED]]
    assert "BadJwtToken" in (results[-1].reason or "")
    assert (await rig.channel.send(replace(MESSAGE, target=rig.target))).outcome is SendOutcome.SENT


@pytest.mark.parametrize(
    ("p256dh", "auth"), [("", ""), ("AAAA", "AAAA"), ("BP" + "A" * 85, encode_base64url(bytes(16))), ("ä", "ä"), ("*", "*")]
)
async def test_invalid_keys_of_a_subscription_are_rejected(p256dh: str, auth: str, rig: WebPushRig) -> None:
    """A point that is not on the curve would break the encryption."""
    target = replace(rig.target, p256dh=p256dh, auth=auth)

    assert (await rig.channel.send(replace(MESSAGE, target=target))).outcome is SendOutcome.REJECTED
    assert not rig.push.receiver.received


@given(
    body=st.text(st.characters(exclude_categories=["Cs"]), max_size=200).map(lambda text: text * 60),
    title=st.text(st.characters(exclude_categories=["Cs"]), max_size=400),
)
def test_a_long_body_ends_with_an_ellipsis(body: str, title: str) -> None:
    """RFC 8030, 7.2: services accept 4096 bytes. The text is cut between characters, whatever their encoding."""
    content = render_content(replace(MESSAGE, title=title, body=body), default_url="https://rookery.example/")

    assert content is not None
    assert len(content) <= MAX_CONTENT_BYTES
    shown = json.loads(content)["notification"]["body"]
    assert shown == body or (shown.endswith("…") and body.startswith(shown[:-1]))


async def test_the_largest_message_is_accepted(rig: WebPushRig) -> None:
    """The limit is exact: not one byte is wasted."""
    result = await rig.channel.send(replace(MESSAGE, target=rig.target, body="x" * 5000))

    assert result.outcome is SendOutcome.SENT
    assert len(rig.push.receiver.received[0].body) == 4096


async def test_a_url_that_leaves_no_room_is_rejected(rig: WebPushRig) -> None:
    """A URL cannot be cut."""
    message = replace(MESSAGE, target=rig.target, url="https://example.org/" + "x" * 4000)

    assert (await rig.channel.send(message)).outcome is SendOutcome.REJECTED


def test_the_example_of_the_standard() -> None:
    """RFC 8291, appendix A."""
    private = ec.derive_private_key(int.from_bytes(decode_base64url(RAW_KEY)), ec.SECP256R1())
    body = encrypt(
        b"When I grow up, I want to be a watermelon",
        p256dh="BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        auth="BTBZMqHH6r4Tts7J_aSIgg",
        salt=decode_base64url("DGv6ra1nlYgDCS1FRnbzlw"),
        private_key=private,
    )

    assert encode_base64url(body) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT"
        "pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


def test_a_key_is_read_in_every_usual_form() -> None:
    """base64url raw or DER, or PEM; other tools write each of them."""
    private = ec.derive_private_key(int.from_bytes(decode_base64url(RAW_KEY)), ec.SECP256R1())
    texts = [RAW_KEY, RAW_KEY + "=", f" {RAW_KEY}\n", base64.b64encode(decode_base64url(RAW_KEY)).decode()]
    for form in (PrivateFormat.PKCS8, PrivateFormat.TraditionalOpenSSL):
        texts.append(encode_base64url(private.private_bytes(Encoding.DER, form, NoEncryption())))
        texts.append(private.private_bytes(Encoding.PEM, form, NoEncryption()).decode())

    assert {VapidKey.parse(Secret(text)).public_key for text in texts} == {KEY.public_key}


OTHER_CURVE = ec.generate_private_key(ec.SECP384R1()).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
OTHER_KIND = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.mark.parametrize(
    "text", ["secret", "ä", "A" * 43, "_" * 43, KEY.public_key, OTHER_CURVE, OTHER_KIND, "-----BEGIN PRIVATE KEY-----\nAAAA"]
)
def test_a_wrong_key_refuses_to_start_in_one_line(text: str) -> None:
    """Found at the start; the message has no part of the key."""
    with pytest.raises(WrongSettings, match="ROOKERY_VAPID_PRIVATE_KEY: must be a P-256 private key") as error:
        notification_channels.open(Settings(vapid_private_key=Secret(text)), LOCAL_GUARD, FixedKeys(), FixedInstallationKeys())

    assert "\n" not in error.value.message
    assert text not in error.value.message.removeprefix("ROOKERY_VAPID_PRIVATE_KEY")


@pytest.mark.parametrize(
    ("endpoint", "origin"),
    [
        ("https://fcm.googleapis.com/fcm/send/a:b", "https://fcm.googleapis.com"),
        ("https://push.example:443/x", "https://push.example"),
        ("https://push.example:8443/x", "https://push.example:8443"),
        ("http://[::1]:8080/x", "http://[::1]:8080"),
    ],
)
def test_the_audience_is_the_exact_origin(endpoint: str, origin: str) -> None:
    """web-push 947: Apple refuses any other."""
    assert get_origin(endpoint) == origin


def test_claims_are_new_for_each_message() -> None:
    """Pywebpush 118: claims that were reused had the audience of another service."""
    at = datetime(2026, 11, 21, tzinfo=UTC)
    claims = [
        json.loads(decode_base64url(KEY.authorize(url, subject="mailto:a@b.example", at=at).split(".")[1]))
        for url in ("https://one.example/x", "https://two.example/x")
    ]

    assert [claim["aud"] for claim in claims] == ["https://one.example", "https://two.example"]
    assert {claim["exp"] - int(at.timestamp()) for claim in claims} == {12 * 3600}


@pytest.mark.parametrize(
    "subject", ["mailto:a@localhost", "mailto:a@nas.local", "https://localhost/", "https://rookery.internal/", "mailto:a@b"]
)
def test_a_subject_that_apple_refuses_is_found(subject: str) -> None:
    """`rookery doctor` warns of it."""
    assert find_subject_warning(subject)
    assert find_subject_warning("mailto:a@b.example.org") is None
    assert find_subject_warning("https://rookery.example.org/x") is None


async def test_the_key_of_the_store_is_used_unless_one_is_set(rig: WebPushRig) -> None:
    """Made at first use and encrypted at rest, or given by the operator."""
    raw = encode_base64url(ec.generate_private_key(ec.SECP256R1()).private_numbers().private_value.to_bytes(32))
    for settings, key in ((Settings(), KEY), (Settings(vapid_private_key=Secret(raw)), VapidKey.parse(Secret(raw)))):
        channel = notification_channels.open(settings, LOCAL_GUARD, FixedKeys(), FixedInstallationKeys())[ChannelType.WEBPUSH]
        await channel.check()
        result = await channel.send(replace(MESSAGE, target=rig.push.subscribe(key.public_key)))
        await channel.close()

        assert result.outcome is SendOutcome.SENT, result.reason


async def test_a_key_that_cannot_be_decrypted_blocks_all_messages(rig: WebPushRig) -> None:
    """No subscriber is marked invalid for it."""
    channel = notification_channels.open(Settings(), LOCAL_GUARD, FixedKeys(), FixedInstallationKeys(""))[ChannelType.WEBPUSH]

    assert (await channel.send(replace(MESSAGE, target=rig.target))).outcome is SendOutcome.BLOCKED


def test_the_subject_is_the_setting_or_the_public_address() -> None:
    """Push services want a contact; a local one works with most of them."""
    settings = Settings()
    assert notification_channels.get_vapid_subject(settings) == "mailto:rookery@localhost"
    smtp = Secret("smtp://mail.example?from=News <news@example.net>")
    assert notification_channels.get_vapid_subject(replace(settings, smtp=smtp)) == "mailto:news@example.net"
    public = replace(settings, smtp=smtp, base_url="https://rookery.example.org")
    assert notification_channels.get_vapid_subject(public) == "https://rookery.example.org"
    assert notification_channels.get_vapid_subject(replace(public, vapid_subject="mailto:me@example.org")) == "mailto:me@example.org"


@pytest.mark.parametrize("subject", ["admin@example.org", "http://example.org", "mailto:", "mailto:a@b c"])
def test_an_invalid_subject_refuses_to_start(subject: str) -> None:
    """RFC 8292, 2.1."""
    with pytest.raises(WrongSettings, match="must be a mailto: or https: address"):
        load_settings({"ROOKERY_VAPID_SUBJECT": subject})


async def test_windows_explains_itself_in_headers(rig: WebPushRig) -> None:
    """406 is a limit, and a message that was accepted may have been dropped."""
    throttled = {"X-WNS-ERROR-DESCRIPTION": "Channel is throttled", "X-WNS-STATUS": "channelthrottled"}
    for reply in (
        Reply(status=406, headers=throttled, body=b""),
        Reply(status=200, headers={"X-WNS-STATUS": "dropped"}, body=b""),
        Reply(status=400, headers={"X-WNS-ERROR-DESCRIPTION": "Invalid TTL"}, body=b""),
        Reply(status=406, headers={"Retry-After": "30"}, body=b""),
    ):
        rig.push.replies.append(reply)
    results = [await rig.channel.send(replace(MESSAGE, target=rig.target)) for _ in range(4)]

    assert [result.outcome for result in results] == [SendOutcome.RETRY, SendOutcome.RETRY, SendOutcome.REJECTED, SendOutcome.RETRY]
    assert [result.concerns_host for result in results] == [False, False, False, True]
    assert "Channel is throttled" in (results[0].reason or "")
    assert "dropped" in (results[1].reason or "")
    assert "Invalid TTL" in (results[2].reason or "")
