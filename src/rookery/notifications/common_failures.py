"""
Failures that all targets have in common, such as a receiver that answers 404 to every message after a wrong deployment (D-70).

One subscriber whose address is wrong fails alone. If many in a row fail with the same error and none is accepted, the fault is not theirs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from rookery.notifications.messages import ChannelType, SendOutcome
from rookery.notifications.models import NotificationState
from rookery.notifications.sending import SendAttempt, evaluate_attempt_result

MIN_COMMON_FAILURES = 10
"""Failures in a row after which the fault is common."""

MAX_HOSTS = 256
"""Hosts of a campaign whose failures are counted. Of the million that subscribers may have, those with the latest results count."""

_JUDGES_OF_ADDRESSES = frozenset({ChannelType.EMAIL, ChannelType.WEBPUSH})
"""The types whose services know all addresses, so that many of them may be gone. The oldest ones are sent first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedSend:
    """A failed attempt, without the attributes of the subscriber, which may be large."""

    delivery_id: str
    workspace_id: int
    campaign_id: str
    channel_id: str
    subscriber_id: str
    external_id: str
    outcome: SendOutcome

    @classmethod
    def from_attempt(cls, attempt: SendAttempt) -> Self:
        """Return the failure of *attempt*."""
        claim = attempt.claim
        return cls(
            delivery_id=claim.id,
            workspace_id=claim.workspace_id,
            campaign_id=claim.campaign_id,
            channel_id=claim.channel.id,
            subscriber_id=claim.channel.subscriber_id,
            external_id=claim.external_id,
            outcome=attempt.result.outcome,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonFailure:
    """
    Failed attempts to one host whose fault is not that of the subscribers. Their channels stay active.

    Attributes:
        pause_reason: Why the campaign is paused, so that the deliveries are open again; None: other hosts accept its messages.
    """

    sends: Sequence[FailedSend]
    pause_reason: str | None


@dataclass(slots=True)
class _HostFailures:
    """The last failures in a row of one host, all with the same reason. *sends* are those that no common failure has yet."""

    is_accepting: bool = False
    reason: str | None = None
    count: int = 0
    sends: list[FailedSend] = field(default_factory=list[FailedSend])

    def begin(self, reason: str | None) -> None:
        """Forget the failures in a row; the next ones have *reason*."""
        self.reason, self.count = reason, 0
        self.sends.clear()


@dataclass(slots=True)
class FailureStreaks:
    """The failures of a campaign by type of channel and host, since this process leased it."""

    _hosts: OrderedDict[tuple[ChannelType, str], _HostFailures] = field(default_factory=OrderedDict[tuple[ChannelType, str], _HostFailures])
    _accepting_types: set[ChannelType] = field(default_factory=set[ChannelType])

    def record(self, attempt: SendAttempt) -> CommonFailure | None:
        """Add an attempt. Return the failures with *attempt* if their fault is common; None if it is not."""
        kind, host, outcome = attempt.claim.channel.type, attempt.claim.channel.host, attempt.result.outcome
        failures = self._get_failures(kind, host)
        if outcome is SendOutcome.SENT:
            failures.is_accepting = True
            failures.begin(None)
            self._accepting_types.add(kind)
            return None
        if failures.is_accepting or not _is_final(attempt) or (outcome is SendOutcome.GONE and kind in _JUDGES_OF_ADDRESSES):
            return None
        if failures.reason != attempt.result.reason:
            failures.begin(attempt.result.reason)
        failures.sends.append(FailedSend.from_attempt(attempt))
        failures.count += 1
        if failures.count < MIN_COMMON_FAILURES:
            return None
        sends = tuple(failures.sends)
        failures.sends.clear()
        return CommonFailure(sends=sends, pause_reason=self._describe(kind, host, attempt))

    def _get_failures(self, kind: ChannelType, host: str) -> _HostFailures:
        failures = self._hosts.setdefault((kind, host), _HostFailures())
        self._hosts.move_to_end((kind, host))
        if len(self._hosts) > MAX_HOSTS:
            self._hosts.popitem(last=False)
        return failures

    def _describe(self, kind: ChannelType, host: str, attempt: SendAttempt) -> str | None:
        """Return the reason of a pause; None if another host accepts messages of this type."""
        if kind in self._accepting_types:
            return None
        target = f"{kind.value} messages" + (f" to {host}" if host else "")
        return f"{MIN_COMMON_FAILURES} {target} failed with the same error, and none was accepted: {attempt.result.reason}"


def _is_final(attempt: SendAttempt) -> bool:
    return evaluate_attempt_result(attempt).state in {NotificationState.FAILED, NotificationState.UNKNOWN}
