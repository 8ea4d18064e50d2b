"""Maintenance by commands, and embedding."""

from __future__ import annotations

import json
import sqlite3
import uuid
from datetime import UTC, datetime
from typing import Any

from tests.contract.statements import Api, assert_error, statement, statement_per_value

BRAIN = "/v1/brain"


def get_memory(api: Api, memory_id: str) -> dict[str, Any]:
    """Return a memory."""
    return api.get(f"{BRAIN}/memories/{memory_id}").json()


@statement("brain:reindex reports total, successes, failures and duration.")
def _(api: Api) -> None:
    org = api.name("org")
    api.remember(org=org)
    body = api.run_json("brain:reindex", "--org", org)
    assert (body["total"], body["successes"], body["failures"]) == (1, 1, 0)
    assert any("duration" in name for name in body)


statement_per_value(
    "brain:reindex has the option {}.",
    ["--org", "--project", "--stale", "--dry-run", "--elastic-only"],
    lambda api, option: _has_option(api, "brain:reindex", option),
)
statement_per_value(
    "brain:clean has the option {}.",
    ["--strip-pii", "--normalise"],
    lambda api, option: _has_option(api, "brain:clean", option),
)
statement_per_value(
    "brain:prune has the option {}.",
    ["--min-confidence", "--min-effective-confidence", "--deduplicate", "--dry-run"],
    lambda api, option: _has_option(api, "brain:prune", option),
)
statement_per_value(
    "brain:consolidate has the option {}.",
    ["--org", "--project", "--threshold", "--dry-run"],
    lambda api, option: _has_option(api, "brain:consolidate", option),
)

_HELP: dict[str, str] = {}


def _has_option(api: Api, command: str, option: str) -> None:
    if command not in _HELP:
        _HELP[command] = api.run(command, "--help").stdout
    assert option in _HELP[command]


@statement("brain:clean --strip-pii removes personal data; a stale re-index propagates it.")
def _(api: Api) -> None:
    memory = api.remember("Write to ann@example.com today.", org=api.name("org"))
    result = api.run("brain:clean", "--workspace", "default", "--strip-pii", "--yes")
    assert result.returncode == 0, result.stderr
    assert get_memory(api, memory["id"])["content"] == "Write to [email] today."
    assert api.run("brain:reindex", "--stale").returncode == 0
    assert api.get(f"{BRAIN}/search?q=ann%40example.com").json()["total"] == 0


@statement("brain:clean --normalise collapses white space.")
def _(api: Api) -> None:
    memory = api.remember("Two   spaces  here.")
    assert api.run("brain:clean", "--workspace", "default", "--normalise").returncode == 0
    assert get_memory(api, memory["id"])["content"] == "Two spaces here."


@statement("brain:prune --deduplicate keeps the highest confidence.")
def _(api: Api) -> None:
    org = api.name("org")
    ids = [api.remember("Said twice.", org=org, confidence=value)["id"] for value in (0.3, 0.9)]
    assert api.run("brain:prune", "--workspace", "default", "--deduplicate", "--yes").returncode == 0
    assert get_memory(api, ids[0])["state"] == "archived"
    assert get_memory(api, ids[1])["state"] == "indexed"


@statement("brain:prune --min-confidence removes low-value memories; --dry-run changes nothing.")
def _(api: Api) -> None:
    low = api.remember("Hardly believed.", confidence=0.01)["id"]
    command = ("brain:prune", "--workspace", "default", "--min-confidence", "0.02", "--yes")
    assert api.run(*command, "--dry-run").returncode == 0
    assert get_memory(api, low)["state"] == "indexed"
    assert api.run(*command).returncode == 0
    assert get_memory(api, low)["state"] == "archived"


def consolidate(api: Api) -> tuple[dict[str, Any], dict[str, Any]]:
    """Merge two memories; return the primary and the merged one."""
    org = api.name("org")
    high = api.remember("The office is closed on Mondays.", org=org, confidence=0.9)["id"]
    low = api.remember("The office is closed on Mondays. Bring a key.", org=org, confidence=0.5)["id"]
    result = api.run("brain:consolidate", "--workspace", "default", "--org", org, "--threshold", "0.7")
    assert result.returncode == 0, result.stderr
    return get_memory(api, high), get_memory(api, low)


@statement("brain:consolidate merges into the highest confidence and archives the others.")
def _(api: Api) -> None:
    primary, merged = consolidate(api)
    assert "Bring a key." in primary["content"]
    assert merged["state"] == "archived"


@statement("A merged memory has the id of its primary memory.")
def _(api: Api) -> None:
    primary, merged = consolidate(api)
    assert merged["superseded_by"] == primary["id"]


@statement("brain:backfill-org infers org from project.")
def _(api: Api) -> None:
    org = api.name("org")
    memory = api.remember(project=f"{org}/web")
    assert api.run("brain:backfill-org", "--workspace", "default").returncode == 0
    assert get_memory(api, memory["id"])["org"] == org


@statement("brain:elastic-setup creates the full-text index; a second run changes nothing.")
def _(api: Api) -> None:
    assert api.run("brain:elastic-setup").returncode == 0
    assert api.run("brain:elastic-setup").returncode == 0


@statement("A command of the specification can be written with a colon or as two words.")
def _(api: Api) -> None:
    assert api.run("brain", "reindex", "--dry-run").returncode == api.run("brain:reindex", "--dry-run").returncode == 0


def command_exists(api: Api, command: str) -> None:
    """Assert that a command has help."""
    result = api.run(*command.split(), "--help")
    assert result.returncode == 0, result.stderr


