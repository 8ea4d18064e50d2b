"""
Detection of national identity numbers.

A table lists their formats, each with its country's check. Formats with a weak check need a word nearby that names them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stdnum import luhn
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
