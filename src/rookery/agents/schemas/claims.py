"""Request models of task leases: claim, heartbeat, release, complete and fail."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rookery.agents.models.drafts import Force, Reason, Result, Token
from rookery.agents.models.plans import Text
from rookery.agents.plans.claims import DEFAULT_TTL_S, LeaseCredential, LeaseRequest
from rookery.agents.plans.plan_builder import ANY_PLAN
from rookery.agents.schemas.plan_responses import ClaimedResponse
from rookery.agents.schemas.plans import ErrorText, PlanRef, SessionId, Ttl
from rookery.kernel.schema import RequestModel, ResponseModel
from rookery.kernel.unset import UNSET

MAX_WAIT_S = 30


class ClaimBody(RequestModel):
    """The lease of a claim."""

    session_id: SessionId | None = None
    ttl_s: Ttl = DEFAULT_TTL_S

    def to_lease_request(self) -> LeaseRequest:
        return LeaseRequest(session_id=self.session_id, ttl_s=self.ttl_s)


ClaimSession = Annotated[
    str,
    Field(min_length=1, max_length=100, description="The session of the claim. It proves the claim instead of claim_token."),
]


class ClaimNextBody(ClaimBody):
    """The plan to claim a task of, and how long to wait for one."""

    plan: (
        Annotated[
            PlanRef,
            Field(
                description="The slug or id of the plan. `any` or null: all active plans. Default: the plan of the session, or all "
                "active plans without one."
            ),
        ]
        | UNSET
        | None
    ) = UNSET
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, description="Seconds to wait for a task to become ready.")] = 0

    @property
    def plan_ref(self) -> str | None:
        """The slug or id of the plan, or None."""
        return None if self.plan is UNSET or self.plan == ANY_PLAN else self.plan

    @property
    def any_plan(self) -> bool:
        """True to search all active plans, even in a session that has a plan."""
        return self.plan is None or self.plan == ANY_PLAN


class HeartbeatBody(RequestModel):
    """A lease to extend."""

    claim_token: Token | None = None
    session_id: ClaimSession | None = None
    ttl_s: Ttl = DEFAULT_TTL_S

    def to_credential(self) -> LeaseCredential:
        """Return the proof of the claim."""
        return LeaseCredential(token=self.claim_token, session_id=self.session_id)


class _EndedLease(RequestModel):
    """The proof of a claim that ends."""

    claim_token: Token | None = None
    session_id: ClaimSession | None = None
    force: Force = False

    def to_credential(self) -> LeaseCredential:
        """Return the proof of the claim."""
        return LeaseCredential(token=self.claim_token, session_id=self.session_id, force=self.force)


class ReleaseBody(_EndedLease):
    """A lease to end without a result."""

    reason: Reason | None = None


class CompleteBody(_EndedLease):
    """The result of a task."""

    result: Result = None
    notes: Text | None = None
    claim_next: Annotated[bool, Field(description="Also claim the best ready task of the same plan, in the same transaction.")] = False
    session_id: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=100,
                description="The session of the claim. It proves the claim instead of claim_token. The next task is claimed in it; "
                "by default, in the session of the completed task.",
            ),
        ]
        | None
    ) = None
    ttl_s: Ttl = DEFAULT_TTL_S

    def to_next_request(self) -> LeaseRequest | None:
        """Return the lease request for the next task, or None if `claim_next` is false."""
        return LeaseRequest(session_id=self.session_id, ttl_s=self.ttl_s) if self.claim_next else None


class FailBody(_EndedLease):
    """The reason why a task cannot be done."""

    error: ErrorText
    result: Result = None


class NextTaskToolResponse(ResponseModel):
    """The output of the tool `task_claim_next`: the claimed task, or null with the reason."""

    task: ClaimedResponse | None
    reason: str
    plan: str | None
    retry_after_s: int
