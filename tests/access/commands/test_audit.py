"""`rookery audit verify|export|list`: a chain that anybody can check (D-29)."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from rookery.access.audit_log import GENESIS_HASH
from tests.access.commands.command_line import CommandLine

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def changes(cli: CommandLine) -> list[str]:
    """Make some changes; return the id of the key that was changed."""
    key_id = str(cli.run_object("keys", "create", "--name", "ci — α", "--scope", "brain:read")["id"])
    cli.run_object("keys", "change", key_id, "--name", "build", "--tier", "free")
    cli.run_object("agent-keys", "create", "--name", "rook", "--preset", "agent")
    cli.platform.clock.advance(days=10)
    cli.run_object("keys", "delete", key_id, "--yes")
    return [key_id]


def export(cli: CommandLine, path: Path, *options: str) -> list[bytes]:
    """Export into *path*; return its lines."""
    result = cli.run("audit", "export", "--out", str(path), *options)
    assert (result.exit_code, result.stdout) == (0, "")
    return path.read_bytes().splitlines(keepends=True)


def alter(cli: CommandLine, statement: str, *values: object) -> None:
    """Change the record store behind our back, as one who has its file may."""
    with sqlite3.connect(cli.platform.data_dir / "records.db") as store:
        store.execute(statement, values)
    store.close()


def verdict(cli: CommandLine, *options: str) -> tuple[int, dict[str, object]]:
    """Verify; return the exit code and what is said."""
    result = cli.run("audit", "verify", *options, "--json")
    return result.exit_code, json.loads(result.stdout)


def chains_of(said: dict[str, object]) -> list[dict[str, object]]:
    """Return what is said of each chain."""
    return cast("list[dict[str, object]]", said["chains"])


def test_a_whole_log_is_whole_and_shows_where_each_chain_ends(cli: CommandLine, changes: list[str]) -> None:
    """D-29: length and last hash of each chain, to be kept elsewhere."""
    del changes
    code, said = verdict(cli)
    entries = [json.loads(each) for each in cli.run("audit", "export").stdout.splitlines()]

    assert (code, said["whole"], said["fault"], said["not_contained"]) == (0, True, None, [])
    assert said["chains"] == [
        {"workspace_id": 0, "name": "the platform", "entries": 1, "last_hash": entries[0]["hash"], "broken_at": None, "reason": None},
        {"workspace_id": 1, "name": "nest", "entries": 5, "last_hash": entries[-1]["hash"], "broken_at": None, "reason": None},
    ]
    assert [row[:3] for row in cli.run_table("audit", "verify", "--workspace", "nest")] == [["1", "nest", "5"]]
    assert [row[:3] for row in cli.run_table("audit", "verify", "--platform")] == [["0", "the platform", "1"]]


@pytest.mark.parametrize(
    ("statement", "broken_at"),
    [
        ("UPDATE access_audit SET actor_name = 'somebody' WHERE workspace_id = 1 AND seq = 3", 3),
        ("UPDATE access_audit SET after = replace(after, 'free', 'enterprise') WHERE workspace_id = 1 AND seq = 3", 3),
        ("UPDATE access_audit SET hash = previous WHERE workspace_id = 1 AND seq = 2", 2),
        ("DELETE FROM access_audit WHERE workspace_id = 1 AND seq = 2", 2),
        ("DELETE FROM access_audit WHERE workspace_id = 1 AND seq > 3", 4),
        ("DELETE FROM access_audit WHERE workspace_id = 1", 1),
        ("UPDATE access_audit_ends SET seq = 4 WHERE workspace_id = 1", 4),
        ("DELETE FROM access_audit_ends WHERE workspace_id = 1", 1),
        ("UPDATE access_audit SET workspace_id = 7 WHERE workspace_id = 1", 1),
    ],
)
@pytest.mark.usefixtures("changes")
def test_a_log_that_was_altered_is_told_with_the_entry(cli: CommandLine, statement: str, broken_at: int) -> None:
    """D-29: altered, dropped, cut short, moved: exit code 1, which entry and why; the other chains are looked at too."""
    alter(cli, statement)
    code, said = verdict(cli)
    chains = chains_of(said)

    assert (code, said["whole"]) == (1, False)
    assert [each["broken_at"] for each in chains if each["workspace_id"] in {0, 1}] == [None, broken_at]
    assert any(each["reason"] for each in chains)
    people = cli.run("audit", "verify")
    assert people.exit_code == 1
    assert f"broken at entry {broken_at}" in people.stderr


@pytest.mark.usefixtures("changes")
def test_a_chain_that_is_gone_with_its_end_is_told(cli: CommandLine) -> None:
    """D-29: the platform's chain tells that the workspace was made, so its own began."""
    alter(cli, "DELETE FROM access_audit WHERE workspace_id = 1")
    alter(cli, "DELETE FROM access_audit_ends WHERE workspace_id = 1")

    assert verdict(cli)[0] == 1
    assert verdict(cli, "--workspace", "nest")[0] == 1


