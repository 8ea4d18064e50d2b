"""Queries of webhook endpoints and their subscriptions."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import bindparam, delete, func, insert, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, Value
from rookery.webhooks.event_types import is_subscribed
from rookery.webhooks.models import DisabledReason, Subscription, WebhookEndpoint
from rookery.webhooks.store.tables import endpoints

_OF_WORKSPACE = endpoints.c.workspace_id == bindparam("of_workspace")
_IS_ONE = (endpoints.c.id == bindparam("of_id"), _OF_WORKSPACE)

_ADD = insert(endpoints)
_COUNT = select(func.count().label("n")).select_from(endpoints).where(_OF_WORKSPACE)
_PAGE = select(endpoints).where(_OF_WORKSPACE).order_by(endpoints.c.id.desc()).limit(bindparam("at_most")).offset(bindparam("past"))
# A key-share lock: it prevents deleting an endpoint until the new deliveries are committed, but lets the dispatcher update its
# statistics (PostgreSQL; SQLite has a single writer).
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
_SELECT_PATTERNS = select(endpoints.c.workspace_id, endpoints.c.events).distinct()
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
    """Insert a new endpoint."""
    tx.execute(_ADD, _endpoint_to_row(endpoint))


def count(tx: Tx, workspace_id: int) -> int:
    """Return the number of endpoints of a workspace."""
    row = tx.fetch_one(_COUNT, {"of_workspace": workspace_id})
    return 0 if row is None else row.integer("n")


def list_page(tx: Tx, workspace_id: int, *, limit: int, offset: int) -> list[WebhookEndpoint]:
    """Return a page of a workspace's endpoints, newest first."""
    return [endpoint_from_row(row) for row in tx.fetch_all(_PAGE, {"of_workspace": workspace_id, "at_most": limit, "past": offset})]


def list_subscriptions(tx: Tx, workspace_id: int) -> list[Subscription]:
    """Return the subscriptions of a workspace, disabled endpoints included; none is deleted before this transaction ends."""
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


def list_subscribed_tenants(tx: Tx, type: str) -> list[int]:
    """Return the ids of all tenants with an endpoint that subscribes to *type*, sorted; only for events of several tenants."""
    return sorted(
        {row.integer("workspace_id") for row in tx.fetch_all(_SELECT_PATTERNS) if is_subscribed(row.text("events").split(" "), type)}
    )


def find(tx: Tx, workspace_id: int, endpoint_id: str, *, lock: bool = False) -> WebhookEndpoint | None:
    """Return an endpoint of a workspace; *lock* locks it until the transaction ends."""
    row = tx.fetch_one(_SELECT_ONE_LOCKED if lock else _SELECT_ONE, {"of_id": endpoint_id, "of_workspace": workspace_id})
    return None if row is None else endpoint_from_row(row)


def update_endpoint(tx: Tx, endpoint: WebhookEndpoint) -> None:
    """Store the changed fields of an endpoint."""
    immutable = {"id", "workspace_id", "shown_workspace_id", "created_at"}
    values = {f"new_{name}": value for name, value in _endpoint_to_row(endpoint).items() if name not in immutable}
    tx.execute(_CHANGE, {"of_id": endpoint.id, "of_workspace": endpoint.workspace_id, **values})


def remove(tx: Tx, workspace_id: int, endpoint_id: str) -> bool:
    """Delete an endpoint; return False if it does not exist."""
    return tx.execute(_REMOVE, {"of_id": endpoint_id, "of_workspace": workspace_id}) == 1


def list_auto_disabled(tx: Tx, *, limit: int) -> list[WebhookEndpoint]:
    """Return endpoints of all tenants that were disabled automatically, newest first; only for the operator."""
    return [endpoint_from_row(row) for row in tx.fetch_all(_SELECT_AUTO_DISABLED, {"at_most": limit})]


def delete_expired_secrets(tx: Tx, now: datetime) -> int:
    """Delete previous secrets whose grace period has ended; return the number."""
    return tx.execute(_DELETE_EXPIRED_SECRETS, {"now": to_micros(now)})


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete the endpoints of a workspace that is being deleted; return the number."""
    return tx.execute(_PURGE, {"of_workspace": workspace_id})


def endpoint_from_row(row: Row) -> WebhookEndpoint:
    """Return the endpoint of a full row."""
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
    """Return the time in a nullable column."""
    micros = row.maybe_integer(name)
    return None if micros is None else from_micros(micros)


def optional_micros(at: datetime | None) -> int | None:
    """Return a time as a nullable column stores it."""
    return None if at is None else to_micros(at)


def optional_bytes(row: Row, name: str) -> bytes | None:
    """Return the bytes in a nullable column."""
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
