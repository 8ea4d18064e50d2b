"""The statements of the stores, compiled for PostgreSQL as it gets them. The embedded store does not see these faults."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from sqlalchemy import BindParameter, Update
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import CompileError
from sqlalchemy.sql import visitors

import rookery

pytestmark = pytest.mark.embedded_store


def test_no_parameter_of_a_condition_has_the_name_of_a_column() -> None:
    """SQLAlchemy 2.0 takes a parameter with the name of a column for a new value, and refuses the update when it runs."""
    updates = list(_iter_updates())

    assert len(updates) > 50
    assert [name for name, statement in updates if not _can_compile(statement)] == []


def _can_compile(statement: Update) -> bool:
    names = {element.key for element in visitors.iterate(statement) if isinstance(element, BindParameter) and not element.unique}
    try:
        statement.compile(dialect=postgresql.dialect(), column_keys=sorted(names))
    except CompileError:
        return False
    return True


def _iter_updates() -> Iterator[tuple[str, Update]]:
    """Yield the updates that modules of stores name, with these names."""
    for module in pkgutil.walk_packages(rookery.__path__, "rookery."):
        if module.name.startswith("rookery.kernel.") or ".store" in module.name:
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, Update):
                    yield f"{module.name}.{name}", value
