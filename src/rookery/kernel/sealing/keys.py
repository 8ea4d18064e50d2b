"""One secret key, and what it does to a text. Pure: no store, no file."""

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
"""Every sealed text begins with its version and its key's id; texts of one key have one head."""


class DecryptionFailed(EngineUnavailable):
    """What is sealed cannot be opened: by another key, damaged, or moved from where it belongs."""

    def __init__(self, reason: str) -> None:
        super().__init__("secrets", reason)


@dataclass(frozen=True, slots=True)
class SealContext:
    """Where a sealed text belongs: *purpose* it is, whose, and the row that holds it. It opens nowhere else."""

    purpose: str
    workspace_id: int
    id: str

    def __bytes__(self) -> bytes:
        return orjson.dumps([self.purpose, self.workspace_id, self.id])


class SecretKey:
    """
    A key made of a text of the operator's, or of secret.key's.

    The text is expanded by HKDF-SHA256 (RFC 5869), so its form does not matter, but its chance does: HKDF does not slow down
    whoever guesses. `id` is public.

    AES-GCM itself bears 2³² texts a key with nonces drawn by chance (NIST SP 800-38D, 8.3), which a busy server has after some
    months. So each text has a key of its own, made of half of a nonce of 192 bits, as XAES-256-GCM does it (C2SP).
    """

    __slots__ = ("_root", "head", "id")

    def __init__(self, text: Secret) -> None:
        extracted = hmac.digest(b"rookery secret key", text.reveal().encode(), "sha256")
        named = hmac.digest(extracted, b"id\x01", "sha256")[:_ID_BYTES]
        self._root = hmac.digest(extracted, b"seal\x01", "sha256")
        self.id = named.hex()
        self.head = _FORMAT_VERSION + named

    def __repr__(self) -> str:
        return f"SecretKey({self.id})"

    def seal(self, text: bytes, context: SealContext) -> bytes:
        """Return *text*, 49 bytes longer, so that only this key opens it, at *context*; its length is not hidden."""
        nonce = os.urandom(_NONCE_BYTES)
        return self.head + nonce + self._cipher(nonce).encrypt(nonce[_SUBKEY_BYTES:], text, self.head + bytes(context))

    def open(self, sealed: bytes, context: SealContext) -> bytes:
        """
        Return the text that this key sealed for *context*.

        Raises:
            Unreadable: It did not, or something was changed since.
        """
        nonce, rest = sealed[HEAD_BYTES : HEAD_BYTES + _NONCE_BYTES], sealed[HEAD_BYTES + _NONCE_BYTES :]
        try:
            return self._cipher(nonce).decrypt(nonce[_SUBKEY_BYTES:], rest, sealed[:HEAD_BYTES] + bytes(context))
        except (InvalidTag, ValueError) as error:
            raise DecryptionFailed(f"a sealed {context.purpose} is damaged, or not where it was sealed for") from error

    def _cipher(self, nonce: bytes) -> AESGCM:
        return AESGCM(hmac.digest(self._root, nonce[:_SUBKEY_BYTES], "sha256"))


def parse_key_id(head: bytes) -> str | None:
    """Return the id of the key that sealed what begins with *head*; None: nothing of ours does."""
    return head[1:HEAD_BYTES].hex() if len(head) >= HEAD_BYTES and head[:1] == _FORMAT_VERSION else None
