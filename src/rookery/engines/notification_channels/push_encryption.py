"""The encryption of push messages for one browser (RFC 8291, aes128gcm of RFC 8188)."""

from __future__ import annotations

import base64
import hmac
import os
from binascii import Error as InvalidBase64

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CURVE = ec.SECP256R1()
MAX_MESSAGE_BYTES = 4096
"""The largest encrypted message that every push service accepts (RFC 8030, 7.2)."""

_SALT_BYTES = 16
_POINT_BYTES = 65
_LAST_RECORD = b"\x02"
_OVERHEAD_BYTES = _SALT_BYTES + 4 + 1 + _POINT_BYTES + len(_LAST_RECORD) + 16
MAX_CONTENT_BYTES = MAX_MESSAGE_BYTES - _OVERHEAD_BYTES


def decode_base64url(text: str) -> bytes:
    """Return the bytes of *text*, with or without padding. Raises ValueError."""
    try:
        return base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_", validate=True)
    except InvalidBase64 as error:
        raise ValueError(str(error)) from None


def encode_base64url(data: bytes) -> str:
    """Return *data* in base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def encode_point(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return the uncompressed point of a public key."""
    return key.public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def encrypt(
    content: bytes, *, p256dh: str, auth: str, salt: bytes | None = None, private_key: ec.EllipticCurvePrivateKey | None = None
) -> bytes:
    """
    Return the body of a push message with *content*, which has at most `MAX_CONTENT_BYTES`.

    Args:
        p256dh: The public key of the subscription.
        auth: The secret of the subscription.
        salt: Random, and used once. Tests pass their own, and a *private_key*.

    Raises:
        ValueError: A key of the subscription is invalid.
    """
    auth_secret = decode_base64url(auth)
    receiver = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, decode_base64url(p256dh))
    if len(auth_secret) != _SALT_BYTES:
        msg = "auth must be 16 bytes"
        raise ValueError(msg)
    salt = os.urandom(_SALT_BYTES) if salt is None else salt
    sender = ec.generate_private_key(CURVE) if private_key is None else private_key
    sender_point = encode_point(sender.public_key())
    shared = sender.exchange(ec.ECDH(), receiver)
    key_material = _derive(auth_secret, shared, b"WebPush: info\x00" + encode_point(receiver) + sender_point, 32)
    key = _derive(salt, key_material, b"Content-Encoding: aes128gcm\x00", 16)
    nonce = _derive(salt, key_material, b"Content-Encoding: nonce\x00", 12)
    header = salt + MAX_MESSAGE_BYTES.to_bytes(4) + bytes([_POINT_BYTES]) + sender_point
    return header + AESGCM(key).encrypt(nonce, content + _LAST_RECORD, None)


def _derive(salt: bytes, key_material: bytes, info: bytes, length: int) -> bytes:
    """Return HKDF-SHA256 (RFC 5869) of at most 32 bytes."""
    return hmac.digest(hmac.digest(salt, key_material, "sha256"), info + b"\x01", "sha256")[:length]