@pytest.mark.usefixtures("changes")
def test_a_hash_kept_elsewhere_tells_a_chain_that_was_written_anew(cli: CommandLine, tmp_path: Path) -> None:
    """D-29: who can rewrite the whole chain cannot make it have the old hash."""
    lines = export(cli, tmp_path / "all.jsonl")
    kept = str(json.loads(lines[-1])["hash"])
    other = "0" * 64

    assert verdict(cli, "--contains", kept, "--contains", str(json.loads(lines[0])["hash"]))[0] == 0
    assert verdict(cli, "--contains", GENESIS_HASH)[0] == 0
    assert verdict(cli, "--contains", f"{kept},{other}")[1]["not_contained"] == [other]
    assert verdict(cli, "--contains", other)[0] == 1
    assert verdict(cli, "--platform", "--contains", kept)[0] == 1
    assert verdict(cli, "--file", str(tmp_path / "all.jsonl"), "--contains", kept)[0] == 0
    assert verdict(cli, "--file", str(tmp_path / "all.jsonl"), "--contains", other)[1]["not_contained"] == [other]


@pytest.mark.usefixtures("changes")
def test_an_export_is_checked_without_any_store(cli: CommandLine, tmp_path: Path) -> None:
    """D-29: an entry a line, in a file for our eyes alone; whole as exported, from a pipe too."""
    path = tmp_path / "all.jsonl"
    lines = export(cli, path)
    elsewhere = CommandLine(tmp_path / "nothing")
    code, said = verdict(elsewhere, "--file", str(path))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (code, len(lines), said["whole"]) == (0, 6, True)
    assert [each["entries"] for each in chains_of(said)] == [1, 5]
    assert elsewhere.run("audit", "verify", "--file", "-", text=path.read_text(encoding="utf-8")).exit_code == 0
    assert not (tmp_path / "nothing").exists()
    assert cli.run("audit", "export", "--out", str(path)).exit_code == 2


def having(field: str, value: object) -> Callable[[bytes], bytes]:
    """Put another value into a field of an exported line."""
    return lambda line: json.dumps(json.loads(line) | {field: value}, ensure_ascii=False).encode() + b"\n"


