"""Forgotten memories leave no trace in any file (D-04, D-41, spec 4.4)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest

from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.ids import uuid7
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.maintenance.forgetting import ForgetRequest as Forget
from rookery.memory.maintenance.operations import MaintenanceServices, build_maintenance
from rookery.memory.maintenance.reindexing import Reindexer
from rookery.memory.maintenance.reindexing import ReindexRequest as Reindex
from rookery.memory.maintenance.scrubbing import CleanRequest as Clean
from rookery.memory.models import MemoryFilter
from tests.conftest import lend_model
from tests.memory.makers import MemoryRig, make_caller
from tests.processes import Server, run_server

_SECRETS = 12
_TAGS = ("Zweihorn", "Dreihorn")


def _word(number: int) -> str:
    """Return a word that stands nowhere else, and looks like no key."""
    return f"Quixotwald{'abcdefghijklmnop'[number]}heim"


def _rookery(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), *arguments]
    return subprocess.run(
        command, env={**environment, "ROOKERY_MIN_FREE_DISK_MB": "0"}, capture_output=True, text=True, check=False, timeout=60
    )


def _files_containing(folder: Path, *words: str) -> list[str]:
    """Return which files have one of *words*, in whichever letters, and which."""
    files = [path for path in folder.rglob("*") if path.is_file() and "models" not in path.parts]
    sought = [word.lower().encode() for word in words]
    return [f"{path.relative_to(folder)}: {word!r}" for path in files for word in sought if word in path.read_bytes().lower()]


def _remember(server: Server, content: str, **fields: object) -> str:
    body = {"type": "decision", "content": content, "wait_ms": 5000, **fields}
    answer = server.client.post("/v1/brain/remember", json=body, headers={"Idempotency-Key": str(uuid4())})
    return str(answer.json()["id"])


def _live(server: Server) -> None:
    """Have memories in every store: changed, replaced, told to a webhook, asked for, judged, called for by a tool."""
    hook = {"url": "http://127.0.0.1:9/nobody", "events": ["memory.*"], "include_content": True}
    assert server.client.post("/api/v1/webhooks", json=hook).status_code == 201
    for number in range(_SECRETS):
        place: dict[str, object] = {"org": "acme"} if number % 2 else {"org": "other"}
        text = f"{'The heron stands still. ' * (40 * (number % 3))} It is called {_word(number)}, and lives by the pond {number}."
        _remember(server, text, tags=list(_TAGS) if number % 2 else [], **place)
    ids = [row["id"] for row in server.client.get("/v1/brain/memories?org=acme").json()["data"]]
    server.client.patch(f"/v1/brain/memories/{ids[0]}", json={"content": f"Changed, but still {_word(1)}"}).raise_for_status()
    server.client.post(f"/v1/brain/memories/{ids[1]}/archive").raise_for_status()
    _remember(server, f"Replaced {_word(3)} by this", supersedes_id=ids[2], org="acme")
    call = {"server": "brain", "tool": "remember", "arguments": {"type": "fact", "content": f"By a tool: {_word(5)}", "org": "acme"}}
    assert server.client.post("/api/v1/mcp/tools/call", json=call).json()["success"] is True
    recalled = server.client.post("/v1/brain/recall", json={"query": "the pond", "mode": "hybrid", "org": "acme"}).json()
    used = {"used": [recalled["memories"][0]["id"]], "ignored": []}
    server.client.post(f"/v1/brain/recall/{recalled['recall_id']}/feedback", json=used).raise_for_status()


@pytest.mark.timeout(180)
def test_what_is_forgotten_is_in_no_file_any_more(model_folder: Path, tmp_path: Path) -> None:
    """D-41: beside a running server no index, log, free page, delivery or row has a word of it; other data stays."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    theirs, ours = [_word(number) for number in range(1, _SECRETS, 2)], [_word(number) for number in range(0, _SECRETS, 2)]
    with run_server(folder, egress_allow="127.0.0.0/8") as server:
        assert _rookery(folder, "brain:training", "--on").returncode == 0
        _live(server)
        before = _files_containing(folder, *theirs, *_TAGS)

        done = _rookery(folder, "brain:forget", "--org", "acme", "--yes", "--json")
        after = [*_files_containing(folder, *theirs), *(each for each in _files_containing(folder, *_TAGS) if "records.db" not in each)]
        kept = server.client.get("/v1/brain/search", params={"q": _word(2)}).json()["total"]

    assert (done.returncode, json.loads(done.stdout)["stopped"]) == (0, None)
    assert {each.partition(":")[0].partition("-")[0] for each in before} >= {"records.db", "texts.db", "vectors.db"}
    assert after == []
    assert kept == 1
    assert _files_containing(folder, *theirs) == []
    assert len(_files_containing(folder, *ours)) >= len(ours)


