"""`rookery webhooks`."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import typer
from typer.testing import CliRunner, Result

from rookery.cli import CommandContext, add_commands
from rookery.kernel.config import Settings
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from tests.conftest import run_instance
from tests.webhooks.receiver import Reply, run_receiver

Json = dict[str, object]

UNREACHABLE = "http://[2a00:ffff::1]/hook"


class CommandLine:
    """A command line on one data folder; not on a terminal."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = typer.Typer()
        add_commands(self.app, "webhooks", "tools", "remember")

    def run(self, *arguments: str, text: str | None = None) -> Result:
        """Run a command."""
        return CliRunner().invoke(self.app, list(arguments), obj=CommandContext(self.settings), input=text)

    def run_json(self, *arguments: str, text: str | None = None) -> object:
        """Run a command with --json, which must succeed; return the value."""
        result = self.run(*arguments, "--json", text=text)
        assert result.exit_code == 0, f"{result.stderr} {result.exception}"
        return cast("object", json.loads(result.stdout))

    def run_object(self, *arguments: str, text: str | None = None) -> Json:
        """Run a command with --json; return the object."""
        return cast("Json", self.run_json(*arguments, text=text))

    def run_list(self, *arguments: str) -> list[Json]:
        """Run a command with --json; return the list."""
        return cast("list[Json]", self.run_json(*arguments))


@pytest.fixture
def cli(data_dir: Path) -> CommandLine:
    """A command line after `rookery init`."""
    cli = CommandLine(Settings(data_dir=data_dir, bcrypt_cost=4, min_free_disk_mb=0))

    async def create_keys() -> None:
        async with CommandContext(cli.settings).open() as rookery:
            await rookery.create_first_keys()

    asyncio.run(create_keys())
    return cli


def test_an_endpoint_is_added_listed_changed_and_removed(cli: CommandLine) -> None:
    """Only the command that creates an endpoint prints its secret."""
    added = cli.run_object("webhooks", "add", UNREACHABLE, "--event", "memory.*,plan.completed", "--description", "desk", "--strict-order")
    public = {name: value for name, value in added.items() if name not in {"secret", "library_secret"}}

    assert str(added["secret"]).startswith("whsec_")
    assert (added["events"], added["description"], added["strict_order"]) == (["memory.*", "plan.completed"], "desk", True)
    assert cli.run_list("webhooks", "list") == [public]
    assert cli.run_object("webhooks", "show", str(added["id"])) == public
    changed = cli.run_object("webhooks", "change", str(added["id"]), "--event", "*", "--any-order", "--concurrency", "2")
    assert changed == {**public, "events": ["*"], "strict_order": False, "concurrency": 2, "updated_at": changed["updated_at"]}
    assert cli.run("webhooks", "remove", str(added["id"])).exit_code == 2, "without a terminal it needs --yes"
    assert cli.run_object("webhooks", "remove", str(added["id"]), "--dry-run") == {"removed": added["id"], "dry_run": True}
    assert cli.run_object("webhooks", "remove", str(added["id"]), "--yes") == {"removed": added["id"], "dry_run": False}
    assert cli.run_list("webhooks", "list") == []
    assert isinstance(cli.run("webhooks", "show", str(added["id"])).exception, NotFound)


def test_a_memory_stored_by_a_command_is_delivered(cli: CommandLine) -> None:
    """`rookery remember` publishes what the route publishes, although it opens a part of the platform."""
    endpoint = cli.run_object("webhooks", "add", UNREACHABLE, "--event", "memory.*", "--include-content")
    memory = cli.run_object("remember", "The tea is green.")

    deliveries = cli.run_list("webhooks", "deliveries", str(endpoint["id"]))

    assert [delivery["type"] for delivery in deliveries] == ["memory.stored"]
    details = cli.run_object("webhooks", "delivery", str(endpoint["id"]), str(deliveries[0]["id"]))
    payload = cast("Json", cast("Json", details["payload"])["data"])
    assert (payload["id"], payload["content"]) == (memory["id"], "The tea is green.")


def test_a_secret_is_read_from_a_file_and_rotated_with_a_grace_period(cli: CommandLine, tmp_path: Path) -> None:
    """An argument would be visible to everybody on the host."""
    path = tmp_path / "secret"
    path.write_text("the-secret-in-a-file\n", encoding="utf-8")

    added = cli.run_object("webhooks", "add", UNREACHABLE, "--event", "*", "--secret-file", str(path))
    rotated = cli.run_object("webhooks", "rotate-secret", str(added["id"]), "--grace-period-hours", "1")

    assert added["secret"] == "the-secret-in-a-file"
    assert (str(rotated["secret"])[:6], rotated["previous_secret_until"] is None) == ("whsec_", False)
    assert isinstance(cli.run("webhooks", "rotate-secret", str(added["id"])).exception, Conflict)
    piped = cli.run_object("webhooks", "add", UNREACHABLE, "--event", "*", "--secret-file", "-", text="the-secret-in-a-pipe\n")
    assert piped["secret"] == "the-secret-in-a-pipe"


