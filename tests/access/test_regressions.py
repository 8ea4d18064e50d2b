"""Regression tests for bugs found in a review of access (D-12, D-24, D-25, D-29)."""

from __future__ import annotations

import csv
import io

import pytest
from starlette.requests import Request

from rookery.access import csv_export
from rookery.access.api.current_key import CurrentKeyRoutes
from rookery.access.errors import DelegationDenied, KeyRevoked, ScopeMissing, Unauthorised
from rookery.access.key_fields import NewAgentKey, NewApiKey
from rookery.access.models import Actor
from rookery.access.scopes import parse_grants
from tests.access.makers import Access
from tests.conftest import OPERATOR, Instance

_SCOPES = ("*",)


async def test_a_test_key_does_not_learn_which_agents_there_are(access: Access) -> None:
    """D-25: it sees test keys alone, so a name that a live agent key has is refused as any other is."""
    workspace = await access.create_workspace()
    await access.create_agent_key(workspace, NewAgentKey(name="rook", permissions=("brain:read",), agent_id="rook"))
    minted = await access.create_api_key(workspace, NewApiKey(name="probe", scopes=_SCOPES, environment="test"))
    by = Actor.from_caller((await access.admit(minted)).caller)
    told = set[str]()

    for agent_id in ("rook", "owl"):
        with pytest.raises(DelegationDenied) as refusal:
            await access.agent_keys.create(workspace, NewAgentKey(name="x", permissions=("brain:read",), agent_id=agent_id), by=by)
        told.add(f"{refusal.value.field}: {refusal.value.message}")

    assert told == {"environment: This is a test key; it can create and change only test keys."}


async def test_a_key_deleted_while_it_asks_who_it_is_is_not_known(access: Access) -> None:
    """D-29, spec 7: `/whoami` is asked by the key itself, so one that is gone is a 401, and no missing page."""
    minted = await access.create_api_key(await access.create_workspace())
    caller = (await access.admit(minted)).caller
    routes = CurrentKeyRoutes(access.guard, access.api_keys, access.agent_keys, access.workspaces, access.clock)
    await access.api_keys.delete(minted.key.workspace_id, minted.key.id, by=OPERATOR)

    with pytest.raises(Unauthorised):
        await routes.get_current_key(Request({"type": "http", "state": {"caller": caller}}))


def test_a_thousand_misspelled_scopes_are_all_named_and_a_few_of_them_explained() -> None:
    """D-12: what is nearest costs a look through all scopes, so a long list of mistakes would stop the server for a second."""
    names = [f"brain:rea{number}" for number in range(1_000)]

    good, wrong = parse_grants(names, allow_platform_scopes=False)

    assert good == ()
    assert [text.partition(": unknown scope")[0] for text in wrong] == names
    assert sum("the nearest is brain:read" in text for text in wrong) == 10


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\N{FULLWIDTH EQUALS SIGN}", "\N{FULLWIDTH COMMERCIAL AT}"])
def test_a_key_named_like_a_formula_is_a_text_in_a_sheet(sign: str) -> None:
    """D-29: no cell is taken for a formula, in full-width characters neither."""
    sheet = csv_export.csv_lines([{"key_name": f"{sign}1+1"}], ["key_name"])

    assert next(csv.reader(io.StringIO(sheet))) == [f"'{sign}1+1"]


async def test_a_body_of_countless_mistakes_is_answered_shortly(instance: Instance) -> None:
    """D-10, D-16: the first hundred are told, the first ten with the nearest name; the rest is counted."""
    answer = await instance.admin.post("/api/v1/agent-keys", {f"permis{number}": 1 for number in range(20_000)})

    assert answer.status_code == 422
    assert len(answer.content) < 20_000
    assert "more errors that are not listed" in answer.text


async def test_a_workspace_is_deleted_by_no_key_that_was_revoked_meanwhile(instance: Instance) -> None:
    """D-24: judged in the change's own transaction, for workspaces too."""
    made = (await instance.admin.post("/api/v1/workspaces", {"name": "kept"})).json()
    access = instance.rookery.access
    key = await access.api_keys.create(instance.workspace_id, NewApiKey(name="ops", scopes=("*", "platform:workspaces")), by=OPERATOR)
    actor = Actor(kind="api", id=key.key.id, name="ops")
    await access.api_keys.suspend(instance.workspace_id, key.key.id, by=OPERATOR)

    with pytest.raises(KeyRevoked):
        await access.workspaces.delete(made["workspace_id"], by=actor)
    plain = await instance.api_key("*")
    with pytest.raises(ScopeMissing):
        await access.workspaces.delete(made["workspace_id"], by=Actor(kind="api", id=plain.key_id, name="plain"))

    assert (await instance.admin.get(f"/api/v1/workspaces/{made['workspace_id']}")).status_code == 200