@pytest.mark.timeout(180)
def test_what_is_pruned_or_stripped_or_goes_with_its_workspace_is_in_no_file_any_more(model_folder: Path, tmp_path: Path) -> None:
    """Spec 4.4, D-41: once the stale re-index has brought it to the indexes; a deleted workspace leaves nothing, without a server too."""
    folder = tmp_path / "data"
    lend_model(model_folder, folder)
    mail, word, doubted = "kim.quixotwald@example.org", _word(7), _word(8)
    with run_server(folder) as server:
        hook = {"url": "https://hooks.example.com/", "events": ["memory.*"], "include_content": True, "enabled": False}
        server.client.post("/api/v1/webhooks", json=hook)
        _remember(server, f"Ask {mail} about {word}", tags=[mail], source=mail)
        _remember(server, f"Somebody said {doubted}", confidence=0.1)

    doubts = _files_containing(folder, doubted)
    pruned = _rookery(folder, "brain:prune", "--min-confidence", "0.2", "--delete", "--yes", "--json")
    pruned_after = _files_containing(folder, doubted)
    cleaned = _rookery(folder, "brain:clean", "--strip-pii", "--yes", "--json")
    at_once = _files_containing(folder, mail)
    stale = _rookery(folder, "brain:reindex", "--stale", "--json")
    after = _files_containing(folder, mail)
    there = _files_containing(folder, word)
    deleted = _rookery(folder, "workspace", "delete", "default", "--yes", "--json")

    assert [(each.returncode, each.stderr) for each in (pruned, cleaned, stale, deleted)] == [(0, "")] * 4
    assert doubts != []
    assert pruned_after == []
    assert {each.partition(":")[0] for each in at_once} <= {"vectors.db"}
    assert after == []
    assert there != []
    assert _files_containing(folder, word) == []


@dataclass
class _Store:
    """Stores whose erasure fails while they are in use."""

    is_busy: bool = True
    erased: int = 0

    async def erase(self) -> None:
        """Count, or refuse."""
        if self.is_busy:
            raise EngineUnavailable("texts", "somebody reads")
        self.erased += 1


def _tidying(rig: MemoryRig, store: _Store) -> MaintenanceServices:
    erasing = Erasure(db=rig.db, stores=[store], clock=rig.clock)
    return build_maintenance(
        db=rig.db, indexer=rig.services.indexer, vectors=rig.vectors, comparer=rig.vectors, jobs=rig.jobs, bus=rig.bus, clock=rig.clock,
        ids=uuid7, erasure=erasing,
    )  # fmt: skip


async def test_what_could_not_be_erased_is_owed_until_it_is(rig: MemoryRig) -> None:
    """D-41: the report says so, and the next run does it, though there is nothing left to forget; done, it is not done again."""
    store = _Store()
    verbs = _tidying(rig, store)
    memory = await rig.remember()

    first = await verbs.forgetting.run(Forget(workspace_id=1, ids=(memory.id,)))
    owed = await verbs.erasure.list_pending()
    store.is_busy = False
    again = [await verbs.forgetting.run(Forget(workspace_id=1, ids=(memory.id,))) for _ in range(2)]

    assert first.stopped is not None
    assert "somebody reads" in first.stopped
    assert (first.counts["deleted"], [mark.name for mark in owed]) == (1, ["traces of what was deleted"])
    assert ([each.stopped for each in again], store.erased) == ([None, None], 1)
    assert await verbs.erasure.list_pending() == []


async def test_what_was_cleaned_is_owed_until_nothing_is_stale(rig: MemoryRig) -> None:
    """Spec 4.4: a later stale re-index propagates it; of a part of the memories it does not settle what the others owe."""
    store = _Store(is_busy=False)
    verbs = _tidying(rig, store)
    for org in ("acme", "other"):
        await rig.remember("Ask kim@example.org", org=org)
    await rig.run_jobs()

    await verbs.scrubbing.run(Clean(workspace_id=1, strip_pii=True))
    found = [await rig.services.search.find(make_caller(), words, MemoryFilter(), limit=5) for words in ("kim", "email")]
    lifecycle = Reindexer(
        db=rig.db,
        indexer=rig.services.indexer,
        texts=rig.texts,
        bus=rig.bus,
        clock=rig.clock,
        migration=rig.services.migration,
        erasure=verbs.erasure,
    )
    owed = list[int]()
    for org in ("acme", "other"):
        await lifecycle.reindex(Reindex(is_stale=True, org=org))
        owed.append(len(await verbs.erasure.list_pending()))

    assert [each.total for each in found] == [0, 2]
    assert (owed, store.erased) == ([1, 0], 3)
