"""Advice on a command whose start failed, from the reason that it gave."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rookery.tools.errors import ConnectFailed, HandshakeRefused, StartTimedOut
from rookery.tools.models import CommandTarget

_CREDENTIAL = re.compile(r"token|api.?key|credential|password|secret|access.?key|log.?in|authenticat", re.IGNORECASE)
_MISSING = re.compile(
    r"missing|required|requires|\bno\b.*\b(?:provided|found|set|given)|not (?:provided|set|defined|found|given)|provide|must|undefined"
    r"|KeyError|\bunset\b|\bset (?:the|your|it|[A-Z])|\bneeds?\b",
    re.IGNORECASE,
)
_REJECTED = re.compile(
    r"\b401\b|unauthori[sz]ed|(?:invalid|incorrect|bad|expired) (?:\w+ ){0,2}(?:token|key|credentials?|password)|authentication failed",
    re.IGNORECASE,
)
_VARIABLE = re.compile(r"\b(?!ERR_|NODE_|E[A-Z]+\b)[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_MAX_NAMED_VARIABLES = 3
_LINES_AFTER_REASON = 2
"""Lines after the reason that may name the variable."""

_WRONG_SDK = re.compile(r"(?:ImportError|AttributeError|TypeError|ModuleNotFoundError)\b.*(?:['\"]mcp\b|'(?:Server|FastMCP)'|\bFastMCP\b)")
_RULES = (
    (_WRONG_SDK, 'It may be made for another version of the Python package `mcp`. Install it with that one, such as "mcp<2".'),
    (
        re.compile(r"ImportError|ModuleNotFoundError|Cannot find (?:module|package)|ERR_MODULE_NOT_FOUND"),
        "A package that it needs is missing. Install the server again, with all that it needs.",
    ),
    (
        re.compile(r"npm error (?:code E)?404|not found in the package registry|No solution found|No matching distribution", re.IGNORECASE),
        "Check the name and the version of the package in `args` of its entry.",
    ),
    (
        re.compile(
            r"fetch failed|\b(?:ENOTFOUND|EAI_AGAIN|ECONN(?:REFUSED|RESET|ABORTED)|ETIMEDOUT)\b|getaddrinfo"
            r"|connection (?:refused|aborted|timed out)|name or service not known|name resolution|network is unreachable"
            r"|max retries exceeded|no such host|dial tcp|cannot connect to",
            re.IGNORECASE,
        ),
        "It cannot reach a service that it needs. Check that the service runs, and the network of Rookery's host.",
    ),
    (
        re.compile(
            r"no such file or directory|ENOENT|ENOTDIR|does not exist|doesn't exist|not a directory|not a (?:valid )?git repository"
            r"|cannot access|not accessible|are accessible|permission denied|EACCES",
            re.IGNORECASE,
        ),
        "Check the folders and files in `args`, `env` and `cwd` of its entry. They must exist on Rookery's host and be open to its user.",
    ),
    (
        re.compile(
            r"unrecogni[sz]ed (?:argument|option)|unknown (?:command|argument|option|flag)|unexpected argument|no such option"
            r"|invalid option|arguments? (?:are|is|were) (?:required|missing|not provided)"
            r"|required arguments? (?:were|was|are|is)|too many arguments",
            re.IGNORECASE,
        ),
        "Correct `args` in its entry.",
    ),
)  # fmt: skip
_EXITED = re.compile(r"The server (?:exited with code (\d+)|was killed by signal)")


HANDSHAKE_ADVICE = (
    "It rejected `initialize` after `server/discover`, with which Rookery asks a server for its protocol. If it accepts `initialize` only "
    'as its first message, set "protocol": "handshake" in its entry.'
)


def advise_on_start(target: CommandTarget, failed: ConnectFailed, lines: Sequence[str]) -> str:
    """Return what to do about a failed start of *target*. *lines*: what the process wrote."""
    error = str(failed)
    if error.startswith("The program "):
        return "Install it on Rookery's host, or use its absolute path."
    if error.startswith("The directory "):
        return "Create the directory, or correct `cwd` in its entry."
    if advice := _advise_on_credential(target, error, lines):
        return advice
    for pattern, advice in _RULES:
        if pattern.search(error):
            return advice
    if isinstance(failed, HandshakeRefused):
        return HANDSHAKE_ADVICE
    if isinstance(failed, StartTimedOut):
        return (
            "Run its command in a terminal: a server waits silently for input, and writes only protocol messages to standard output. "
            "If it is only slow to start, raise `start_timeout_s` in its entry."
        )
    exited = _EXITED.match(error)
    if exited is None:
        return "Run its command in a terminal. A server waits silently for input, and writes only protocol messages to standard output."
    if exited[1] == "0":
        return (
            "Check `args` of its entry: the program ended without serving, as it does after a help text or a command that is done at once."
        )
    return "Run its command in a terminal with the variables of `env` in its entry, and read its whole output."


def _advise_on_credential(target: CommandTarget, error: str, lines: Sequence[str]) -> str:
    """Return advice if *error* names a missing variable, or a missing or rejected credential; else an empty text."""
    is_about_credential = _CREDENTIAL.search(error) is not None
    names = _VARIABLE.findall(error)
    if not names and is_about_credential:
        position = next((number for number, line in enumerate(lines) if line and error.endswith(line)), None)
        if position is not None:
            names = _VARIABLE.findall(" ".join(lines[position + 1 : position + 1 + _LINES_AFTER_REASON]))
    names = list(dict.fromkeys(names))[:_MAX_NAMED_VARIABLES]
    if _REJECTED.search(error):
        return "Its credential was rejected. Check the variables in `env` and the values in `args` of its entry."
    if not (names or is_about_credential) or not _MISSING.search(error):
        return ""
    if not names:
        return "It needs a credential. Set the variable that its documentation names in `env` of its entry."
    if all(name in target.env for name in names):
        return f"Check the value of {' and '.join(names)} in `env` of its entry."
    if len(names) == 1:
        return f"Set {names[0]} in `env` of its entry."
    return f"Set what it needs in `env` of its entry: {', '.join(names)}."