def test_an_invalid_endpoint_is_rejected_as_over_http(cli: CommandLine) -> None:
    """The commands use the same validation and egress guard."""
    for url, event in ((UNREACHABLE, "memory.storred"), ("http://127.0.0.1:9/", "*"), ("ftp://example.com/", "*")):
        assert isinstance(cli.run("webhooks", "add", url, "--event", event).exception, ValidationFailed), url
    assert cli.run_list("webhooks", "list") == []


def test_an_endpoint_without_events_or_a_change_without_a_change_is_wrong_usage(cli: CommandLine) -> None:
    """An endpoint without events and a change without options exit with code 2."""
    assert cli.run("webhooks", "add", UNREACHABLE).exit_code == 2
    assert cli.run("webhooks", "change", "any").exit_code == 2


def test_the_types_of_events_are_listed_without_any_store(tmp_path: Path) -> None:
    """As `GET /api/v1/events` does."""
    app = typer.Typer()
    add_commands(app, "webhooks", "tools")
    context = CommandContext(Settings(data_dir=tmp_path / "missing"))
    rows = json.loads(CliRunner().invoke(app, ["webhooks", "events", "--json"], obj=context).stdout)

    assert {"memory.stored", "tool.called", "webhook.test"} <= {row["name"] for row in rows}


def test_a_test_delivery_without_a_server_stays_pending(cli: CommandLine) -> None:
    """Exit code 1 and a hint; the delivery stays pending for the server."""
    added = cli.run_object("webhooks", "add", UNREACHABLE, "--event", "*")

    result = cli.run("webhooks", "test", str(added["id"]), "--wait", "0")

    assert (result.exit_code, "rookery serve" in result.stderr) == (1, True)
    (delivery,) = cli.run_list("webhooks", "deliveries", str(added["id"]), "--status", "pending")
    assert (delivery["type"], delivery["kind"], delivery["attempt_count"]) == ("webhook.test", "test", 0)


async def test_with_a_server_a_test_reports_its_outcome_and_deliveries_can_be_resent(settings: Settings) -> None:
    """A running server sends; exit code 1 if the receiver rejects the delivery."""
    reachable = replace(settings, egress_allow=("127.0.0.1/32",))
    cli, status = CommandLine(reachable), 204
    async with run_instance(reachable), run_receiver(lambda _: Reply(status=status, body=b"")) as receiver:
        added = await asyncio.to_thread(cli.run_object, "webhooks", "add", receiver.url, "--event", "memory.*")
        webhook_id = str(added["id"])

        tested = await asyncio.to_thread(cli.run_object, "webhooks", "test", webhook_id)
        assert (tested["state"], tested["status"], len(cast("list[Json]", tested["attempts"]))) == ("delivered", 204, 1)
        resent = await asyncio.to_thread(cli.run_object, "webhooks", "resend", webhook_id, str(tested["id"]))
        assert (resent["state"], resent["of_delivery"]) == ("delivered", tested["id"])
        status = 410
        rejected = await asyncio.to_thread(cli.run, "webhooks", "test", webhook_id)
        assert (rejected.exit_code, "failed" in rejected.stdout) == (1, True)
        assert isinstance((await asyncio.to_thread(cli.run, "webhooks", "test", webhook_id)).exception, Conflict)

        status = 200
        enabled = await asyncio.to_thread(cli.run_object, "webhooks", "enable", webhook_id)
        assert (enabled["enabled"], enabled["held"]) == (True, 0)
        assert await asyncio.to_thread(cli.run_object, "webhooks", "resend-failed", webhook_id, "--since", "1d") == {"resent": 1}
        deliveries = await asyncio.to_thread(cli.run_list, "webhooks", "deliveries", webhook_id, "--event", "webhook.test", "--limit", "2")
        assert [delivery["kind"] for delivery in deliveries] == ["test", "resend"]
        output = (await asyncio.to_thread(cli.run, "webhooks", "delivery", webhook_id, str(tested["id"]))).stdout
        assert '"type":"webhook.test"' in output.replace(": ", ":")
        disabled = await asyncio.to_thread(cli.run_object, "webhooks", "disable", webhook_id)
        assert (disabled["enabled"], disabled["disabled_reason"]) == (False, "by_hand")
