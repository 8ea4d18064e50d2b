"""Recalls, kept for feedback and for the log of recalls: the rows that have a request. Some workspaces keep no log."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, bindparam, delete, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Tx, upsert
from rookery.kernel.pages import ListPage, PageSlice
from rookery.memory.recall_models import FeedbackVerdict, RecallLogFilter, RecallRecord, RecallViewer
from rookery.memory.store import training
from rookery.memory.store.tables import FEEDBACK, RECALLS, memories, recall_log_exclusions, recalls

_RECALLED_AT_INTERVAL = timedelta(days=1)
"""Minimum interval between two updates of a memory's `recalled_at`."""

_ADD = upsert(recalls, index_elements=["id"])
_EXPIRED = select(recalls.c.id).where(recalls.c.created_at < bindparam("before")).order_by(recalls.c.created_at).limit(bindparam("most"))
_DELETE = delete(recalls).where(recalls.c.id.in_(_EXPIRED))
_MARK_RECALLED = (
    update(memories)
    .where(
        memories.c.workspace_id == bindparam("workspace"),
        memories.c.id == bindparam("memory"),
        or_(memories.c.recalled_at.is_(None), memories.c.recalled_at < bindparam("day_ago")),
    )
    .values(recalled_at=bindparam("at"))
)
_EXCLUDED = select(recall_log_exclusions.c.workspace_id).where(recall_log_exclusions.c.workspace_id.in_(bindparam("ids", expanding=True)))
_EXCLUDE = upsert(recall_log_exclusions, index_elements=["workspace_id"])
_CLEARED = {"request": None, "org": None, "project": None, "agent_id": None, "session_id": None}
_CLEAR = update(recalls).where(recalls.c.workspace_id == bindparam("workspace"), recalls.c.request.is_not(None)).values(_CLEARED)


def add(tx: Tx, recalls_to_add: Sequence[RecallRecord]) -> None:
    """
    Store *recalls_to_add*, and the time of recall of their memories. Idempotent.

    The query is stored only if the workspace records training examples, and the request only if it keeps a log of recalls.
    """
    enabled = training.filter_enabled(tx, {recall.workspace_id for recall in recalls_to_add})
    excluded = filter_excluded(tx, {recall.workspace_id for recall in recalls_to_add})
    rows = [recall if recall.workspace_id in enabled else replace(recall, query_record=None) for recall in recalls_to_add]
    tx.execute_many(_ADD, [RECALLS.to_row(_remove_request(recall) if recall.workspace_id in excluded else recall) for recall in rows])
    last = {(recall.workspace_id, memory_id): recall.created_at for recall in recalls_to_add for memory_id in recall.memory_ids}
    tx.execute_many(
        _MARK_RECALLED,
        [
            {"workspace": workspace_id, "memory": memory_id, "at": to_micros(at), "day_ago": to_micros(at - _RECALLED_AT_INTERVAL)}
            for (workspace_id, memory_id), at in last.items()
        ],
    )


def _remove_request(recall: RecallRecord) -> RecallRecord:
    return replace(recall, request=None, org=None, project=None, agent_id=None, session_id=None)


def delete_before(tx: Tx, before: datetime, *, limit: int) -> int:
    """Delete the oldest recalls from before that time, of any workspace. Return their number."""
    return tx.execute(_DELETE, {"before": to_micros(before), "most": limit})


def filter_excluded(tx: Tx, workspace_ids: Collection[int]) -> set[int]:
    """Return those of *workspace_ids* that keep no log."""
    return {row.integer("workspace_id") for row in tx.fetch_all(_EXCLUDED, {"ids": sorted(workspace_ids)})} if workspace_ids else set()


def exclude(tx: Tx, workspace_id: int, *, at: datetime) -> int:
    """Stop the log of the workspace and clear the logged requests. Return their number."""
    tx.execute(_EXCLUDE, {"workspace_id": workspace_id, "since": to_micros(at)})
    return tx.execute(_CLEAR, {"workspace": workspace_id})


