"""Maintenance by commands, and embedding: specification 2.6, 4.4, 8, and decisions D-04, D-52."""

from __future__ import annotations

import json
import sqlite3
import uuid
from datetime import UTC, datetime
from typing import Any

from tests.contract.statements import Api, refused, statement, statement_per_value

BRAIN = "/v1/brain"


def shown(api: Api, memory_id: str) -> dict[str, Any]:
    """Return a memory."""
    return api.get(f"{BRAIN}/memories/{memory_id}").json()


@statement("spec 4.4", "brain:reindex reports total, successes, failures and duration.")
def _(api: Api) -> None:
    org = api.name("org")
    api.remember(org=org)
    found = api.run_json("brain:reindex", "--org", org)
    assert (found["total"], found["successes"], found["failures"]) == (1, 1, 0)
    assert any("duration" in name for name in found)


statement_per_value(
    "spec 4.4",
    "brain:reindex has the option {}.",
    ["--org", "--project", "--stale", "--dry-run", "--elastic-only"],
    lambda api, option: _has_option(api, "brain:reindex", option),
)
statement_per_value(
    "spec 4.4",
    "brain:clean has the option {}.",
    ["--strip-pii", "--normalise"],
    lambda api, option: _has_option(api, "brain:clean", option),
)
statement_per_value(
    "spec 4.4",
    "brain:prune has the option {}.",
    ["--min-confidence", "--min-effective-confidence", "--deduplicate", "--dry-run"],
    lambda api, option: _has_option(api, "brain:prune", option),
)
statement_per_value(
    "spec 4.4",
    "brain:consolidate has the option {}.",
    ["--org", "--project", "--threshold", "--dry-run"],
    lambda api, option: _has_option(api, "brain:consolidate", option),
)

_HELP: dict[str, str] = {}


def _has_option(api: Api, command: str, option: str) -> None:
    if command not in _HELP:
        _HELP[command] = api.run(command, "--help").stdout
    assert option in _HELP[command]


@statement("spec 4.4", "brain:clean --strip-pii removes personal data; a stale re-index propagates it.")
def _(api: Api) -> None:
    made = api.remember("Write to ann@example.com today.", org=api.name("org"))
    done = api.run("brain:clean", "--workspace", "default", "--strip-pii", "--yes")
    assert done.returncode == 0, done.stderr
    assert shown(api, made["id"])["content"] == "Write to [email] today."
    assert api.run("brain:reindex", "--stale").returncode == 0
    assert api.get(f"{BRAIN}/search?q=ann%40example.com").json()["total"] == 0


@statement("spec 4.4", "brain:clean --normalise folds white space.")
def _(api: Api) -> None:
    made = api.remember("Two   spaces  here.")
    assert api.run("brain:clean", "--workspace", "default", "--normalise").returncode == 0
    assert shown(api, made["id"])["content"] == "Two spaces here."


@statement("spec 4.4", "brain:prune --deduplicate keeps the highest confidence.")
def _(api: Api) -> None:
    org = api.name("org")
    ids = [api.remember("Said twice.", org=org, confidence=value)["id"] for value in (0.3, 0.9)]
    assert api.run("brain:prune", "--workspace", "default", "--deduplicate", "--yes").returncode == 0
    assert shown(api, ids[0])["state"] == "archived"
    assert shown(api, ids[1])["state"] == "indexed"


@statement("spec 4.4", "brain:prune --min-confidence removes low-value memories; --dry-run changes nothing.")
def _(api: Api) -> None:
    low = api.remember("Hardly believed.", confidence=0.01)["id"]
    command = ("brain:prune", "--workspace", "default", "--min-confidence", "0.02", "--yes")
    assert api.run(*command, "--dry-run").returncode == 0
    assert shown(api, low)["state"] == "indexed"
    assert api.run(*command).returncode == 0
    assert shown(api, low)["state"] == "archived"


def consolidated(api: Api) -> tuple[dict[str, Any], dict[str, Any]]:
    """Merge two memories; return the primary and the merged one."""
    org = api.name("org")
    high = api.remember("The office is closed on Mondays.", org=org, confidence=0.9)["id"]
    low = api.remember("The office is closed on Mondays. Bring a key.", org=org, confidence=0.5)["id"]
    done = api.run("brain:consolidate", "--workspace", "default", "--org", org, "--threshold", "0.7")
    assert done.returncode == 0, done.stderr
    return shown(api, high), shown(api, low)


@statement("spec 4.4", "brain:consolidate merges into the highest confidence and archives the others.")
def _(api: Api) -> None:
    primary, merged = consolidated(api)
    assert "Bring a key." in primary["content"]
    assert merged["state"] == "archived"


@statement("spec 3.4", "A merged memory names the primary that it went into.")
def _(api: Api) -> None:
    primary, merged = consolidated(api)
    assert merged["superseded_by"] == primary["id"]


@statement("spec 4.4", "brain:backfill-org infers org from project.")
def _(api: Api) -> None:
    org = api.name("org")
    made = api.remember(project=f"{org}/web")
    assert api.run("brain:backfill-org", "--workspace", "default").returncode == 0
    assert shown(api, made["id"])["org"] == org


@statement("spec 4.4", "brain:elastic-setup creates the full-text index; done again it changes nothing.")
def _(api: Api) -> None:
    assert api.run("brain:elastic-setup").returncode == 0
    assert api.run("brain:elastic-setup").returncode == 0


@statement("D-04", "A command of the specification is written with a colon or as words.")
def _(api: Api) -> None:
    assert api.run("brain", "reindex", "--dry-run").returncode == api.run("brain:reindex", "--dry-run").returncode == 0


