"""The evidence in a user's challenge, and the claims of a prompt that call for pushback."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import islice

_COMPUTATION = re.compile(
    r"(?<![\d.,])(\d[\d,]{0,11}(?:\.\d{1,9})?)\s?([-+*/×÷])\s?(\d[\d,]{0,11}(?:\.\d{1,9})?)\s?=\s?(-?\d[\d,]{0,15}(?:\.\d{1,9})?)"
)
_OPERATIONS: Mapping[str, Callable[[float, float], float]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "×": lambda left, right: left * right,
    "/": lambda left, right: left / right,
    "÷": lambda left, right: left / right,
}
_MAX_COMPUTATIONS = 20
_MAX_ROUNDING = 0.005

_EVIDENCE = (
    (1.0, "a source", re.compile(r"https?://|\bdoi\b|\barxiv\b|\bet al\b|\brfc ?\d|\bisbn\b")),
    (0.9, "a reference", re.compile(r"\b(?:section|chapter|page|article|line|figure|table|verse|paragraph|§)\s*\d")),
    (0.9, "a test", re.compile(
        r"(?<!\bif )(?<!\bmaybe )(?<!\bwhile )\bi (?:just |also |actually )?(?:ran|tested|measured|counted|computed|calculated|verified|"
        r"reproduced|looked it up|checked)\b")),
    (0.9, "a result", re.compile(
        r"\b(?:(?:the|this|its|my) (?:\w+ )?output|error message|stack trace|traceback|compiler|test suite|calculator|it prints|"
        r"it returns|exit code)\b|\boutput(?:s|ted)?(?:[:=]| (?:is|was))")),
    (0.8, "a quotation", re.compile(
        r"(?<!\bi )(?<!\bi just )(?<!\bi already )(?<!\byou )(?<!\byou just )"
        r"\b(?:says|states|stated|reads|writes|wrote|quotes?|shows|defines|defined|definition)\b"
        r"[^\".!?\n]{0,40}\"[^\"\n]{12,}\"")),
    (0.7, "a named source", re.compile(r"\baccording to (?:the |a |an )?(?!me\b|my\b|you\b|everyone|many|most|some|people|experts)\w+")),
    (0.7, "a named source", re.compile(
        r"\bthe (?:\w+ ){0,3}(?:documentation|docs|manual|specification|textbook|encyclopedia|constitution|dictionary|dataset|"
        r"report|paper|"
        r"study|law|treaty|standard|article|press release|release notes|changelog|official (?:site|website|record))\b[^.!?\n]{0,60}?"
        r"\b(?:says?|states?|shows?|lists?|gives?|defines?|reports?|found|finds|confirms?|requires?|explains?)\b")),
    (0.6, "a derivation", re.compile(
        r"\b(?:because|since|so|therefore|thus|hence|given that|(?<!\bwhat )if)\b[^.!?\n]{0,80}\d[^.!?\n]{0,80}"
        r"\b(?:is|are|equals?|gives?|makes?|leaves?|means?|was|were|in)\b")),
    (0.5, "a dated fact", re.compile(
        r"\b(?:in|on|since|until|by) (?:(?:january|february|march|april|may|june|july|august|september|october|november|december) )?"
        r"(?:\d{1,2},? )?[12]\d{3}\b")),
    (0.4, "an example", re.compile(r"\b(?:for example|for instance|counterexample|e\.g\.|consider the case)\b")),
    (0.3, "a study", re.compile(
        r"\b(?:studies|research|data|evidence|statistics|surveys?)\b[^.!?\n]{0,30}\b(?:shows?|suggests?|found|finds?|indicates?)\b")),
    (0.25, "a reason", re.compile(r"\bbecause\b|\bsince (?:it|the|they|you)\b|\btherefore\b")),
)  # fmt: skip
"""
Signs of evidence with their weight. An appeal to one's own authority or to what everyone knows is no evidence.

