"""`rookery notify` and the MCP tools of notifications, beside a running server and real receivers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest
import typer
from typer.testing import CliRunner, Result

from rookery.cli import CommandContext, add_commands
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.notifications.errors import CampaignAlreadySent, WrongCampaignStatus
from tests.conftest import Caller, Settings, eventually
from tests.notifications.rig import Json, NotificationRig, count_states, run_notifications
from tests.webhooks.receiver import ReceivedRequest, Reply


class CommandLine:
    """The commands on the record store of a running server; not on a terminal."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = typer.Typer()
        add_commands(self.app, "notify", "version")

    async def run(self, *arguments: str, text: str | None = None) -> Result:
        """Run a command beside the server."""
        words = ["notify", *arguments]
        return await asyncio.to_thread(CliRunner().invoke, self.app, words, obj=CommandContext(self.settings), input=text)

    async def run_json(self, *arguments: str, exit_code: int = 0, text: str | None = None) -> object:
        """Run a command with --json and return the value."""
        result = await self.run(*arguments, "--json", text=text)
        assert result.exit_code == exit_code, f"{result.stderr} {result.exception!r}"
        return cast("object", json.loads(result.stdout))

    async def run_campaign(self, verb: str, *arguments: str) -> Json:
        """Run a command of `campaigns` with --json and return the campaign."""
        return cast("Json", await self.run_json("campaigns", verb, *arguments))


class Answers:
    """The status that the receiver answers to each path, by default 204."""

    def __init__(self) -> None:
        self.statuses = dict[str, int]()

    def __call__(self, request: ReceivedRequest) -> Reply:
        """Return the answer to a request."""
        return Reply(status=self.statuses.get(request.path, 204), body=b"")


@pytest.fixture
def answers() -> Answers:
    """The answers of the receiver."""
    return Answers()


@pytest.fixture
async def rig(settings: Settings, answers: Answers) -> AsyncIterator[NotificationRig]:
    """A server and a receiver, on each record store in turn."""
    async with run_notifications(settings, answers) as rig:
        yield rig


@pytest.fixture
def cli(rig: NotificationRig) -> CommandLine:
    """A command line with the settings of the server."""
    return CommandLine(rig.instance.rookery.settings)


async def test_a_campaign_is_previewed_and_sent(rig: NotificationRig, cli: CommandLine) -> None:
    """The preview has the audience and one message; the running server sends what the command starts."""
    for name in ("anna", "berta"):
        await rig.add_subscriber(name, attributes={"name": name.title()})
    campaign = await rig.create_campaign(title="Hello {{ name }}")

    preview = cast("Json", await cli.run_json("campaigns", "preview", campaign, "--subscriber", "berta"))
    assert (preview["subscribers"], preview["deliveries"], cast("Json", preview["message"])["title"]) == (2, 2, "Hello Berta")
    text = (await cli.run("campaigns", "preview", campaign)).stdout
    assert ("subscribers" in text, "Hello " in text) == (True, True)
    assert (await cli.run("campaigns", "send", campaign)).exit_code == 2, "without a terminal it needs --yes"
    assert rig.receiver.received == []
    assert (await cli.run_campaign("send", campaign, "--yes"))["status"] == "sending"
    await rig.wait_for_status(campaign, "sent")

    assert {str(request.event["title"]) for request in rig.receiver.received} == {"Hello Anna", "Hello Berta"}
    rows = cast("list[Json]", await cli.run_json("deliveries", campaign, "--status", "sent"))
    assert {row["external_id"] for row in rows} == {"anna", "berta"}
    listed = cast("list[Json]", await cli.run_json("campaigns", "list", "--status", "sent"))
    assert [entry["id"] for entry in listed] == [campaign]
    statistics = cast("Json", await cli.run_json("campaigns", "stats", campaign))
    assert (statistics["status"], statistics["sent"], statistics["total"]) == ("sent", 2, 2)
    assert isinstance((await cli.run("campaigns", "send", campaign, "--yes")).exception, CampaignAlreadySent)
    assert isinstance((await cli.run("campaigns", "show", "unknown")).exception, NotFound)


async def test_a_campaign_is_created_from_a_file(rig: NotificationRig, cli: CommandLine, tmp_path: Path) -> None:
    """The command takes the fields of the API, from a file or standard input; errors name the field."""
    await rig.add_subscriber("anna")
    fields = {"name": "news", "title": "Hello", "body": "Text", "audience": {"all": True}}
    file = tmp_path / "campaign.json"
    file.write_text(json.dumps(fields), encoding="utf-8")
    created = await cli.run_campaign("create", str(file))
    piped = await cli.run_json("campaigns", "create", "-", text=json.dumps({**fields, "name": "piped"}))

    assert (created["status"], created["name"], cast("Json", piped)["name"]) == ("draft", "news", "piped")
    assert (await cli.run_campaign("send", str(created["id"]), "--yes"))["status"] == "sending"
    await rig.wait_for_status(str(created["id"]), "sent")
    wrong = await cli.run("campaigns", "create", "-", text=json.dumps({**fields, "audience": {"everyone": True}}))
    assert isinstance(wrong.exception, ValidationFailed)
    assert "audience.everyone" in wrong.exception.field_errors
    for text in ("{nope", "[]"):
        assert (await cli.run("campaigns", "create", "-", text=text)).exit_code == 2


