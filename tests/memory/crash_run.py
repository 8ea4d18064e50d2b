"""
Kill a server with SIGKILL while memories are written, restart it, and compare its answers with the writes it acknowledged.

Run more rounds than the test does with `python -m tests.memory.crash_run KILLS [SEED] [--repeat]`. With `--repeat`, unanswered
requests are sent again after each restart with the same Idempotency-Key.
"""

from __future__ import annotations

import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import httpx2

from tests.processes import Server, run_server

WRITERS = 4
_ROUND_S = (0.4, 2.0)
_SETTLE_S = 60.0
_SAMPLE = 60


class Fate(StrEnum):
    """The state of a memory after the last acknowledged write."""

    LIVE = "live"
    ARCHIVED = "archived"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class WrittenMemory:
    """A memory that a writer stored: *new_word* stands in its content alone, and is its tag."""

    word: str
    id: str
    fate: Fate = Fate.LIVE


@dataclass
class CrashRun:
    """
    The memories of all rounds, and what was found wrong.

    Attributes:
        repeats: Send requests that had no answer again, with their Idempotency-Key.
        unanswered: The bodies of requests without an answer, by their Idempotency-Key.
    """

    seed: int
    repeats: bool = False
    written: list[WrittenMemory] = field(default_factory=list[WrittenMemory])
    unanswered: dict[str, dict[str, object]] = field(default_factory=dict[str, dict[str, object]])
    failures: list[str] = field(default_factory=list[str])
    checks: int = 0
    _number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def new_word(self) -> str:
        """Return a word that no other memory has."""
        with self._lock:
            self._number += 1
            number = self._number
        return "qz" + "".join(chr(ord("a") + int(digit)) for digit in f"{number:06d}") + "x"

    def run_round(self, folder: Path, number: int) -> None:
        """Write from several threads, kill the server at a random moment, start it again, and check what it answers."""
        chance = random.Random(f"{self.seed} {number}")
        with run_server(folder) as server:
            threads = [threading.Thread(target=self._write, args=(server, f"{self.seed} {number} {each}")) for each in range(WRITERS)]
            for thread in threads:
                thread.start()
            time.sleep(chance.uniform(*_ROUND_S))
            server.kill()
            for thread in threads:
                thread.join(30)
        with run_server(folder) as server:
            if self.repeats:
                self._repeat(server.client)
            self._check(server, chance, when=f"round {number}, just started")
            self._wait_until_indexed(server)
            self._check(server, chance, when=f"round {number}, indexed")

    def _write(self, server: Server, seed: str) -> None:
        chance, own = random.Random(seed), list[WrittenMemory]()
        with httpx2.Client(base_url=server.url, headers=dict(server.client.headers), timeout=20) as client:
            while True:
                try:
                    self._write_once(client, chance, own)
                except httpx2.TransportError:
                    return

    def _write_once(self, client: httpx2.Client, chance: random.Random, own: list[WrittenMemory]) -> None:
        live = [each for each in own if each.fate is Fate.LIVE]
        archived = [each for each in own if each.fate is Fate.ARCHIVED]
        choice = chance.random()
        if choice < 0.3 or not live:
            self._remember(client, own)
        elif choice < 0.45:
            self._batch(client, own)
        elif choice < 0.6:
            self._remember(client, own, replaced=chance.choice(live))
        elif choice < 0.75:
            _change(client, chance.choice(live), "POST", "/archive", Fate.ARCHIVED)
        elif choice < 0.8 and archived:
            _change(client, chance.choice(archived), "POST", "/restore", Fate.LIVE)
        elif choice < 0.95:
            _change(client, chance.choice(live + archived), "DELETE", "", Fate.GONE)
        else:
            client.post("/v1/brain/recall", json={"query": chance.choice(live).word, "mode": "hybrid"})

    def _remember(self, client: httpx2.Client, own: list[WrittenMemory], replaced: WrittenMemory | None = None) -> None:
        word = self.new_word()
        body = _body(word) | ({} if replaced is None else {"supersedes_id": replaced.id})
        if replaced is not None:
            replaced.fate = Fate.UNKNOWN
        self.unanswered[word] = body
        answer = client.post("/v1/brain/remember", json=body, headers={"Idempotency-Key": word})
        assert answer.status_code == 201, answer.text
        self._record(own, word, answer.json()["id"])
        del self.unanswered[word]
        if replaced is not None:
            replaced.fate = Fate.GONE

    def _batch(self, client: httpx2.Client, own: list[WrittenMemory]) -> None:
        words = [self.new_word() for _ in range(5)]
        body: dict[str, object] = {"memories": [_body(word) for word in words]}
        self.unanswered[words[0]] = body
        answer = client.post("/v1/brain/remember/batch", json=body, headers={"Idempotency-Key": words[0]})
        assert answer.status_code == 200, answer.text
        for word, result in zip(words, answer.json()["results"], strict=True):
            self._record(own, word, result["memory"]["id"])
        del self.unanswered[words[0]]

    def _record(self, own: list[WrittenMemory], word: str, memory_id: str) -> None:
        own.append(WrittenMemory(word, memory_id))
        self.written.append(own[-1])

    def _repeat(self, client: httpx2.Client) -> None:
        for key, body in list(self.unanswered.items())[-2 * WRITERS :]:
            path = "/v1/brain/remember/batch" if "memories" in body else "/v1/brain/remember"
            deadline = time.monotonic() + _SETTLE_S
            answer = client.post(path, json=body, headers={"Idempotency-Key": key})
            while answer.status_code == 409 and "idempotency_in_progress" in answer.text and time.monotonic() < deadline:
                time.sleep(0.5)  # until the claim of the killed process ends
                answer = client.post(path, json=body, headers={"Idempotency-Key": key})
            self._expect(answer.status_code < 300 or "supersedes_id" in body, f"{key} sent again: {answer.text}")

    def _wait_until_indexed(self, server: Server) -> None:
        deadline = time.monotonic() + _SETTLE_S
        while time.monotonic() < deadline:
            pending = server.client.get("/v1/brain/memories?state=pending_embed&per_page=1").json()["meta"]["total"]
            if pending == 0:
                return
            time.sleep(0.05)
        self.failures.append("memories are still pending a minute after the start")

    def _check(self, server: Server, chance: random.Random, *, when: str) -> None:
        client = server.client
        for each in self.written:
            if each.fate is Fate.UNKNOWN or chance.random() < 0.05:
                self._check_record(client, each, when)
        fates = {each.id: each for each in self.written}
        dead = [each for each in self.written if each.fate in (Fate.ARCHIVED, Fate.GONE)]
        live = [each for each in self.written if each.fate is Fate.LIVE]
        for each in chance.sample(dead, min(len(dead), _SAMPLE)) + chance.sample(live, min(len(live), _SAMPLE)):
            self._check_found(client, each, fates, when)
        for word in list(self.unanswered)[-20:]:
            hits = client.get("/v1/brain/search", params={"q": word}).json()["hits"]
            self._expect(len(hits) <= 1, f"{when}: {word} was sent once and is found {len(hits)} times")
        listed = dict[str, str]()
        page, following = 1, True
        while following:
            answer = client.get(f"/v1/brain/memories?per_page=100&page={page}").json()
            listed |= {memory["id"]: memory["content"] for memory in answer["data"]}
            page, following = page + 1, answer["links"]["next"] is not None
        shown = [each.word for each in dead if each.id in listed]
        self._expect(not shown, f"{when}: the list shows what is archived or gone: {shown}")
        missing = [each.word for each in live if each.id not in listed]
        self._expect(not missing, f"{when}: the list lacks what is there: {missing}")
        contents = list(listed.values())
        doubled = sorted({content for content in contents if contents.count(content) > 1})
        self._expect(not doubled, f"{when}: stored twice: {doubled}")
        scopes = client.get("/v1/brain/scopes").json()["scopes"]
        self._expect(sum(each["count"] for each in scopes) == len(listed), f"{when}: scopes count {scopes}, listed {len(listed)}")
        tags = {each["name"] for each in client.get("/v1/brain/tags").json()["tags"]}
        shown = [each.word for each in dead if each.word in tags]
        self._expect(not shown, f"{when}: tags of what is archived or gone: {shown}")

    def _check_record(self, client: httpx2.Client, each: WrittenMemory, when: str) -> None:
        answer = client.get(f"/v1/brain/memories/{each.id}")
        is_archived = answer.status_code == 200 and answer.json()["archived_at"] is not None
        fate = Fate.GONE if answer.status_code == 404 else Fate.ARCHIVED if is_archived else Fate.LIVE
        self._expect(each.fate in (Fate.UNKNOWN, fate), f"{when}: {each.word} was promised to be {each.fate}, and is {fate}")
        each.fate = fate

    def _check_found(self, client: httpx2.Client, each: WrittenMemory, fates: dict[str, WrittenMemory], when: str) -> None:
        is_live = each.fate is Fate.LIVE
        found = {"search": client.get("/v1/brain/search", params={"q": each.word}).json()["hits"]}
        for mode in ("semantic", "keyword", "hybrid"):
            body = {"query": each.word, "mode": mode, "top_k": 10, "keywords": [each.word]}
            found[mode] = client.post("/v1/brain/recall", json=body).json()["memories"]
        found["tag"] = client.get("/v1/brain/memories", params={"tags": each.word}).json()["data"]
        for where, hits in found.items():
            bad = [hit["id"] for hit in hits if hit["id"] in fates and fates[hit["id"]].fate in (Fate.ARCHIVED, Fate.GONE)]
            self._expect(not bad, f"{when}: {where} for {each.word} shows what is archived or gone: {bad}")
            others = [hit["id"] for hit in hits if each.word in hit["content"] and hit["id"] != each.id]
            self._expect(not others, f"{when}: {where} for {each.word} shows a second record: {others}")
            if is_live and (where != "semantic" or "indexed" in when):
                self._expect(any(hit["id"] == each.id for hit in hits), f"{when}: {where} does not find {each.word}, which is there")

    def _expect(self, holds: bool, otherwise: str) -> None:
        self.checks += 1
        if not holds:
            self.failures.append(otherwise)


def _body(word: str) -> dict[str, object]:
    return {"type": "fact", "org": "crash", "content": f"The word of this memory is {word}.", "tags": [word]}


def _change(client: httpx2.Client, each: WrittenMemory, method: str, path: str, fate: Fate) -> None:
    each.fate = Fate.UNKNOWN
    answer = client.request(method, f"/v1/brain/memories/{each.id}{path}")
    assert answer.status_code in (200, 204), answer.text
    each.fate = fate


def main() -> None:
    """Kill a server repeatedly, as the arguments say, and print the failures."""
    numbers = [int(each) for each in sys.argv[1:] if each.isdigit()]
    kills, seed = numbers[0], numbers[1] if len(numbers) > 1 else 1
    crashing = CrashRun(seed, repeats="--repeat" in sys.argv)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(kills):
            crashing.run_round(Path(folder) / "home", number)
            _print_line(f"{number + 1} kills, {len(crashing.written)} memories, {crashing.checks} checks, {len(crashing.failures)} wrong")
    for each in crashing.failures:
        _print_line(each)
    sys.exit(1 if crashing.failures else 0)


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
