"""Each statement of the contract, on a running server. `python -m tests.contract` prints how many hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.all_statements import STATEMENTS
from tests.contract.statements import Api, Statement, open_api


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A running server."""
    with open_api(tmp_path_factory.mktemp("contract")) as api_:
        yield api_


@pytest.mark.parametrize("item", STATEMENTS, ids=lambda item: item.id)
def test_the_server_fulfils_the_contract(item: Statement, api: Api) -> None:
    """Every statement is checked on a running server; the id of the test is the statement."""
    item.check(api)


def test_statements_are_unique() -> None:
    """The count includes each statement once."""
    ids = [statement.id for statement in STATEMENTS]

    assert sorted(ids) == sorted(set(ids))
