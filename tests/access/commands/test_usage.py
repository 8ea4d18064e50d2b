"""`rookery keys usage` and `rookery agent-keys usage` (D-29)."""

from __future__ import annotations

import csv
import io
import json
import stat
from pathlib import Path

import pytest

from rookery.access import csv_export
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


def test_the_calls_of_all_keys_of_a_kind_are_added_up_at_once(cli: CommandLine, keys: tuple[str, str, str]) -> None:
    """D-29: by day and status unless told otherwise; the other kind's calls are not among them."""
    assert cli.run_table("keys", "usage", *SINCE) == [
        ["2026-11-21", "200", "3", "0", "2.0"],
        ["2026-11-21", "404", "1", "1", "2.0"],
        ["2026-11-22", "201", "1", "0", "2.0"],
    ]
    assert cli.run_table("agent-keys", "usage", *SINCE) == [["2026-11-21", "200", "1", "0", "2.0"]]
    assert cli.run_list("keys", "usage", *SINCE, "--by", "key") == [
        {"key_id": keys[0], "key_name": "=ci", "calls": 4, "errors": 0, "mean_ms": 2.0},
        {"key_id": keys[1], "key_name": "web", "calls": 1, "errors": 1, "mean_ms": 2.0},
    ]
    assert cli.run_table("keys", "usage", *SINCE, "--by", "method,route") == [
        ["POST", "/v1/brain/recall", "4", "1", "2.0"],
        ["POST", "/v1/brain/remember", "1", "0", "2.0"],
    ]
    assert cli.run_table("keys", "usage", "--since", "2026-11-22", "--until", "2026-11-22", "--by", "day") == [
        ["2026-11-22", "1", "0", "2.0"]
    ]
    assert cli.run_table("keys", "usage", "--since", "2025-01-01", "--until", "2025-02-01") == []


def test_one_key_is_added_up_and_its_calls_are_listed(cli: CommandLine, keys: tuple[str, str, str]) -> None:
    """D-29: a row a call, newest first; chosen by status and route; also of a key that was deleted since."""
    ci, web, agent = keys
    cli.run_object("keys", "delete", ci, "--yes")
    assert cli.run_table("keys", "usage", ci, *SINCE, "--by", "day") == [["2026-11-21", "3", "0", "2.0"], ["2026-11-22", "1", "0", "2.0"]]
    calls = cli.run_list("keys", "usage", ci, *SINCE, "--calls")
    assert [each["route"] for each in calls] == ["/v1/brain/remember", *["/v1/brain/recall"] * 3]
    assert calls[0] == {
        "at": "2026-11-22T09:30:00.000000Z",
        "method": "POST",
        "route": "/v1/brain/remember",
        "status": 201,
        "duration_ms": 2.0,
        "address": "192.0.2.1",
        "request_id": "req_test",
    }
    assert len(cli.run_table("keys", "usage", ci, *SINCE, "--calls", "--status", "200")) == 3
    assert len(cli.run_table("keys", "usage", ci, *SINCE, "--calls", "--route", "/v1/brain/remember")) == 1
    assert cli.run_table("keys", "usage", web, "--since", "2026-11-22", "--until", "2026-11-22", "--calls") == []
    assert cli.run("keys", "usage", agent, *SINCE).exit_code == 1


def test_many_calls_of_one_moment_are_listed_each_once(cli: CommandLine) -> None:
    """D-29: where one read ends within a moment, the next goes on there."""
    made = cli.run_object("agent-keys", "create", "--name", "rook", "--preset", "agent", "--rate-limit", "100000")
    cli.call(made["key"], route="/old", times=10)
    cli.platform.clock.advance(seconds=1)
    cli.call(made["key"], route="/new", times=4200)
    found = cli.run_list("agent-keys", "usage", str(made["id"]), *SINCE, "--calls")

    assert [each["route"] for each in found] == ["/new"] * 4200 + ["/old"] * 10


@pytest.mark.usefixtures("keys")
def test_usage_is_csv_that_no_spreadsheet_takes_for_a_formula(cli: CommandLine, tmp_path: Path) -> None:
    """D-29, RFC 4180: a head, CRLF, quotes doubled; a name that begins with = is a text."""
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
def test_a_cell_is_read_as_the_text_that_it_is(text: str) -> None:
    """D-29, RFC 4180: what a spreadsheet would calculate is marked, everything else comes back as it was."""
    [row] = csv.reader(io.StringIO(csv_export.csv_lines([{"name": text}], ["name"]), newline=""))

    assert row == [f"'{text}" if text[0] in "=+-@\t\r" else text]


@pytest.mark.usefixtures("keys", "wide_terminal")
def test_on_a_terminal_there_is_a_bar_for_each_day(cli: CommandLine) -> None:
    """D-04: with its number, and errors beside it."""
    shown = cli.run("keys", "usage", *SINCE).stdout
    assert shown.count("█") > 40
    assert "(1 errors)" in shown
    assert "2026-11-22" in shown
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
def test_what_cannot_be_meant_of_usage_is_exit_code_2(cli: CommandLine, options: list[str]) -> None:
    """D-04: a usage error."""
    assert cli.run("keys", "usage", *options).exit_code == 2
