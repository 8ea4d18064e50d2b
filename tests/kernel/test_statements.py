"""The statements of the stores, compiled for PostgreSQL as it gets them. The embedded store does not see these faults."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import cast

import pytest
from sqlalchemy import BindParameter, Insert, SelectBase, Update, UpdateBase
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import CompileError
from sqlalchemy.sql import ClauseElement, visitors

import rookery
from rookery.kernel.db.driver_statements import compile_for_driver
from rookery.kernel.db.statements import Statement, Upsert

pytestmark = pytest.mark.embedded_store


def test_no_parameter_of_a_condition_has_the_name_of_a_column() -> None:
    """SQLAlchemy 2.0 takes a parameter with the name of a column for a new value, and refuses the update when it runs."""
    updates = list(_iter_updates())

    assert len(updates) > 50
    assert [name for name, statement in updates if not _can_compile(statement)] == []


def test_every_statement_that_a_store_names_can_be_run_by_the_driver() -> None:
    """It has no value that needs a conversion, and no list in an unusual place."""
    statements = list(_iter_statements())

    assert len(statements) > 300
    for _, statement in statements:
        compile_for_driver(statement, dict.fromkeys(_list_parameters(statement)))


def _list_parameters(statement: Statement) -> set[str]:
    """Return the parameters of *statement*; those of an insert are the columns of its table."""
    if isinstance(statement, (Insert, Upsert)):
        return set(statement.table.columns.keys())
    elements = visitors.iterate(cast("ClauseElement", statement))
    return {element.key for element in elements if isinstance(element, BindParameter) and not element.unique}


def _can_compile(statement: Update) -> bool:
    try:
        statement.compile(dialect=postgresql.dialect(), column_keys=sorted(_list_parameters(statement)))
    except CompileError:
        return False
    return True


def _iter_updates() -> Iterator[tuple[str, Update]]:
    return ((name, statement) for name, statement in _iter_statements() if isinstance(statement, Update))


def _iter_statements() -> Iterator[tuple[str, Statement]]:
    """Yield the statements that modules of stores name, with these names."""
    for module in pkgutil.walk_packages(rookery.__path__, "rookery."):
        if module.name.startswith("rookery.kernel.") or ".store" in module.name:
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, (SelectBase, UpdateBase, Upsert)):
                    yield f"{module.name}.{name}", cast("Statement", value)
