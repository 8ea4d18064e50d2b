"""Each statement of the contract, on a running server. `python -m tests.contract` prints how many hold."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.contract.all_statements import STATEMENTS
from tests.contract.statements import Api, Statement, open_api


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A running server."""
    with open_api(tmp_path_factory.mktemp("contract")) as opened:
        yield opened


@pytest.mark.parametrize("each", STATEMENTS, ids=lambda each: each.id)
def test_the_server_does_what_the_contract_says(each: Statement, api: Api) -> None:
    """Issue 14: every statement of the specification is tried on a running server, as a table; the test's id is the statement."""
    each.check(api)


def test_no_statement_stands_twice() -> None:
    """Issue 14: the count is of different statements."""
    ids = [each.id for each in STATEMENTS]

    assert sorted(ids) == sorted(set(ids))
