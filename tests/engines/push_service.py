"""
A strict push service for the tests.

It requires what RFC 8030 does, verifies the token (RFC 8292), and decrypts messages (RFC 8291) by the code of others.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import http_ece
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from rookery.engines.notification_channels.push_encryption import decode_base64url, encode_base64url
from rookery.notifications.messages import ChannelTarget, ChannelType
from tests.webhooks.receiver import ReceivedRequest, Receiver, Reply, run_receiver

_MAX_BODY_BYTES = 4096
_DAY_S = 86_400


class PushRefused(Exception):
    """The sender made an error."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True, slots=True, kw_only=True)
class PushMessage:
    """A decrypted message."""

    token: str
    headers: Mapping[str, str]
    content: dict[str, Any]


@dataclass(slots=True)
class PushService:
    """
    The running service. It accepts messages only from the key that a subscription was made with.

    Attributes:
        replies: The answers to the next messages, instead of what it decides.
        gone: Tokens of subscriptions that no longer exist.
    """

    receiver: Receiver
    messages: list[PushMessage] = field(default_factory=list[PushMessage])
    replies: list[Reply] = field(default_factory=list[Reply])
    gone: set[str] = field(default_factory=set[str])
    subscriptions: dict[str, tuple[ec.EllipticCurvePrivateKey, bytes, str]] = field(
        default_factory=dict[str, tuple[ec.EllipticCurvePrivateKey, bytes, str]]
    )

    @property
    def origin(self) -> str:
        """The audience of tokens."""
        return f"http://127.0.0.1:{self.receiver.port}"

    def subscribe(self, public_key: str) -> ChannelTarget:
        """Return a subscription, as a browser that got *public_key* from the sender."""
        token, auth, key = encode_base64url(os.urandom(16)), os.urandom(16), ec.generate_private_key(ec.SECP256R1())
        point = key.public_key().public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
        self.subscriptions[token] = (key, auth, public_key)
        return ChannelTarget(
            type=ChannelType.WEBPUSH,
            address=f"{self.origin}/push/{token}",
            p256dh=encode_base64url(point),
            auth=encode_base64url(auth),
        )

    def reply(self, request: ReceivedRequest) -> Reply:
        """Accept the message, or refuse it with the reason."""
        if self.replies:
            return self.replies.pop(0)
        try:
            headers = self._receive(request)
        except PushRefused as refused:
            return Reply(status=refused.status, body=json.dumps({"reason": str(refused)}).encode())
        return Reply(status=201, headers=headers, body=b"")

    def _receive(self, request: ReceivedRequest) -> dict[str, str]:
        token, headers = request.path.removeprefix("/push/"), request.headers
        if token in self.gone or token not in self.subscriptions:
            raise PushRefused(410, "this subscription is gone")
        key, auth, sender = self.subscriptions[token]
        self._verify(headers.get("authorization", ""), sender)
        topic = headers.get("topic", "")
        checks = {
            "TTL is missing": headers.get("ttl", "").isdigit(),
            "Urgency is unknown": headers.get("urgency", "normal") in {"very-low", "low", "normal", "high"},
            "Topic is not up to 32 characters of base64url": len(topic) <= 32 and topic.replace("-", "").replace("_", "").isalnum(),
            "Content-Encoding is not aes128gcm": headers.get("content-encoding") == "aes128gcm",
        }
        for reason, is_fulfilled in checks.items():
            if not is_fulfilled:
                raise PushRefused(400, reason)
        if len(request.body) > _MAX_BODY_BYTES:
            raise PushRefused(413, "larger than 4096 bytes")
        try:
            content = http_ece.decrypt(request.body, private_key=key, auth_secret=auth, version="aes128gcm")  # pyright: ignore[reportUnknownMemberType] - no types
        except Exception as error:
            raise PushRefused(400, f"cannot be decrypted: {error}") from error
        self.messages.append(PushMessage(token=token, headers=headers, content=json.loads(content)))
        return {"Location": f"{self.origin}/message/{len(self.messages)}", "TTL": headers["ttl"]}

    def _verify(self, authorization: str, sender: str) -> None:
        scheme, _, rest = authorization.partition(" ")
        fields = dict(part.strip().split("=", 1) for part in rest.split(",") if "=" in part)
        if scheme.lower() != "vapid" or not {"t", "k"} <= fields.keys():
            raise PushRefused(401, "Authorization is not 'vapid t=…, k=…'")
        if fields["k"] != sender:
            raise PushRefused(403, "the key is not the one of the subscription")
        try:
            signed, _, signature = fields["t"].rpartition(".")
            header, claims = (json.loads(decode_base64url(part)) for part in signed.split("."))
            raw = decode_base64url(signature)
            r, s = int.from_bytes(raw[:32]), int.from_bytes(raw[32:])
            public = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode_base64url(sender))
            public.verify(utils.encode_dss_signature(r, s), signed.encode(), ec.ECDSA(hashes.SHA256()))
        except (ValueError, InvalidSignature) as error:
            raise PushRefused(403, f"the signature is wrong: {error}") from error
        if header != {"typ": "JWT", "alg": "ES256"} or claims.get("aud") != self.origin:
            raise PushRefused(403, "alg or aud is wrong")
        if not time.time() < claims.get("exp", 0) <= time.time() + _DAY_S:
            raise PushRefused(403, "exp has passed, or is more than a day away")
        if not str(claims.get("sub", "")).startswith(("mailto:", "https://")):
            raise PushRefused(403, "sub is neither mailto: nor https:")


@asynccontextmanager
async def run_push_service() -> AsyncGenerator[PushService]:
    """Run a push service on a free port of 127.0.0.1."""
    async with run_receiver() as receiver:
        service = PushService(receiver)
        receiver.reply = service.reply
        yield service
