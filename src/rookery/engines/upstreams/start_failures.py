"""
Memory of failed starts, which decides how often a program is started that fails again.

Some servers exit on a first message of another protocol era, so a program that exits at its start may have to be started again with the
other message. A program that lacks a credential or a module exits too, and a second start would only repeat that:

- A program that exits before it has read anything failed for a reason of its own, at the first attempt already. Most programs check their
  configuration before they read.
- A program that exits after it has read the first message is started again with the other one. This is how strict servers are opened at
  the first attempt. If the second start fails too, the next attempt starts it once. If both starts failed in the same way, the first
  message is the same again. Otherwise it is `initialize`, on which no known server exits.
- If that start fails in another way than before, the program or its surroundings have changed, and it is started again with the other
  message.

A change of the entry, a restart of Rookery or a start that succeeds clears this memory.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass

from rookery.engines.upstreams.negotiation import FirstMessage, Negotiation
from rookery.tools.models import Server, ServerTarget

_MAX_SERVERS = 1000
"""Limit on the servers whose failures are kept. Beyond it, the one that failed first is forgotten."""
_CHANGING_WORD = re.compile(r"\b[0-9a-fA-F-]*\d[0-9a-fA-F-]*\b")
"""Pattern of times, process ids and the like, which differ from start to start."""


@dataclass(frozen=True, slots=True)
class Symptom:
    """The exit code and the reason of a failed start. Equal symptoms have the same cause."""

    exit_code: int | None
    reason: str

    @classmethod
    def describe(cls, exit_code: int | None, reason: str) -> Symptom:
        """Return the symptom of a start that ended with *reason*. Times and numbers in it do not count."""
        return cls(exit_code, _CHANGING_WORD.sub("#", reason))


@dataclass(frozen=True, slots=True)
class _Failure:
    """The next start of *target*, and the symptom with which it fails if nothing has changed. *first* None: the message as planned."""

    target: ServerTarget
    first: FirstMessage | None
    symptom: Symptom


class StartFailures:
    """The programs that failed at their last attempt with either first message."""

    def __init__(self) -> None:
        self._failures: OrderedDict[str, _Failure] = OrderedDict()

    def choose(self, server: Server, planned: Negotiation) -> Negotiation:
        """Return the negotiation of the next start: *planned*, or one that begins with `initialize`."""
        failure = self._find(server)
        return planned if failure is None or failure.first is None else Negotiation(failure.first)

    def is_known(self, server: Server, symptom: Symptom) -> bool:
        """Return whether *server* fails in this way with any first message."""
        failure = self._find(server)
        return failure is not None and failure.symptom == symptom

    def record(self, server: Server, symptoms: dict[FirstMessage, Symptom]) -> None:
        """Record that both starts of an attempt failed, each with a symptom."""
        is_same = len(set(symptoms.values())) == 1
        self._failures.pop(server.key, None)
        self._failures[server.key] = _Failure(server.target, None if is_same else "initialize", symptoms["initialize"])
        if len(self._failures) > _MAX_SERVERS:
            self._failures.popitem(last=False)

    def forget(self, server: Server) -> None:
        """Forget the failures of a server that has started."""
        self._failures.pop(server.key, None)

    def _find(self, server: Server) -> _Failure | None:
        failure = self._failures.get(server.key)
        return failure if failure is not None and failure.target == server.target else None
