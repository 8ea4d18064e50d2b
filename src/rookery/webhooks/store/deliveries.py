"""The log of deliveries, as it is read and added to; what the dispatcher does to it is in `queue`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, func, insert, literal, or_, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, Value
from rookery.webhooks.models import RESENDABLE, Attempt, Delivery, DeliveryFilter, DeliveryKind, DeliveryState, Outcome
from rookery.webhooks.store.endpoints import micros, moment
from rookery.webhooks.store.tables import attempts, deliveries, endpoints

_OF_WORKSPACE = deliveries.c.workspace_id == bindparam("of_workspace")
_OF_ENDPOINT = (_OF_WORKSPACE, deliveries.c.endpoint_id == bindparam("of_endpoint"))

_ADD = insert(deliveries)
_ONE = select(deliveries).where(*_OF_ENDPOINT, deliveries.c.id == bindparam("of_id"))
_WHICH = (
    *_OF_ENDPOINT,
    or_(bindparam("of_state") == literal(""), deliveries.c.state == bindparam("of_state")),
    or_(bindparam("of_type") == literal(""), deliveries.c.event_type == bindparam("of_type")),
    deliveries.c.created_at >= bindparam("since"),
)
_PAGE = (
    select(deliveries)
    .where(*_WHICH)
    .order_by(deliveries.c.created_at.desc(), deliveries.c.id.desc())
    .limit(bindparam("at_most"))
    .offset(bindparam("past"))
)
_COUNT = select(func.count().label("n")).select_from(deliveries).where(*_WHICH)
_OPEN = (
    select(literal(1).label("one"))
    .where(
        deliveries.c.endpoint_id.in_(select(endpoints.c.id).where(endpoints.c.workspace_id == bindparam("of_workspace"))),
        deliveries.c.next_at.is_not(None),
    )
    .limit(bindparam("at_most"))
    .subquery()
)
_COUNT_OPEN = select(func.count().label("n")).select_from(_OPEN)
_MAY_BE_RESENT = deliveries.c.state.in_(sorted(RESENDABLE))
_TO_RESEND = (
    select(deliveries)
    .where(
        *_OF_ENDPOINT,
        _MAY_BE_RESENT,
        deliveries.c.created_at >= bindparam("since"),
        deliveries.c.created_at < bindparam("until"),
    )
    .order_by(deliveries.c.created_at, deliveries.c.id)
    .limit(bindparam("at_most"))
)
_TYPES = select(deliveries.c.event_type).where(*_OF_ENDPOINT, deliveries.c.event_type.in_(bindparam("types", expanding=True))).distinct()
_COUNT_HELD = select(func.count().label("n")).select_from(deliveries).where(*_OF_ENDPOINT, deliveries.c.state == DeliveryState.HELD.value)
_REVIVE = (
    update(deliveries)
    .where(*_OF_ENDPOINT, deliveries.c.id.in_(bindparam("ids", expanding=True)), _MAY_BE_RESENT)
    .values(state=DeliveryState.PENDING.value, next_at=bindparam("at"), spent=0, error=None, ended_at=None)
)
_END_WAITING = (
    update(deliveries)
    .where(*_OF_ENDPOINT, deliveries.c.next_at.is_not(None), deliveries.c.state == DeliveryState.PENDING.value)
    .values(state=bindparam("to_state"), next_at=None, error=bindparam("says"), ended_at=bindparam("at"))
)
_END_ALL = (
    update(deliveries)
    .where(*_OF_ENDPOINT, or_(deliveries.c.next_at.is_not(None), deliveries.c.state == DeliveryState.HELD.value))
    .values(state=bindparam("to_state"), next_at=None, owner=None, error=bindparam("says"), ended_at=bindparam("at"))
)
_ATTEMPTS = (
    select(attempts)
    .where(attempts.c.workspace_id == bindparam("of_workspace"), attempts.c.delivery_id == bindparam("of_delivery"))
    .order_by(attempts.c.number)
)


def add(tx: Tx, new: Sequence[Delivery]) -> None:
    """Keep new deliveries."""
    tx.many(_ADD, [_values(each) for each in new])


def find(tx: Tx, workspace_id: int, endpoint_id: str, delivery_id: str) -> Delivery | None:
    """Return one of an endpoint."""
    row = tx.one(_ONE, {"of_workspace": workspace_id, "of_endpoint": endpoint_id, "of_id": delivery_id})
    return None if row is None else delivery_of(row)


def page(tx: Tx, workspace_id: int, endpoint_id: str, which: DeliveryFilter, *, limit: int, offset: int) -> tuple[list[Delivery], int]:
    """Return deliveries of an endpoint, newest first, and how many there are in all."""
    params = {
        "of_workspace": workspace_id,
        "of_endpoint": endpoint_id,
        "of_state": "" if which.state is None else which.state.value,
        "of_type": which.type or "",
        "since": 0 if which.since is None else to_micros(which.since),
    }
    row = tx.one(_COUNT, params)
    found = [delivery_of(row) for row in tx.all(_PAGE, {**params, "at_most": limit, "past": offset})]
    return found, 0 if row is None else row.integer("n")


def count_open(tx: Tx, workspace_id: int, *, at_most: int) -> int:
    """Return how many deliveries of a workspace wait or are under way; of more than *at_most*, that."""
    row = tx.one(_COUNT_OPEN, {"of_workspace": workspace_id, "at_most": at_most})
    return 0 if row is None else row.integer("n")


def to_resend(tx: Tx, workspace_id: int, endpoint_id: str, *, since: datetime | None, until: datetime, at_most: int) -> list[Delivery]:
    """Return what failed or is held, oldest first; *until* is not among them."""
    between = {"since": micros(since) or 0, "until": to_micros(until)}
    params = {"of_workspace": workspace_id, "of_endpoint": endpoint_id, **between, "at_most": at_most}
    return [delivery_of(row) for row in tx.all(_TO_RESEND, params)]


def count_held(tx: Tx, workspace_id: int, endpoint_id: str) -> int:
    """Return how many are held for an endpoint."""
    row = tx.one(_COUNT_HELD, {"of_workspace": workspace_id, "of_endpoint": endpoint_id})
    return 0 if row is None else row.integer("n")


def types(tx: Tx, workspace_id: int, endpoint_id: str, *, among: Sequence[str]) -> list[str]:
    """Return of which types, *among* some, an endpoint's log has deliveries."""
    if not among:
        return []
    rows = tx.all(_TYPES, {"of_workspace": workspace_id, "of_endpoint": endpoint_id, "types": list(among)})
    return sorted(row.text("event_type") for row in rows)