def is_command(api: Api, command: str) -> None:
    """Check one value."""
    done = api.run(*command.split(), "--help")
    assert done.returncode == 0, done.stderr


statement_per_value(
    "D-04",
    "The command {} exists.",
    [
        *("workspace create", "workspace list", "workspace delete", "keys create", "keys list", "keys show", "keys rotate", "keys delete"),
        *("keys prune", "agent-keys create", "agent-keys list", "agent-keys show", "agent-keys revoke", "agent-keys extend"),
        *("agent-keys permissions", "agent-keys ips", "servers list", "servers add", "servers check", "servers login", "servers remove"),
        *("tools stop", "tools start", "webhooks", "templates", "audit verify", "audit export", "brain:forget", "export", "import"),
        *("backup", "restore", "connect", "doctor", "worker", "migrate", "secrets rotate", "serve", "init"),
    ],
    is_command,
)


@statement("D-04", "workspace create, keys create and agent-keys create print the documented JSON.")
def _(api: Api) -> None:
    made = api.run_json("workspace", "create", api.name("team"))
    assert made.keys() >= {"workspace_id", "name"}
    key = api.run_json("keys", "create", "--workspace", str(made["workspace_id"]), "--name", "n", "--scope", "brain:read")
    assert key["plaintext_key"].startswith("sk_live_")
    agent = api.run_json("agent-keys", "create", "--workspace", str(made["workspace_id"]), "--name", "n", "--preset", "agent")
    assert agent["key"].startswith("ak_")


def exit_code(api: Api, case: tuple[str, int]) -> None:
    """Assert the exit code of a command."""
    command, code = case
    done = api.run(*command.split())
    assert done.returncode == code, (done.stdout, done.stderr)


statement_per_value(
    "D-04",
    "A command ends with its exit code: {}.",
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
    exit_code,
)


@statement("D-04", "What destroys needs --yes off a terminal.")
def _(api: Api) -> None:
    assert api.run("workspace", "delete", "default").returncode == 2
    assert api.run("brain:clean", "--workspace", "default", "--strip-pii").returncode == 2


@statement("D-04", "backup FILE saves every store online, and restore verifies it.")
def _(api: Api) -> None:
    path = api.folder.parent / f"{api.name('backup')}.tar"
    done = api.run("backup", str(path))
    assert done.returncode == 0, done.stderr
    assert api.run("restore", str(path), "--verify-only").returncode == 0


@statement("D-04", "doctor prints one JSON document.")
def _(api: Api) -> None:
    assert json.loads(api.run("doctor", "--json").stdout)


@statement("D-04", "export and import move memories.")
def _(api: Api) -> None:
    path = api.folder.parent / f"{api.name('memories')}.jsonl"
    assert api.run("export", "--workspace", "default", "--out", str(path)).returncode == 0
    assert api.run("import", str(path), "--workspace", "default", "--dry-run").returncode == 0


# Indexes and settings


def columns(api: Api, file: str) -> str:
    """Return the schema of an index of the data folder."""
    with sqlite3.connect(f"file:{api.folder / file}?mode=ro", uri=True) as connection:
        return " ".join(row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"))


statement_per_value(
    "spec 2.6",
    "The vector index has {} to filter by.",
    ["workspace", "org", "project", "agent", "type", "confidence", "source", "created_at"],
    lambda api, name: _is_in(name, columns(api, "vectors.db")),
)


def _is_in(part: str, whole: str) -> None:
    assert part in whole


def half_life(api: Api, case: tuple[str, float | None]) -> None:
    """Assert how far the confidence of a memory of a type has decayed after its half-life, by the age of an import."""
    kind, days = case
    old = "2025-01-01T00:00:00Z"
    nothing = dict.fromkeys(["org", "project", "agent_id", "session_id", "supersedes_id", "expires_at", "archived_at", "recalled_at"])
    times = dict.fromkeys(["created_at", "updated_at", "content_at"], old)
    memory_id = str(uuid.uuid4())
    memory: dict[str, object] = {"kind": "memory", "id": memory_id, "type": kind, "tags": [], "memory_scope": "project", "source": "manual"}
    memory |= nothing | times | {"confidence": 0.8, "base_confidence": 0.8, "content": f"Old {api.name()}."}
    lines = [
        {"kind": "rookery-memories", "version": 1, "exported_at": old},
        memory,
        {"kind": "end", "memory": 1, "tombstone": 0, "merge": 0},
    ]
    path = api.folder.parent / f"{api.name('old')}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    done = api.run("import", str(path), "--workspace", "default")
    assert done.returncode == 0, done.stdout + done.stderr
    age_days = (datetime.now(UTC) - datetime.fromisoformat(old)).total_seconds() / 86400
    expected = 0.8 if days is None else 0.8 * 0.5 ** (age_days / days)
    assert abs(shown(api, memory_id)["effective_confidence"] - expected) < 0.01


statement_per_value(
    "spec 8",
    "The half-life in days by type: {}.",
    [("observation", 30.0), ("context", 60.0), ("decision", 180.0), ("procedure", 365.0), ("convention", None), ("architecture", None)],
    half_life,
)


@statement("D-52", "brain:prune without a criterion ends with 2.")
def _(api: Api) -> None:
    assert api.run("brain:prune", "--workspace", "default", "--yes").returncode == 2


@statement("D-04", "brain:forget deletes what an agent stored.")
def _(api: Api) -> None:
    agent = api.name("ann")
    made = api.remember("Forget me.", memory_scope="agent", agent_id=agent)
    done = api.run("brain:forget", "--workspace", "default", "--agent", agent, "--yes")
    assert done.returncode == 0, done.stderr
    refused(api.get(f"{BRAIN}/memories/{made['id']}"), 404)
