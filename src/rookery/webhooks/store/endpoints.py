"""Who is told: the rows of endpoints."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import bindparam, delete, func, insert, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, Value
from rookery.webhooks.models import DisabledReason, Subscription, WebhookEndpoint
from rookery.webhooks.store.tables import endpoints

_OF_WORKSPACE = endpoints.c.workspace_id == bindparam("of_workspace")
_IS_ONE = (endpoints.c.id == bindparam("of_id"), _OF_WORKSPACE)

_ADD = insert(endpoints)
_COUNT = select(func.count().label("n")).select_from(endpoints).where(_OF_WORKSPACE)
_PAGE = select(endpoints).where(_OF_WORKSPACE).order_by(endpoints.c.id.desc()).limit(bindparam("at_most")).offset(bindparam("past"))
# A key share: nobody deletes an endpoint between this look and the commit of the deliveries that it is given, while what the
# dispatcher notes of it goes on (PostgreSQL; SQLite has one writer).
_SELECT_SUBSCRIPTIONS = (
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
_SELECT_ONE = select(endpoints).where(*_IS_ONE)
_SELECT_ONE_LOCKED = _SELECT_ONE.with_for_update(key_share=True)
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
_SELECT_AUTO_DISABLED = (
    select(endpoints)
    .where(endpoints.c.disabled_reason.in_((DisabledReason.FAILURES.value, DisabledReason.GONE.value)))
    .order_by(endpoints.c.disabled_at.desc(), endpoints.c.id)
    .limit(bindparam("at_most"))
)
_REMOVE = delete(endpoints).where(*_IS_ONE)
_PURGE = delete(endpoints).where(_OF_WORKSPACE)
_DELETE_EXPIRED_SECRETS = (
    update(endpoints).where(endpoints.c.previous_until <= bindparam("now")).values(previous_secret=None, previous_until=None)
)


def insert_endpoint(tx: Tx, endpoint: WebhookEndpoint) -> None:
    """Keep a new endpoint."""
    tx.execute(_ADD, _endpoint_to_row(endpoint))


def count(tx: Tx, workspace_id: int) -> int:
    """Return how many a workspace has."""
    row = tx.fetch_one(_COUNT, {"of_workspace": workspace_id})
    return 0 if row is None else row.integer("n")


def list_page(tx: Tx, workspace_id: int, *, limit: int, offset: int) -> list[WebhookEndpoint]:
    """Return endpoints of a workspace, newest first."""
    return [endpoint_from_row(row) for row in tx.fetch_all(_PAGE, {"of_workspace": workspace_id, "at_most": limit, "past": offset})]


def list_subscriptions(tx: Tx, workspace_id: int) -> list[Subscription]:
    """Return who might be told in a workspace, the disabled ones too; none is deleted before this transaction ends."""
    return [
        Subscription(
            id=row.text("id"),
            public_workspace_id=row.integer("shown_workspace_id"),
            events=tuple(row.text("events").split(" ")),
            include_content=row.flag("include_content"),
            enabled=row.flag("enabled"),
        )
        for row in tx.fetch_all(_SELECT_SUBSCRIPTIONS, {"of_workspace": workspace_id})
    ]


def find(tx: Tx, workspace_id: int, endpoint_id: str, *, lock: bool = False) -> WebhookEndpoint | None:
    """Return one of a workspace; *lock*: nobody else changes it before this transaction ends."""
    row = tx.fetch_one(_SELECT_ONE_LOCKED if lock else _SELECT_ONE, {"of_id": endpoint_id, "of_workspace": workspace_id})
    return None if row is None else endpoint_from_row(row)


def update_endpoint(tx: Tx, endpoint: WebhookEndpoint) -> None:
    """Keep what an endpoint is now."""
    kept = {"id", "workspace_id", "shown_workspace_id", "created_at"}
    values = {f"new_{name}": value for name, value in _endpoint_to_row(endpoint).items() if name not in kept}
    tx.execute(_CHANGE, {"of_id": endpoint.id, "of_workspace": endpoint.workspace_id, **values})


def remove(tx: Tx, workspace_id: int, endpoint_id: str) -> bool:
    """Forget one; false if there is none."""
    return tx.execute(_REMOVE, {"of_id": endpoint_id, "of_workspace": workspace_id}) == 1


def list_auto_disabled(tx: Tx, *, limit: int) -> list[WebhookEndpoint]:
    """Return those of all tenants that were disabled because of what they answered, the newest first: for the operator alone."""
    return [endpoint_from_row(row) for row in tx.fetch_all(_SELECT_AUTO_DISABLED, {"at_most": limit})]


def delete_expired_secrets(tx: Tx, now: datetime) -> int:
    """Forget the secrets before whose grace is over; return how many."""
    return tx.execute(_DELETE_EXPIRED_SECRETS, {"now": to_micros(now)})


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete the endpoints of a workspace that is being deleted; return how many."""
    return tx.execute(_PURGE, {"of_workspace": workspace_id})


