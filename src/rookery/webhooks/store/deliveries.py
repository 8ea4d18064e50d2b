"""Queries of the delivery log. The dispatcher's queries are in `queue`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, func, insert, literal, or_, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, Value
from rookery.webhooks.models import RESENDABLE_STATES, Attempt, Delivery, DeliveryFilter, DeliveryKind, DeliveryState, Outcome
from rookery.webhooks.store.endpoints import optional_micros, optional_time
from rookery.webhooks.store.tables import attempts, deliveries, endpoints

_OF_WORKSPACE = deliveries.c.workspace_id == bindparam("of_workspace")
_OF_ENDPOINT = (_OF_WORKSPACE, deliveries.c.endpoint_id == bindparam("of_endpoint"))

_ADD = insert(deliveries)
_SELECT_ONE = select(deliveries).where(*_OF_ENDPOINT, deliveries.c.id == bindparam("of_id"))
_FILTERS = (
    *_OF_ENDPOINT,
    or_(bindparam("of_state") == literal(""), deliveries.c.state == bindparam("of_state")),
    or_(bindparam("of_type") == literal(""), deliveries.c.event_type == bindparam("of_type")),
    deliveries.c.created_at >= bindparam("since"),
)
_PAGE = (
    select(deliveries)
    .where(*_FILTERS)
    .order_by(deliveries.c.created_at.desc(), deliveries.c.id.desc())
    .limit(bindparam("at_most"))
    .offset(bindparam("past"))
)
_COUNT = select(func.count().label("n")).select_from(deliveries).where(*_FILTERS)
_OPEN_DELIVERIES = (
    select(literal(1).label("one"))
    .where(
        deliveries.c.endpoint_id.in_(select(endpoints.c.id).where(endpoints.c.workspace_id == bindparam("of_workspace"))),
        deliveries.c.next_at.is_not(None),
    )
    .limit(bindparam("at_most"))
    .subquery()
)
_COUNT_OPEN = select(func.count().label("n")).select_from(_OPEN_DELIVERIES)
_IS_RESENDABLE = deliveries.c.state.in_(sorted(RESENDABLE_STATES))
_SELECT_RESENDABLE = (
    select(deliveries)
    .where(
        *_OF_ENDPOINT,
        _IS_RESENDABLE,
        deliveries.c.created_at >= bindparam("since"),
        deliveries.c.created_at < bindparam("until"),
    )
    .order_by(deliveries.c.created_at, deliveries.c.id)
    .limit(bindparam("at_most"))
)
_SELECT_TYPES = (
    select(deliveries.c.event_type).where(*_OF_ENDPOINT, deliveries.c.event_type.in_(bindparam("types", expanding=True))).distinct()
)
_COUNT_HELD = select(func.count().label("n")).select_from(deliveries).where(*_OF_ENDPOINT, deliveries.c.state == DeliveryState.HELD.value)
_REQUEUE = (
    update(deliveries)
    .where(*_OF_ENDPOINT, deliveries.c.id.in_(bindparam("ids", expanding=True)), _IS_RESENDABLE)
    .values(state=DeliveryState.PENDING.value, next_at=bindparam("at"), spent=0, error=None, ended_at=None)
)
_CLOSE_WAITING = (
    update(deliveries)
    .where(*_OF_ENDPOINT, deliveries.c.next_at.is_not(None), deliveries.c.state == DeliveryState.PENDING.value)
    .values(state=bindparam("to_state"), next_at=None, error=bindparam("new_error"), ended_at=bindparam("at"))
)
_CLOSE_ALL = (
    update(deliveries)
    .where(*_OF_ENDPOINT, or_(deliveries.c.next_at.is_not(None), deliveries.c.state == DeliveryState.HELD.value))
    .values(state=bindparam("to_state"), next_at=None, owner=None, error=bindparam("new_error"), ended_at=bindparam("at"))
)
_ATTEMPTS = (
    select(attempts)
    .where(attempts.c.workspace_id == bindparam("of_workspace"), attempts.c.delivery_id == bindparam("of_delivery"))
    .order_by(attempts.c.number)
)


def insert_deliveries(tx: Tx, new: Sequence[Delivery]) -> None:
    """Insert new deliveries."""
    tx.execute_many(_ADD, [_delivery_to_row(delivery) for delivery in new])


def find(tx: Tx, workspace_id: int, endpoint_id: str, delivery_id: str) -> Delivery | None:
    """Return a delivery of an endpoint."""
    row = tx.fetch_one(_SELECT_ONE, {"of_workspace": workspace_id, "of_endpoint": endpoint_id, "of_id": delivery_id})
    return None if row is None else delivery_from_row(row)


def list_page(
    tx: Tx, workspace_id: int, endpoint_id: str, filters: DeliveryFilter, *, limit: int, offset: int
) -> tuple[list[Delivery], int]:
    """Return a page of an endpoint's deliveries, newest first, and the total."""
    params = {
        "of_workspace": workspace_id,
        "of_endpoint": endpoint_id,
        "of_state": "" if filters.state is None else filters.state.value,
        "of_type": filters.type or "",
        "since": 0 if filters.since is None else to_micros(filters.since),
    }
    row = tx.fetch_one(_COUNT, params)
    deliveries = [delivery_from_row(row) for row in tx.fetch_all(_PAGE, {**params, "at_most": limit, "past": offset})]
    return deliveries, 0 if row is None else row.integer("n")


