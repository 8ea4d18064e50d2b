"""
Detection of personal data: payment cards, IBANs, e-mail and IP addresses, national identity numbers and telephone numbers.

Numbers are checked by their check digits and by the numbering plans of all countries. Formats with a weak check need a word nearby that
names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address

import phonenumbers
from phonenumbers import Leniency, NumberParseException, PhoneNumberMatcher
from stdnum import iban, luhn
from stdnum.au import tfn
from stdnum.be import nn
from stdnum.br import cpf
from stdnum.ca import sin
from stdnum.ch import ssn as ahv
from stdnum.cn import ric
from stdnum.de import idnr
from stdnum.dk import cpr
from stdnum.es import dni, nie
from stdnum.fi import hetu
from stdnum.fr import nir
from stdnum.gb import nhs
from stdnum.ie import pps
from stdnum.in_ import aadhaar, pan
from stdnum.it import codicefiscale
from stdnum.kr import rrn
from stdnum.mx import curp
from stdnum.nl import bsn
from stdnum.no import fodselsnummer
from stdnum.pl import pesel
from stdnum.pt import nif
from stdnum.se import personnummer
from stdnum.tr import tckimlik
from stdnum.us import ssn

from rookery.memory.maintenance.cleaning.redaction import PiiKind, PiiMatch

_IBAN = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]{1,4}){3,8}(?![A-Za-z0-9])")
_CARD = re.compile(r"(?<![\w.+/#-])\d(?:[ -]?\d){11,18}(?![\w]|[.,-]\d)")
_ISSUERS = re.compile(
    r"4\d{12}(?:\d{3}){0,2}|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}"
    r"|(?:6011|65\d\d|64[4-9]\d)\d{12,15}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[68]\d)\d{11}|62\d{14,17}|(?:50|5[6-9]|6[37])\d{10,17}"
)
"""Number ranges of issuers: Visa, Mastercard, American Express, Discover, JCB, Diners Club, UnionPay, Maestro."""

_MIN_CARD_DIGITS = 12


def find_ibans(text: str) -> Iterator[PiiMatch]:
    """Yield IBANs. A word that follows an IBAN is not taken as part of it."""
    for match in _IBAN.finditer(text):
        stop = match.end()
        while stop > match.start():
            if iban.is_valid(text[match.start() : stop], check_country=False):
                yield PiiMatch(kind=PiiKind.IBAN, start=match.start(), stop=stop)
                break
            stop = max(text.rfind(" ", match.start(), stop), text.rfind("-", match.start(), stop))


def find_cards(text: str) -> Iterator[PiiMatch]:
    """Yield card numbers with a known issuer and a valid check digit."""
    for match in _CARD.finditer(text):
        digits = re.sub(r"[ -]", "", match[0])
        has_issuer = len(digits) >= _MIN_CARD_DIGITS and len(set(digits)) > 1 and _ISSUERS.fullmatch(digits) is not None
        if has_issuer and luhn.is_valid(digits) and _is_grouped(match[0]):
            yield PiiMatch(kind=PiiKind.CARD, start=match.start(), stop=match.end())


def _is_grouped(text: str) -> bool:
    """Return whether a number is written in one piece or in groups as on a card, and not as a list of short numbers."""
    groups = re.split(r"[ -]", text)
    return len(groups) == 1 or (all(len(group) >= 3 for group in groups[:-1]) and len(groups) <= 5 and len({*text} & {" ", "-"}) == 1)


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


_LEAD_CHARS = 48
"""Characters before a number in which the naming word must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdFormat:
    """
    The format of a country's identity numbers.

    Attributes:
        is_valid: Checks the digits.
        words: Words of which one must precede the number; None if pattern and check suffice.
    """

    pattern: re.Pattern[str]
    is_valid: Callable[[str], bool]
    words: re.Pattern[str] | None = None


def _id_format(pattern: str, is_valid: Callable[[str], bool], words: str | None = None) -> IdFormat:
    return IdFormat(
        pattern=re.compile(rf"(?<![\w.+/#=-])(?<!\d )(?:{pattern})(?![\w]|[-.,/ ]\d)", re.IGNORECASE),
        is_valid=is_valid,
        words=None if words is None else re.compile(rf"(?<![^\W_])(?:{words})(?![^\W_])", re.IGNORECASE),
    )


def _accept_any(number: str) -> bool:
    return bool(number)


def _is_pan(number: str) -> bool:
    return pan.is_valid(number.upper())


def _has_digit(number: str) -> bool:
    return any(character.isdigit() for character in number)


