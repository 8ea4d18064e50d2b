"""
Kill a server with SIGKILL while memories are written, restart it, and compare its responses with the writes it acknowledged.

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

from tests.deadlines import HANG_S
from tests.processes import Server, run_server

WRITERS = 4
_ROUND_S = (0.4, 2.0)
_SAMPLE = 60


class Status(StrEnum):
    """The state of a memory after the last acknowledged write."""

    LIVE = "live"
    ARCHIVED = "archived"
    GONE = "gone"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class WrittenMemory:
    """A memory that a writer stored. Its *word* is its tag, and no other memory contains it."""

    word: str
    id: str
    status: Status = Status.LIVE


@dataclass
class CrashRun:
    """
    A run of several rounds: the memories written and the failures found.

    Attributes:
        repeats: Whether requests without a response are sent again, with their Idempotency-Key.
        unanswered: The bodies of requests without a response, by Idempotency-Key.
    """

    seed: int
    repeats: bool = False
    memories: list[WrittenMemory] = field(default_factory=list[WrittenMemory])
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
        """Write from several threads, kill the server at a random moment, start it again, and check its responses."""
        random_source = random.Random(f"{self.seed} {number}")
        with run_server(folder) as server:
            threads = [threading.Thread(target=self._write, args=(server, f"{self.seed} {number} {writer}")) for writer in range(WRITERS)]
            for thread in threads:
                thread.start()
            time.sleep(random_source.uniform(*_ROUND_S))
            server.kill()
            for thread in threads:
                thread.join(30)
        with run_server(folder) as server:
            if self.repeats:
                self._repeat(server.client)
            self._check(server, random_source, when=f"round {number}, just started")
            self._wait_until_indexed(server)
            self._check(server, random_source, when=f"round {number}, indexed")

    def _write(self, server: Server, seed: str) -> None:
        random_source, own_memories = random.Random(seed), list[WrittenMemory]()
        with httpx2.Client(base_url=server.url, headers=dict(server.client.headers), timeout=HANG_S) as client:
            while True:
                try:
                    self._write_once(client, random_source, own_memories)
                except httpx2.TransportError:
                    return

    def _write_once(self, client: httpx2.Client, random_source: random.Random, own_memories: list[WrittenMemory]) -> None:
        live_memories = [memory for memory in own_memories if memory.status is Status.LIVE]
        archived = [memory for memory in own_memories if memory.status is Status.ARCHIVED]
        choice = random_source.random()
        if choice < 0.3 or not live_memories:
            self._remember(client, own_memories)
        elif choice < 0.45:
            self._batch(client, own_memories)
        elif choice < 0.6:
            self._remember(client, own_memories, superseded=random_source.choice(live_memories))
        elif choice < 0.75:
            _change(client, random_source.choice(live_memories), "POST", "/archive", Status.ARCHIVED)
        elif choice < 0.8 and archived:
            _change(client, random_source.choice(archived), "POST", "/restore", Status.LIVE)
        elif choice < 0.95:
            _change(client, random_source.choice(live_memories + archived), "DELETE", "", Status.GONE)
        else:
            client.post("/v1/brain/recall", json={"query": random_source.choice(live_memories).word, "mode": "hybrid"})

    def _remember(self, client: httpx2.Client, own_memories: list[WrittenMemory], superseded: WrittenMemory | None = None) -> None:
        word = self.new_word()
        body = _body(word) | ({} if superseded is None else {"supersedes_id": superseded.id})
        if superseded is not None:
            superseded.status = Status.UNKNOWN
        self.unanswered[word] = body
        response = client.post("/v1/brain/remember", json=body, headers={"Idempotency-Key": word})
        assert response.status_code == 201, response.text
        self._record(own_memories, word, response.json()["id"])
        del self.unanswered[word]
        if superseded is not None:
            superseded.status = Status.GONE

    def _batch(self, client: httpx2.Client, own_memories: list[WrittenMemory]) -> None:
        words = [self.new_word() for _ in range(5)]
        body: dict[str, object] = {"memories": [_body(word) for word in words]}
        self.unanswered[words[0]] = body
        response = client.post("/v1/brain/remember/batch", json=body, headers={"Idempotency-Key": words[0]})
        assert response.status_code == 200, response.text
        for word, result in zip(words, response.json()["results"], strict=True):
            self._record(own_memories, word, result["memory"]["id"])
        del self.unanswered[words[0]]

    def _record(self, own_memories: list[WrittenMemory], word: str, memory_id: str) -> None:
        own_memories.append(WrittenMemory(word, memory_id))
        self.memories.append(own_memories[-1])

    def _repeat(self, client: httpx2.Client) -> None:
        for key, body in list(self.unanswered.items())[-2 * WRITERS :]:
            path = "/v1/brain/remember/batch" if "memories" in body else "/v1/brain/remember"
            deadline = time.monotonic() + HANG_S
            response = client.post(path, json=body, headers={"Idempotency-Key": key})
            while response.status_code == 409 and "idempotency_in_progress" in response.text and time.monotonic() < deadline:
                time.sleep(0.5)  # until the claim of the killed process ends
                response = client.post(path, json=body, headers={"Idempotency-Key": key})
            self._expect(response.status_code < 300 or "supersedes_id" in body, f"{key} sent again: {response.text}")

    def _wait_until_indexed(self, server: Server) -> None:
        deadline = time.monotonic() + HANG_S
        while time.monotonic() < deadline:
            pending = server.client.get("/v1/brain/memories?state=pending_embed&per_page=1").json()["meta"]["total"]
            if pending == 0:
                return
            time.sleep(0.05)
        self.failures.append("memories are still pending a minute after the start")

    def _check(self, server: Server, random_source: random.Random, *, when: str) -> None:
        client = server.client
        for memory in self.memories:
            if memory.status is Status.UNKNOWN or random_source.random() < 0.05:
                self._check_record(client, memory, when)
        memories_by_id = {memory.id: memory for memory in self.memories}
        removed_memories = [memory for memory in self.memories if memory.status in (Status.ARCHIVED, Status.GONE)]
        live_memories = [memory for memory in self.memories if memory.status is Status.LIVE]
        for memory in random_source.sample(removed_memories, min(len(removed_memories), _SAMPLE)) + random_source.sample(
            live_memories, min(len(live_memories), _SAMPLE)
        ):
            self._check_found(client, memory, memories_by_id, when)
        for word in list(self.unanswered)[-20:]:
            hits = client.get("/v1/brain/search", params={"q": word}).json()["hits"]
            self._expect(len(hits) <= 1, f"{when}: {word} was sent once and is found {len(hits)} times")
        contents_by_id = dict[str, str]()
        page, has_next = 1, True
        while has_next:
            response = client.get(f"/v1/brain/memories?per_page=100&page={page}").json()
            contents_by_id |= {memory["id"]: memory["content"] for memory in response["data"]}
            page, has_next = page + 1, response["links"]["next"] is not None
        wrong_words = [memory.word for memory in removed_memories if memory.id in contents_by_id]
        self._expect(not wrong_words, f"{when}: the list contains archived or deleted memories: {wrong_words}")
        missing_words = [memory.word for memory in live_memories if memory.id not in contents_by_id]
        self._expect(not missing_words, f"{when}: the list lacks live memories: {missing_words}")
        contents = list(contents_by_id.values())
        duplicate_contents = sorted({content for content in contents if contents.count(content) > 1})
        self._expect(not duplicate_contents, f"{when}: stored twice: {duplicate_contents}")
        scopes = client.get("/v1/brain/scopes").json()["scopes"]
        self._expect(
            sum(scope["count"] for scope in scopes) == len(contents_by_id), f"{when}: scopes count {scopes}, listed {len(contents_by_id)}"
        )
        tags = {tag["name"] for tag in client.get("/v1/brain/tags").json()["tags"]}
        wrong_words = [memory.word for memory in removed_memories if memory.word in tags]
        self._expect(not wrong_words, f"{when}: tags of archived or deleted memories: {wrong_words}")

    def _check_record(self, client: httpx2.Client, memory: WrittenMemory, when: str) -> None:
        response = client.get(f"/v1/brain/memories/{memory.id}")
        is_archived = response.status_code == 200 and response.json()["archived_at"] is not None
        status = Status.GONE if response.status_code == 404 else Status.ARCHIVED if is_archived else Status.LIVE
        self._expect(memory.status in (Status.UNKNOWN, status), f"{when}: {memory.word} should be {memory.status}, and is {status}")
        memory.status = status

    def _check_found(self, client: httpx2.Client, memory: WrittenMemory, memories_by_id: dict[str, WrittenMemory], when: str) -> None:
        is_live = memory.status is Status.LIVE
        hits_by_query = {"search": client.get("/v1/brain/search", params={"q": memory.word}).json()["hits"]}
        for mode in ("semantic", "keyword", "hybrid"):
            body = {"query": memory.word, "mode": mode, "top_k": 10, "keywords": [memory.word]}
            hits_by_query[mode] = client.post("/v1/brain/recall", json=body).json()["memories"]
        hits_by_query["tag"] = client.get("/v1/brain/memories", params={"tags": memory.word}).json()["data"]
        for query, hits in hits_by_query.items():
            wrong_ids = [
                hit["id"]
                for hit in hits
                if hit["id"] in memories_by_id and memories_by_id[hit["id"]].status in (Status.ARCHIVED, Status.GONE)
            ]
            self._expect(not wrong_ids, f"{when}: {query} for {memory.word} finds archived or deleted memories: {wrong_ids}")
            duplicate_ids = [hit["id"] for hit in hits if memory.word in hit["content"] and hit["id"] != memory.id]
            self._expect(not duplicate_ids, f"{when}: {query} for {memory.word} finds a second record: {duplicate_ids}")
            if is_live and (query != "semantic" or "indexed" in when):
                self._expect(any(hit["id"] == memory.id for hit in hits), f"{when}: {query} does not find {memory.word}, which is live")

    def _expect(self, is_true: bool, failure: str) -> None:
        self.checks += 1
        if not is_true:
            self.failures.append(failure)


def _body(word: str) -> dict[str, object]:
    return {"type": "fact", "org": "crash", "content": f"The word of this memory is {word}.", "tags": [word]}


def _change(client: httpx2.Client, memory: WrittenMemory, method: str, path: str, status: Status) -> None:
    memory.status = Status.UNKNOWN
    response = client.request(method, f"/v1/brain/memories/{memory.id}{path}")
    assert response.status_code in (200, 204), response.text
    memory.status = status


def main() -> None:
    """Kill a server as often as the arguments give, and print the failures."""
    numbers = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    kills, seed = numbers[0], numbers[1] if len(numbers) > 1 else 1
    crash_run = CrashRun(seed, repeats="--repeat" in sys.argv)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(kills):
            crash_run.run_round(Path(folder) / "home", number)
            _print_line(
                f"{number + 1} kills, {len(crash_run.memories)} memories, {crash_run.checks} checks, {len(crash_run.failures)} wrong"
            )
    for failure in crash_run.failures:
        _print_line(failure)
    sys.exit(1 if crash_run.failures else 0)


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