def count_open(tx: Tx, workspace_id: int, *, limit: int) -> int:
    """Return the number of pending and sending deliveries of a workspace; at most *limit*."""
    row = tx.fetch_one(_COUNT_OPEN, {"of_workspace": workspace_id, "at_most": limit})
    return 0 if row is None else row.integer("n")


def list_resendable(tx: Tx, workspace_id: int, endpoint_id: str, *, since: datetime | None, until: datetime, limit: int) -> list[Delivery]:
    """Return failed and held deliveries, oldest first, created from *since* to before *until*."""
    between = {"since": optional_micros(since) or 0, "until": to_micros(until)}
    params = {"of_workspace": workspace_id, "of_endpoint": endpoint_id, **between, "at_most": limit}
    return [delivery_from_row(row) for row in tx.fetch_all(_SELECT_RESENDABLE, params)]


def count_held(tx: Tx, workspace_id: int, endpoint_id: str) -> int:
    """Return the number of held deliveries of an endpoint."""
    row = tx.fetch_one(_COUNT_HELD, {"of_workspace": workspace_id, "of_endpoint": endpoint_id})
    return 0 if row is None else row.integer("n")


def list_types(tx: Tx, workspace_id: int, endpoint_id: str, *, candidates: Sequence[str]) -> list[str]:
    """Return those of the event types *candidates* that occur in an endpoint's log."""
    if not candidates:
        return []
    rows = tx.fetch_all(_SELECT_TYPES, {"of_workspace": workspace_id, "of_endpoint": endpoint_id, "types": list(candidates)})
    return sorted(row.text("event_type") for row in rows)


def requeue(tx: Tx, workspace_id: int, endpoint_id: str, ids: Sequence[str], *, at: datetime) -> int:
    """Make failed and held deliveries pending again. They keep their attempts. Return the number."""
    return tx.execute(_REQUEUE, {"of_workspace": workspace_id, "of_endpoint": endpoint_id, "ids": ids, "at": to_micros(at)})


def hold(tx: Tx, workspace_id: int, endpoint_id: str, *, error: str) -> int:
    """Hold the pending deliveries of a disabled endpoint; the dispatcher handles those being sent. Return the number."""
    values = {"to_state": DeliveryState.HELD.value, "new_error": error, "at": None}
    return tx.execute(_CLOSE_WAITING, {"of_workspace": workspace_id, "of_endpoint": endpoint_id, **values})


def cancel(tx: Tx, workspace_id: int, endpoint_id: str, *, error: str, at: datetime) -> int:
    """Cancel all unfinished deliveries of a deleted endpoint; return the number."""
    values = {"to_state": DeliveryState.CANCELLED.value, "new_error": error, "at": to_micros(at)}
    return tx.execute(_CLOSE_ALL, {"of_workspace": workspace_id, "of_endpoint": endpoint_id, **values})


def list_attempts(tx: Tx, workspace_id: int, delivery_id: str) -> list[Attempt]:
    """Return the attempts of a delivery, oldest first."""
    return [attempt_from_row(row) for row in tx.fetch_all(_ATTEMPTS, {"of_workspace": workspace_id, "of_delivery": delivery_id})]


def delivery_from_row(row: Row) -> Delivery:
    """Return the delivery of a full row."""
    return Delivery(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        endpoint_id=row.text("endpoint_id"),
        event_id=row.text("event_id"),
        event_type=row.text("event_type"),
        kind=DeliveryKind(row.text("kind")),
        state=DeliveryState(row.text("state")),
        with_content=row.flag("with_content"),
        attempt_count=row.integer("attempts"),
        used_attempts=row.integer("spent"),
        next_at=optional_time(row, "next_at"),
        owner=row.maybe_text("owner"),
        status=row.maybe_integer("status"),
        error=row.maybe_text("error"),
        created_at=from_micros(row.integer("created_at")),
        ended_at=optional_time(row, "ended_at"),
        resend_of=row.maybe_text("of_delivery"),
    )


def attempt_from_row(row: Row) -> Attempt:
    """Return the attempt of a full row."""
    outcome, duration = row.maybe_text("outcome"), row.values[row.index["duration_ms"]]
    return Attempt(
        delivery_id=row.text("delivery_id"),
        workspace_id=row.integer("workspace_id"),
        number=row.integer("number"),
        started_at=from_micros(row.integer("started_at")),
        ended_at=optional_time(row, "ended_at"),
        outcome=None if outcome is None else Outcome(outcome),
        status=row.maybe_integer("status"),
        error=row.maybe_text("error"),
        response=row.maybe_text("response"),
        duration_ms=None if duration is None else row.number("duration_ms"),
    )


def _delivery_to_row(delivery: Delivery) -> dict[str, Value]:
    return {
        "id": delivery.id,
        "workspace_id": delivery.workspace_id,
        "endpoint_id": delivery.endpoint_id,
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "kind": delivery.kind.value,
        "state": delivery.state.value,
        "with_content": int(delivery.with_content),
        "attempts": delivery.attempt_count,
        "spent": delivery.used_attempts,
        "next_at": optional_micros(delivery.next_at),
        "owner": delivery.owner,
        "status": delivery.status,
        "error": delivery.error,
        "created_at": to_micros(delivery.created_at),
        "ended_at": optional_micros(delivery.ended_at),
        "of_delivery": delivery.resend_of,
    }