statement_per_value(
    "The command {} exists.",
    [
        *("workspace create", "workspace list", "workspace delete", "keys create", "keys list", "keys show", "keys rotate", "keys delete"),
        *("keys prune", "agent-keys create", "agent-keys list", "agent-keys show", "agent-keys revoke", "agent-keys extend"),
        *("agent-keys permissions", "agent-keys ips", "servers list", "servers add", "servers check", "servers login", "servers remove"),
        *("tools stop", "tools start", "webhooks", "templates", "audit verify", "audit export", "brain:forget", "export", "import"),
        *("backup", "restore", "connect", "doctor", "worker", "migrate", "secrets rotate", "serve", "init"),
    ],
    command_exists,
)


@statement("workspace create, keys create and agent-keys create print the documented JSON.")
def _(api: Api) -> None:
    workspace = api.run_json("workspace", "create", api.name("team"))
    assert workspace.keys() >= {"workspace_id", "name"}
    key = api.run_json("keys", "create", "--workspace", str(workspace["workspace_id"]), "--name", "n", "--scope", "brain:read")
    assert key["plaintext_key"].startswith("sk_live_")
    agent = api.run_json("agent-keys", "create", "--workspace", str(workspace["workspace_id"]), "--name", "n", "--preset", "agent")
    assert agent["key"].startswith("ak_")


def check_exit_code(api: Api, case: tuple[str, int]) -> None:
    """Assert the exit code of a command."""
    command, code = case
    result = api.run(*command.split())
    assert result.returncode == code, (result.stdout, result.stderr)


statement_per_value(
    "A command has its exit code: {}.",
    [
        ("keys list --workspace default", 0),
        ("keys show nope --workspace default", 1),
        ("servers check nope", 1),
        ("keys create --name x --scope foo:bar --workspace default", 2),
        ("keys create --name x --scope brain:read --tier gold --workspace default", 2),
        ("keys create --name x --scope brain:read --expires-at 2020-01-01 --workspace default", 2),
        ("brain:prune --workspace default", 2),
        ("no-such-command", 2),
        ("--version", 0),
    ],
    check_exit_code,
)


@statement("A destructive command needs --yes without a terminal.")
def _(api: Api) -> None:
    assert api.run("workspace", "delete", "default").returncode == 2
    assert api.run("brain:clean", "--workspace", "default", "--strip-pii").returncode == 2


@statement("backup FILE saves every store online, and restore verifies it.")
def _(api: Api) -> None:
    path = api.folder.parent / f"{api.name('backup')}.tar"
    result = api.run("backup", str(path))
    assert result.returncode == 0, result.stderr
    assert api.run("restore", str(path), "--verify-only").returncode == 0


@statement("doctor prints one JSON document.")
def _(api: Api) -> None:
    assert json.loads(api.run("doctor", "--json").stdout)


@statement("export and import move memories.")
def _(api: Api) -> None:
    path = api.folder.parent / f"{api.name('memories')}.jsonl"
    assert api.run("export", "--workspace", "default", "--out", str(path)).returncode == 0
    assert api.run("import", str(path), "--workspace", "default", "--dry-run").returncode == 0


# Indexes and settings


def schema_of(api: Api, file: str) -> str:
    """Return the schema of an index of the data folder."""
    with sqlite3.connect(f"file:{api.folder / file}?mode=ro", uri=True) as connection:
        return " ".join(row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))


statement_per_value(
    "The vector index has {} to filter by.",
    ["workspace", "org", "project", "agent", "type", "confidence", "source", "created_at"],
    lambda api, name: _is_in(name, schema_of(api, "vectors.db")),
)


def _is_in(part: str, text: str) -> None:
    assert part in text


def check_half_life(api: Api, case: tuple[str, float | None]) -> None:
    """Assert the decayed confidence of an imported memory, by its age and the half-life of its type."""
    kind, days = case
    old = "2025-01-01T00:00:00Z"
    empty_fields = dict.fromkeys(["org", "project", "agent_id", "session_id", "supersedes_id", "expires_at", "archived_at", "recalled_at"])
    times = dict.fromkeys(["created_at", "updated_at", "content_at"], old)
    memory_id = str(uuid.uuid4())
    memory: dict[str, object] = {"kind": "memory", "id": memory_id, "type": kind, "tags": [], "memory_scope": "project", "source": "manual"}
    memory |= empty_fields | times | {"confidence": 0.8, "base_confidence": 0.8, "content": f"Old {api.name()}."}
    lines = [
        {"kind": "rookery-memories", "version": 1, "exported_at": old},
        memory,
        {"kind": "end", "memory": 1, "tombstone": 0, "merge": 0},
    ]
    path = api.folder.parent / f"{api.name('old')}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    result = api.run("import", str(path), "--workspace", "default")
    assert result.returncode == 0, result.stdout + result.stderr
    age_days = (datetime.now(UTC) - datetime.fromisoformat(old)).total_seconds() / 86400
    expected = 0.8 if days is None else 0.8 * 0.5 ** (age_days / days)
    assert abs(get_memory(api, memory_id)["effective_confidence"] - expected) < 0.01


statement_per_value(
    "The half-life in days by type: {}.",
    [("observation", 30.0), ("context", 60.0), ("decision", 180.0), ("procedure", 365.0), ("convention", None), ("architecture", None)],
    check_half_life,
)


@statement("brain:prune without a criterion has exit code 2.")
def _(api: Api) -> None:
    assert api.run("brain:prune", "--workspace", "default", "--yes").returncode == 2


@statement("brain:forget deletes what an agent stored.")
def _(api: Api) -> None:
    agent = api.name("ann")
    memory = api.remember("Forget me.", memory_scope="agent", agent_id=agent)
    result = api.run("brain:forget", "--workspace", "default", "--agent", agent, "--yes")
    assert result.returncode == 0, result.stderr
    assert_error(api.get(f"{BRAIN}/memories/{memory['id']}"), 404)
