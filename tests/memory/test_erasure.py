"""Deleted memories leave no trace in any file."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from rookery.engines.similarity.comparison import open_comparison
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.ids import uuid7
from rookery.kernel.pages import PageSlice
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.maintenance.forgetting import ForgetRequest as Forget
from rookery.memory.maintenance.operations import MaintenanceServices, build_maintenance
from rookery.memory.maintenance.reindexing import Reindexer
from rookery.memory.maintenance.reindexing import ReindexRequest as Reindex
from rookery.memory.maintenance.scrubbing import CleanRequest as Clean
from rookery.memory.models import MemoryFilter
from tests.conftest import lend_model
from tests.memory.makers import MemoryRig, make_caller
from tests.processes import Server, get_environment, run_rookery, run_server

_SECRETS = 12
_TAGS = ("Zweihorn", "Dreihorn")


def _word(number: int) -> str:
    """Return a word that no other text contains and that does not look like a secret."""
    return f"Quixotwald{'abcdefghijklmnop'[number]}heim"


def _rookery(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run_rookery(*arguments, data_dir=folder, environment=get_environment() | {"ROOKERY_MIN_FREE_DISK_MB": "0"})


def _files_containing(folder: Path, *words: str) -> list[str]:
    """Return the files that contain one of *words*, ignoring case, each with the word."""
    files = [path for path in folder.rglob("*") if path.is_file() and "models" not in path.parts]
    patterns = [word.lower().encode() for word in words]
    return [f"{path.relative_to(folder)}: {word!r}" for path in files for word in patterns if word in path.read_bytes().lower()]


def _remember(server: Server, content: str, **fields: object) -> str:
    body = {"type": "decision", "content": content, "wait_ms": 5000, **fields}
    response = server.client.post("/v1/brain/remember", json=body, headers={"Idempotency-Key": str(uuid4())})
    return str(response.json()["id"])


def _fill_stores(server: Server) -> None:
    """Write memories into every store: by changes, supersedes, webhooks, recalls, feedback and tool calls."""
    webhook = {"url": "http://127.0.0.1:9/nobody", "events": ["memory.*"], "include_content": True}
    assert server.client.post("/api/v1/webhooks", json=webhook).status_code == 201
    for number in range(_SECRETS):
        org_field: dict[str, object] = {"org": "acme"} if number % 2 else {"org": "other"}
        text = f"{'The heron stands still. ' * (40 * (number % 3))} It is called {_word(number)}, and lives by the pond {number}."
        _remember(server, text, tags=list(_TAGS) if number % 2 else [], **org_field)
    ids = [row["id"] for row in server.client.get("/v1/brain/memories?org=acme").json()["data"]]
    server.client.patch(f"/v1/brain/memories/{ids[0]}", json={"content": f"Changed, but still {_word(1)}"}).raise_for_status()
    server.client.post(f"/v1/brain/memories/{ids[1]}/archive").raise_for_status()
    _remember(server, f"Replaced {_word(3)} by this", supersedes_id=ids[2], org="acme")
    call = {"server": "brain", "tool": "remember", "arguments": {"type": "fact", "content": f"By a tool: {_word(5)}", "org": "acme"}}
    assert server.client.post("/api/v1/mcp/tools/call", json=call).json()["success"] is True
    recalled = server.client.post("/v1/brain/recall", json={"query": "the pond", "mode": "hybrid", "org": "acme"}).json()
    used = {"used": [recalled["memories"][0]["id"]], "ignored": []}
    server.client.post(f"/v1/brain/recall/{recalled['recall_id']}/feedback", json=used).raise_for_status()


def test_forgotten_memories_are_in_no_file(model_folder: Path, tmp_path: Path) -> None:
    """No index, log, free page, delivery or row of a running server contains their words; other data stays."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    forgotten_words, kept_words = [_word(number) for number in range(1, _SECRETS, 2)], [_word(number) for number in range(0, _SECRETS, 2)]
    with run_server(folder, egress_allow="127.0.0.0/8") as server:
        assert _rookery(folder, "brain:training", "--on").returncode == 0
        _fill_stores(server)
        files_before = _files_containing(folder, *forgotten_words, *_TAGS)

        forget_run = _rookery(folder, "brain:forget", "--org", "acme", "--yes", "--json")
        files_after = [
            *_files_containing(folder, *forgotten_words),
            *(file for file in _files_containing(folder, *_TAGS) if "records.db" not in file),
        ]
        kept_total = server.client.get("/v1/brain/search", params={"q": _word(2)}).json()["total"]

    assert (forget_run.returncode, json.loads(forget_run.stdout)["stopped"]) == (0, None)
    assert {file.partition(":")[0].partition("-")[0] for file in files_before} >= {"records.db", "texts.db", "vectors.db"}
    assert files_after == []
    assert kept_total == 1
    assert _files_containing(folder, *forgotten_words) == []
    assert len(_files_containing(folder, *kept_words)) >= len(kept_words)