async def test_a_preview_names_what_prevents_a_send(rig: NotificationRig, cli: CommandLine) -> None:
    """A missing variable is found before the first message; the exit code is 1."""
    await rig.add_subscriber("anna")
    campaign = await rig.create_campaign(title="Hello {{ name }}")

    result = await cli.run("campaigns", "preview", campaign)
    assert (result.exit_code, result.stderr) == (1, "{{ name }} has no value for 1 subscriber, such as anna.\n"), result.stderr
    await rig.add_subscriber("berta")
    of_two = await cli.run("campaigns", "preview", campaign)
    assert " for 2 subscribers, such as " in of_two.stderr, of_two.stderr
    assert isinstance((await cli.run("campaigns", "send", campaign, "--yes")).exception, ValidationFailed)
    assert rig.receiver.received == []


async def test_a_campaign_is_paused_resumed_and_cancelled(rig: NotificationRig, cli: CommandLine) -> None:
    """Nothing is sent while it is paused; the rest of a cancelled campaign is skipped."""
    await rig.add_subscribers(200)
    campaign = await rig.send_campaign(rate_per_second=4)  # longer than the commands take on a slow machine
    await eventually(lambda: len(rig.receiver.received) > 2)

    assert (await cli.run_campaign("pause", campaign))["status"] == "paused"

    async def is_quiet() -> bool:
        return "sending" not in count_states(await rig.get(f"/campaigns/{campaign}"))

    await eventually(is_quiet)
    sent = len(rig.receiver.received)
    assert isinstance((await cli.run("campaigns", "pause", campaign)).exception, WrongCampaignStatus)
    assert len(rig.receiver.received) == sent
    assert (await cli.run_campaign("resume", campaign))["status"] == "sending"
    await eventually(lambda: len(rig.receiver.received) > sent)
    assert (await cli.run("campaigns", "cancel", campaign)).exit_code == 2, "without a terminal it needs --yes"
    assert (await cli.run_campaign("cancel", campaign, "--yes"))["status"] == "cancelled"
    await eventually(is_quiet)

    states = count_states(await rig.get(f"/campaigns/{campaign}"))
    assert set(states) == {"sent", "skipped"}
    assert states["sent"] == len(rig.receiver.received)
    assert set(rig.received_ids().values()) == {1}


async def test_failed_deliveries_alone_are_sent_again(rig: NotificationRig, cli: CommandLine, answers: Answers) -> None:
    """`retry` sends the failed ones, and is a conflict if no delivery failed."""
    answers.statuses["/berta"] = 400
    for name in ("anna", "berta"):
        await rig.add_subscriber(name)
    campaign = await rig.send_campaign()
    assert count_states(await rig.wait_for_status(campaign, "sent")) == {"sent": 1, "failed": 1}
    answers.statuses.clear()

    assert (await cli.run_campaign("retry", campaign))["status"] == "sending"

    assert count_states(await rig.wait_for_status(campaign, "sent")) == {"sent": 2}
    assert sorted(request.path for request in rig.receiver.received) == ["/anna", "/berta", "/berta"]
    assert isinstance((await cli.run("campaigns", "retry", campaign)).exception, Conflict)


async def test_a_campaign_is_scheduled_and_unscheduled(rig: NotificationRig, cli: CommandLine) -> None:
    """A local time in a time zone; a wrong time or zone is an error."""
    campaign = await rig.create_campaign()

    scheduled = await cli.run_campaign("schedule", campaign, "2031-07-01T09:00", "--timezone", "Europe/Vienna")
    assert (scheduled["status"], str(cast("Json", scheduled["schedule"])["at_utc"])[:19]) == ("scheduled", "2031-07-01T07:00:00")
    assert (await cli.run_campaign("unschedule", campaign))["status"] == "draft"
    for time, zone in (("2001-07-01T09:00", "UTC"), ("tomorrow", "UTC"), ("2031-07-01T09:00", "Europe/Wien")):
        result = await cli.run("campaigns", "schedule", campaign, time, "--timezone", zone)
        assert isinstance(result.exception, ValidationFailed), (time, zone)