def endpoint_from_row(row: Row) -> WebhookEndpoint:
    """Return the endpoint of a row with all its columns."""
    reason = row.maybe_text("disabled_reason")
    return WebhookEndpoint(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        public_workspace_id=row.integer("shown_workspace_id"),
        url=row.text("url"),
        events=tuple(row.text("events").split(" ")),
        description=row.text("description"),
        include_content=row.flag("include_content"),
        strict_order=row.flag("strict_order"),
        concurrency=row.integer("concurrency"),
        enabled=row.flag("enabled"),
        enabled_at=from_micros(row.integer("enabled_at")),
        disabled_at=optional_time(row, "disabled_at"),
        disabled_reason=None if reason is None else DisabledReason(reason),
        failures=row.integer("failures"),
        last_success_at=optional_time(row, "last_success_at"),
        sealed_secret=optional_bytes(row, "secret"),
        previous_secret=optional_bytes(row, "previous_secret"),
        previous_until=optional_time(row, "previous_until"),
        created_at=from_micros(row.integer("created_at")),
        updated_at=from_micros(row.integer("updated_at")),
    )


def optional_time(row: Row, name: str) -> datetime | None:
    """Return the moment of a column that may be null."""
    count = row.maybe_integer(name)
    return None if count is None else from_micros(count)


def optional_micros(at: datetime | None) -> int | None:
    """Return what a column keeps of a moment that may be None."""
    return None if at is None else to_micros(at)


def optional_bytes(row: Row, name: str) -> bytes | None:
    """Return the bytes of a column that may be null."""
    return None if row.values[row.index[name]] is None else row.blob(name)


def _endpoint_to_row(endpoint: WebhookEndpoint) -> dict[str, Value]:
    return {
        "id": endpoint.id,
        "workspace_id": endpoint.workspace_id,
        "shown_workspace_id": endpoint.public_workspace_id,
        "url": endpoint.url,
        "events": " ".join(endpoint.events),
        "description": endpoint.description,
        "include_content": int(endpoint.include_content),
        "strict_order": int(endpoint.strict_order),
        "concurrency": endpoint.concurrency,
        "enabled": int(endpoint.enabled),
        "enabled_at": to_micros(endpoint.enabled_at),
        "disabled_at": optional_micros(endpoint.disabled_at),
        "disabled_reason": None if endpoint.disabled_reason is None else endpoint.disabled_reason.value,
        "failures": endpoint.failures,
        "last_success_at": optional_micros(endpoint.last_success_at),
        "secret": endpoint.sealed_secret,
        "previous_secret": endpoint.previous_secret,
        "previous_until": optional_micros(endpoint.previous_until),
        "created_at": to_micros(endpoint.created_at),
        "updated_at": to_micros(endpoint.updated_at),
    }
