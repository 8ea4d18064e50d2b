"""`rookery keys usage` and `rookery agent-keys usage`."""

from __future__ import annotations

import csv
import io
import json
import stat
from pathlib import Path

import pytest

from rookery.kernel.safe_texts import csv_lines
from tests.access.commands.command_line import CommandLine

SINCE = ("--since", "2026-11-01", "--until", "2026-11-30")


@pytest.fixture
def keys(cli: CommandLine) -> tuple[str, str, str]:
    """Ids of two API keys that were used on two days, and of an agent key that was used once."""
    ci, web = (cli.run_object("keys", "create", "--name", name, "--scope", "*") for name in ("=ci", "web"))
    agent = cli.run_object("agent-keys", "create", "--name", "rook", "--preset", "agent")
    cli.call(ci["plaintext_key"], times=3)
    cli.call(web["plaintext_key"], status=404)
    cli.call(agent["key"])
    cli.platform.clock.advance(days=1)
    cli.call(ci["plaintext_key"], route="/v1/brain/remember", status=201)
    return str(ci["id"]), str(web["id"]), str(agent["id"])


def test_the_calls_of_all_keys_of_a_kind_are_summed(cli: CommandLine, keys: tuple[str, str, str]) -> None:
    """By default by day and status; without the calls of the other kind."""
    assert cli.run_table("keys", "usage", *SINCE) == [
        ["2026-11-21", "200", "3", "0", "2.0", "0"],
        ["2026-11-21", "404", "1", "1", "2.0", "0"],
        ["2026-11-22", "201", "1", "0", "2.0", "0"],
    ]
    assert cli.run_table("agent-keys", "usage", *SINCE) == [["2026-11-21", "200", "1", "0", "2.0", "0"]]
    assert cli.run_list("keys", "usage", *SINCE, "--by", "key") == [
        {"key_id": keys[0], "key_name": "=ci", "calls": 4, "errors": 0, "mean_ms": 2.0, "upstream_errors": 0},
        {"key_id": keys[1], "key_name": "web", "calls": 1, "errors": 1, "mean_ms": 2.0, "upstream_errors": 0},
    ]
    assert cli.run_table("keys", "usage", *SINCE, "--by", "method,route") == [
        ["POST", "/v1/brain/recall", "4", "1", "2.0", "0"],
        ["POST", "/v1/brain/remember", "1", "0", "2.0", "0"],
    ]
    assert cli.run_table("keys", "usage", "--since", "2026-11-22", "--until", "2026-11-22", "--by", "day") == [
        ["2026-11-22", "1", "0", "2.0", "0"]
    ]
    assert cli.run_table("keys", "usage", "--since", "2025-01-01", "--until", "2025-02-01") == []


def test_the_calls_of_one_key_are_summed_and_listed(cli: CommandLine, keys: tuple[str, str, str]) -> None:
    """One row per call, newest first; filtered by status and route; also for a deleted key."""
    ci, web, agent = keys
    cli.run_object("keys", "delete", ci, "--yes")
    assert cli.run_table("keys", "usage", ci, *SINCE, "--by", "day") == [
        ["2026-11-21", "3", "0", "2.0", "0"],
        ["2026-11-22", "1", "0", "2.0", "0"],
    ]
    calls = cli.run_list("keys", "usage", ci, *SINCE, "--calls")
    assert [call["route"] for call in calls] == ["/v1/brain/remember", *["/v1/brain/recall"] * 3]
    assert calls[0] == {
        "at": "2026-11-22T09:30:00.000000Z",
        "method": "POST",
        "route": "/v1/brain/remember",
        "status": 201,
        "duration_ms": 2.0,
        "address": "192.0.2.1",
        "request_id": "req_test",
        "is_upstream_error": False,
    }
    assert len(cli.run_table("keys", "usage", ci, *SINCE, "--calls", "--status", "200")) == 3
    assert len(cli.run_table("keys", "usage", ci, *SINCE, "--calls", "--route", "/v1/brain/remember")) == 1
    assert cli.run_table("keys", "usage", web, "--since", "2026-11-22", "--until", "2026-11-22", "--calls") == []
    assert cli.run("keys", "usage", agent, *SINCE).exit_code == 1


def test_many_calls_at_the_same_time_are_listed_once_each(cli: CommandLine) -> None:
    """The next page continues within the same time."""
    key = cli.run_object("agent-keys", "create", "--name", "rook", "--preset", "agent", "--rate-limit", "100000")
    cli.call(key["key"], route="/old", times=10)
    cli.platform.clock.advance(seconds=1)
    cli.call(key["key"], route="/new", times=4200)
    calls = cli.run_list("agent-keys", "usage", str(key["id"]), *SINCE, "--calls")

    assert [call["route"] for call in calls] == ["/new"] * 4200 + ["/old"] * 10


@pytest.mark.usefixtures("keys")
def test_usage_as_csv_contains_no_formula(cli: CommandLine, tmp_path: Path) -> None:
    """RFC 4180: a header, CRLF, doubled quotes; a name that begins with = is escaped."""
    result = cli.run("keys", "usage", *SINCE, "--by", "key,day", "--csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout, newline="")))
    assert result.stdout_bytes.count(b"\r\n") == len(rows) + 1 == 4
    assert [(row["day"], row["key_name"], row["calls"]) for row in rows] == [
        ("2026-11-21", "'=ci", "3"),
        ("2026-11-21", "web", "1"),
        ("2026-11-22", "'=ci", "1"),
    ]

    path = tmp_path / "usage.csv"
    assert cli.run("keys", "usage", *SINCE, "--by", "key,day", "--out", str(path)).stdout == ""
    assert path.read_bytes() == result.stdout_bytes
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert cli.run("keys", "usage", *SINCE, "--out", str(path)).exit_code == 2


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", 'a"b', "a,b", "a\nb", "plain"])
def test_a_csv_cell_is_read_as_text(text: str) -> None:
    """RFC 4180: text that a spreadsheet would compute is escaped; other text is unchanged."""
    [row] = csv.reader(io.StringIO(csv_lines([{"name": text}], ["name"]), newline=""))

    assert row == [f"'{text}" if text[0] in "=+-@\t\r" else text]


@pytest.mark.usefixtures("keys", "wide_terminal")
def test_a_terminal_shows_a_bar_for_each_day(cli: CommandLine) -> None:
    """With its number, and the number of errors."""
    output = cli.run("keys", "usage", *SINCE).stdout
    assert output.count("█") > 40
    assert "(1 error)" in output
    assert "2026-11-22" in output
    assert json.loads(cli.run("keys", "usage", *SINCE, "--json").stdout)
    assert "No calls" in cli.run("keys", "usage", "--since", "2025-01-01", "--until", "2025-01-02").stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--calls"],
        ["x", "--calls", "--by", "day"],
        ["--by", "nonsense"],
        ["--since", "soon"],
        ["--since", "2026-11-22", "--until", "2026-11-21"],
        ["--status", "404"],
        ["--route", "/x"],
        ["x", "--calls", "--status", "99"],
        ["--csv", "--json"],
        ["--csv", "--out", "nowhere/at/all"],
    ],
)
def test_invalid_options_of_usage_are_exit_code_2(cli: CommandLine, options: list[str]) -> None:
    """A usage error."""
    assert cli.run("keys", "usage", *options).exit_code == 2
