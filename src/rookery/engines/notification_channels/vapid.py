"""The key that identifies this installation to push services, and its tokens (VAPID, RFC 8292)."""

from __future__ import annotations

import re
from datetime import datetime
from urllib.parse import urlsplit

import orjson
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

from rookery.engines.notification_channels.push_encryption import CURVE, decode_base64url, encode_base64url, encode_point
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.secret import Secret
from rookery.notifications.ports import InstallationKeys

TOKEN_LIFETIME_S = 12 * 3600
"""Push services accept at most 24 hours."""

_SCALAR_BYTES = 32
_HEADER = encode_base64url(orjson.dumps({"typ": "JWT", "alg": "ES256"}))
_DEFAULT_PORTS = {"http": 80, "https": 443}
_UNROUTABLE = re.compile(r"(?:.*\.)?(?:localhost|local|internal|invalid|test|example)")

KEY_FORMS = "must be a P-256 private key: 32 bytes in base64url, DER in base64url, or PEM"


class VapidKey:
    """A private key. `public_key` is the one that browsers subscribe with."""

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        self._key = key
        self.public_key = encode_base64url(encode_point(key.public_key()))

    @classmethod
    def parse(cls, text: Secret) -> VapidKey:
        """
        Return the key in *text*.

        Raises:
            ValueError: It is not a P-256 private key. The message does not contain it.
        """
        raw = text.reveal().strip()
        try:
            if raw.startswith("-----"):
                key = load_pem_private_key(raw.encode(), password=None)
            elif len(data := decode_base64url(raw.replace("+", "-").replace("/", "_"))) == _SCALAR_BYTES:
                key = ec.derive_private_key(int.from_bytes(data), CURVE)
            else:
                key = load_der_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ValueError(KEY_FORMS) from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or not isinstance(key.curve, ec.SECP256R1):
            raise ValueError(KEY_FORMS)  # noqa: TRY004 - the text is wrong, not a type
        return cls(key)

    def authorize(self, endpoint: str, *, subject: str, at: datetime) -> str:
        """Return the Authorization header of a request to *endpoint*."""
        claims = {"aud": get_origin(endpoint), "exp": int(at.timestamp()) + TOKEN_LIFETIME_S, "sub": subject}
        signed = f"{_HEADER}.{encode_base64url(orjson.dumps(claims))}"
        r, s = utils.decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        signature = encode_base64url(r.to_bytes(_SCALAR_BYTES) + s.to_bytes(_SCALAR_BYTES))
        return f"vapid t={signed}.{signature}, k={self.public_key}"


def get_origin(url: str) -> str:
    """Return the exact origin of *url*: scheme, host, and the port if it is not the usual one."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    is_usual = parts.port is None or parts.port == _DEFAULT_PORTS.get(parts.scheme)
    return f"{parts.scheme}://{host}" + ("" if is_usual else f":{parts.port}")


def find_subject_warning(subject: str) -> str | None:
    """Return why a push service such as Apple's refuses *subject*; None if it is fine."""
    host = subject.rpartition("@")[2] if subject.startswith("mailto:") else (urlsplit(subject).hostname or "")
    if "." not in host or _UNROUTABLE.fullmatch(host):
        return f"{subject} is not an address on the Internet, and Apple's push service refuses it"
    return None


class VapidKeys:
    """Loads the key at first use."""

    def __init__(self, configured: Secret | None, stored: InstallationKeys) -> None:
        self._configured = configured
        self._stored = stored
        self._key: VapidKey | None = None

    async def load(self) -> VapidKey:
        """
        Return the key.

        Raises:
            EngineUnavailable: The stored key cannot be decrypted.
            WrongSettings: The configured key is invalid.
        """
        if self._key is None:
            if self._configured is not None:
                self._key = parse_configured_key(self._configured)
            else:
                try:
                    self._key = VapidKey.parse(await self._stored.get_vapid_key())
                except ValueError as error:
                    raise EngineUnavailable("secrets", "the stored VAPID key is damaged") from error
        return self._key


def parse_configured_key(text: Secret) -> VapidKey:
    """Return the key of the setting. Raises `WrongSettings`."""
    try:
        return VapidKey.parse(text)
    except ValueError as error:
        raise WrongSettings(f"ROOKERY_VAPID_PRIVATE_KEY: {error}") from None
