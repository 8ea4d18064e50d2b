"""One secret key, and the encryption with it. Pure: no store, no file."""

from __future__ import annotations

import hmac
import os
from dataclasses import dataclass

import orjson
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.secret import Secret

_FORMAT_VERSION = b"\x01"
_ID_BYTES = 8
_NONCE_BYTES = 24
_SUBKEY_BYTES = 12
HEAD_BYTES = len(_FORMAT_VERSION) + _ID_BYTES
"""Every encrypted value begins with a format version and the id of its key. Values of one key have the same head."""


class DecryptionFailed(EngineUnavailable):
    """A value cannot be decrypted: it belongs to another key, is damaged, or was moved from its place."""

    def __init__(self, reason: str) -> None:
        super().__init__("secrets", reason)


@dataclass(frozen=True, slots=True)
class SealContext:
    """The place to which an encrypted value is bound: the kind of value, the workspace, and the row. It opens nowhere else."""

    purpose: str
    workspace_id: int
    id: str

    def __bytes__(self) -> bytes:
        return orjson.dumps([self.purpose, self.workspace_id, self.id])


class SecretKey:
    """
    A secret key, derived from a text of the operator or of secret.key.

    The text is expanded by HKDF-SHA256 (RFC 5869). Its form does not matter, but it must be random, because HKDF does not slow down
    guessing. `id` is public.

    With random nonces, AES-GCM allows 2³² values per key (NIST SP 800-38D, 8.3), which a busy server reaches after some months.
    Therefore each value gets a subkey, derived from half of a nonce of 192 bits, as in XAES-256-GCM (C2SP).
    """

    __slots__ = ("_root", "head", "id")

    def __init__(self, text: Secret) -> None:
        extracted = hmac.digest(b"rookery secret key", text.reveal().encode(), "sha256")
        key_id = hmac.digest(extracted, b"id\x01", "sha256")[:_ID_BYTES]
        self._root = hmac.digest(extracted, b"seal\x01", "sha256")
        self.id = key_id.hex()
        self.head = _FORMAT_VERSION + key_id

    def __repr__(self) -> str:
        return f"SecretKey({self.id})"

    def seal(self, text: bytes, context: SealContext) -> bytes:
        """Encrypt *text* for *context*. The result is 49 bytes longer; the length of the text is not hidden."""
        nonce = os.urandom(_NONCE_BYTES)
        return self.head + nonce + self._cipher(nonce).encrypt(nonce[_SUBKEY_BYTES:], text, self.head + bytes(context))

    def open(self, sealed: bytes, context: SealContext) -> bytes:
        """
        Decrypt a value that this key encrypted for *context*.

        Raises:
            DecryptionFailed: The value belongs to another key or context, or has been changed.
        """
        nonce, rest = sealed[HEAD_BYTES : HEAD_BYTES + _NONCE_BYTES], sealed[HEAD_BYTES + _NONCE_BYTES :]
        try:
            return self._cipher(nonce).decrypt(nonce[_SUBKEY_BYTES:], rest, sealed[:HEAD_BYTES] + bytes(context))
        except (InvalidTag, ValueError) as error:
            raise DecryptionFailed(f"an encrypted {context.purpose} is damaged, or was moved to another row") from error

    def _cipher(self, nonce: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self._root, nonce[:_SUBKEY_BYTES], "sha256"))


def parse_key_id(head: bytes) -> str | None:
    """Return the id of the key of a value that begins with *head*; None if its form is unknown."""
    return head[1:HEAD_BYTES].hex() if len(head) >= HEAD_BYTES and head[:1] == _FORMAT_VERSION else None
