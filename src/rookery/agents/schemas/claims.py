"""What callers send of leases: taking a task, keeping it, giving it back, ending it (D-61)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rookery.agents.plans.claims import DEFAULT_TTL_S, LeaseCredential, LeaseRequest
from rookery.agents.plans.slugs import ANY_PLAN
from rookery.agents.schemas.plans import ErrorText, Force, PlanRef, Reason, Result, SessionId, Text, Token, Ttl
from rookery.kernel.schema import RequestModel

MAX_WAIT_S = 30


class ClaimBody(RequestModel):
    """How a task is to be held."""

    session_id: SessionId | None = None
    ttl_s: Ttl = DEFAULT_TTL_S

    def to_lease_request(self) -> LeaseRequest:
        """Return what is asked for."""
        return LeaseRequest(session_id=self.session_id, ttl_s=self.ttl_s)


ClaimSession = Annotated[
    str,
    Field(min_length=1, max_length=100, description="The session that the task was claimed in: proves the claim in place of claim_token."),
]


class ClaimNextBody(ClaimBody):
    """Which task is wanted, and how long to wait for one."""

    plan: (
        Annotated[
            PlanRef,
            Field(
                description="The plan to take a task of, by slug or id; by default that of the session. `any` or null: any active plan, "
                "which is the default without a session and in a session without a plan."
            ),
        ]
        | None
    ) = None
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, description="Wait so many seconds for a task to become ready.")] = 0

    @property
    def plan_ref(self) -> str | None:
        """Return the plan that is named."""
        return None if self.plan == ANY_PLAN else self.plan

    @property
    def any_plan(self) -> bool:
        """Return whether tasks of any active plan are asked for, also in a session that has a plan."""
        return self.plan == ANY_PLAN or (self.plan is None and "plan" in self.model_fields_set)


class HeartbeatBody(RequestModel):
    """A lease that is to last."""

    claim_token: Token | None = None
    session_id: ClaimSession | None = None
    ttl_s: Ttl = DEFAULT_TTL_S

    def to_credential(self) -> LeaseCredential:
        """Return what entitles to it."""
        return LeaseCredential(token=self.claim_token, session_id=self.session_id)


class ReleaseBody(RequestModel):
    """A lease that is given back."""

    claim_token: Token | None = None
    session_id: ClaimSession | None = None
    force: Force = False
    reason: Reason | None = None

    def to_credential(self) -> LeaseCredential:
        """Return what entitles to it."""
        return LeaseCredential(token=self.claim_token, session_id=self.session_id, force=self.force)


class CompleteBody(RequestModel):
    """What came of a task."""

    claim_token: Token | None = None
    force: Force = False
    result: Result = None
    notes: Text | None = None
    claim_next: Annotated[bool, Field(description="Take the best ready task of the same plan at the same moment.")] = False
    session_id: (
        Annotated[
            str,
            Field(
                min_length=1,
                max_length=100,
                description="The session that the task was claimed in: proves the claim in place of claim_token. The next task is "
                "claimed in it; by default in that of the task.",
            ),
        ]
        | None
    ) = None
    ttl_s: Ttl = DEFAULT_TTL_S

    def to_credential(self) -> LeaseCredential:
        """Return what entitles to it."""
        return LeaseCredential(token=self.claim_token, session_id=self.session_id, force=self.force)

    def to_next_request(self) -> LeaseRequest | None:
        """Return how the next task is to be held, if one is wanted."""
        return LeaseRequest(session_id=self.session_id, ttl_s=self.ttl_s) if self.claim_next else None


class FailBody(RequestModel):
    """Why a task cannot be done."""

    claim_token: Token | None = None
    session_id: ClaimSession | None = None
    force: Force = False
    error: ErrorText
    result: Result = None

    def to_credential(self) -> LeaseCredential:
        """Return what entitles to it."""
        return LeaseCredential(token=self.claim_token, session_id=self.session_id, force=self.force)
