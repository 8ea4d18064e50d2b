"""What callers send of leases: taking a task, keeping it, giving it back, ending it (D-61)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rookery.agents.plans.claims import TTL_S, Proof, Wish
from rookery.agents.schemas.plans import Force, PlanRef, Reason, Result, SessionId, Text, Token, Ttl, Why
from rookery.kernel.wire import Body

MAX_WAIT_S = 30


class ClaimBody(Body):
    """How a task is to be held."""

    session_id: SessionId | None = None
    ttl_s: Ttl = TTL_S

    def wish(self) -> Wish:
        """Return what is asked for."""
        return Wish(session_id=self.session_id, ttl_s=self.ttl_s)


class ClaimNextBody(ClaimBody):
    """Which task is wanted, and how long to wait for one."""

    plan: PlanRef | None = None
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, description="Wait so many seconds for a task to become ready.")] = 0


class HeartbeatBody(Body):
    """A lease that is to last."""

    claim_token: Token
    ttl_s: Ttl = TTL_S


class ReleaseBody(Body):
    """A lease that is given back."""

    claim_token: Token | None = None
    force: Force = False
    reason: Reason | None = None

    def proof(self) -> Proof:
        """Return what entitles to it."""
        return Proof(token=self.claim_token, force=self.force)


class CompleteBody(Body):
    """What came of a task."""

    claim_token: Token | None = None
    force: Force = False
    result: Result = None
    notes: Text | None = None
    claim_next: Annotated[bool, Field(description="Take the best ready task of the same plan at the same moment.")] = False
    session_id: Annotated[str, Field(min_length=1, max_length=100, description="For the next one.")] | None = None
    ttl_s: Ttl = TTL_S

    def proof(self) -> Proof:
        """Return what entitles to it."""
        return Proof(token=self.claim_token, force=self.force)

    def then(self) -> Wish | None:
        """Return how the next task is to be held, if one is wanted."""
        return Wish(session_id=self.session_id, ttl_s=self.ttl_s) if self.claim_next else None


class FailBody(Body):
    """Why a task cannot be done."""

    claim_token: Token | None = None
    force: Force = False
    error: Why
    result: Result = None

    def proof(self) -> Proof:
        """Return what entitles to it."""
        return Proof(token=self.claim_token, force=self.force)
