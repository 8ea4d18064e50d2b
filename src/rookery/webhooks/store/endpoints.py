"""Who is told: the rows of endpoints."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import bindparam, delete, func, insert, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, Value
from rookery.webhooks.models import DisabledReason, Endpoint, Listener
from rookery.webhooks.store.tables import endpoints

_OF_WORKSPACE = endpoints.c.workspace_id == bindparam("of_workspace")
_IS_ONE = (endpoints.c.id == bindparam("of_id"), _OF_WORKSPACE)

_ADD = insert(endpoints)
_COUNT = select(func.count().label("n")).select_from(endpoints).where(_OF_WORKSPACE)
_PAGE = select(endpoints).where(_OF_WORKSPACE).order_by(endpoints.c.id.desc()).limit(bindparam("at_most")).offset(bindparam("past"))
# A key share: nobody deletes an endpoint between this look and the commit of the deliveries that it is given, while what the
# dispatcher notes of it goes on (PostgreSQL; SQLite has one writer).
_LISTENERS = (
    select(
        endpoints.c.id,
        endpoints.c.shown_workspace_id,
        endpoints.c.events,
        endpoints.c.include_content,
        endpoints.c.enabled,
    )
    .where(_OF_WORKSPACE)
    .order_by(endpoints.c.id)
    .with_for_update(read=True, key_share=True)
)
_ONE = select(endpoints).where(*_IS_ONE)
_ONE_TO_CHANGE = _ONE.with_for_update(key_share=True)
_CHANGE = (
    update(endpoints)
    .where(*_IS_ONE)
    .values(
        {
            name: bindparam(f"new_{name}")
            for name in (
                "url",
                "events",
                "description",
                "include_content",
                "strict_order",
                "concurrency",
                "enabled",
                "enabled_at",
                "disabled_at",
                "disabled_reason",
                "failures",
                "last_success_at",
                "secret",
                "previous_secret",
                "previous_until",
                "updated_at",
            )
        }
    )
)
_GIVEN_UP = (
    select(endpoints)
    .where(endpoints.c.disabled_reason.in_((DisabledReason.FAILURES.value, DisabledReason.GONE.value)))
    .order_by(endpoints.c.disabled_at.desc(), endpoints.c.id)
    .limit(bindparam("at_most"))
)
_REMOVE = delete(endpoints).where(*_IS_ONE)
_PURGE = delete(endpoints).where(_OF_WORKSPACE)
_OVER = update(endpoints).where(endpoints.c.previous_until <= bindparam("now")).values(previous_secret=None, previous_until=None)


def add(tx: Tx, endpoint: Endpoint) -> None:
    """Keep a new endpoint."""
    tx.run(_ADD, _values(endpoint))


def count(tx: Tx, workspace_id: int) -> int:
    """Return how many a workspace has."""
    row = tx.one(_COUNT, {"of_workspace": workspace_id})
    return 0 if row is None else row.integer("n")


def page(tx: Tx, workspace_id: int, *, limit: int, offset: int) -> list[Endpoint]:
    """Return endpoints of a workspace, newest first."""
    return [endpoint_of(row) for row in tx.all(_PAGE, {"of_workspace": workspace_id, "at_most": limit, "past": offset})]


def listeners(tx: Tx, workspace_id: int) -> list[Listener]:
    """Return who might be told in a workspace, the disabled ones too; none is deleted before this transaction ends."""
    return [
        Listener(
            id=row.text("id"),
            shown_workspace_id=row.integer("shown_workspace_id"),
            events=tuple(row.text("events").split(" ")),
            include_content=row.flag("include_content"),
            enabled=row.flag("enabled"),
        )
        for row in tx.all(_LISTENERS, {"of_workspace": workspace_id})
    ]


def find(tx: Tx, workspace_id: int, endpoint_id: str, *, to_change: bool = False) -> Endpoint | None:
    """Return one of a workspace; *to_change*: nobody else changes it before this transaction ends."""
    row = tx.one(_ONE_TO_CHANGE if to_change else _ONE, {"of_id": endpoint_id, "of_workspace": workspace_id})
    return None if row is None else endpoint_of(row)


def change(tx: Tx, endpoint: Endpoint) -> None:
    """Keep what an endpoint is now."""
    kept = {"id", "workspace_id", "shown_workspace_id", "created_at"}
    values = {f"new_{name}": value for name, value in _values(endpoint).items() if name not in kept}
    tx.run(_CHANGE, {"of_id": endpoint.id, "of_workspace": endpoint.workspace_id, **values})


def remove(tx: Tx, workspace_id: int, endpoint_id: str) -> bool:
    """Forget one; false if there is none."""
    return tx.run(_REMOVE, {"of_id": endpoint_id, "of_workspace": workspace_id}) == 1


def given_up(tx: Tx, *, at_most: int) -> list[Endpoint]:
    """Return those of all tenants that were disabled because of what they answered, the newest first: for the operator alone."""
    return [endpoint_of(row) for row in tx.all(_GIVEN_UP, {"at_most": at_most})]


def end_graces(tx: Tx, now: datetime) -> int:
    """Forget the secrets before whose grace is over; return how many."""
    return tx.run(_OVER, {"now": to_micros(now)})


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete the endpoints of a workspace that is being deleted; return how many."""
    return tx.run(_PURGE, {"of_workspace": workspace_id})


