"""Checks of the form of URLs and host names that users give. No I/O."""

from __future__ import annotations

import hashlib
import re
from ipaddress import ip_address
from urllib.parse import urlsplit

MAX_URL_LENGTH = 2_048

MASK = "***"
"""Stands for a token or a login in a response."""

_PRINTABLE_ASCII = re.compile(r"[!-~]+")
_HOST_NAME = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?)*")
_NUMERIC_LABEL = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MAX_HOST_LENGTH = 253
_TOKEN = re.compile(r"[0-9A-Za-z]{16}|[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-")
"""A part of a path that has a token: many letters and digits without a separator, or the beginning of a UUID."""

_MASK_DIGEST_LENGTH = 8
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]{0,30}):(?://|$)")


def find_url_error(url: str) -> str | None:
    """Return the error in a URL, or None if it is valid. The address behind it is not checked."""
    if len(url) > MAX_URL_LENGTH:
        return f"must be at most {MAX_URL_LENGTH} characters"
    if _PRINTABLE_ASCII.fullmatch(url) is None:
        return "must be printable ASCII without spaces; write other letters of a host name as xn--…, and the rest as %XX"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "is not a valid URL"
    if parts.scheme not in {"http", "https"} or not host or port == 0:
        return "must be an http or https URL, such as https://example.org/hooks"
    if "@" in parts.netloc:
        return "must not contain a user name or a password; verify signatures instead"
    if not is_host(host):
        return "must have a host name, or an address written as 192.0.2.1 or [2001:db8::1]"
    if "#" in url:
        return "must not have a fragment, which would not be sent"
    return None


def hide_secrets(url: str) -> str:
    """
    Return *url* without its query and without the parts of its path that look like tokens, as chat services have them.

    The digest that stands for them tells URLs apart.
    """
    address, question_mark, _ = url.partition("?")
    start = address.find("/", address.find("://") + 3)
    base, path = (address, "") if start < 0 else (address[:start], address[start:])
    mask = make_mask(url)
    parts = [mask if _TOKEN.search(part) else part for part in path.split("/")]
    return base + "/".join(parts) + (question_mark and f"?{mask}")


def make_mask(text: str) -> str:
    """Return the mask of a secret *text*. Its digest distinguishes texts."""
    return f"{MASK}-{hashlib.sha256(text.encode()).hexdigest()[:_MASK_DIGEST_LENGTH]}"


def show_scheme(address: str) -> str:
    """Return the scheme of *address* for a message, quoted and after a space. Empty without one: then the text may be a secret."""
    match = _SCHEME.match(address)
    return f" {match[1]!r}" if match else ""


def is_host(host: str) -> bool:
    """
    Return whether *host* is unambiguous.

    Programs interpret `0177.0.0.1`, `127.1` or `2130706433` differently: as a name or as an address.
    """
    try:
        ip_address(host)
    except ValueError:
        name = host.removesuffix(".")
        is_numeric = _NUMERIC_LABEL.fullmatch(name.rpartition(".")[2]) is not None
        return len(name) <= _MAX_HOST_LENGTH and _HOST_NAME.fullmatch(name) is not None and not is_numeric
    return "%" not in host