def swapping(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Put *new* where *old* stands in an exported line."""
    return lambda line: line.replace(old, new)


def being(new: bytes) -> Callable[[bytes], bytes]:
    """Put *new* in place of an exported line."""
    return lambda _: new


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (having("action", "api_key.created"), "was altered"),
        (having("at", "2026-11-21T09:30:00.000001Z"), "was altered"),
        (having("seq", 9), "is missing"),
        (having("seq", "3"), "is missing"),
        (having("seq", 3.0), "was altered"),
        (having("workspace_id", True), "not an integer"),
        (having("workspace_id", 7), "is missing"),
        (having("previous", "0" * 64), "does not follow"),
        (having("hash", "0" * 64), "was altered"),
        (having("hash", None), "was altered"),
        (having("more", 1), "fields differ"),
        (swapping(b'"action"', b'"action": "x", "action"'), "twice"),
        (swapping(b'"seq": 3', b'"seq": NaN'), "not valid JSON"),
        (swapping(b"free", b"\\ud800"), "the line is invalid"),
        (swapping(b"free", b"\xff"), "the line is invalid"),
        (being(b"\n"), "the line is invalid"),
        (being(b"[]\n"), "not a JSON object"),
        (being(b"[" * 100_000 + b"\n"), "the line is invalid"),
        (being(b""), "is missing"),
    ],
)
@pytest.mark.usefixtures("changes")
def test_an_export_that_was_altered_is_told_with_the_line(
    cli: CommandLine, tmp_path: Path, change: Callable[[bytes], bytes], says: str
) -> None:
    """D-29: tolerant of nothing: exit code 1, the file, the line and why."""
    path = tmp_path / "all.jsonl"
    lines = export(cli, path)
    at = next(number for number, each in enumerate(lines) if json.loads(each)["action"] == "api_key.changed")
    path.write_bytes(b"".join([*lines[:at], change(lines[at]), *lines[at + 1 :]]))
    code, said = verdict(cli, "--file", str(path))

    assert code == 1
    assert f"all.jsonl, line {at + 1}: " in str(said["fault"])
    assert says in str(said["fault"])


@pytest.mark.usefixtures("changes")
def test_an_entry_that_is_there_twice_is_told(cli: CommandLine, tmp_path: Path) -> None:
    """D-29: the second is not the next."""
    path = tmp_path / "all.jsonl"
    lines = export(cli, path)
    path.write_bytes(b"".join([*lines[:3], lines[2], *lines[3:]]))

    assert "line 4: " in str(verdict(cli, "--file", str(path))[1]["fault"])


@pytest.mark.usefixtures("changes")
def test_an_export_that_was_cut_short_is_told(cli: CommandLine, tmp_path: Path) -> None:
    """D-29: in the middle of a line, before its end, or to nothing; at an entry's end only a kept hash tells."""
    path = tmp_path / "all.jsonl"
    whole = b"".join(export(cli, path))
    for size in (len(whole) - 1, len(whole) // 2, 0):
        path.write_bytes(whole[:size])
        assert verdict(cli, "--file", str(path))[0] == 1


@pytest.mark.usefixtures("changes")
def test_exports_of_parts_go_on_from_each_other(cli: CommandLine, tmp_path: Path) -> None:
    """D-29: what is exported until a time and since it is the whole, in this order alone."""
    first, second = tmp_path / "november.jsonl", tmp_path / "december.jsonl"
    parts = export(cli, first, "--until", "2026-12-01") + export(cli, second, "--since", "2026-12-01")
    whole = cli.run("audit", "export", "--workspace", "nest").stdout.encode().splitlines(keepends=True)

    assert sorted(parts[1:]) == sorted(whole)
    assert len(parts) == 6
    assert verdict(cli, "--file", str(first), "--file", str(second))[0] == 0
    assert verdict(cli, "--file", str(second), "--file", str(first))[0] == 1
    assert verdict(cli, "--file", str(second))[0] == 1


@pytest.mark.usefixtures("changes")
def test_the_python_of_the_how_to_checks_an_export(cli: CommandLine, tmp_path: Path) -> None:
    """D-29: the documented lines need nothing of ours; they take a whole export, and no altered one."""
    page = (ROOT / "docs" / "how-to" / "audit.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    path = tmp_path / "audit.jsonl"
    lines = export(cli, path)

    def check() -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": ""}
        command = [sys.executable, "-S", "-c", program, str(path)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=30, check=False)

    assert len(program.splitlines()) <= 15
    done = check()
    assert done.returncode == 0, done.stderr
    assert str(json.loads(lines[-1])["hash"]) in done.stdout
    path.write_bytes(b"".join(lines).replace(b'"free"', b'"pro"'))
    assert check().returncode == 1
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert check().returncode == 1


def test_the_list_tells_who_changed_what_from_what_to_what(cli: CommandLine, changes: list[str]) -> None:
    """D-29: newest first; chosen by action, thing, actor and time; no secret in any."""
    [key_id] = changes
    rows = cli.run_table("audit", "list")
    assert [row[2] for row in rows] == ["api_key.deleted", "agent_key.created", "api_key.changed", "api_key.created", "workspace.created"]
    changed = rows[2]
    assert (changed[0], changed[3], changed[4]) == ("2026-11-21T09:30:00.000000Z", "build", key_id)
    assert changed[5] == "name: ci — α → build; rate_limit_tier: pro → free"
    assert [row[2] for row in cli.run_table("audit", "list", "--limit", "2")] == [row[2] for row in rows[:2]]
    assert len(cli.run_table("audit", "list", "--subject", key_id)) == 3
    assert len(cli.run_table("audit", "list", "--action", "api_key.changed")) == 1
    assert len(cli.run_table("audit", "list", "--since", "2026-11-30")) == 1
    assert len(cli.run_table("audit", "list", "--until", "2026-11-30")) == 4
    assert cli.run_table("audit", "list", "--actor", "nobody") == []
    assert [row[2] for row in cli.run_table("audit", "list", "--platform")] == ["workspace.created"]
    assert cli.run_list("audit", "list")[2]["before"] == {"name": "ci — α", "rate_limit_tier": "pro"}


@pytest.mark.usefixtures("changes", "wide_terminal")
def test_on_a_terminal_the_audit_log_is_a_table(cli: CommandLine) -> None:
    """D-04: for people, times to the second."""
    shown = cli.run("audit", "list").stdout
    assert "2026-11-21 09:30:00" in shown
    assert "name: ci — α → build" in shown
    assert "whole" in cli.run("audit", "verify").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["verify", "--file", "nowhere/at/all"],
        ["verify", "--file", "x", "--workspace", "nest"],
        ["verify", "--contains", "xyz"],
        ["verify", "--contains", "٣" * 64],
        ["verify", "--workspace", "nest", "--platform"],
        ["export", "--since", "soon"],
        ["export", "--out", "nowhere/at/all"],
        ["list", "--limit", "0"],
        ["list", "--platform", "--workspace", "nest"],
    ],
)
def test_what_cannot_be_meant_of_the_audit_log_is_exit_code_2(cli: CommandLine, arguments: list[str]) -> None:
    """D-04: a usage error."""
    assert cli.run("audit", *arguments).exit_code == 2
