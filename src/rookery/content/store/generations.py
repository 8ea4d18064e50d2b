"""Queries of generations."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, bindparam, cast, delete, func, literal, or_, select
from sqlalchemy.sql import ColumnElement

from rookery.content.models import (
    BatchView,
    Generation,
    GenerationBatch,
    GenerationFilter,
    GenerationMode,
    GenerationStatus,
    GenerationSummary,
)
from rookery.content.store.tables import GENERATIONS, SUMMARIES, generations
from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Tx, purge_tables
from rookery.kernel.db.leases import Leases
from rookery.kernel.pages import ListPage, PageSlice

_OF_WORKSPACE = generations.c.workspace_id == bindparam("workspace_id")


def _equals(column: str) -> ColumnElement[bool]:
    return or_(bindparam(column) == literal(""), generations.c[column] == bindparam(column))


_FILTER_COLUMNS = ("status", "mode", "model", "template", "key_id", "batch_id")
_FILTERS = (_OF_WORKSPACE, *(_equals(column) for column in _FILTER_COLUMNS), generations.c.created_at >= bindparam("since"))
_LIST = KeysetList(select(*SUMMARIES.columns).where(*_FILTERS), generations.c.created_at.desc(), generations.c.id.desc())
_OF_BATCH = (_OF_WORKSPACE, generations.c.batch_id == bindparam("batch_id"))
_BATCH_LIST = KeysetList(select(*SUMMARIES.columns).where(*_OF_BATCH), generations.c.batch_index)
_BATCH_TOTALS = (
    select(
        generations.c.status,
        func.count().label("n"),
        cast(func.coalesce(func.sum(generations.c.input_tokens), 0), BigInteger).label("input_tokens"),
        cast(func.coalesce(func.sum(generations.c.output_tokens), 0), BigInteger).label("output_tokens"),
        cast(func.coalesce(func.sum(generations.c.reasoning_tokens), 0), BigInteger).label("reasoning_tokens"),
        cast(func.coalesce(func.sum(generations.c.cached_tokens), 0), BigInteger).label("cached_tokens"),
        cast(func.coalesce(func.sum(generations.c.cost_nanos), 0), BigInteger).label("cost_nanos"),
        func.max(generations.c.is_estimated).label("is_estimated"),
        func.max(generations.c.currency).label("currency"),
    )
    .where(*_OF_BATCH)
    .group_by(generations.c.status)
)
_LEASES = Leases(generations, owner=generations.c.owner, until=generations.c.lease_until)
_SELECT_ABANDONED = (
    select(generations)
    .where(
        generations.c.owner.is_not(None),
        generations.c.lease_until <= bindparam("now"),
        generations.c.status == GenerationStatus.RUNNING.value,
        generations.c.mode != GenerationMode.QUEUED.value,
    )
    .order_by(generations.c.id)
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True)
)
_SELECT_OWNED = select(generations.c.id).where(generations.c.owner.is_not(None)).limit(1)
_SELECT_RUNNING = select(generations.c.id).where(
    generations.c.id.in_(bindparam("ids", expanding=True)), generations.c.status == GenerationStatus.RUNNING.value
)
_SELECT_OLD = (
    select(generations.c.id).where(generations.c.ended_at < bindparam("before")).order_by(generations.c.ended_at).limit(bindparam("limit"))
)
_DELETE = delete(generations).where(generations.c.id.in_(bindparam("ids", expanding=True)))


def list_page(tx: Tx, workspace_id: int, filters: GenerationFilter, *, page: PageSlice) -> ListPage[GenerationSummary]:
    """Return a page of a workspace's generations, newest first, and the total."""
    params = {
        "workspace_id": workspace_id,
        **{column: getattr(filters, column) or "" for column in _FILTER_COLUMNS},
        "since": 0 if filters.since is None else to_micros(filters.since),
    }
    return SUMMARIES.fetch_page(tx, _LIST, page, params)


def list_batch_page(tx: Tx, batch: GenerationBatch, *, page: PageSlice) -> ListPage[GenerationSummary]:
    """Return a page of a batch's generations, in the order of the request, and their number at its creation."""
    params = {"workspace_id": batch.workspace_id, "batch_id": batch.id}
    return SUMMARIES.fetch_page(tx, _BATCH_LIST, page, params, total=batch.total)


def view_batch(tx: Tx, batch: GenerationBatch) -> BatchView:
    """Return a batch with the number of its generations by status, and the sums of their usage."""
    rows = tx.fetch_all(_BATCH_TOTALS, {"workspace_id": batch.workspace_id, "batch_id": batch.id})
    counts = dict.fromkeys((status.value for status in GenerationStatus), 0) | {row.text("status"): row.integer("n") for row in rows}
    return BatchView(
        batch=batch,
        counts=counts,
        input_tokens=sum(row.integer("input_tokens") for row in rows),
        output_tokens=sum(row.integer("output_tokens") for row in rows),
        reasoning_tokens=sum(row.integer("reasoning_tokens") for row in rows),
        cached_tokens=sum(row.integer("cached_tokens") for row in rows),
        is_estimated=any(row.integer("is_estimated") for row in rows),
        cost_nanos=sum(row.integer("cost_nanos") for row in rows),
        currency=max((currency for row in rows if (currency := row.maybe_text("currency"))), default=None),
    )


def finish_run(tx: Tx, finished: Generation, *, run: Generation) -> bool:
    """
    Store the changeable fields of a generation if its row still belongs to *run*; return False if it does not.

    Only a generation that runs once may be stored so, because the sums of its tokens are not read again.
    """
    return GENERATIONS.update(tx, finished, status=run.status.value, owner=run.owner, run_count=run.run_count) == 1


def has_owned(tx: Tx) -> bool:
    """Return whether any process runs a generation; only for the timer."""
    return tx.fetch_one(_SELECT_OWNED) is not None


def end_orphaned_leases(tx: Tx, *, at: datetime) -> int:
    """End the leases of processes of this host that have exited; return the number."""
    return _LEASES.end_orphaned(tx, at=at)


def list_abandoned(tx: Tx, *, now: datetime, limit: int) -> list[Generation]:
    """Return running calls of clients, of all tenants, whose lease is over; only for the timer. They are locked."""
    return GENERATIONS.fetch_all(tx, _SELECT_ABANDONED, {"now": to_micros(now), "limit": limit})


def list_running_ids(tx: Tx, ids: Sequence[str]) -> set[str]:
    """Return those of *ids* that are running; only for the process that runs them."""
    return {row.text("id") for row in tx.fetch_all(_SELECT_RUNNING, {"ids": list(ids)})}


def delete_old(tx: Tx, *, before: datetime, limit: int) -> int:
    """Delete at most *limit* generations that ended before *before*, oldest first; return the number."""
    ids = [row.text("id") for row in tx.fetch_all(_SELECT_OLD, {"before": to_micros(before), "limit": limit})]
    return tx.execute(_DELETE, {"ids": ids}) if ids else 0


purge = purge_tables(generations)
