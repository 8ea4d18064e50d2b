"""
The dispatcher's queries of the delivery log: due deliveries, claims, results.

The queries cover all tenants; each row has its workspace_id. Several processes may dispatch from one store. An endpoint's row is
locked while its deliveries are claimed. A claimed delivery has an owner, whose lease ends at `next_at`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BindParameter, Text, and_, bindparam, case, exists, func, insert, literal, null, select, update
from sqlalchemy import delete as delete_from

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx
from rookery.kernel.db.leases import DeliveryLeases
from rookery.kernel.delivery_engine import Claim
from rookery.webhooks.models import DeliveryState, Outcome, WebhookEndpoint
from rookery.webhooks.store.tables import DELETED_MEMORY, ENDPOINTS, attempts, deliveries, endpoints, events

_SENDING = DeliveryState.SENDING.value
_PENDING = DeliveryState.PENDING.value
_IDS: BindParameter[str] = bindparam("ids", expanding=True)

_is_due = and_(deliveries.c.next_at.is_not(None), deliveries.c.next_at <= bindparam("now"))
# In strict order an endpoint waits for its oldest open delivery, even if later ones are due.
_oldest = (
    select(deliveries.c.next_at)
    .where(deliveries.c.endpoint_id == endpoints.c.id, deliveries.c.next_at.is_not(None))
    .order_by(deliveries.c.id)
    .limit(1)
    .scalar_subquery()
)
_HAS_DUE = (
    endpoints.c.enabled == literal(1),
    endpoints.c.id.not_in(bindparam("but", expanding=True)),
    case(
        (endpoints.c.strict_order == literal(1), _oldest <= bindparam("now")),
        else_=exists(select(literal(1)).where(deliveries.c.endpoint_id == endpoints.c.id, _is_due)),
    ),
)
_IS_ANY_DUE = select(literal(1).label("one")).where(*_HAS_DUE).limit(1)
_SELECT_DUE_IDS = select(endpoints.c.id).where(*_HAS_DUE).order_by(endpoints.c.id).limit(bindparam("at_most"))
# This lock is compatible with key-share locks, so it does not wait for transactions that add deliveries to the endpoint.
_SELECT_DUE_ENDPOINTS = (
    select(endpoints)
    .where(*_HAS_DUE, endpoints.c.id > bindparam("past"))
    .order_by(endpoints.c.id)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True, key_share=True)
)
_SELECT_ENDPOINTS_LOCKED = select(endpoints).where(endpoints.c.id.in_(_IDS)).order_by(endpoints.c.id).with_for_update(key_share=True)
_COUNT_OTHER_WORKERS = (
    select(deliveries.c.endpoint_id, func.count().label("n"))
    .where(deliveries.c.owner.is_not(None), deliveries.c.owner != bindparam("me"), deliveries.c.next_at > bindparam("now"))
    .group_by(deliveries.c.endpoint_id)
)
_CLAIM_COLUMNS = (
    deliveries.c.id,
    deliveries.c.workspace_id,
    deliveries.c.endpoint_id,
    deliveries.c.event_id,
    deliveries.c.state,
    deliveries.c.with_content,
    deliveries.c.attempts,
    deliveries.c.spent,
    deliveries.c.next_at,
)
_OF_ENDPOINT = deliveries.c.endpoint_id == bindparam("of_endpoint")
_SELECT_DUE = (
    select(*_CLAIM_COLUMNS).where(_OF_ENDPOINT, _is_due).order_by(deliveries.c.next_at, deliveries.c.id).limit(bindparam("at_most"))
)
_SELECT_STRICT_ORDER = (
    select(*_CLAIM_COLUMNS).where(_OF_ENDPOINT, deliveries.c.next_at.is_not(None)).order_by(deliveries.c.id).limit(bindparam("at_most"))
)
_SELECT_BODIES = select(events.c.id, events.c.body.label("body")).where(events.c.id.in_(_IDS))
_SELECT_FULL_BODIES = select(events.c.id, func.coalesce(events.c.full_body, events.c.body).label("body")).where(events.c.id.in_(_IDS))
LEASES = DeliveryLeases(deliveries)
_MISSING_EVENT_MESSAGE = "its event no longer exists"
_FAIL_WITHOUT_EVENT = (
    update(deliveries)
    .where(deliveries.c.id.in_(_IDS))
    .values(state=DeliveryState.FAILED.value, next_at=None, owner=None, error=bindparam("new_error"), ended_at=bindparam("at"))
)
_IS_ATTEMPT = and_(attempts.c.delivery_id == bindparam("of_delivery"), attempts.c.number == bindparam("of_number"))
_MARK_INTERRUPTED = (
    update(attempts).where(_IS_ATTEMPT, attempts.c.outcome.is_(None)).values(outcome=Outcome.INTERRUPTED.value, ended_at=bindparam("at"))
)
_INSERT_ATTEMPT = insert(attempts)
# The response may contain the content and arrive after the memory was deleted.
_IS_MEMORY_DELETED = (
    select(deliveries.c.id)
    .join(events, events.c.id == deliveries.c.event_id)
    .where(deliveries.c.id == bindparam("of_delivery"), events.c.about == DELETED_MEMORY)
    .exists()
)
_UPDATE_ATTEMPT = (
    update(attempts)
    .where(_IS_ATTEMPT)
    .values({name: bindparam(f"new_{name}") for name in ("started_at", "ended_at", "outcome", "status", "error", "duration_ms")})
    .values(response=case((_IS_MEMORY_DELETED, null()), else_=bindparam("new_response", type_=Text)))
)
_DELETE_ATTEMPT = delete_from(attempts).where(_IS_ATTEMPT)
_UPDATE_DELIVERY = (
    update(deliveries)
    .where(LEASES.is_claimed)
    .values(
        owner=None,
        state=bindparam("new_state"),
        next_at=bindparam("new_next_at"),
        spent=bindparam("new_spent"),
        status=bindparam("new_status"),
        error=bindparam("new_error"),
        ended_at=bindparam("new_ended_at"),
    )
)
_UPDATE_ENDPOINT = update(endpoints).where(endpoints.c.id == bindparam("of_id"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery(Claim):
    """
    A delivery claimed by this process, with a row for the coming attempt.

    Attributes:
        used_attempts: Counted attempts before it.
        due_at: The time when it was due.
    """

    endpoint_id: str
    event_id: str
    used_attempts: int
    due_at: datetime
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResult:
    """The result of an attempt, and the new state of its delivery; *next_at* is set only if it is retried."""

    claim: ClaimedDelivery
    state: DeliveryState
    used_attempts: int
    next_at: datetime | None
    started_at: datetime
    ended_at: datetime
    outcome: Outcome
    status: int | None
    error: str | None
    response: str | None
    duration_ms: float


def is_any_due(tx: Tx, now: datetime, *, excluded_ids: Collection[str]) -> bool:
    """Return whether anything is due for an enabled endpoint that is not in *excluded_ids*."""
    return tx.fetch_one(_IS_ANY_DUE, {"now": to_micros(now), "but": list(excluded_ids)}) is not None


def list_due_ids(tx: Tx, now: datetime, *, excluded_ids: Collection[str], limit: int) -> list[str]:
    """Return ids of enabled endpoints with due deliveries, without *excluded_ids*."""
    return [row.text("id") for row in tx.fetch_all(_SELECT_DUE_IDS, {"now": to_micros(now), "but": list(excluded_ids), "at_most": limit})]


def lock_due_endpoints(tx: Tx, now: datetime, *, after_id: str, excluded_ids: Collection[str], limit: int) -> list[WebhookEndpoint]:
    """Return endpoints with due deliveries, locked, ordered by id from *after_id* on and then from the start."""
    params = {"now": to_micros(now), "but": list(excluded_ids), "at_most": limit}
    endpoints = ENDPOINTS.fetch_all(tx, _SELECT_DUE_ENDPOINTS, {**params, "past": after_id})
    if len(endpoints) < limit and after_id:
        before = ENDPOINTS.fetch_all(tx, _SELECT_DUE_ENDPOINTS, {**params, "past": "", "at_most": limit - len(endpoints)})
        known_ids = {endpoint.id for endpoint in endpoints}
        endpoints += [endpoint for endpoint in before if endpoint.id not in known_ids]
    return endpoints


def lock_endpoints(tx: Tx, ids: Iterable[str]) -> dict[str, WebhookEndpoint]:
    """Return the existing endpoints of *ids* by id, locked until the transaction ends."""
    return {endpoint.id: endpoint for endpoint in ENDPOINTS.fetch_all(tx, _SELECT_ENDPOINTS_LOCKED, {"ids": sorted(ids)})}


def count_other_workers(tx: Tx, worker_id: str, now: datetime) -> dict[str, int]:
    """Return the number of deliveries claimed by other workers, by endpoint."""
    return {
        row.text("endpoint_id"): row.integer("n") for row in tx.fetch_all(_COUNT_OTHER_WORKERS, {"me": worker_id, "now": to_micros(now)})
    }


def claim(
    tx: Tx, capacities: Sequence[tuple[WebhookEndpoint, int]], *, worker_id: str, now: datetime, until: datetime
) -> list[ClaimedDelivery]:
    """
    Claim due deliveries of each endpoint up to its capacity, and insert a row for each attempt.

    For an endpoint in strict order, claim its oldest open deliveries up to the first one that is not due or is claimed by
    another worker. A delivery with an expired lease is taken over, and its attempt becomes interrupted. A delivery whose
    event was deleted while it was resent becomes failed.
    """
    due_rows = [row for endpoint, capacity in capacities for row in _select_due(tx, endpoint, capacity, now)]
    plain_bodies = _select_bodies(tx, [row for row in due_rows if not row.flag("with_content")], full=False)
    full = _select_bodies(tx, [row for row in due_rows if row.flag("with_content")], full=True)
    bodies = [(full if row.flag("with_content") else plain_bodies).get(row.text("event_id")) for row in due_rows]
    rows = [row for row, body in zip(due_rows, bodies, strict=True) if body is not None]
    if len(rows) < len(due_rows):
        missing = [row.text("id") for row, body in zip(due_rows, bodies, strict=True) if body is None]
        tx.execute(_FAIL_WITHOUT_EVENT, {"ids": missing, "new_error": _MISSING_EVENT_MESSAGE, "at": to_micros(now)})
    if not rows:
        return []
    LEASES.acquire(tx, [row.text("id") for row in rows], worker_id, until=until)
    tx.execute_many(
        _MARK_INTERRUPTED,
        [
            {"of_delivery": row.text("id"), "of_number": row.integer("attempts"), "at": to_micros(now)}
            for row in rows
            if row.text("state") == _SENDING
        ],
    )
    tx.execute_many(
        _INSERT_ATTEMPT,
        [
            {
                "delivery_id": row.text("id"),
                "number": row.integer("attempts") + 1,
                "workspace_id": row.integer("workspace_id"),
                "started_at": to_micros(now),
            }
            for row in rows
        ],
    )
    return [
        ClaimedDelivery(
            id=row.text("id"),
            workspace_id=row.integer("workspace_id"),
            endpoint_id=row.text("endpoint_id"),
            event_id=row.text("event_id"),
            attempt_number=row.integer("attempts") + 1,
            used_attempts=row.integer("spent"),
            due_at=from_micros(row.integer("next_at")),
            body=body,
        )
        for row, body in zip(due_rows, bodies, strict=True)
        if body is not None
    ]


def store_results(tx: Tx, results: Sequence[DeliveryResult], *, worker_id: str) -> None:
    """Store the results of attempts. A delivery that was cancelled or taken over keeps its state; only its attempt is updated."""
    tx.execute_many(
        _UPDATE_ATTEMPT,
        [
            {
                "of_delivery": result.claim.id,
                "of_number": result.claim.attempt_number,
                "new_started_at": to_micros(result.started_at),
                "new_ended_at": to_micros(result.ended_at),
                "new_outcome": result.outcome.value,
                "new_status": result.status,
                "new_error": result.error,
                "new_response": result.response,
                "new_duration_ms": result.duration_ms,
            }
            for result in results
        ],
    )
    tx.execute_many(
        _UPDATE_DELIVERY,
        [
            {
                "of_id": result.claim.id,
                "me": worker_id,
                "new_state": result.state.value,
                "new_next_at": None if result.next_at is None else to_micros(result.next_at),
                "new_spent": result.used_attempts,
                "new_status": result.status,
                "new_error": result.error,
                "new_ended_at": None if result.next_at is not None else to_micros(result.ended_at),
            }
            for result in results
        ],
    )


def release_claims(tx: Tx, unsent: Sequence[tuple[ClaimedDelivery, DeliveryState]], *, worker_id: str) -> None:
    """Release claims of which nothing was sent, each with the new state of its delivery."""
    tx.execute_many(_DELETE_ATTEMPT, [{"of_delivery": claim.id, "of_number": claim.attempt_number} for claim, _ in unsent])
    released = [(claim.id, state.value, claim.due_at if state is DeliveryState.PENDING else None) for claim, state in unsent]
    LEASES.release_unsent(tx, released, worker_id)


def update_endpoint_stats(tx: Tx, endpoint: WebhookEndpoint) -> None:
    """Store an endpoint's consecutive failures and its last success."""
    tx.execute(_UPDATE_ENDPOINT, {"of_id": endpoint.id, **ENDPOINTS.to_row(endpoint, ("failures", "last_success_at"))})


def _select_due(tx: Tx, endpoint: WebhookEndpoint, capacity: int, now: datetime) -> list[Row]:
    of_endpoint = {"of_endpoint": endpoint.id, "at_most": capacity}
    if not endpoint.strict_order:
        return tx.fetch_all(_SELECT_DUE, {**of_endpoint, "now": to_micros(now)})
    rows, limit = list[Row](), to_micros(now)
    for row in tx.fetch_all(_SELECT_STRICT_ORDER, of_endpoint):
        if row.integer("next_at") > limit:
            break
        rows.append(row)
    return rows


def _select_bodies(tx: Tx, rows: Sequence[Row], *, full: bool) -> dict[str, bytes]:
    ids = sorted({row.text("event_id") for row in rows})
    return (
        {row.text("id"): row.blob("body") for row in tx.fetch_all(_SELECT_FULL_BODIES if full else _SELECT_BODIES, {"ids": ids})}
        if ids
        else {}
    )
