"""The address of the operator's SMTP server, and e-mail addresses. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from rookery.kernel.errors import WrongSettings
from rookery.kernel.model_service_urls import parse_options
from rookery.kernel.secret import Secret

SMTP_FORM = "smtp://USER:PASSWORD@HOST:587?from=ADDRESS or smtps://USER:PASSWORD@HOST:465?from=ADDRESS"

Encryption = Literal["tls", "starttls", "none"]

_SETTING = "ROOKERY_SMTP"
_OPTIONS = frozenset({"from", "tls", "connections", "mails_per_connection", "rate", "dkim_selector"})
_DEFAULT_PORTS: dict[Encryption, int] = {"tls": 465, "starttls": 587, "none": 25}
_MAX_ADDRESS_BYTES = 254
_MAX_LOCAL_BYTES = 64
_MAX_DOMAIN_CHARS = 253
_LOCAL_PART = re.compile(r"[^\s\x00-\x1f\x7f<>()\[\]\\,;:@\"]+")
_DOMAIN_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_NAMED_ADDRESS = re.compile(r"([^<>\r\n]*)<([^<>]*)>")
_SELECTOR = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class MailAddress:
    """An e-mail address. The domain is in its ASCII form."""

    local_part: str
    domain: str
    name: str = ""

    @property
    def is_ascii(self) -> bool:
        """False: servers need SMTPUTF8 for it (RFC 6531)."""
        return self.local_part.isascii()

    def __str__(self) -> str:
        return f"{self.local_part}@{self.domain}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SmtpServer:
    """
    The operator's server and its limits.

    Attributes:
        connections: Maximum number of connections at the same time.
        mails_per_connection: Number of mails after which a connection is closed.
        rate: Maximum number of mails per second of this process; None: no limit.
        dkim_selector: The name of the DKIM key in DNS; None: mails are not signed.
    """

    host: str
    port: int
    encryption: Encryption
    user: str
    password: Secret
    sender: MailAddress
    connections: int = 4
    mails_per_connection: int = 100
    rate: float | None = None
    dkim_selector: str | None = None


def parse_mail_address(text: str) -> MailAddress:
    """
    Return the address in *text*, such as `kim@example.org` or `Kim <kim@example.org>`. The domain may be international.

    Raises:
        ValueError: The text is not one e-mail address.
    """
    match = _NAMED_ADDRESS.fullmatch(text)
    name, address = (match[1].strip().removeprefix('"').removesuffix('"'), match[2]) if match else ("", text)
    local_part, at, domain = address.rpartition("@")
    try:
        ascii_domain = domain.encode("idna").decode("ascii").lower()
    except UnicodeError:
        ascii_domain = ""
    labels = ascii_domain.split(".")
    is_valid = (
        bool(at)
        and _LOCAL_PART.fullmatch(local_part) is not None
        and not (local_part.startswith(".") or local_part.endswith(".") or ".." in local_part)
        and len(local_part.encode("utf-8", "replace")) <= _MAX_LOCAL_BYTES
        and len(ascii_domain) <= _MAX_DOMAIN_CHARS
        and len(f"{local_part}@{ascii_domain}".encode("utf-8", "replace")) <= _MAX_ADDRESS_BYTES
        and all(_DOMAIN_LABEL.fullmatch(label) for label in labels)
        and "\ufffd" not in local_part
        and not any("\ud800" <= character <= "\udfff" for character in local_part)
        and name.isprintable()
    )
    if not is_valid:
        msg = "must be one e-mail address, such as kim@example.org"
        raise ValueError(msg)
    return MailAddress(local_part=local_part, domain=ascii_domain, name=name)


def parse_smtp_address(address: str) -> SmtpServer:
    """
    Return the server that *address* describes.

    Raises:
        WrongSettings: The address is invalid. The message does not contain it.
    """
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise WrongSettings(f"{_SETTING}: invalid URL; use {SMTP_FORM}") from error
    if parts.scheme not in {"smtp", "smtps"}:
        raise WrongSettings(f"{_SETTING}: unknown scheme {parts.scheme[:40]!r}; use {SMTP_FORM}")
    if not host:
        raise WrongSettings(f"{_SETTING}: the host is missing; use {SMTP_FORM}")
    if parts.path.strip("/") or parts.fragment:
        raise WrongSettings(f"{_SETTING}: a path has no meaning, and # in a password is written %23; use {SMTP_FORM}")
    options = parse_options(parts.query, _SETTING, _OPTIONS)
    encryption = _read_encryption(parts.scheme, options.get("tls"))
    if "from" not in options:
        raise WrongSettings(f"{_SETTING}: from is missing, the address that sends; use {SMTP_FORM}")
    try:
        sender = parse_mail_address(options["from"])
    except ValueError as error:
        raise WrongSettings(f"{_SETTING}: from {error}") from None
    selector = options.get("dkim_selector")
    if selector is not None and _SELECTOR.fullmatch(selector) is None:
        raise WrongSettings(f"{_SETTING}: dkim_selector must be a name in DNS, such as mail2026")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if bool(user) != bool(password):
        raise WrongSettings(f"{_SETTING}: a login needs a user and a password; use {SMTP_FORM}")
    return SmtpServer(
        host=host,
        port=port or _DEFAULT_PORTS[encryption],
        encryption=encryption,
        user=user,
        password=Secret(password),
        sender=sender,
        connections=_read_int(options, "connections", default=4, maximum=100),
        mails_per_connection=_read_int(options, "mails_per_connection", default=100, maximum=1_000_000),
        rate=_read_int(options, "rate", default=0, maximum=100_000) or None,
        dkim_selector=selector,
    )


def _read_encryption(scheme: str, option: str | None) -> Encryption:
    if scheme == "smtps":
        if option is not None:
            raise WrongSettings(f"{_SETTING}: tls is for smtp://; smtps:// always begins with TLS")
        return "tls"
    if option == "none":
        return "none"
    if option in {None, "starttls"}:
        return "starttls"
    raise WrongSettings(f"{_SETTING}: tls must be starttls or none")


def _read_int(options: dict[str, str], name: str, *, default: int, maximum: int) -> int:
    text = options.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= maximum):
        raise WrongSettings(f"{_SETTING}: {name} must be a whole number from 1 to {maximum}")
    return int(text)
