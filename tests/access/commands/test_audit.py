"""`rookery audit verify|export|list`: a chain that can be verified independently."""

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
from tests.deadlines import HANG_S

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def changed_key_ids(cli: CommandLine) -> list[str]:
    """Make some changes; return the ids of the changed keys."""
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
    """Change the record store directly, as someone with access to the file could."""
    with sqlite3.connect(cli.platform.data_dir / "records.db") as store:
        store.execute(statement, values)
    store.close()


def verify(cli: CommandLine, *options: str) -> tuple[int, dict[str, object]]:
    """Verify; return the exit code and the output."""
    result = cli.run("audit", "verify", *options, "--json")
    return result.exit_code, json.loads(result.stdout)


def chains_of(output: dict[str, object]) -> list[dict[str, object]]:
    """Return the output for each chain."""
    return cast("list[dict[str, object]]", output["chains"])


def test_an_intact_log_shows_the_end_of_each_chain(cli: CommandLine, changed_key_ids: list[str]) -> None:
    """Length and last hash of each chain, to be stored elsewhere."""
    del changed_key_ids
    code, output = verify(cli)
    entries = [json.loads(line) for line in cli.run("audit", "export").stdout.splitlines()]

    assert (code, output["whole"], output["fault"], output["not_contained"]) == (0, True, None, [])
    assert output["chains"] == [
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
@pytest.mark.usefixtures("changed_key_ids")
def test_an_altered_log_is_reported_with_the_entry(cli: CommandLine, statement: str, broken_at: int) -> None:
    """Altered, deleted, truncated, moved: exit code 1, the entry and the reason. The other chains are checked too."""
    alter(cli, statement)
    code, output = verify(cli)
    chains = chains_of(output)

    assert (code, output["whole"]) == (1, False)
    assert [chain["broken_at"] for chain in chains if chain["workspace_id"] in {0, 1}] == [None, broken_at]
    assert any(chain["reason"] for chain in chains)
    people = cli.run("audit", "verify")
    assert people.exit_code == 1
    assert f"broken at entry {broken_at}" in people.stderr


@pytest.mark.usefixtures("changed_key_ids")
def test_a_chain_deleted_with_its_end_is_reported(cli: CommandLine) -> None:
    """The platform chain records the creation of the workspace, so its chain must exist."""
    alter(cli, "DELETE FROM access_audit WHERE workspace_id = 1")
    alter(cli, "DELETE FROM access_audit_ends WHERE workspace_id = 1")

    assert verify(cli)[0] == 1
    assert verify(cli, "--workspace", "nest")[0] == 1


@pytest.mark.usefixtures("changed_key_ids")
def test_a_hash_stored_elsewhere_detects_a_rewritten_chain(cli: CommandLine, tmp_path: Path) -> None:
    """A rewritten chain cannot contain the old hash."""
    lines = export(cli, tmp_path / "all.jsonl")
    stored_hash = str(json.loads(lines[-1])["hash"])
    unknown_hash = "0" * 64

    assert verify(cli, "--contains", stored_hash, "--contains", str(json.loads(lines[0])["hash"]))[0] == 0
    assert verify(cli, "--contains", GENESIS_HASH)[0] == 0
    assert verify(cli, "--contains", f"{stored_hash},{unknown_hash}")[1]["not_contained"] == [unknown_hash]
    assert verify(cli, "--contains", unknown_hash)[0] == 1
    assert verify(cli, "--platform", "--contains", stored_hash)[0] == 1
    assert verify(cli, "--file", str(tmp_path / "all.jsonl"), "--contains", stored_hash)[0] == 0
    assert verify(cli, "--file", str(tmp_path / "all.jsonl"), "--contains", unknown_hash)[1]["not_contained"] == [unknown_hash]


@pytest.mark.usefixtures("changed_key_ids")
def test_an_export_is_verified_without_a_store(cli: CommandLine, tmp_path: Path) -> None:
    """One entry per line, in a private file; intact as exported, also from a pipe."""
    path = tmp_path / "all.jsonl"
    lines = export(cli, path)
    elsewhere = CommandLine(tmp_path / "nothing")
    code, output = verify(elsewhere, "--file", str(path))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert (code, len(lines), output["whole"]) == (0, 6, True)
    assert [chain["entries"] for chain in chains_of(output)] == [1, 5]
    assert elsewhere.run("audit", "verify", "--file", "-", text=path.read_text(encoding="utf-8")).exit_code == 0
    assert not (tmp_path / "nothing").exists()
    assert cli.run("audit", "export", "--out", str(path)).exit_code == 2


def with_field(field: str, value: object) -> Callable[[bytes], bytes]:
    """Return a change that sets a field of an exported line."""
    return lambda line: json.dumps(json.loads(line) | {field: value}, ensure_ascii=False).encode() + b"\n"


def with_text(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Return a change that replaces *old* by *new* in an exported line."""
    return lambda line: line.replace(old, new)


def with_line(new: bytes) -> Callable[[bytes], bytes]:
    """Return a change that replaces an exported line by *new*."""
    return lambda _: new


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (with_field("action", "api_key.created"), "was altered"),
        (with_field("at", "2026-11-21T09:30:00.000001Z"), "was altered"),
        (with_field("seq", 9), "is missing"),
        (with_field("seq", "3"), "is missing"),
        (with_field("seq", 3.0), "was altered"),
        (with_field("workspace_id", True), "not an integer"),
        (with_field("workspace_id", 7), "is missing"),
        (with_field("previous", "0" * 64), "does not follow"),
        (with_field("hash", "0" * 64), "was altered"),
        (with_field("hash", None), "was altered"),
        (with_field("more", 1), "fields differ"),
        (with_text(b'"action"', b'"action": "x", "action"'), "twice"),
        (with_text(b'"seq": 3', b'"seq": NaN'), "not valid JSON"),
        (with_text(b"free", b"\\ud800"), "the line is invalid"),
        (with_text(b"free", b"\xff"), "the line is invalid"),
        (with_line(b"\n"), "the line is invalid"),
        (with_line(b"[]\n"), "not a JSON object"),
        (with_line(b"[" * 100_000 + b"\n"), "the line is invalid"),
        (with_line(b""), "is missing"),
    ],
)
@pytest.mark.usefixtures("changed_key_ids")
def test_an_altered_export_is_reported_with_the_line(
    cli: CommandLine, tmp_path: Path, change: Callable[[bytes], bytes], reason: str
) -> None:
    """Exit code 1, the file, the line and the reason."""
    path = tmp_path / "all.jsonl"
    lines = export(cli, path)
    changed = next(number for number, line in enumerate(lines) if json.loads(line)["action"] == "api_key.changed")
    path.write_bytes(b"".join([*lines[:changed], change(lines[changed]), *lines[changed + 1 :]]))
    code, output = verify(cli, "--file", str(path))

    assert code == 1
    assert f"all.jsonl, line {changed + 1}: " in str(output["fault"])
    assert reason in str(output["fault"])


@pytest.mark.usefixtures("changed_key_ids")
def test_a_repeated_entry_is_reported(cli: CommandLine, tmp_path: Path) -> None:
    """The second one is not the next entry."""
    path = tmp_path / "all.jsonl"
    lines = export(cli, path)
    path.write_bytes(b"".join([*lines[:3], lines[2], *lines[3:]]))

    assert "line 4: " in str(verify(cli, "--file", str(path))[1]["fault"])


@pytest.mark.usefixtures("changed_key_ids")
def test_a_truncated_export_is_reported(cli: CommandLine, tmp_path: Path) -> None:
    """In the middle of a line, before its end, or empty. After a complete entry, only a stored hash detects it."""
    path = tmp_path / "all.jsonl"
    content = b"".join(export(cli, path))
    for size in (len(content) - 1, len(content) // 2, 0):
        path.write_bytes(content[:size])
        assert verify(cli, "--file", str(path))[0] == 1


@pytest.mark.usefixtures("changed_key_ids")
def test_exports_of_parts_are_verified_together(cli: CommandLine, tmp_path: Path) -> None:
    """An export until a time and one since it are the whole log, in this order only."""
    first, second = tmp_path / "november.jsonl", tmp_path / "december.jsonl"
    parts = export(cli, first, "--until", "2026-12-01") + export(cli, second, "--since", "2026-12-01")
    complete = cli.run("audit", "export", "--workspace", "nest").stdout.encode().splitlines(keepends=True)

    assert sorted(parts[1:]) == sorted(complete)
    assert len(parts) == 6
    assert verify(cli, "--file", str(first), "--file", str(second))[0] == 0
    assert verify(cli, "--file", str(second), "--file", str(first))[0] == 1
    assert verify(cli, "--file", str(second))[0] == 1


@pytest.mark.usefixtures("changed_key_ids")
def test_the_python_code_of_the_how_to_verifies_an_export(cli: CommandLine, tmp_path: Path) -> None:
    """The documented code needs no part of Rookery. It accepts a complete export and rejects an altered one."""
    page = (ROOT / "docs" / "how-to" / "audit.md").read_text(encoding="utf-8")
    [program] = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    path = tmp_path / "audit.jsonl"
    lines = export(cli, path)

    def run_program() -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": ""}
        command = [sys.executable, "-S", "-c", program, str(path)]
        return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=HANG_S, check=False)

    assert len(program.splitlines()) <= 15
    result = run_program()
    assert result.returncode == 0, result.stderr
    assert str(json.loads(lines[-1])["hash"]) in result.stdout
    path.write_bytes(b"".join(lines).replace(b'"free"', b'"pro"'))
    assert run_program().returncode == 1
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert run_program().returncode == 1


def test_the_list_has_actor_subject_and_changed_values(cli: CommandLine, changed_key_ids: list[str]) -> None:
    """Newest first; filtered by action, subject, actor and time; without secrets."""
    [key_id] = changed_key_ids
    rows = cli.run_table("audit", "list")
    assert [row[2] for row in rows] == ["api_key.deleted", "agent_key.created", "api_key.changed", "api_key.created", "workspace.created"]
    change = rows[2]
    assert (change[0], change[3], change[4]) == ("2026-11-21T09:30:00.000000Z", "build", key_id)
    assert change[5] == "name: ci — α → build; rate_limit_tier: pro → free"
    assert [row[2] for row in cli.run_table("audit", "list", "--limit", "2")] == [row[2] for row in rows[:2]]
    assert len(cli.run_table("audit", "list", "--subject", key_id)) == 3
    assert len(cli.run_table("audit", "list", "--action", "api_key.changed")) == 1
    assert len(cli.run_table("audit", "list", "--since", "2026-11-30")) == 1
    assert len(cli.run_table("audit", "list", "--until", "2026-11-30")) == 4
    assert cli.run_table("audit", "list", "--actor", "nobody") == []
    assert [row[2] for row in cli.run_table("audit", "list", "--platform")] == ["workspace.created"]
    assert cli.run_list("audit", "list")[2]["before"] == {"name": "ci — α", "rate_limit_tier": "pro"}


@pytest.mark.usefixtures("changed_key_ids", "wide_terminal")
def test_on_a_terminal_the_audit_log_is_a_table(cli: CommandLine) -> None:
    """For people, with times to the second."""
    output = cli.run("audit", "list").stdout
    assert "2026-11-21 09:30:00" in output
    assert "name: ci — α → build" in output
    assert "intact" in cli.run("audit", "verify").stdout


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
def test_invalid_options_of_the_audit_log_are_exit_code_2(cli: CommandLine, arguments: list[str]) -> None:
    """A usage error."""
    assert cli.run("audit", *arguments).exit_code == 2
