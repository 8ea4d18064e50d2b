"""Detection of secrets: a table of providers' token formats, and values after words such as `password`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rookery.memory.maintenance.cleaning.redaction import PiiKind, PiiMatch

_WORD_START = r"(?<![A-Za-z0-9])"

SECRET_PATTERNS = tuple(
    re.compile(_WORD_START + shape)
    for shape in (
        r"sk_(?:live|test)_[A-Za-z0-9]{16,}",  # ours, and Stripe's
        r"rk_(?:live|test)_[A-Za-z0-9]{16,}",
        r"ak_[A-Za-z0-9]{32}(?![A-Za-z0-9])",
        r"whsec_[A-Za-z0-9+/=_-]{16,}",
        r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}(?![A-Za-z0-9])",
        r"gh[pousr]_[A-Za-z0-9]{30,}",
        r"github_pat_[A-Za-z0-9_]{22,}",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt)-[A-Za-z0-9_-]{16,}",
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}",
        r"xapp-\d-[A-Z0-9]+-\d+-[a-f0-9]{20,}",
        r"hooks\.slack\.com/services/[A-Z0-9]{6,}/[A-Z0-9]{6,}/[A-Za-z0-9]{16,}",
        r"sk-(?:ant|proj|or|svcacct|admin)-[A-Za-z0-9_-]{16,}",
        r"sk-[A-Za-z0-9]{32,}",
        r"AIza[A-Za-z0-9_-]{35}",
        r"ya29\.[A-Za-z0-9_-]{20,}",
        r"GOCSPX-[A-Za-z0-9_-]{20,}",
        r"npm_[A-Za-z0-9]{30,}",
        r"pypi-AgE[A-Za-z0-9_-]{40,}",
        r"hf_[A-Za-z0-9]{30,}",
        r"dop_v1_[a-f0-9]{40,}",
        r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
        r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}",
        r"SK[0-9a-f]{32}(?![A-Za-z0-9])",
        r"lin_api_[A-Za-z0-9]{30,}",
        r"secret_[A-Za-z0-9]{40,}",
        r"ntn_[A-Za-z0-9]{40,}",
        r"dckr_pat_[A-Za-z0-9_-]{20,}",
        r"hv[sb]\.[A-Za-z0-9_-]{24,}",
        r"(?:glc|glsa)_[A-Za-z0-9_=+/-]{30,}",
        r"sq0(?:atp|csp)-[A-Za-z0-9_-]{20,}",
        r"key-[0-9a-f]{32}(?![A-Za-z0-9])",
        r"\d{8,10}:AA[A-Za-z0-9_-]{32,34}(?![A-Za-z0-9_-])",  # Telegram
        r"AGE-SECRET-KEY-1[A-Z0-9]{50,}",
        r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}",
        r"sbp_[a-f0-9]{40}",
        r"dapi[a-f0-9]{32}(?![A-Za-z0-9])",
        r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",  # a JSON Web Token
    )
)

_LONG_WORD = re.compile(r"\S{15}")
"""A pre-check: every format has at least 15 characters, and most prose has no such word."""

_PEM = re.compile(r"-----BEGIN (?P<what>[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?)-----.*?(?:-----END (?P=what)-----|\Z)", re.DOTALL)
_URL_PASSWORD = re.compile(r"(?<=://)[^\s/:@\"'<>]{0,100}:(?P<value>[^\s/@\"'<>]{2,200})@")
_HEADER = re.compile(
    r"\b(?:Bearer|Basic|Token)\s{1,3}(?P<value>(?=[A-Za-z._~+/=-]{0,200}\d|[A-Za-z0-9._~+/=-]{32})[A-Za-z0-9._~+/=-]{16,})", re.IGNORECASE
)
_NAMED_SECRET = re.compile(
    r"(?<![^\W_])(?:(?:pg|db|my|sql|smtp|root|admin|user)?pass(?:word|wd|phrase|code)?"
    r"|pwd|kennwort|passwort|contraseña|mot de passe|secrets?|credentials?|pin"
    r"|(?:api|access|auth|account|signing|encryption|private|secret|client|session|refresh|webhook|master|deploy|shared)"
    r"[ _-]?(?:key|token|secret|password)"
    r"|token|api[ _-]?key)"
    r"(?:[ _-](?:key|token|id|value|code))?(?:\s(?:for|of)\s[\w./-]{1,40})?"
    r"(?P<glue>[\"'`*]{0,3}(?:\sis)?\s{0,3}(?:[:=]{1,2}>?|\sis\s(?:now\s|still\s|set\sto\s)?|\swas\s|\sto\s)\s{0,3}[\"'`*]{0,3})"
    r"(?P<value>[^\s\"'`,;<>]{4,200})",
    re.IGNORECASE,
)
"""A name, the glue between name and value, and the value."""

_SPOKEN_SECRETS = tuple(
    re.compile(shape, re.IGNORECASE)
    for shape in (
        r"\b(?:pin|passcode|(?:door|access|alarm|entry|gate) code)\s{0,2}(?:is|:|=)?\s{0,2}(?P<value>\d{4,8}#?)(?![\w.-])",
        r"\b(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n]{0,80}?\s-p[\"']?(?P<value>[^\s\"']{4,64})",
        r"\b(?:log-?in|credentials?|user(?:name)?)\b[^/\n]{0,24}\s/\s(?P<value>(?=\S{0,64}\d)(?=\S{0,64}[A-Za-z])[^\s,;]{6,64}[^\s,;.])",
        r"(?<=://)(?P<value>[A-Za-z0-9_-]{20,100})@",
    )
)
"""Secrets in prose and commands, written without a colon."""

_PLACEHOLDER = re.compile(
    r"\[|\$|%|\{|\(|\*+$|x{3,}|\.{2,}|os\.|env\.|process\.|settings\.|config\.|self\.|ENV|https?://|/|~|.*\("
    r"|(?:null|none|nil|true|false|undefined|string|str|int|required|optional|empty"
    r"|redacted|hidden|changeme|example|secret|password|token|value|unset|missing|invalid|expired|rotated|stored|kept|wrong|correct|encrypted|hashed)$",
    re.IGNORECASE,
)
_TRAILING_PUNCTUATION = ".,;:)]}"
_MIN_NAMED_CHARS = 6
_PIN = re.compile(r"\d{4,8}")


def find_secrets(text: str) -> Iterator[PiiMatch]:
    """Yield secrets: known formats first, then values after a name."""
    if "PRIVATE KEY" in text:
        yield from _find_whole(_PEM, text)
    if _LONG_WORD.search(text):
        for shape in SECRET_PATTERNS:
            yield from _find_whole(shape, text)
    if "://" in text:
        yield from _find_values(_URL_PASSWORD, text)
    for shape in (_HEADER, *_SPOKEN_SECRETS):
        yield from _find_values(shape, text)
    for match in _NAMED_SECRET.finditer(text):
        value = match["value"].rstrip(_TRAILING_PUNCTUATION)
        is_prose = ":" not in match["glue"] and "=" not in match["glue"]
        if _is_secret(value, name=match[0][: match.start("value") - match.start()], is_prose=is_prose):
            yield PiiMatch(kind=PiiKind.SECRET, start=match.start("value"), stop=match.start("value") + len(value))


def _find_whole(pattern: re.Pattern[str], text: str) -> Iterator[PiiMatch]:
    for match in pattern.finditer(text):
        yield PiiMatch(kind=PiiKind.SECRET, start=match.start(), stop=match.end())


def _find_values(pattern: re.Pattern[str], text: str) -> Iterator[PiiMatch]:
    for match in pattern.finditer(text):
        if _PLACEHOLDER.match(match["value"]) is None:
            yield PiiMatch(kind=PiiKind.SECRET, start=match.start("value"), stop=match.end("value"))


def _is_secret(value: str, *, name: str, is_prose: bool) -> bool:
    """Return whether *value* is likely a secret and not a word. Words in prose have no digits; code has brackets and dots."""
    lowercase_name = name.lower()
    if _PLACEHOLDER.match(value) is not None:
        return False
    if lowercase_name.lstrip().startswith(("pin", "passcode")):
        return _PIN.fullmatch(value) is not None
    if len(value) < _MIN_NAMED_CHARS:
        return False
    has_digit = any(character.isdigit() for character in value)
    has_letter = any(character.isalpha() for character in value)
    has_sign = any(not character.isalnum() and character not in "-_./" for character in value)
    is_mixed = any(map(str.isupper, value[1:])) and any(map(str.islower, value))
    if is_prose:
        return has_letter and has_digit and (has_sign or is_mixed or "pass" in lowercase_name or len(value) >= 12)
    return has_letter and (has_digit or has_sign or (is_mixed and "pass" in lowercase_name) or len(value) >= 24)
