"""Detection of account numbers: payment cards and IBANs, by their check digits."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stdnum import iban, luhn

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
