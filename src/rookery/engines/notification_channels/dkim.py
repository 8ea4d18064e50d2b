"""DKIM signatures of mails: relaxed/relaxed, RSA-SHA256 (RFC 6376)."""

from __future__ import annotations

import base64
import re
from datetime import datetime
from hashlib import sha256

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from rookery.kernel.errors import WrongSettings
from rookery.kernel.secret import Secret

SIGNED_HEADERS = (
    "from",
    "to",
    "subject",
    "date",
    "message-id",
    "list-unsubscribe",
    "list-unsubscribe-post",
    "mime-version",
    "content-type",
)
"""RFC 8058 requires that both List-Unsubscribe headers are signed."""

_MIN_KEY_BITS = 1024
_WHITESPACE = re.compile(rb"[ \t]+")
_SIGNATURE_LINE_CHARS = 70


class DkimSigner:
    """
    Signs mails with the key of a domain.

    Args:
        key: An RSA private key as PEM, not encrypted.

    Raises:
        WrongSettings: The key is not one. The message does not contain it.
    """

    def __init__(self, key: Secret, *, domain: str, selector: str) -> None:
        self._key = _load_key(key)
        self._domain = domain
        self._selector = selector

    def sign(self, mail: bytes, *, at: datetime) -> bytes:
        """Return *mail* with a signature as its first header. It must have CRLF line ends."""
        head, _, body = mail.partition(b"\r\n\r\n")
        headers = _split_headers(head)
        names = [name for name in SIGNED_HEADERS if name in headers]
        body_hash = base64.b64encode(sha256(_canonicalize_body(body)).digest()).decode()
        unsigned = (
            f"v=1; a=rsa-sha256; c=relaxed/relaxed; d={self._domain}; s={self._selector};\r\n"
            f" t={int(at.timestamp())}; h={':'.join(names)};\r\n bh={body_hash};\r\n b="
        )
        covered = b"".join(_canonicalize_header(name, headers[name]) + b"\r\n" for name in names)
        covered += _canonicalize_header("dkim-signature", unsigned.encode())
        signature = base64.b64encode(self._key.sign(covered, padding.PKCS1v15(), SHA256())).decode()
        chunks = [signature[start : start + _SIGNATURE_LINE_CHARS] for start in range(0, len(signature), _SIGNATURE_LINE_CHARS)]
        return b"DKIM-Signature: " + (unsigned + "\r\n ".join(chunks)).encode() + b"\r\n" + mail


def _load_key(key: Secret) -> RSAPrivateKey:
    advice = "must be an RSA private key in PEM, such as the output of `openssl genrsa 2048`"
    try:
        loaded = load_pem_private_key(key.reveal().encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise WrongSettings(f"ROOKERY_DKIM_KEY: {advice}") from None
    if not isinstance(loaded, RSAPrivateKey):
        raise WrongSettings(f"ROOKERY_DKIM_KEY: {advice}; many receivers accept no other kind")
    if loaded.key_size < _MIN_KEY_BITS:
        raise WrongSettings(f"ROOKERY_DKIM_KEY: the key has {loaded.key_size} bits; receivers require at least {_MIN_KEY_BITS}")
    return loaded


def _split_headers(head: bytes) -> dict[str, bytes]:
    """Return the raw values of the headers by lower-case name. The mails have each header once."""
    lines = re.split(rb"\r\n(?![ \t])", head)
    pairs = (line.split(b":", 1) for line in lines)
    return {name.decode("ascii").lower(): value for name, value in pairs}


def _canonicalize_header(name: str, value: bytes) -> bytes:
    unfolded = value.replace(b"\r\n", b"")
    return name.encode() + b":" + _WHITESPACE.sub(b" ", unfolded).strip(b" \t")


def _canonicalize_body(body: bytes) -> bytes:
    lines = [_WHITESPACE.sub(b" ", line).rstrip(b" ") for line in body.split(b"\r\n")]
    while lines and not lines[-1]:
        lines.pop()
    return b"".join(line + b"\r\n" for line in lines)