def clear(tx: Tx, workspace_id: int, *, org: str | None, project: str | None, agent_id: str | None, session_id: str | None) -> int:
    """Clear the logged requests that name all of these, at least one. Return their number."""
    values = {"org": org, "project": project, "agent_id": agent_id, "session_id": session_id}
    conditions = [recalls.c[name] == value for name, value in values.items() if value is not None]
    if not conditions:
        return 0
    statement = update(recalls).where(recalls.c.workspace_id == workspace_id, recalls.c.request.is_not(None), *conditions)
    return tx.execute(statement.values({**_CLEARED, "asked": None}))


def clear_ids(tx: Tx, workspace_id: int, recall_ids: Sequence[str]) -> int:
    """Clear the logged requests of these recalls, and their questions. Return their number."""
    statement = update(recalls).where(recalls.c.workspace_id == workspace_id, recalls.c.id.in_(recall_ids))
    return tx.execute(statement.values({**_CLEARED, "asked": None})) if recall_ids else 0


def list_with_query(tx: Tx, workspace_id: int, *, after: str, limit: int) -> list[RecallRecord]:
    """Return the next recalls of the workspace by id whose question is stored."""
    has_query = or_(recalls.c.request.is_not(None), recalls.c.asked.is_not(None))
    statement = select(recalls).where(recalls.c.workspace_id == workspace_id, recalls.c.id > after, has_query)
    return RECALLS.fetch_all(tx, statement.order_by(recalls.c.id).limit(limit))


def save_queries(tx: Tx, changed: Sequence[RecallRecord]) -> None:
    """Replace the stored questions of recalls."""
    for record in changed:
        tx.execute(update(recalls).where(recalls.c.id == record.id).values(RECALLS.to_row(record, only=("request", "asked"))))


def list_recalls(tx: Tx, viewer: RecallViewer, filters: RecallLogFilter, *, page: PageSlice) -> ListPage[RecallRecord]:
    """Return a page of the logged recalls that *viewer* may see and *filters* select, newest first."""
    c = recalls.c
    conditions = [_visibility_condition(viewer), c.request.is_not(None)]
    for name in ("key_id", "agent_id", "session_id", "org", "project"):
        value = getattr(filters, name)
        if value is not None:
            conditions.append(c[name] == value)
    if filters.memory_id is not None:
        conditions.append(c.memory_ids.contains(f'"{filters.memory_id}"', autoescape=True))
    if filters.since is not None:
        conditions.append(c.created_at >= to_micros(filters.since))
    if filters.until is not None:
        conditions.append(c.created_at < to_micros(filters.until))
    return RECALLS.fetch_page(tx, KeysetList(select(recalls).where(*conditions), c.id.desc()), page)


def get_recall(tx: Tx, viewer: RecallViewer, recall_id: str) -> RecallRecord | None:
    """Return a logged recall that *viewer* may see."""
    return RECALLS.fetch_one(
        tx, select(recalls).where(_visibility_condition(viewer), recalls.c.id == recall_id, recalls.c.request.is_not(None))
    )


def get_feedback(tx: Tx, workspace_id: int, recall_ids: Sequence[str]) -> dict[tuple[str, str], FeedbackVerdict]:
    """Return the feedback on recalls, by recall and memory."""
    rows = FEEDBACK.find_all(tx, workspace_id, recall_id=recall_ids) if recall_ids else []
    return {(row.recall_id, row.memory_id): FeedbackVerdict.USED if row.used else FeedbackVerdict.IGNORED for row in rows}


def _visibility_condition(viewer: RecallViewer) -> ColumnElement[bool]:
    c = recalls.c
    own = c.key_id == viewer.key_id
    if not viewer.sees_other_keys:
        return and_(c.workspace_id == viewer.workspace_id, own)
    others: list[ColumnElement[bool]] = []
    if viewer.orgs is not None:
        others.append(c.org.in_(sorted(viewer.orgs)))
    if viewer.projects is not None:
        others.append(c.project.in_(sorted(viewer.projects)))
    if viewer.agent_id is not None:
        others.append(or_(c.agent_id.is_(None), c.agent_id == viewer.agent_id))
    return and_(c.workspace_id == viewer.workspace_id, or_(own, and_(*others)) if others else c.workspace_id == viewer.workspace_id)
