"""Detection of telephone numbers, by the numbering plans of all countries."""

from __future__ import annotations

import re
from collections.abc import Iterator

import phonenumbers
from phonenumbers import Leniency, NumberParseException, PhoneNumberMatcher

from rookery.memory.maintenance.cleaning.redaction import PiiKind, PiiMatch

REGIONS = ("US", "GB", "DE", "FR", "ES", "IT", "NL", "IN", "BR", "AU", "CH", "AT", "SE", "PL")
"""Countries whose national numbers are detected without a country code, if a word nearby names a telephone."""

_MIN_DIGITS = 7
_LEAD_CHARS = 48
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
