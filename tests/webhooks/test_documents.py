"""The reference of webhooks against the code, and what a receiver is shown against the server."""

from __future__ import annotations

import json
from dataclasses import replace

from rookery.kernel.config import Settings
from rookery.webhooks.event_types import EVENT_TYPES
from rookery.webhooks.models import DeliveryState
from tests.conftest import eventually, run_instance
from tests.documentation import ROOT, blocks, differences, table
from tests.webhooks.receiver import run_receiver

EVENTS = ROOT / "docs" / "reference" / "webhook-events.md"
HOW_TO = ROOT / "docs" / "how-to" / "webhooks.md"


def test_every_event_of_webhooks_is_in_the_reference() -> None:
    """House 5.7, D-80: webhook-events.md names each type with when it is told and what its data is, and nothing else."""
    real = [
        [f"`{each.name}`", each.description, each.data_description + (f": `GET {each.resource}`" if each.resource else "")]
        for each in EVENT_TYPES
    ]

    assert table(EVENTS, "Event of a webhook") == real


def test_every_state_of_a_delivery_is_in_the_how_to() -> None:
    """House 5.7, D-80: webhooks.md explains each word of `state`, and no other."""
    assert {row[0].strip("`") for row in table(HOW_TO, "State")} == {each.value for each in DeliveryState}


async def test_the_examples_of_the_reference_are_what_a_receiver_gets(settings: Settings) -> None:
    """House 6, D-81: each body that is shown has the fields and values of one that was really sent."""
    shown = {each["type"]: each for each in map(json.loads, (block.text for block in blocks(EVENTS) if block.language == "text"))}
    async with run_instance(replace(settings, egress_allow=("127.0.0.1/32",))) as instance, run_receiver() as desk:
        made = await instance.admin.post("/api/v1/webhooks", {"url": desk.url, "events": ["*", "tool.called"]})
        memory = {"type": "decision", "content": "We deploy on Tuesdays.", "org": "acme", "project": "website", "tags": ["deploy"]}
        plan = {"title": "Mend the kettle", "status": "active", "phases": [{"name": "Look", "tasks": [{"name": "Open it"}]}]}
        for path, body in (
            ("/v1/brain/remember", memory),
            ("/v1/plans", plan),
            ("/v1/tasks/claim-next", {"plan": "mend-the-kettle"}),
            ("/api/v1/api-keys", {"name": "pipeline", "scopes": ["brain:read"]}),
            ("/api/v1/mcp/tools/call", {"server": "brain", "tool": "search", "arguments": {"query": "x"}}),
            (f"/api/v1/webhooks/{made.json()['id']}/test", None),
        ):
            assert (await instance.admin.post(path, body)).is_success, path

        await eventually(lambda: shown.keys() <= {each.event["type"] for each in desk.received}, within_s=30)

    sent = {each.event["type"]: each.event for each in desk.received}
    assert {name: list(differences(example, sent[name])) for name, example in shown.items()} == {name: [] for name in shown}
