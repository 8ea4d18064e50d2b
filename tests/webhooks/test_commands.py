"""`rookery webhooks`, typed as an operator does (D-04, D-80)."""

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

NOWHERE = "http://[2a00:ffff::1]/hook"


class CommandLine:
    """A command line on one data folder; not on a terminal."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.app = typer.Typer()
        add_commands(self.app, "webhooks", "tools", "remember")

    def run(self, *arguments: str, text: str | None = None) -> Result:
        """Type it."""
        return CliRunner().invoke(self.app, list(arguments), obj=CommandContext(self.settings), input=text)

    def answer(self, *arguments: str, text: str | None = None) -> object:
        """Type it with --json; it must succeed."""
        done = self.run(*arguments, "--json", text=text)
        assert done.exit_code == 0, f"{done.stderr} {done.exception}"
        return cast("object", json.loads(done.stdout))

    def one(self, *arguments: str, text: str | None = None) -> Json:
        """Type it with --json; the answer is an object."""
        return cast("Json", self.answer(*arguments, text=text))

    def many(self, *arguments: str) -> list[Json]:
        """Type it with --json; the answer is a list."""
        return cast("list[Json]", self.answer(*arguments))


@pytest.fixture
def line(data_dir: Path) -> CommandLine:
    """A command line after `rookery init`."""
    made = CommandLine(Settings(data_dir=data_dir, bcrypt_cost=4, min_free_disk_mb=0))

    async def begin() -> None:
        async with CommandContext(made.settings).open() as opened:
            await opened.create_first_keys()

    asyncio.run(begin())
    return made


def test_an_endpoint_is_added_listed_changed_and_removed(line: CommandLine) -> None:
    """D-80: the secret is shown by the command that made it alone."""
    added = line.one("webhooks", "add", NOWHERE, "--event", "memory.*,plan.completed", "--description", "desk", "--strict-order")
    shown = {name: value for name, value in added.items() if name != "secret"}

    assert str(added["secret"]).startswith("whsec_")
    assert (added["events"], added["description"], added["strict_order"]) == (["memory.*", "plan.completed"], "desk", True)
    assert line.many("webhooks", "list") == [shown]
    assert line.one("webhooks", "show", str(added["id"])) == shown
    changed = line.one("webhooks", "change", str(added["id"]), "--event", "*", "--any-order", "--concurrency", "2")
    assert changed == {**shown, "events": ["*"], "strict_order": False, "concurrency": 2, "updated_at": changed["updated_at"]}
    assert line.run("webhooks", "remove", str(added["id"])).exit_code == 2, "off a terminal it asks for --yes"
    assert line.one("webhooks", "remove", str(added["id"]), "--dry-run") == {"removed": added["id"], "dry_run": True}
    assert line.one("webhooks", "remove", str(added["id"]), "--yes") == {"removed": added["id"], "dry_run": False}
    assert line.many("webhooks", "list") == []
    assert isinstance(line.run("webhooks", "show", str(added["id"])).exception, NotFound)


def test_a_memory_stored_by_a_command_is_delivered(line: CommandLine) -> None:
    """D-80: `rookery remember` publishes what the route publishes, although it opens a part of the platform."""
    endpoint = line.one("webhooks", "add", NOWHERE, "--event", "memory.*", "--include-content")
    memory = line.one("remember", "The tea is green.")

    delivered = line.many("webhooks", "deliveries", str(endpoint["id"]))

    assert [each["type"] for each in delivered] == ["memory.stored"]
    shown = line.one("webhooks", "delivery", str(endpoint["id"]), str(delivered[0]["id"]))
    payload = cast("Json", cast("Json", shown["payload"])["data"])
    assert (payload["id"], payload["content"]) == (memory["id"], "The tea is green.")


def test_a_secret_is_read_from_a_file_and_changed_with_a_grace(line: CommandLine, tmp_path: Path) -> None:
    """D-80: never as an argument, which everybody on the host can read."""
    path = tmp_path / "secret"
    path.write_text("the-secret-in-a-file\n", encoding="utf-8")

    added = line.one("webhooks", "add", NOWHERE, "--event", "*", "--secret-file", str(path))
    rotated = line.one("webhooks", "rotate-secret", str(added["id"]), "--grace-period-hours", "1")

    assert added["secret"] == "the-secret-in-a-file"
    assert (str(rotated["secret"])[:6], rotated["previous_secret_until"] is None) == ("whsec_", False)
    assert isinstance(line.run("webhooks", "rotate-secret", str(added["id"])).exception, Conflict)
    piped = line.one("webhooks", "add", NOWHERE, "--event", "*", "--secret-file", "-", text="the-secret-in-a-pipe\n")
    assert piped["secret"] == "the-secret-in-a-pipe"


def test_what_cannot_be_an_endpoint_is_refused_as_over_http(line: CommandLine) -> None:
    """D-82: the same guard."""
    for url, event in ((NOWHERE, "memory.storred"), ("http://127.0.0.1:9/", "*"), ("ftp://example.com/", "*")):
        assert isinstance(line.run("webhooks", "add", url, "--event", event).exception, ValidationFailed), url
    assert line.many("webhooks", "list") == []


def test_an_endpoint_without_events_or_a_change_without_a_change_is_wrong_usage(line: CommandLine) -> None:
    """An endpoint without events and a change without options exit with code 2 (D-04)."""
    assert line.run("webhooks", "add", NOWHERE).exit_code == 2
    assert line.run("webhooks", "change", "any").exit_code == 2


def test_the_types_of_events_are_listed_without_any_store() -> None:
    """D-80: as `GET /api/v1/events` does."""
    app = typer.Typer()
    add_commands(app, "webhooks", "tools")
    rows = json.loads(CliRunner().invoke(app, ["webhooks", "events", "--json"]).stdout)

    assert {"memory.stored", "tool.called", "webhook.test"} <= {row["name"] for row in rows}


def test_without_a_server_a_test_waits_for_one(line: CommandLine) -> None:
    """D-04: exit code 1, and what to do; the delivery is kept for the server."""
    added = line.one("webhooks", "add", NOWHERE, "--event", "*")

    done = line.run("webhooks", "test", str(added["id"]), "--wait", "0")

    assert (done.exit_code, "rookery serve" in done.stderr) == (1, True)
    (kept,) = line.many("webhooks", "deliveries", str(added["id"]), "--state", "pending")
    assert (kept["type"], kept["kind"], kept["attempt_count"]) == ("webhook.test", "test", 0)


async def test_with_a_server_a_test_tells_how_it_went_and_the_log_is_read_and_sent_again(settings: Settings) -> None:
    """D-80: a running server does the sending; exit code 1 when the receiver did not take it."""
    reachable = replace(settings, egress_allow=("127.0.0.1/32",))
    line, status = CommandLine(reachable), 204
    async with run_instance(reachable), run_receiver(lambda _: Reply(status=status, body=b"")) as desk:
        added = await asyncio.to_thread(line.one, "webhooks", "add", desk.url, "--event", "memory.*")
        at = str(added["id"])

        tested = await asyncio.to_thread(line.one, "webhooks", "test", at)
        assert (tested["state"], tested["status"], len(cast("list[Json]", tested["attempts"]))) == ("delivered", 204, 1)
        again = await asyncio.to_thread(line.one, "webhooks", "resend", at, str(tested["id"]))
        assert (again["state"], again["of_delivery"]) == ("delivered", tested["id"])
        status = 410
        gone = await asyncio.to_thread(line.run, "webhooks", "test", at)
        assert (gone.exit_code, "failed" in gone.stdout) == (1, True)
        assert isinstance((await asyncio.to_thread(line.run, "webhooks", "test", at)).exception, Conflict)

        status = 200
        enabled = await asyncio.to_thread(line.one, "webhooks", "enable", at)
        assert (enabled["enabled"], enabled["held"]) == (True, 0)
        assert await asyncio.to_thread(line.one, "webhooks", "resend-failed", at, "--since", "1d") == {"resent": 1}
        listed = await asyncio.to_thread(line.many, "webhooks", "deliveries", at, "--type", "webhook.test", "--limit", "2")
        assert [each["kind"] for each in listed] == ["test", "resend"]
        told = (await asyncio.to_thread(line.run, "webhooks", "delivery", at, str(tested["id"]))).stdout
        assert '"type":"webhook.test"' in told.replace(": ", ":")
        disabled = await asyncio.to_thread(line.one, "webhooks", "disable", at)
        assert (disabled["enabled"], disabled["disabled_reason"]) == (False, "by_hand")