async def test_a_test_shows_its_results(rig: NotificationRig, cli: CommandLine, answers: Answers) -> None:
    """The command waits for the server; the exit code is 1 unless all were sent."""
    answers.statuses["/berta"] = 400
    for name in ("anna", "berta"):
        await rig.add_subscriber(name)
    campaign = await rig.create_campaign()

    rows = cast("list[Json]", await cli.run_json("test", campaign, "anna", "--wait", "120"))
    assert [(row["external_id"], row["state"], row["status"]) for row in rows] == [("anna", "sent", 204)]
    failed = cast("list[Json]", await cli.run_json("test", campaign, "berta", "--wait", "120", exit_code=1))
    assert [(row["state"], "400" in str(row["reason"])) for row in failed] == [("failed", True)]
    assert isinstance((await cli.run("test", campaign, "nobody")).exception, ValidationFailed)
    assert (await rig.get(f"/campaigns/{campaign}"))["status"] == "draft"


async def test_a_test_without_a_server_stays_pending(settings: Settings) -> None:
    """The exit code is 1, with a hint; nothing is lost."""
    async with run_notifications(settings) as rig:
        await rig.add_subscriber("anna")
        campaign = await rig.create_campaign()
        stopped = CommandLine(rig.instance.rookery.settings)

    result = await stopped.run("test", campaign, "anna", "--wait", "0")
    assert (result.exit_code, "rookery serve" in result.stderr) == (1, True)
    assert "pending" in result.stdout


async def test_subscribers_are_imported_listed_and_exported(rig: NotificationRig, cli: CommandLine, tmp_path: Path) -> None:
    """Good lines are stored and bad ones named; an export can be imported."""
    source = tmp_path / "people.csv"
    source.write_text(f"external_id,webhook,tags\nanna,{rig.receiver.url}anna,news\n,{rig.receiver.url}b,news\n", encoding="utf-8")

    result = await cli.run("subscribers", "import", str(source))
    assert (result.exit_code, "1 created" in result.stdout, "line 3: external_id" in result.stderr) == (1, True, True), result.stderr
    rows = cast("list[Json]", await cli.run_json("subscribers", "list", "--tag", "news"))
    assert [row["external_id"] for row in rows] == ["anna"]
    exported = (await cli.run("subscribers", "export", "--format", "jsonl")).stdout
    again = cast("Json", await cli.run_json("subscribers", "import", "-", "--format", "jsonl", text=exported))
    assert (again["unchanged"], again["failed"]) == (1, 0)


async def _call_tool(caller: Caller, tool: str, arguments: Json) -> Json:
    response = await caller.post("/mcp/tools/call", {"server": "notify", "tool": tool, "arguments": arguments})
    return cast("Json", response.json())


async def test_an_agent_lists_campaigns_and_sends_a_test(rig: NotificationRig) -> None:
    """The tools do what their routes do; an agent sends to named subscribers and to no audience."""
    for name in ("anna", "berta"):
        await rig.add_subscriber(name)
    campaign = await rig.create_campaign(name="autumn")
    agent = await rig.instance.agent_key("mcp:read", "mcp:write", "notify:read", "notify:send")

    listed = await _call_tool(agent, "campaign_list", {"status": "draft", "q": "autumn"})
    assert listed["success"], listed
    content = cast("Json", cast("Json", listed["result"])["structuredContent"])
    assert [entry["id"] for entry in cast("list[Json]", content["campaigns"])] == [campaign]
    tested = await _call_tool(agent, "notification_test", {"campaign": campaign, "subscribers": ["berta"]})
    assert tested["success"], tested
    test = cast("Json", cast("Json", tested["result"])["structuredContent"])
    assert test["test_of"] == campaign
    await rig.wait_for_status(str(test["id"]), "sent")
    results = await _call_tool(agent, "campaign_list", {"test_of": campaign})
    (result,) = cast("list[Json]", cast("Json", cast("Json", results["result"])["structuredContent"])["campaigns"])

    assert (result["id"], cast("Json", result["statistics"])["sent"]) == (test["id"], 1)
    assert [request.path for request in rig.receiver.received] == ["/berta"]
    unknown = await _call_tool(agent, "notification_test", {"campaign": campaign, "subscribers": ["nobody"]})
    assert (unknown["success"], "nobody" in str(unknown)) == (False, True)
    tools = (await agent.get("/mcp/tools?server=notify")).text
    assert "campaign_send" not in tools


async def test_a_tool_needs_the_scope_of_its_route(rig: NotificationRig) -> None:
    """Without notify:send, an agent reads and sends nothing."""
    await rig.add_subscriber("anna")
    campaign = await rig.create_campaign()
    agent = await rig.instance.agent_key("mcp:read", "mcp:write", "notify:read")

    refused = await _call_tool(agent, "notification_test", {"campaign": campaign, "subscribers": ["anna"]})
    assert not refused.get("success"), refused
    assert cast("list[Json]", (await rig.get(f"/campaigns?test_of={campaign}"))["data"]) == []
    assert rig.receiver.received == []