ID_FORMATS = (
    _id_format(r"\d{3}-\d{2}-\d{4}", ssn.is_valid),
    _id_format(r"\d{3}[ ]?\d{2}[ ]?\d{4}", ssn.is_valid, r"ssn|social security(?: number| no)?"),
    _id_format(r"(?![DFIQUV]|.[DFIQUVO]|BG|GB|KN|NK|NT|TN|ZZ)[A-Z]{2}[ ]?\d{2}[ ]?\d{2}[ ]?\d{2}[ ]?[A-D]", _accept_any),
    _id_format(r"\d{3}[ -]\d{3}[ -]\d{4}|\d{10}", nhs.is_valid, r"nhs(?: number| no)?"),
    _id_format(r"[12][ ]?\d{2}[ ]?(?:0[1-9]|1[0-2]|[2-9]\d)[ ]?(?:\d{2}|2[AB])[ ]?\d{3}[ ]?\d{3}[ ]?\d{2}", nir.is_valid),
    _id_format(r"[A-Z]{6}[0-9LMNPQRSTUV]{2}[A-EHLMPRST][0-9LMNPQRSTUV]{2}[A-Z][0-9LMNPQRSTUV]{3}[A-Z]", codicefiscale.is_valid),
    _id_format(r"\d{8}[- ]?[A-Z]", dni.is_valid),
    _id_format(r"[XYZ][- ]?\d{7}[- ]?[A-Z]", nie.is_valid),
    _id_format(r"(?:19|20)?\d{2}(?:0[1-9]|1[0-2])[0-3]\d[-+]\d{4}", personnummer.is_valid),
    _id_format(r"[0-3]\d[01]\d{3}[-+A-FU-Y]\d{3}[0-9A-Y]", hetu.is_valid),
    _id_format(r"[0-3]\d[01]\d{3}[- ]?\d{4}", cpr.is_valid, r"cpr(?:-nummer| nr| number)?|personnummer"),
    _id_format(r"[0-7]\d[01]\d{3}[ ]?\d{5}", fodselsnummer.is_valid),
    _id_format(r"\d{11}", pesel.is_valid, r"pesel"),
    _id_format(r"\d{2}\.\d{2}\.\d{2}-\d{3}\.\d{2}", nn.is_valid),
    _id_format(r"\d{9}", bsn.is_valid, r"bsn|burgerservicenummer|sofinummer"),
    _id_format(r"\d{2}[ ]?\d{3}[ ]?\d{3}[ ]?\d{3}", idnr.is_valid, r"steuer-?id(?:entifikationsnummer|nr)?|idnr|tax id|steuernummer"),
    _id_format(r"756\.\d{4}\.\d{4}\.\d{2}", ahv.is_valid),
    _id_format(r"\d{7}[A-W][A-IW]?", pps.is_valid, r"ppsn?(?: number| no)?"),
    _id_format(r"\d{9}", nif.is_valid, r"nif|contribuinte"),
    _id_format(r"\d{3}\.\d{3}\.\d{3}-\d{2}", cpf.is_valid),
    _id_format(r"\d{11}", cpf.is_valid, r"cpf"),
    _id_format(r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z0-9]\d", curp.is_valid),
    _id_format(r"\d{3}[ -]\d{3}[ -]\d{3}|\d{9}", sin.is_valid, r"sin|social insurance(?: number| no)?"),
    _id_format(r"[2-9]\d{3}[ ]\d{4}[ ]\d{4}", aadhaar.is_valid),
    _id_format(r"\d{12}", aadhaar.is_valid, r"aadhaar|uidai"),
    _id_format(r"[A-Z]{5}\d{4}[A-Z]", _is_pan, r"pan(?: card| number| no)?"),
    _id_format(r"[1-9]\d{5}(?:19|20)\d{2}[01]\d[0-3]\d\d{3}[0-9X]", ric.is_valid),
    _id_format(r"\d{2}[01]\d[0-3]\d-[0-9]\d{6}", rrn.is_valid),
    _id_format(r"[1-9]\d{10}", tckimlik.is_valid, r"tc ?kimlik(?: no)?|t\.?c\.? no"),
    _id_format(r"\d{2}[01]\d[0-3]\d[ ]?\d{4}[ ]?[01][ ]?\d{2}", luhn.is_valid, r"south african id|rsa id|id number|sa id"),
    _id_format(r"\d{3}[ ]?\d{3}[ ]?\d{3}", tfn.is_valid, r"tfn|tax file number"),
    _id_format(r"[A-Z]{0,3}\d{6,9}[A-Z]?", _accept_any, r"passport(?: no| number| nr)?|reisepass(?:nummer)?"),
    _id_format(r"[CFGHJKLMNPRTVWXYZ][0-9CFGHJKLMNPRTVWXYZ]{8}", _has_digit, r"passport(?: no| number| nr)?|reisepass(?:nummer)?"),
)


