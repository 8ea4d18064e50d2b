"""The reference of webhook events against the code, and its examples against real deliveries."""

from __future__ import annotations

import json
from dataclasses import replace

from rookery.kernel.config import Settings
from rookery.webhooks.models import DeliveryState
from tests.conftest import eventually, run_instance
from tests.documentation import ROOT, blocks, differences, table
from tests.webhooks.receiver import run_receiver

EVENTS = ROOT / "docs" / "reference" / "webhook-events.md"
HOW_TO = ROOT / "docs" / "how-to" / "webhooks.md"


def test_every_state_of_a_delivery_is_in_the_how_to() -> None:
    """webhooks.md explains exactly the values of `state`."""
    assert {row[0].strip("`") for row in table(HOW_TO, "State")} == {state.value for state in DeliveryState}


async def test_the_examples_of_the_reference_match_real_deliveries(settings: Settings) -> None:
    """Each example has the fields and values of a delivered body."""
    examples = {event["type"]: event for event in map(json.loads, (block.text for block in blocks(EVENTS) if block.language == "text"))}
    async with run_instance(replace(settings, egress_allow=("127.0.0.1/32",))) as instance, run_receiver() as receiver:
        created = await instance.admin.post("/api/v1/webhooks", {"url": receiver.url, "events": ["*", "tool.called"]})
        memory = {"type": "decision", "content": "We deploy on Tuesdays.", "org": "acme", "project": "website", "tags": ["deploy"]}
        plan = {"title": "Repair the kettle", "status": "active", "phases": [{"name": "Look", "tasks": [{"name": "Open it"}]}]}
        for path, body in (
            ("/v1/brain/remember", memory),
            ("/v1/plans", plan),
            ("/v1/tasks/claim-next", {"plan": "repair-the-kettle"}),
            ("/api/v1/api-keys", {"name": "pipeline", "scopes": ["brain:read"]}),
            ("/api/v1/mcp/tools/call", {"server": "brain", "tool": "search", "arguments": {"query": "x"}}),
            (f"/api/v1/webhooks/{created.json()['id']}/test", None),
        ):
            assert (await instance.admin.post(path, body)).is_success, path

        await eventually(lambda: examples.keys() <= {request.event["type"] for request in receiver.received})

    events = {request.event["type"]: request.event for request in receiver.received}
    assert {name: list(differences(example, events[name])) for name, example in examples.items()} == {name: [] for name in examples}