def test_pruned_redacted_and_workspace_data_is_in_no_file(model_folder: Path, tmp_path: Path) -> None:
    """Redacted text leaves the indexes with the stale re-index; a deleted workspace leaves no data."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    email, word, low_confidence_word = "kim.quixotwald@example.org", _word(7), _word(8)
    with run_server(folder) as server:
        webhook = {"url": "https://hooks.example.com/", "events": ["memory.*"], "include_content": True, "enabled": False}
        server.client.post("/api/v1/webhooks", json=webhook)
        _remember(server, f"Ask {email} about {word}", tags=[email], source=email)
        _remember(server, f"Somebody said {low_confidence_word}", confidence=0.1)

    files_before_prune = _files_containing(folder, low_confidence_word)
    prune_run = _rookery(folder, "brain:prune", "--min-confidence", "0.2", "--delete", "--yes", "--json")
    files_after_prune = _files_containing(folder, low_confidence_word)
    clean_run = _rookery(folder, "brain:clean", "--strip-pii", "--yes", "--json")
    files_after_clean = _files_containing(folder, email)
    reindex_run = _rookery(folder, "brain:reindex", "--stale", "--json")
    files_after_reindex = _files_containing(folder, email)
    files_before_deletion = _files_containing(folder, word)
    delete_run = _rookery(folder, "workspace", "delete", "default", "--yes", "--json")

    assert [(run.returncode, run.stderr) for run in (prune_run, clean_run, reindex_run, delete_run)] == [(0, "")] * 4
    assert files_before_prune != []
    assert files_after_prune == []
    assert {file.partition(":")[0] for file in files_after_clean} <= {"vectors.db"}
    assert files_after_reindex == []
    assert files_before_deletion != []
    assert _files_containing(folder, word) == []


@dataclass
class _FakeStore:
    """A store whose erasure fails while it is in use."""

    is_busy: bool = True
    erased: int = 0

    async def erase(self) -> None:
        """Count an erasure, or raise if the store is busy."""
        if self.is_busy:
            raise EngineUnavailable("texts", "a reader is active")
        self.erased += 1


def _build_maintenance(rig: MemoryRig, store: _FakeStore) -> MaintenanceServices:
    erasure = Erasure(db=rig.db, stores=[store], clock=rig.clock)
    return build_maintenance(
        db=rig.db, indexer=rig.services.indexer, vectors=rig.vectors, open_comparison=open_comparison,
        jobs=rig.jobs, bus=rig.bus, clock=rig.clock, ids=uuid7, erasure=erasure,
    )  # fmt: skip


async def test_a_failed_erasure_stays_pending_until_it_succeeds(rig: MemoryRig) -> None:
    """The report names the failure; the next run erases, although no memory is left to forget, and does so once."""
    store = _FakeStore()
    maintenance = _build_maintenance(rig, store)
    memory = await rig.remember()

    first = await maintenance.forgetting.run(Forget(workspace_id=1, ids=(memory.id,)))
    pending_before = await maintenance.erasure.list_pending()
    store.is_busy = False
    later_runs = [await maintenance.forgetting.run(Forget(workspace_id=1, ids=(memory.id,))) for _ in range(2)]

    assert first.stopped is not None
    assert "a reader is active" in first.stopped
    assert (first.counts["deleted"], [pending.name for pending in pending_before]) == (1, ["traces of what was deleted"])
    assert ([report.stopped for report in later_runs], store.erased) == ([None, None], 1)
    assert await maintenance.erasure.list_pending() == []


async def test_erasure_after_cleaning_stays_pending_until_no_memory_is_stale(rig: MemoryRig) -> None:
    """A stale re-index of all memories completes the erasure; a re-index of one org does not."""
    store = _FakeStore(is_busy=False)
    maintenance = _build_maintenance(rig, store)
    for org in ("acme", "other"):
        await rig.remember("Ask kim@example.org", org=org)
    await rig.run_jobs()

    await maintenance.scrubbing.run(Clean(workspace_id=1, strip_pii=True))
    results = [await rig.services.search.find(make_caller(), word, MemoryFilter(), page=PageSlice(5)) for word in ("kim", "email")]
    reindexer = Reindexer(
        db=rig.db,
        indexer=rig.services.indexer,
        texts=rig.texts,
        bus=rig.bus,
        clock=rig.clock,
        migration=rig.services.migration,
        erasure=maintenance.erasure,
    )
    pending_counts = list[int]()
    for org in ("acme", "other"):
        await reindexer.reindex(Reindex(is_stale=True, org=org))
        pending_counts.append(len(await maintenance.erasure.list_pending()))

    assert [result.total for result in results] == [0, 2]
    assert (pending_counts, store.erased) == ([1, 0], 3)
