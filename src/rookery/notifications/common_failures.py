"""
Failures that all targets of a host have in common, such as a receiver that answers 404 to every message after a deployment.

One subscriber whose address is wrong fails alone. If many in a row fail with the same error, the fault is not theirs, whatever the host
accepted before: the host waits, and their deliveries are open again.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from rookery.notifications.messages import ChannelType, SendOutcome, SendResult
from rookery.notifications.models import HostKey, NotificationState
from rookery.notifications.sending import SendAttempt, evaluate_attempt_result

MIN_COMMON_FAILURES = 10
"""Failures in a row, with the same error, after which the fault is common."""

MIN_COMMON_REFUSALS = 3
"""The same if the host refuses who sends (401, 403, 407): that is seldom about one subscriber, and an audience may be small."""

MIN_HOST_OUTAGES = 3
"""Deliveries in a row that were not accepted for now, after which the host as a whole is down or busy."""

MAX_HOSTS = 256
"""Hosts of a campaign whose failures are counted. Of the million that subscribers may have, those with the latest results count."""

JUDGES_OF_ADDRESSES = frozenset({ChannelType.EMAIL, ChannelType.WEBPUSH})
"""The types whose services know all addresses, so that many of them may be gone. The oldest ones are sent first."""

_SENDER_REFUSED = frozenset({401, 403, 407})
_ENHANCED_CODE = re.compile(r"\b[245]\.\d{1,3}\.\d{1,3}\b")


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
    Failed attempts to one host whose fault is not that of the subscribers. Their channels stay active, and their deliveries open.

    Attributes:
        latest: The last of the attempts, from which the wait of the host follows.
    """

    host: HostKey
    sends: Sequence[FailedSend]
    latest: SendAttempt

    @property
    def is_fault(self) -> bool:
        """True if the host refuses the messages for good; false if it is down or busy."""
        return self.latest.result.outcome is not SendOutcome.RETRY


@dataclass(slots=True)
class _Streak:
    """
    Failures in a row with the same cause.

    Attributes:
        count: The failures, or the deliveries that failed, up to the number that counts.
        delivery_ids: The deliveries that failed.
        sends: The failures that no common failure has yet.
    """

    cause: object = None
    count: int = 0
    delivery_ids: set[str] = field(default_factory=set[str])
    sends: list[FailedSend] = field(default_factory=list[FailedSend])

    def begin(self, cause: object = None) -> None:
        """Forget the failures in a row; the next ones have *cause*."""
        self.cause, self.count = cause, 0
        self.delivery_ids.clear()
        self.sends.clear()

    def add(self, attempt: SendAttempt, cause: object, *, minimum: int, counts_deliveries: bool = False) -> Sequence[FailedSend]:
        """Add a failure. Return those without a common failure if there are *minimum* in a row; otherwise nothing."""
        if self.cause != cause:
            self.begin(cause)
        if self.count < minimum and not (counts_deliveries and attempt.claim.id in self.delivery_ids):
            self.delivery_ids.add(attempt.claim.id)
            self.count += 1
        self.sends.append(FailedSend.from_attempt(attempt))
        if self.count < minimum:
            return ()
        sends = tuple(self.sends)
        self.sends.clear()
        return sends


@dataclass(slots=True)
class _HostFailures:
    """The failures of one host since it last accepted a message: those that are final, and those that may pass."""

    final: _Streak = field(default_factory=_Streak)
    temporary: _Streak = field(default_factory=_Streak)


@dataclass(slots=True)
class FailureStreaks:
    """The failures of a campaign by host, since this process leased it."""

    _hosts: OrderedDict[HostKey, _HostFailures] = field(default_factory=OrderedDict[HostKey, _HostFailures])

    def record(self, attempt: SendAttempt) -> CommonFailure | None:
        """Add an attempt. Return the failures with *attempt* if their fault is common; None if it is not."""
        host, result = HostKey.of_channel(attempt.claim.channel), attempt.result
        failures = self._get_failures(host)
        if result.outcome is SendOutcome.SENT:
            failures.final.begin()
            failures.temporary.begin()
            return None
        sends: Sequence[FailedSend] = ()
        if result.outcome is SendOutcome.RETRY and not result.concerns_host:
            sends = failures.temporary.add(attempt, "temporary", minimum=MIN_HOST_OUTAGES, counts_deliveries=True)
        elif _is_final(attempt) and not (result.outcome is SendOutcome.GONE and host.channel_type in JUDGES_OF_ADDRESSES):
            minimum = MIN_COMMON_REFUSALS if result.status in _SENDER_REFUSED else MIN_COMMON_FAILURES
            sends = failures.final.add(attempt, _identify_cause(result), minimum=minimum)
        return CommonFailure(host=host, sends=sends, latest=attempt) if sends else None

    def _get_failures(self, host: HostKey) -> _HostFailures:
        failures = self._hosts.setdefault(host, _HostFailures())
        self._hosts.move_to_end(host)
        if len(self._hosts) > MAX_HOSTS:
            self._hosts.popitem(last=False)
        return failures


def _is_final(attempt: SendAttempt) -> bool:
    return evaluate_attempt_result(attempt).state in {NotificationState.FAILED, NotificationState.UNKNOWN}


def _identify_cause(result: SendResult) -> object:
    """Return what two failures of the same cause have in common: status and enhanced code. Texts may name ids and addresses."""
    if result.status is None:
        return result.reason
    code = _ENHANCED_CODE.search(result.reason or "")
    return result.status, code and code.group()
