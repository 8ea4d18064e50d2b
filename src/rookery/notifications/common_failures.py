"""
Failures that all targets have in common, such as a receiver that answers 404 to every message after a wrong deployment (D-70).

One subscriber whose address is wrong fails alone. If many in a row fail with the same error and none is accepted, the fault is not theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rookery.notifications.messages import ChannelType, SendOutcome
from rookery.notifications.models import NotificationState
from rookery.notifications.sending import SendAttempt, evaluate_attempt_result

MIN_COMMON_FAILURES = 10
"""Failures in a row after which the fault is common."""

_JUDGES_OF_ADDRESSES = frozenset({ChannelType.EMAIL, ChannelType.WEBPUSH})
"""The types whose services know all addresses, so that many of them may be gone. The oldest ones are sent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonFailure:
    """
    Failed attempts to one host whose fault is not that of the subscribers. Their channels stay active.

    Attributes:
        pause_reason: Why the campaign is paused, so that the deliveries are open again; None: other hosts accept its messages.
    """

    attempts: Sequence[SendAttempt]
    pause_reason: str | None


@dataclass(slots=True)
class _HostFailures:
    """The last failures in a row of one host, all with the same reason."""

    is_accepting: bool = False
    reason: str | None = None
    attempts: list[SendAttempt] = field(default_factory=list[SendAttempt])


@dataclass(slots=True)
class FailureStreaks:
    """The failures of a campaign by type of channel and host, since this process leased it."""

    _hosts: dict[tuple[ChannelType, str], _HostFailures] = field(default_factory=dict[tuple[ChannelType, str], _HostFailures])
    _accepting_types: set[ChannelType] = field(default_factory=set[ChannelType])

    def record(self, attempt: SendAttempt) -> CommonFailure | None:
        """Add an attempt. Return the failures with *attempt* if their fault is common; None if it is not."""
        kind, host, outcome = attempt.claim.channel.type, attempt.claim.channel.host, attempt.result.outcome
        failures = self._hosts.setdefault((kind, host), _HostFailures())
        if outcome is SendOutcome.SENT:
            failures.is_accepting = True
            failures.attempts.clear()
            self._accepting_types.add(kind)
            return None
        if failures.is_accepting or not _is_final(attempt) or (outcome is SendOutcome.GONE and kind in _JUDGES_OF_ADDRESSES):
            return None
        if failures.reason != attempt.result.reason:
            failures.reason = attempt.result.reason
            failures.attempts.clear()
        failures.attempts.append(attempt)
        count = len(failures.attempts)
        if count < MIN_COMMON_FAILURES:
            return None
        attempts = failures.attempts if count == MIN_COMMON_FAILURES else [attempt]
        return CommonFailure(attempts=tuple(attempts), pause_reason=self._describe(kind, host, attempt))

    def _describe(self, kind: ChannelType, host: str, attempt: SendAttempt) -> str | None:
        """Return the reason of a pause; None if another host accepts messages of this type."""
        if kind in self._accepting_types:
            return None
        target = f"{kind.value} messages" + (f" to {host}" if host else "")
        return f"{MIN_COMMON_FAILURES} {target} failed with the same error, and none was accepted: {attempt.result.reason}"


def _is_final(attempt: SendAttempt) -> bool:
    return evaluate_attempt_result(attempt).state in {NotificationState.FAILED, NotificationState.UNKNOWN}
