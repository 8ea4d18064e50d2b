"""Digests of the targets of servers: what was learnt of one target is not used for another. No I/O."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import cache
from importlib import metadata

import orjson

from rookery.tools.models import CommandTarget, HttpTarget, Server
from rookery.tools.program_names import find_program_word


def fingerprint(server: Server) -> str:
    """
    Return a digest of a server's target, and after a dot that of its program. Secrets are excluded.

    Features of another target are not reused. Those of the same program, perhaps with other arguments, variables or headers, are shown
    until it was listed.
    """
    target = server.target
    match target:
        case CommandTarget():
            parts: list[object] = ["stdio", target.command, target.args, sorted(target.env), target.cwd]
        case HttpTarget():
            parts = [target.kind, _redact_secrets(target.secrets, target.url), sorted(target.headers)]
        case _:
            parts = ["builtin", server.id, _get_own_version()]
    return f"{_digest(parts)}.{fingerprint_program(server)}"


def fingerprint_program(server: Server) -> str:
    """
    Return a digest of the program that an entry starts, or of the URL that it reaches.

    The program of `npx -y name`, `docker run name` or `node file.js` is the name or the file.
    """
    target = server.target
    match target:
        case CommandTarget():
            return _digest(["stdio", target.command, find_program_word((target.command, *target.args))])
        case HttpTarget():
            return _digest([target.kind, _redact_secrets(target.secrets, target.url)])
        case _:
            return _digest(["builtin", server.id, _get_own_version()])


def is_of_target(stored_fingerprint: str, server: Server) -> bool:
    """Return whether something was learnt of the target of *server*. Fingerprints of earlier versions lack the program."""
    return stored_fingerprint.partition(".")[0] == fingerprint(server).partition(".")[0]


def is_of_program(stored_fingerprint: str, server: Server) -> bool:
    """Return whether something was learnt of the program of *server*."""
    return stored_fingerprint.partition(".")[2] == fingerprint_program(server)


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()


@cache  # reads a file
def _get_own_version() -> str:
    return metadata.version("rookery")


def _redact_secrets(secrets: Iterable[str], text: str) -> str:
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "…") if secret else text
    return text
