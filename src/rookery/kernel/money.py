"""
Amounts of money: whole billionths of the unit of a currency, so that sums are exact. They are rounded only where people read them.

The tokens that are paid for are estimated from the length of texts, where no tokenizer is at hand. No I/O.
"""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal

NANOS_PER_UNIT = 1_000_000_000
"""Billionths in one unit of currency. A price of 1 per million tokens is 1,000 billionths per token."""

DEFAULT_CURRENCY = "USD"

_DEFAULT_DECIMALS = 2
_SIGNIFICANT_DIGITS = 2
"""Digits of an amount below one unit, after its zeros: most calls cost less than the smallest coin."""

_CODES_BY_DECIMALS = {
    2: """
        AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CNY COP CRC CUP CVE CZK DKK DOP
        DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR
        LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB
        SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD UYU UZS VED VES WST XCD XCG
        YER ZAR ZMW ZWG
    """,
    0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX VND VUV XAF XOF XPF",
    3: "BHD IQD JOD KWD LYD OMR TND",
}
"""The currencies of ISO 4217 that people pay with, by the decimals of their smallest coin."""

_DECIMALS_BY_CODE = {code: decimals for decimals, codes in _CODES_BY_DECIMALS.items() for code in codes.split()}

CURRENCIES = frozenset(_DECIMALS_BY_CODE)
"""The codes that the setting accepts."""


def to_amount(nanos: int) -> float:
    """Return billionths as an amount of the currency."""
    return float(Decimal(nanos) / NANOS_PER_UNIT)


def to_exact_amount(nanos: int) -> str:
    """Return billionths as a decimal number without rounding, such as `0.000045`."""
    text = f"{Decimal(nanos) / NANOS_PER_UNIT:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def from_amount(amount: float) -> int:
    """Return an amount of the currency as billionths, rounded."""
    return int((Decimal(str(amount)) * NANOS_PER_UNIT).to_integral_value())


def format_money(amount: float, currency: str, *, separator: str = ",") -> str:
    """
    Return an amount as people read it, such as `12.35 USD`.

    An amount below one unit has as many decimals as its first two digits need, such as `0.00021 USD`.

    Args:
        separator: The text between thousands.
    """
    value = Decimal(str(amount))
    decimals = _DECIMALS_BY_CODE.get(currency, _DEFAULT_DECIMALS)
    if value and abs(value) < 1:
        decimals = max(decimals, _SIGNIFICANT_DIGITS - 1 - math.floor(math.log10(abs(value))))
    rounded = value.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_HALF_UP)
    return f"{rounded:,f} {currency}".replace(",", separator)


CHARS_PER_TOKEN = 4
"""Characters of a token in an estimate. It is about right for English, and too high for most other languages and for code."""
