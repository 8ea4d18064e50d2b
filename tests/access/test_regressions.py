"""Regression tests for bugs found in a review of access."""

from __future__ import annotations

import csv
import io

import pytest

from rookery.access.api.current_key import CurrentKeyOperations
from rookery.access.errors import DelegationDenied, KeyRevoked, ScopeMissing, Unauthorised
from rookery.access.key_fields import NewAgentKey, NewApiKey
from rookery.access.models import Actor
from rookery.access.scopes import parse_grants
from rookery.kernel.safe_texts import csv_lines
from tests.access.makers import Access
from tests.conftest import OPERATOR, Instance

_SCOPES = ("*",)


async def test_a_test_key_cannot_find_out_which_agents_exist(access: Access) -> None:
    """A test key sees only test keys, so the name of a live agent key is rejected like any other name."""
    workspace = await access.create_workspace()
    await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("brain:read",), agent_id="rook"))
    new_key = await access.create_api_key(workspace, NewApiKey(name="probe", scopes=_SCOPES, environment="test"))
    by = Actor.from_caller((await access.admit(new_key)).caller)
    error_texts = set[str]()

    for agent_id in ("rook", "owl"):
        with pytest.raises(DelegationDenied) as refusal:
            await access.agent_keys.create(workspace, NewAgentKey(name="x", permissions=("brain:read",), agent_id=agent_id), by=by)
        error_texts.add(f"{refusal.value.field}: {refusal.value.message}")

    assert error_texts == {"environment: This is a test key; it can create and change only test keys."}


async def test_whoami_of_a_key_deleted_meanwhile_is_unauthorised(access: Access) -> None:
    """`/whoami` is a request by the key itself, so a deleted key gets 401 and not 404."""
    new_key = await access.create_api_key(await access.create_workspace())
    caller = (await access.admit(new_key)).caller
    operations = CurrentKeyOperations(access.guard, access.api_keys, access.agent_keys, access.workspaces, access.clock)
    await access.api_keys.delete(new_key.key.workspace_id, new_key.key.id, by=OPERATOR)

    with pytest.raises(Unauthorised):
        await operations.get_current_key(caller)


def test_all_misspelled_scopes_are_named_and_a_few_with_a_suggestion() -> None:
    """Finding the nearest name compares all scopes, so a long list of mistakes would stop the server for a second."""
    names = [f"brain:rea{number}" for number in range(1_000)]

    valid, errors = parse_grants(names, allow_platform_scopes=False)

    assert valid == ()
    assert [text.partition(": unknown scope")[0] for text in errors] == names
    assert sum("the nearest is brain:read" in text for text in errors) == 10


@pytest.mark.parametrize("prefix", ["=", "+", "-", "@", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH COMMERCIAL AT}"])
def test_a_key_named_like_a_formula_is_text_in_csv(prefix: str) -> None:
    """No cell is read as a formula, also with full-width characters."""
    csv_text = csv_lines([{"key_name": f"{prefix}1+1"}], ["key_name"])

    assert next(csv.reader(io.StringIO(csv_text))) == [f"'{prefix}1+1"]


async def test_a_body_with_thousands_of_mistakes_gets_a_short_response(instance: Instance) -> None:
    """The first hundred mistakes are listed, the first ten with the nearest name; the rest is counted."""
    response = await instance.admin.post("/api/v1/agent-keys", {f"permis{number}": 1 for number in range(20_000)})

    assert response.status_code == 422
    assert len(response.content) < 20_000
    assert "more errors that are not listed" in response.text


async def test_a_key_revoked_meanwhile_cannot_delete_a_workspace(instance: Instance) -> None:
    """The key is checked in the change's own transaction, for workspaces too."""
    workspace = (await instance.admin.post("/api/v1/workspaces", {"name": "kept"})).json()
    access = instance.rookery.access
    key = await access.api_keys.create(instance.workspace_id, NewApiKey(name="ops", scopes=("*", "platform:workspaces")), by=OPERATOR)
    actor = Actor(kind="api", id=key.key.id, name="ops")
    await access.api_keys.suspend(instance.workspace_id, key.key.id, by=OPERATOR)

    with pytest.raises(KeyRevoked):
        await access.workspaces.delete(workspace["workspace_id"], by=actor)
    plain_key = await instance.api_key("*")
    with pytest.raises(ScopeMissing):
        await access.workspaces.delete(workspace["workspace_id"], by=Actor(kind="api", id=plain_key.key_id, name="plain"))

    assert (await instance.admin.get(f"/api/v1/workspaces/{workspace['workspace_id']}")).status_code == 200
