"""One check: a folder of an older version, brought to this version in three ways."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import httpx2

from tests.upgrade_check.actions import Outcomes, act
from tests.upgrade_check.comparisons import Comparison, compare_outcomes, compare_readings
from tests.upgrade_check.contents import AGENT, ORG, Contents, fill, write_servers_file
from tests.upgrade_check.readings import FAILED, Readings, list_elements, read_all
from tests.upgrade_check.receiver import Receiver, run_receiver
from tests.upgrade_check.versions import LIMIT_S, RunningServer, Version

Json = dict[str, object]

CLEAN, KILLED, RESTORED = WAYS = ("clean stop", "kill -9", "backup")
LOAD_ORG = "load"
_WRITERS = 4
_LOAD_S = 8.0
_LATEST = 60


@dataclass(frozen=True, slots=True)
class _Filled:
    """The folder of the older version: its contents, its answers, and the entries of its audit log."""

    contents: Contents
    answers: Readings
    chain: list[str]


@dataclass(slots=True)
class Upgrade:
    """
    A check of two versions.

    Attributes:
        figures: What the run counted and measured.
        report: Receives a line about each step.
    """

    old: Version
    new: Version
    folder: Path
    report: Callable[[str], None] = print
    load_s: float = _LOAD_S
    comparisons: list[Comparison] = field(default_factory=list[Comparison])
    figures: dict[str, object] = field(default_factory=dict[str, object])

    def run(self) -> None:
        """Fill a folder with the older version, bring it to the newer one in each way, and compare."""
        with run_receiver() as receiver:
            filled, stopped = self.folder / "filled", self.folder / "stopped"
            write_servers_file(filled)
            older = self._fill(filled, receiver)
            shutil.copytree(filled, stopped)
            acknowledged = self._write_until_killed(filled)
            restored = self.folder / "restored"
            unpacked = self.new.run(restored, "restore", str(self.folder / "old.tar.gz"))
            self._compare(RESTORED, {"restore: exit code": (0, unpacked.returncode)})
            shutil.copy(stopped / "secret.key", restored)
            shutil.copy(stopped / "first-run.json", restored)
            for way, data in ((CLEAN, stopped), (KILLED, filled), (RESTORED, restored)):
                self._upgrade(way, data, older, acknowledged if way == KILLED else {}, receiver)

    def _compare(self, way: str, outcomes: Mapping[str, tuple[object, object]]) -> None:
        self._add(compare_outcomes(way, outcomes))

    def _add(self, comparisons: Sequence[Comparison]) -> None:
        self.comparisons += comparisons
        for comparison in comparisons:
            if comparison.difference:
                self.report(f"{comparison.way}: {comparison.name} differs: {comparison.difference}")

    def _fill(self, data: Path, receiver: Receiver) -> _Filled:
        server = self.old.serve(data)
        try:
            self.report(f"{self.old.name} started in {server.start_s:.1f} s; filling its folder")
            contents = fill(server, receiver)
            before = read_all(server, contents)
            if failed := [f"{name}: {value}" for name, value in before.items() if str(value).startswith(FAILED)]:
                msg = f"the older version does not answer: {'; '.join(failed)}"
                raise RuntimeError(msg)
            chain = _export_audit(self.old, data)
            saved = self.old.run(data, "backup", str(self.folder / "old.tar.gz"))
            if saved.returncode:
                msg = f"the older version could not back up: {saved.stderr or saved.stdout}"
                raise RuntimeError(msg)
        finally:
            code = server.stop()
        self._compare(CLEAN, {"old version: exit code of its stop": (0, code)})
        self.figures |= {
            "memories": len(contents.memory_ids),
            "keys": len(contents.keys),
            "audit entries": len(chain),
            "absent": contents.absent,
        }
        self.report(
            f"{len(contents.memory_ids)} memories, {len(contents.keys)} keys, {len(chain)} audit entries, {len(before)} answers read"
        )
        return _Filled(contents, before, chain)

    def _write_until_killed(self, data: Path) -> dict[str, str]:
        """Kill the older version while it stores memories, and return the contents that it acknowledged, by id."""
        acknowledged: dict[str, str] = {}
        server = self.old.serve(data)
        writers = [threading.Thread(target=_write, args=(server, f"w{number}", acknowledged)) for number in range(_WRITERS)]
        for writer in writers:
            writer.start()
        deadline = time.monotonic() + LIMIT_S
        time.sleep(self.load_s)
        while len(acknowledged) < _LATEST and time.monotonic() < deadline:
            time.sleep(0.1)
        server.kill()
        for writer in writers:
            writer.join()
        self.figures["acknowledged before the kill"] = len(acknowledged)
        self.report(f"killed under load after {len(acknowledged)} acknowledged memories")
        return acknowledged

    def _upgrade(self, way: str, data: Path, filled: _Filled, acknowledged: Mapping[str, str], receiver: Receiver) -> None:
        """Start the newer version on a folder, compare, stop it, and try the older one on it."""
        server = self.new.serve(data)
        try:
            self.figures[f"first start, {way}, s"] = round(server.start_s, 1)
            self.report(f"{way}: {self.new.name} started in {server.start_s:.1f} s")
            after = read_all(server, filled.contents)
            self._add(compare_readings(way, filled.answers, after))
            self.report(f"{way}: {len(after)} answers read")
            self._compare(way, _find_memories(server, filled.contents.memory_ids, "memories", org=ORG))
            if acknowledged:
                self._compare(way, _find_memories(server, acknowledged, "memories before the kill", org=LOAD_ORG))
            self.report(f"{way}: memories looked up")
            self._compare(way, act(server, filled.contents, receiver, f"mark{len(self.comparisons)}"))
            self.report(f"{way}: claims, sessions and webhooks used")
            self._compare(way, self._examine(data, filled.chain))
        finally:
            code = server.stop()
        self._compare(way, {"new version: exit code of its stop": (0, code)})
        lines = server.log.read_text(encoding="utf-8").splitlines()
        first_error = next((line for line in lines if '"error"' in line or "[error" in line), "")
        self._compare(way, {"new version: first error in its log": ("", first_error)})
        self._compare(way, self._downgrade(data))

    def _examine(self, data: Path, chain: list[str]) -> Outcomes:
        verified = self.new.run(data, "audit", "verify", "--json")
        doctor = self.new.run(data, "doctor", "--json")
        return {
            "audit: verify": (0, verified.returncode),
            "audit: entries of the old version": (chain, _export_audit(self.new, data)[: len(chain)]),
            "doctor: exit code": (0, doctor.returncode),
        }

    def _downgrade(self, data: Path) -> Outcomes:
        """Start the older version on the folder; with a schema of its own it is refused, and both revisions are named."""
        if self.old.revision == self.new.revision:
            return {}
        refused = self.old.run(data, "serve", "--port", "0")
        mentioned = [revision for revision in (self.old.revision, self.new.revision) if revision in refused.stderr + refused.stdout]
        return {
            "downgrade: exit code": (1, refused.returncode),
            "downgrade: revisions in the message": ([self.old.revision, self.new.revision], mentioned),
        }


def _write(server: RunningServer, name: str, acknowledged: dict[str, str]) -> None:
    """Store memories with a word of their own each, until the server is gone."""
    number = 0
    with server.connect() as client:
        while True:
            content = f"Under load, the writer noted {name}x{number:05}."
            try:
                response = client.post("/v1/brain/remember", json={"content": content, "type": "observation", "org": LOAD_ORG})
                body = cast("Json", response.json())
            except (httpx2.TransportError, ValueError):
                return
            if response.is_success:
                acknowledged[str(body["id"])] = content
            number += 1


def _find_memories(server: RunningServer, contents: Mapping[str, str], kind: str, *, org: str) -> Outcomes:
    """Look for each memory in the list of its org, or by its id, and for the latest ones by a word that no other has."""
    with server.connect() as client:
        listed = {str(memory["id"]): memory["content"] for memory in list_elements(client, "/v1/brain/memories", org=org, per_page=100)}
        others = {memory: content for memory, content in contents.items() if listed.get(memory) != content}
        missing = [memory for memory, content in others.items() if not _has_content(client, memory, content)]
        latest = list(contents.items())[-_LATEST:]
        missed = [memory for memory, content in latest if not _finds_by_word(client, memory, content)]
    return {f"{kind}: lost": ([], missing), f"{kind}: latest {_LATEST} not found by a word": ([], missed)}


def _has_content(client: httpx2.Client, memory: str, content: str) -> bool:
    response = client.get(f"/v1/brain/memories/{memory}")
    return response.is_success and cast("Json", response.json())["content"] == content


def _finds_by_word(client: httpx2.Client, memory: str, content: str) -> bool:
    word = content.rstrip(".").rpartition(" ")[2]
    deadline = time.monotonic() + LIMIT_S / 10
    while True:
        body = cast("Json", client.get("/v1/brain/search", params={"q": word, "agent_id": AGENT}).raise_for_status().json())
        if [hit["id"] for hit in cast("list[Json]", body["hits"])] == [memory]:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)


def _export_audit(version: Version, data: Path) -> list[str]:
    """Return the entries of the first workspace's chain as the version exports them, with their hashes."""
    exported = version.run(data, "audit", "export", "--workspace", "default", "--out", "-")
    if exported.returncode:
        msg = f"{version.name} could not export its audit log: {exported.stderr}"
        raise RuntimeError(msg)
    entries = [cast("Json", json.loads(line)) for line in exported.stdout.splitlines() if line.startswith("{")]
    return [json.dumps(entry, sort_keys=True) for entry in entries]