def find_national_ids(text: str) -> Iterator[PiiMatch]:
    """Yield identity numbers of people, not of companies."""
    if sum(map(str.isdigit, text)) < 4:
        return
    for id_format in ID_FORMATS:
        if id_format.words is not None and id_format.words.search(text) is None:
            continue
        for match in id_format.pattern.finditer(text):
            if id_format.words is not None and id_format.words.search(text, max(0, match.start() - _LEAD_CHARS), match.start()) is None:
                continue
            if id_format.is_valid(match[0].replace(" ", "")):
                yield PiiMatch(kind=PiiKind.NATIONAL_ID, start=match.start(), stop=match.end())


REGIONS = ("US", "GB", "DE", "FR", "ES", "IT", "NL", "IN", "BR", "AU", "CH", "AT", "SE", "PL")
"""Countries whose national numbers are detected without a country code, if a word nearby names a telephone."""

_MIN_DIGITS = 7
_PHONE_WORDS = re.compile(
    r"\b(?:tel|t[eé]l[eé](?:ph?one?|fono)|telefon(?:nummer|o)?|telephone|phones?|call(?:ed|ing)?|mobile|cell(?=\s?(?:phone|number|no\b|:|is\b))"
    r"|handy|fax|whatsapp|signal|sms|text(?:ed)?|ring|dial(?:s|ed)?|reach(?:able|ed)?|hotline|pager|landline|voicemail|móvil"
    r"|portable|celular|mobiel)\b",
    re.IGNORECASE,
)
_NATIONAL = re.compile(r"(?<![\w.+/:=#@-])(?<!\d[ ,])\(?\d(?:[ ./()-]{0,2}\d){6,13}(?![\w/@]|[-.,:]\d)")
_AMERICAN = re.compile(r"\(\d{3}\) ?\d{3}[-. ]\d{4}|\d{3}-\d{3}-\d{4}|\d{3}\.\d{3}\.\d{4}|1-\d{3}-\d{3}-\d{4}")
_INTERNATIONAL = re.compile(r"(?<![\w.+-])00[ ]?[1-9]\d(?:[ ./()-]{0,2}\d){6,13}(?!\w|[-.,:]\d)")
_DATE = re.compile(r"(?:19|20)\d{2}([-./ ])\d{1,2}\1\d{1,2}|\d{1,2}([-./ ])\d{1,2}\2(?:19|20)\d{2}|(?:19|20)\d{2}[ -]{1,3}(?:19|20)\d{2}")
_EXTENSION = re.compile(r"\s?(?:x|ext\.?|extension|Durchwahl)\s?\d{1,6}\b", re.IGNORECASE)


def find_phones(text: str) -> Iterator[PiiMatch]:
    """Yield numbers with a country code, and national numbers that have a typical format or a telephone word nearby."""
    if sum(map(str.isdigit, text)) < _MIN_DIGITS:
        return
    if "+" in text:
        for match in PhoneNumberMatcher(text, None, Leniency.POSSIBLE, 1_000):
            if phonenumbers.is_valid_number(match.number) or len(str(match.number.national_number)) >= _MIN_DIGITS:
                yield _build_match(text, match.start, match.end)
    for match in _INTERNATIONAL.finditer(text):
        if _is_number("+" + match[0].removeprefix("00").strip(), None):
            yield _build_match(text, match.start(), match.end())
    has_phone_word = _PHONE_WORDS.search(text) is not None
    for match in _NATIONAL.finditer(text):
        if _is_national(text, match, has_phone_word=has_phone_word):
            yield _build_match(text, match.start(), match.end())


def _is_national(text: str, match: re.Match[str], *, has_phone_word: bool) -> bool:
    if _DATE.fullmatch(match[0]) is not None:
        return False
    if _AMERICAN.fullmatch(match[0]) is not None and _is_number(match[0], "US"):
        return True
    is_named = has_phone_word and _PHONE_WORDS.search(text, max(0, match.start() - _LEAD_CHARS), match.start()) is not None
    return is_named and any(_is_number(match[0], region) for region in REGIONS)


def _is_number(number: str, region: str | None) -> bool:
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(number, region))
    except NumberParseException:
        return False


def _build_match(text: str, start: int, stop: int) -> PiiMatch:
    extension = _EXTENSION.match(text, stop)
    return PiiMatch(kind=PiiKind.PHONE, start=start, stop=extension.end() if extension else stop)