def revive(tx: Tx, workspace_id: int, endpoint_id: str, ids: Sequence[str], *, at: datetime) -> int:
    """Let failed and held deliveries wait for their turn again, with all their attempts before them; return how many."""
    return tx.run(_REVIVE, {"of_workspace": workspace_id, "of_endpoint": endpoint_id, "ids": ids, "at": to_micros(at)})


def hold(tx: Tx, workspace_id: int, endpoint_id: str, *, says: str) -> int:
    """Hold what waits for an endpoint that is disabled; what is under way is its dispatcher's. Return how many."""
    held = {"to_state": DeliveryState.HELD.value, "says": says, "at": None}
    return tx.run(_END_WAITING, {"of_workspace": workspace_id, "of_endpoint": endpoint_id, **held})


def cancel(tx: Tx, workspace_id: int, endpoint_id: str, *, says: str, at: datetime) -> int:
    """Cancel what waits, is held or is under way to an endpoint that is deleted; return how many."""
    cancelled = {"to_state": DeliveryState.CANCELLED.value, "says": says, "at": to_micros(at)}
    return tx.run(_END_ALL, {"of_workspace": workspace_id, "of_endpoint": endpoint_id, **cancelled})


def attempts_of(tx: Tx, workspace_id: int, delivery_id: str) -> list[Attempt]:
    """Return the attempts of a delivery, oldest first."""
    return [attempt_of(row) for row in tx.all(_ATTEMPTS, {"of_workspace": workspace_id, "of_delivery": delivery_id})]


def delivery_of(row: Row) -> Delivery:
    """Return the delivery of a row with all its columns."""
    return Delivery(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        endpoint_id=row.text("endpoint_id"),
        event_id=row.text("event_id"),
        event_type=row.text("event_type"),
        kind=DeliveryKind(row.text("kind")),
        state=DeliveryState(row.text("state")),
        with_content=row.flag("with_content"),
        attempts=row.integer("attempts"),
        spent=row.integer("spent"),
        next_at=moment(row, "next_at"),
        owner=row.maybe_text("owner"),
        status=row.maybe_integer("status"),
        error=row.maybe_text("error"),
        created_at=from_micros(row.integer("created_at")),
        ended_at=moment(row, "ended_at"),
        of_delivery=row.maybe_text("of_delivery"),
    )


def attempt_of(row: Row) -> Attempt:
    """Return the attempt of a row with all its columns."""
    outcome, took = row.maybe_text("outcome"), row.values[row.index["duration_ms"]]
    return Attempt(
        delivery_id=row.text("delivery_id"),
        workspace_id=row.integer("workspace_id"),
        number=row.integer("number"),
        started_at=from_micros(row.integer("started_at")),
        ended_at=moment(row, "ended_at"),
        outcome=None if outcome is None else Outcome(outcome),
        status=row.maybe_integer("status"),
        error=row.maybe_text("error"),
        response=row.maybe_text("response"),
        duration_ms=None if took is None else row.number("duration_ms"),
    )


def _values(delivery: Delivery) -> dict[str, Value]:
    return {
        "id": delivery.id,
        "workspace_id": delivery.workspace_id,
        "endpoint_id": delivery.endpoint_id,
        "event_id": delivery.event_id,
        "event_type": delivery.event_type,
        "kind": delivery.kind.value,
        "state": delivery.state.value,
        "with_content": int(delivery.with_content),
        "attempts": delivery.attempts,
        "spent": delivery.spent,
        "next_at": micros(delivery.next_at),
        "owner": delivery.owner,
        "status": delivery.status,
        "error": delivery.error,
        "created_at": to_micros(delivery.created_at),
        "ended_at": micros(delivery.ended_at),
        "of_delivery": delivery.of_delivery,
    }
