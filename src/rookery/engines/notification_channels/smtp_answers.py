"""
The meaning of answers of SMTP servers: about the sender, the mailbox, or this mail (RFC 5321, RFC 3463, RFC 7505). Pure.

Servers use the same codes for different things, so the words count too: `550 5.1.1` stands for an unknown mailbox, and at some sites for
"no outside mail". Exim sends no enhanced codes at all.
"""

from __future__ import annotations

import re

_ENHANCED_CODE = re.compile(r"\s*([245])\.(\d{1,3})\.(\d{1,3})\b")
_GONE = frozenset({(1, 1), (1, 2), (1, 6), (1, 10)})
"""Subject and detail of an address that does not exist."""

_SENDER_QUOTAS = frozenset({(4, 5), (5, 3)})
"""A congested or limited mail system, and too many recipients: the sender's quota."""

_SYSTEM, _POLICY = 3, 7
_MAILBOX = 2

_LIMIT = re.compile(
    r"rate[- ]?limit|throttl|too (?:many|fast|much|frequent)|slow(?:ing)? down|unusual rate"
    r"|\b(?:send\w*|daily|hourly|day|hour|minute|outgoing|outbound|messages?|e?mails?|recipients?|users?|accounts?|connections?|ip)\b"
    r"[\w' -]{0,40}?\b(?:rates?|limit\w*|quota\w*)\b"
    r"|\b(?:rate|limit|quota)\b[\w' -]{0,30}?\b(?:exceed\w*|reached|hit)\b|\bexceed\w*\b[\w' -]{0,40}?\b(?:rate|limit|quota)\b"
    r"|sender rate",
    re.IGNORECASE,
)
_OF_MAILBOX_OR_SIZE = re.compile(
    r"mailbox|inbox|\bsize\b|too (?:big|large|long)|\bfull\b|storage|disk|recipient'?s? (?:account|quota|is over)", re.IGNORECASE
)
_OF_RECIPIENT = re.compile(r"recipient address|<[^<>\s]*@", re.IGNORECASE)
_GREYLISTED = re.compile(r"gr[ea]y[- ]?list", re.IGNORECASE)
_POLICY_WORDS = re.compile(
    r"polic|outside|external|not (?:allowed|permitted|authori[sz]ed)|prohibit|denied|relay|block|administrat|reputation|spam"
    r"|restrict|banned",
    re.IGNORECASE,
)
_UNKNOWN_MAILBOX = re.compile(
    r"un-?routeable address|no such (?:user|recipient|mailbox|address|account|person|local user)|no mailbox"
    r"|(?:unknown|invalid|nonexistent|non-existent) (?:or illegal )?(?:user|recipient|mailbox|address|local part|account)"
    r"|(?:user|recipient|mailbox|address|account)\b[^.;]{0,60}?\b(?:unknown|not found|(?:does not|doesn'?t) exist|not known|not exist)",
    re.IGNORECASE,
)


def is_about_sender(code: int, text: str) -> bool:
    """Return whether a refusal is about the sender or the server itself, and would be the same for other recipients."""
    subject, detail = _read_enhanced_code(text)
    if code == 421 or (subject, detail) in _SENDER_QUOTAS:
        return True
    if _GREYLISTED.search(text) is not None or subject == _MAILBOX:
        return False
    if code < 500 and subject in {_SYSTEM, _POLICY} and _OF_RECIPIENT.search(text) is None:
        return True
    return _LIMIT.search(text) is not None and _OF_MAILBOX_OR_SIZE.search(text) is None


def is_gone(text: str) -> bool:
    """Return whether the enhanced code of a permanent refusal says that the address does not exist, and its words do not deny it."""
    return _read_enhanced_code(text) in _GONE and _POLICY_WORDS.search(text) is None


def is_unknown_mailbox(code: int, text: str) -> bool:
    """Return whether a recipient was refused without an enhanced code, by the usual words for a mailbox that does not exist."""
    has_code = _ENHANCED_CODE.match(text) is not None
    return code == 550 and not has_code and _UNKNOWN_MAILBOX.search(text) is not None and _POLICY_WORDS.search(text) is None


def _read_enhanced_code(text: str) -> tuple[int, int]:
    """Return the subject and the detail of the enhanced code; zeros without one."""
    match = _ENHANCED_CODE.match(text)
    return (0, 0) if match is None else (int(match[2]), int(match[3]))
