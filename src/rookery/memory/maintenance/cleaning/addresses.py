"""Detection of e-mail and IP addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address

from rookery.memory.maintenance.cleaning.redaction import PiiKind, PiiMatch

_EMAIL = re.compile(
    r"(?<![\w.+%@/-])(?P<user>[^\W_](?:[\w.+%'-]{0,62}[\w+%-])?)(?:@|%40)(?P<host>(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24})(?![\w@-])"
)
_SPELLED_EMAIL = re.compile(
    r"(?<![\w.+-])[a-z0-9][\w.+-]{0,62}\s?(?:\(at\)|\[at\]|\{at\})\s?[a-z0-9-]{1,63}(?:\s?(?:\(dot\)|\[dot\]|\{dot\}|\.)\s?[a-z0-9-]{2,63}){1,4}",
    re.IGNORECASE,
)
_NON_DOMAIN_SUFFIXES = frozenset(
    "png jpg jpeg gif svg webp avif ico css js ts jsx tsx map html pdf woff ttf mp4 service socket timer".split()
)
"""Suffixes of file names, `logo@2x.png`, and of systemd units, `getty@tty1.service`."""

_REPOSITORY_USERS = frozenset({"git", "hg", "svn"})
"""User names in the addresses of repositories."""

_IPV4 = re.compile(r"(?<![\w.])(?<!\d-)(\d{1,3}(?:\.\d{1,3}){3})(?:/(\d{1,2}))?(?![\w-]|\.\d)")
_IPV6 = re.compile(
    r"(?<![\w:.])([0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?:\d{0,3}(?:\.\d{1,3}){3})?)(?:%\w{1,15})?(?:/(\d{1,3}))?(?![\w:])"
)
_VERSION_PREFIX = re.compile(
    r"(?:\b(?:v|ver|versions?|released?|build|kernel|firmware|driver|upgraded? to|sections?|chapter|clause|figure|oid|§+)\.?\s{0,2}"
    r"|[=~^<>]=?\s{0,2}|[\w-]@)$",
    re.IGNORECASE,
)
_MAX_LEAD_CHARS = 24
_MIN_V6_GROUPS = 3


def find_emails(text: str) -> Iterator[PiiMatch]:
    """Yield e-mail addresses, also those with `(at)` or, in a link, `%40`."""
    if "@" in text or "%40" in text:
        for match in _EMAIL.finditer(text):
            is_repository = match["user"].lower() in _REPOSITORY_USERS and text[match.end() : match.end() + 1] in {":", "/"}
            if match["host"].rpartition(".")[2].lower() not in _NON_DOMAIN_SUFFIXES and not is_repository:
                yield PiiMatch(kind=PiiKind.EMAIL, start=match.start(), stop=match.end())
    lowercase_text = text.lower()
    if any(spelling in lowercase_text for spelling in ("(at)", "[at]", "{at}")):
        for match in _SPELLED_EMAIL.finditer(text):
            yield PiiMatch(kind=PiiKind.EMAIL, start=match.start(), stop=match.end())


def find_ips(text: str) -> Iterator[PiiMatch]:
    """Yield IP addresses of hosts. Loopback, masks, networks and four-part version numbers are skipped."""
    if text.count(".") > 2:
        for match in _IPV4.finditer(text):
            if _is_host_v4(match[1], match[2]) and not _VERSION_PREFIX.search(
                text[max(0, match.start() - _MAX_LEAD_CHARS) : match.start()]
            ):
                yield PiiMatch(kind=PiiKind.IP, start=match.start(), stop=match.end(1))
    if text.count(":") > 1:
        for match in _IPV6.finditer(text):
            if _is_host_v6(match[1], match[2]):
                yield PiiMatch(kind=PiiKind.IP, start=match.start(), stop=match.end(1))


def _is_host_v4(address_text: str, prefix: str | None) -> bool:
    try:
        address = IPv4Address(address_text)
    except AddressValueError:
        return False
    if address.is_loopback or address.is_multicast or address.packed[0] in {0, 255}:
        return False
    return prefix is None or int(prefix) >= 32 or int(address) & ((1 << (32 - int(prefix))) - 1) != 0


def _is_host_v6(address_text: str, prefix: str | None) -> bool:
    groups = [group for group in address_text.split(":") if group]
    if not any(character.isdigit() for character in address_text) or (len(groups) < _MIN_V6_GROUPS and len(groups[0]) < 4):
        return False
    try:
        address = IPv6Address(address_text)
    except AddressValueError:
        return False
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        return False
    return prefix is None or int(prefix) >= 128 or int(address) & ((1 << (128 - int(prefix))) - 1) != 0