def endpoint_of(row: Row) -> Endpoint:
    """Return the endpoint of a row with all its columns."""
    reason = row.maybe_text("disabled_reason")
    return Endpoint(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        shown_workspace_id=row.integer("shown_workspace_id"),
        url=row.text("url"),
        events=tuple(row.text("events").split(" ")),
        description=row.text("description"),
        include_content=row.flag("include_content"),
        strict_order=row.flag("strict_order"),
        concurrency=row.integer("concurrency"),
        enabled=row.flag("enabled"),
        enabled_at=from_micros(row.integer("enabled_at")),
        disabled_at=moment(row, "disabled_at"),
        disabled_reason=None if reason is None else DisabledReason(reason),
        failures=row.integer("failures"),
        last_success_at=moment(row, "last_success_at"),
        sealed_secret=maybe_blob(row, "secret"),
        previous_secret=maybe_blob(row, "previous_secret"),
        previous_until=moment(row, "previous_until"),
        created_at=from_micros(row.integer("created_at")),
        updated_at=from_micros(row.integer("updated_at")),
    )


def moment(row: Row, name: str) -> datetime | None:
    """Return the moment of a column that may be null."""
    count = row.maybe_integer(name)
    return None if count is None else from_micros(count)


def micros(at: datetime | None) -> int | None:
    """Return what a column keeps of a moment that may be None."""
    return None if at is None else to_micros(at)


def maybe_blob(row: Row, name: str) -> bytes | None:
    """Return the bytes of a column that may be null."""
    return None if row.values[row.index[name]] is None else row.blob(name)


def _values(endpoint: Endpoint) -> dict[str, Value]:
    return {
        "id": endpoint.id,
        "workspace_id": endpoint.workspace_id,
        "shown_workspace_id": endpoint.shown_workspace_id,
        "url": endpoint.url,
        "events": " ".join(endpoint.events),
        "description": endpoint.description,
        "include_content": int(endpoint.include_content),
        "strict_order": int(endpoint.strict_order),
        "concurrency": endpoint.concurrency,
        "enabled": int(endpoint.enabled),
        "enabled_at": to_micros(endpoint.enabled_at),
        "disabled_at": micros(endpoint.disabled_at),
        "disabled_reason": None if endpoint.disabled_reason is None else endpoint.disabled_reason.value,
        "failures": endpoint.failures,
        "last_success_at": micros(endpoint.last_success_at),
        "secret": endpoint.sealed_secret,
        "previous_secret": endpoint.previous_secret,
        "previous_until": micros(endpoint.previous_until),
        "created_at": to_micros(endpoint.created_at),
        "updated_at": to_micros(endpoint.updated_at),
    }