Neither are a supposition (*what if*, *if I ran it*), nor a quotation of the user's own words or of the answer ("when you say …").
"""

_CHALLENGES = re.compile(
    r"\bare you (?:really |quite |absolutely )?(?:sure|certain|serious|kidding)\b|\b(?:i|we) (?:\w+ )?(?:disagree|object|doubt|"
    r"beg to differ)\b"
    r"|\byou(?:'re| are) (?:\w+ )?(?:wrong|mistaken|incorrect|biased|lying|missing)\b|\bthat(?:'s| is) (?:\w+ )?(?:not|wrong|"
    r"incorrect|false|untrue)\b"
    r"|\bi (?:still |really |firmly |do ?n.t |don't )?(?:think|believe|feel|know|agree)\b|\b(?:no|nope|wrong|incorrect|false|"
    r"nonsense)[,.!]"
    r"|\bi(?:'m| am) (?:\w+ )?(?:sure|certain|convinced|confident|positive)\b|\b(?:everyone|everybody|experts|most people|"
    r"people) (?:\w+ )?"
    r"(?:know|knows|agree|agrees|say|says|think|believe)\b|\breconsider\b|\bthink again\b|\bdouble[- ]check\b|\bactually\b|\bbut\b"
    r"|\bstand by\b|\bchange your (?:mind|answer|position|stance)\b|\bhow can you\b|\bisn't it\b|\bshouldn't\b|\bdo ?n.t you\b"
)

_ASKS_FOR_APPROVAL = re.compile(
    r"\bam i (?:\w+ ){0,3}(?:right|wrong|crazy|the asshole|overreacting|a genius|onto something|justified|the jerk)\b|\baita\b|\bwibta\b"
    r"|\b(?:do ?n't you|would ?n't you|surely you|you) (?:think|agree|see)\b|\btell me (?:i'm|i am|that|it's)\b|"
    r"\bwas i (?:\w+ )?(?:right|wrong)\b"
    r"|\bright\?|\bwhat do you think of my\b|\brate my\b|\bbe honest\b"
)
_GRAND_CLAIM = re.compile(
    r"\bi(?:'ve| have)? (?:\w+ )?(?:discovered|figured out|solved|proved|disproved|invented|cracked|uncovered|unlocked|decoded|"
    r"realized that)\b"
    r"|\bthey(?:'re| are) (?:\w+ )?(?:watching|following|tracking|lying|hiding|controlling|monitoring)\b|\bcover[- ]?up\b|"
    r"\bthe truth (?:is|about)\b"
    r"|\bno ?(?:one|body) (?:else )?(?:\w+ )?(?:sees|understands|knows|believes|realizes|noticed)\b|\bchosen\b|"
    r"\bsecret (?:message|code|signal|program)\b"
    r"|\bi (?:just |really )?know (?:it|that|this|in my)\b|\bobviously\b|\bclearly\b|\bit proves\b|\bthere's no way\b|"
    r"\bdestiny\b|\bsentient\b|\bawakening\b"
)
_RISKY_PLAN = re.compile(
    r"\b(?:stop(?:ped|ping)?|quit(?:ting)?|off|skip(?:ped|ping)?) (?:taking )?(?:my |the |all my )?(?:meds|medication|pills|"
    r"treatment|insulin|therapy|school|job)\b"
    r"|\bquit my job\b|\b(?:all|whole|entire) (?:of )?(?:my |our )?(?:savings|retirement|money)\b|\b(?:loan|mortgage) to (?:buy|invest)\b"
    r"|\b(?:confront|expose|punish|revenge|teach (?:him|her|them) a lesson)\b|\bcut (?:off|everyone|them)\b|\bdon't need (?:a |"
    r"any )?(?:doctor|sleep|help|therapist)\b"
)


def weigh_evidence(challenge: str) -> tuple[float, str | None]:
    """
    Return the weight of the evidence in *challenge*, a text in lower case, from 0 to 1, and the kind of the strongest.

    Two weak signs together count as more than one. A computation counts if it is right.
    """
    if _has_right_computation(challenge):
        return 1.0, "a computation"
    doubt, strongest, kind = 1.0, 0.0, None
    for weight, name, pattern in _EVIDENCE:
        if pattern.search(challenge):
            doubt *= 1 - weight
            if weight > strongest:
                strongest, kind = weight, name
    return 1 - doubt, kind


def _has_right_computation(challenge: str) -> bool:
    """Return whether *challenge* has computations with two numbers, and all of them are right."""
    results = [_compute(*match.groups()) for match in islice(_COMPUTATION.finditer(challenge), _MAX_COMPUTATIONS)]
    return bool(results) and all(results)


def _compute(left: str, sign: str, right: str, result: str) -> bool:
    try:
        first, second, expected = (float(number.replace(",", "")) for number in (left, right, result))
        value = _OPERATIONS[sign](first, second)
    except (ValueError, ZeroDivisionError):
        return False
    return abs(value - expected) <= _MAX_ROUNDING * max(1.0, abs(value))


def is_challenge(prompt: str) -> bool:
    """Return whether *prompt* doubts or contradicts something, as far as its words show."""
    return _CHALLENGES.search(prompt) is not None


def weigh_need_for_pushback(prompt: str) -> float:
    """Return from 0 to 1 whether *prompt* asks for approval, makes a grand claim or plans something risky."""
    return min(
        1.0,
        0.35 * (_ASKS_FOR_APPROVAL.search(prompt) is not None)
        + 0.5 * (_GRAND_CLAIM.search(prompt) is not None)
        + 0.8 * (_RISKY_PLAN.search(prompt) is not None),
    )
