"""Queries of the delivery log. The dispatcher's queries are in `queue`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, func, literal, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Tx, fetch_count
from rookery.kernel.pages import ListPage, PageSlice
from rookery.webhooks.models import RESENDABLE_STATES, Delivery, DeliveryFilter, DeliveryState
from rookery.webhooks.store.tables import DELIVERIES, deliveries, endpoints

_OF_WORKSPACE = deliveries.c.workspace_id == bindparam("of_workspace")
_OF_ENDPOINT = (_OF_WORKSPACE, deliveries.c.endpoint_id == bindparam("of_endpoint"))

_FILTERS = (
    *_OF_ENDPOINT,
    or_(bindparam("of_state") == literal(""), deliveries.c.state == bindparam("of_state")),
    or_(bindparam("of_type") == literal(""), deliveries.c.event_type == bindparam("of_type")),
    deliveries.c.created_at >= bindparam("since"),
)
_LIST = KeysetList(select(deliveries).where(*_FILTERS), deliveries.c.created_at.desc(), deliveries.c.id.desc())
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


def list_page(tx: Tx, workspace_id: int, endpoint_id: str, filters: DeliveryFilter, *, page: PageSlice) -> ListPage[Delivery]:
    """Return a page of an endpoint's deliveries, newest first, and the total."""
    params = {
        "of_workspace": workspace_id,
        "of_endpoint": endpoint_id,
        "of_state": "" if filters.state is None else filters.state.value,
        "of_type": filters.type or "",
        "since": 0 if filters.since is None else to_micros(filters.since),
    }
    return DELIVERIES.fetch_page(tx, _LIST, page, params)


def count_open(tx: Tx, workspace_id: int, *, limit: int) -> int:
    """Return the number of pending and sending deliveries of a workspace; at most *limit*."""
    return fetch_count(tx, _COUNT_OPEN, {"of_workspace": workspace_id, "at_most": limit})


def list_resendable(tx: Tx, workspace_id: int, endpoint_id: str, *, since: datetime | None, until: datetime, limit: int) -> list[Delivery]:
    """Return failed and held deliveries, oldest first, created from *since* to before *until*."""
    between = {"since": 0 if since is None else to_micros(since), "until": to_micros(until)}
    params = {"of_workspace": workspace_id, "of_endpoint": endpoint_id, **between, "at_most": limit}
    return DELIVERIES.fetch_all(tx, _SELECT_RESENDABLE, params)


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
