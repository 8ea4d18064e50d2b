"""The embedding model that serves each workspace, the models that have vectors in it, and the progress of a change."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, and_, bindparam, case, delete, exists, func, not_, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, Value, upsert
from rookery.memory.ports import ModelVersion, VectorSet
from rookery.memory.store.tables import ACTIVE_MODELS, VECTOR_SETS, active_models, memories, vector_sets

_KEY = ["workspace_id", "model", "dimension"]
_LIST_OUTDATED = (
    select(active_models)
    .where(or_(active_models.c.model != bindparam("model"), active_models.c.dimension != bindparam("dimension")))
    .order_by(active_models.c.workspace_id)
)
_IS_VERSION = and_(vector_sets.c.model == bindparam("of_model"), vector_sets.c.dimension == bindparam("of_dimension"))
_IS_SET = and_(vector_sets.c.workspace_id == bindparam("workspace"), _IS_VERSION)
_IS_ACTIVE = exists().where(
    active_models.c.workspace_id == vector_sets.c.workspace_id,
    active_models.c.model == vector_sets.c.model,
    active_models.c.dimension == vector_sets.c.dimension,
)
_IS_UNUSED = and_(vector_sets.c.is_retired == 1, ~_IS_ACTIVE)
_SETS = select(*(vector_sets.c[name] for name in _KEY), case((_IS_UNUSED, 1), else_=0).label("is_retired"))
_LIST_RETIRED = _SETS.where(_IS_UNUSED).order_by(*vector_sets.primary_key.columns)
_LIST_OF_VERSION = _SETS.where(vector_sets.c.workspace_id.in_(bindparam("workspaces", expanding=True)), _IS_VERSION)
_ADD_SET = upsert(vector_sets, index_elements=_KEY)
_SAVE_SET = upsert(vector_sets, index_elements=_KEY, set_=lambda new: {"is_retired": new["is_retired"]})
_ACTIVATE_FIRST = upsert(active_models, index_elements=["workspace_id"])
_IS_RETIRED = exists().where(_IS_SET, vector_sets.c.is_retired == 1)
_ACTIVATE = (
    update(active_models)
    .where(
        active_models.c.workspace_id == bindparam("workspace"),
        active_models.c.model == bindparam("old_model"),
        active_models.c.dimension == bindparam("old_dimension"),
        ~_IS_RETIRED,
    )
    .values(model=bindparam("of_model"), dimension=bindparam("of_dimension"))
)
_RETIRE_OTHERS = update(vector_sets).where(vector_sets.c.workspace_id == bindparam("workspace"), not_(_IS_VERSION)).values(is_retired=1)
_DELETE_RETIRED = delete(vector_sets).where(_IS_SET, vector_sets.c.is_retired == 1)

_SERVED = and_(
    memories.c.workspace_id == bindparam("workspace"),
    memories.c.archived_at.is_(None),
    or_(memories.c.expires_at.is_(None), memories.c.expires_at > bindparam("at")),
    memories.c.indexed_at.is_not(None),
)
"""The condition of a memory that the active model has vectors of."""

_IS_PENDING: ColumnElement[bool] = func.coalesce(memories.c.indexed_model, "") != bindparam("model")
# Embedding runs in the order of ids, so pending memories are among the newest.
_LIST_PENDING = (
    select(memories.c.id).where(_SERVED, _IS_PENDING).order_by(memories.c.created_at.desc(), memories.c.id.desc()).limit(bindparam("most"))
)
_PROGRESS = select(func.count().label("total"), func.sum(case((_IS_PENDING, 1), else_=0)).label("pending")).where(_SERVED)


def list_outdated(tx: Tx, version: ModelVersion) -> dict[int, ModelVersion]:
    """Return the workspaces that another version serves, with that version."""
    rows = tx.fetch_all(_LIST_OUTDATED, {"model": version.model, "dimension": version.dimension})
    return {row.integer("workspace_id"): ACTIVE_MODELS.from_row(row) for row in rows}


def list_of_version(tx: Tx, version: ModelVersion, workspace_ids: Collection[int]) -> list[VectorSet]:
    return VECTOR_SETS.fetch_all(tx, _LIST_OF_VERSION, {"workspaces": sorted(workspace_ids), **_version_parameters(version)})


def list_retired(tx: Tx) -> list[VectorSet]:
    """Return the sets whose vectors are to be deleted."""
    return VECTOR_SETS.fetch_all(tx, _LIST_RETIRED)


def begin(tx: Tx, workspace_id: int, version: ModelVersion) -> None:
    """Record that *version* has vectors in the workspace. The first version of a workspace becomes active."""
    tx.execute(_SAVE_SET, VECTOR_SETS.to_row(VectorSet(workspace_id=workspace_id, version=version)))
    tx.execute(_ACTIVATE_FIRST, {"workspace_id": workspace_id, **ACTIVE_MODELS.to_row(version)})


def retire(tx: Tx, workspace_id: int, version: ModelVersion) -> None:
    """Record that the vectors of *version* are to be deleted, unless it serves the workspace."""
    if ACTIVE_MODELS.find(tx, workspace_id) != version:
        tx.execute(_SAVE_SET, VECTOR_SETS.to_row(VectorSet(workspace_id=workspace_id, version=version, is_retired=True)))


def activate(tx: Tx, workspace_id: int, *, old: ModelVersion, new: ModelVersion) -> bool:
    """Switch the workspace from *old* to *new* and retire all others. Return False if *old* is not active, or *new* is being deleted."""
    parameters: dict[str, Value] = {"workspace": workspace_id, **_version_parameters(new)}
    if tx.execute(_ACTIVATE, {**parameters, "old_model": old.model, "old_dimension": old.dimension}) == 0:
        return False
    tx.execute(_ADD_SET, VECTOR_SETS.to_row(VectorSet(workspace_id=workspace_id, version=new)))
    tx.execute(_RETIRE_OTHERS, parameters)
    return True


def delete_retired(tx: Tx, vector_set: VectorSet) -> None:
    """Forget a retired set, whose vectors are deleted. One that is in use again stays."""
    tx.execute(_DELETE_RETIRED, {"workspace": vector_set.workspace_id, **_version_parameters(vector_set.version)})


def list_pending_ids(tx: Tx, workspace_id: int, *, model: str, at: datetime, limit: int) -> list[str]:
    """Return at most *limit* served memories of the workspace that *model* has no vectors of."""
    parameters: dict[str, Value] = {"workspace": workspace_id, "model": model, "at": to_micros(at), "most": limit}
    return [row.text("id") for row in tx.fetch_all(_LIST_PENDING, parameters)]


def count_progress(tx: Tx, workspace_id: int, *, model: str, at: datetime) -> tuple[int, int]:
    """Return the number of served memories of the workspace, and of those that *model* has no vectors of."""
    row = tx.fetch_one(_PROGRESS, {"workspace": workspace_id, "model": model, "at": to_micros(at)})
    return (0, 0) if row is None else (row.integer("total"), row.maybe_integer("pending") or 0)


def _version_parameters(version: ModelVersion) -> dict[str, Value]:
    return {"of_model": version.model, "of_dimension": version.dimension}
