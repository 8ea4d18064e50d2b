"""Embedders that are services, on a real one with faults: OpenAI's protocol and Ollama's."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.engines import embedders
from rookery.engines.embedders import addresses, chunks, remote
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import Passage
from tests.certificates import write_certificate
from tests.conftest import eventually
from tests.embedding_service import KEY, EmbeddingService, Fault, embed, run_embedding_service

Kind = Literal["openai", "ollama"]
HERON = "The heron nests on the roof of the boat house."


class Open(Protocol):
    """Opens the engine on the service; closed when the test ends."""

    def __call__(self, more: str = "", *, width: int = 32) -> embedders.EmbedderEngine: ...


@pytest.fixture
def service() -> Iterator[EmbeddingService]:
    """A service of vectors of 32 numbers."""
    with run_embedding_service() as running:
        yield running


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.engines.embedders.http_client._MIN_RETRY_DELAY_S", 0.01)


@pytest.fixture(params=["openai", "ollama"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each protocol in turn."""
    return request.param


@pytest.fixture
async def open_embedder(service: EmbeddingService, kind: Kind, tmp_path: Path) -> AsyncIterator[Open]:
    """Open the engine at the service by either protocol."""
    async with contextlib.AsyncExitStack() as stack:

        def open_it(more: str = "", *, width: int = 32) -> embedders.EmbedderEngine:
            url = service.openai_url(more.replace("?", "&")) if kind == "openai" else service.ollama_url(more)
            engine = embedders.open(url, data_dir=tmp_path, dimension=width)
            stack.push_async_callback(engine.close)
            return engine

        yield open_it


def numbers(vector: bytes) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Read a vector."""
    return np.frombuffer(vector, dtype="<f4")


def expected(text: str, width: int = 32, stored: int = 32) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return what should be stored of what the service gives."""
    row = np.zeros(stored)
    row[:width] = embed(text, width)
    return row / np.linalg.norm(row)


def passages(*texts: str) -> list[Passage]:
    """Make passages without context."""
    return [Passage(context="", content=text) for text in texts]


async def test_vectors_are_the_services_own_in_order_and_of_unit_length(open_embedder: Open) -> None:
    """D-54, memory.models.Vector; OpenAI's data come in any order, each with its index."""
    embedder = open_embedder()
    texts = [f"{HERON} {number}" for number in range(150)]
    found = await embedder.embed_passages(passages(*texts))

    assert all(np.allclose(numbers(vectors[0]), expected(text), atol=1e-6) for text, vectors in zip(texts, found, strict=True))
    assert np.allclose(numbers(await embedder.embed_query(HERON)), expected(HERON), atol=1e-6)


async def test_a_narrower_model_is_filled_up_with_zeros(open_embedder: Open) -> None:
    """D-54: 768 by default; a shorter embedder is zero-padded, cosines stay."""
    embedder = open_embedder(width=768)
    await embedder.check()
    vector = numbers(await embedder.embed_query(HERON))

    assert embedder.dimension == len(vector) == 768
    assert np.allclose(vector, expected(HERON, 32, 768), atol=1e-6)


async def test_a_wider_model_refuses_to_start_and_says_what_to_set(open_embedder: Open) -> None:
    """D-54: a longer one needs its dimension set."""
    embedder = open_embedder(width=16)

    with pytest.raises(WrongSettings, match="ROOKERY_VECTOR_DIMENSION=32"):
        await embedder.check()
    for work in (embedder.embed_query(HERON), embedder.embed_passages(passages(HERON)), embedder.warm()):
        with pytest.raises(EngineUnavailable, match="with 32 dimensions, more than the 16"):
            await work


async def test_dimensions_in_the_address_are_asked_for(open_embedder: Open, service: EmbeddingService) -> None:
    """Models that can be shortened give what is asked for; it is the width then, whatever the setting says."""
    embedder = open_embedder("?dimensions=8", width=768)
    vector = numbers(await embedder.embed_query(HERON))

    assert (embedder.dimension, len(vector), service.requests[-1]["dimensions"]) == (8, 8, 8)


async def test_a_service_that_ignores_dimensions_is_told_of(open_embedder: Open, service: EmbeddingService) -> None:
    """Never mixed widths: what was asked for must come."""
    embedder = open_embedder("?dimensions=64")
    service.permanent_fault = Fault(body=b'{"data": [{"embedding": [1, 2]}], "embeddings": [[1, 2]]}')

    with pytest.raises(WrongSettings, match="does not support dimensions=64"):
        await embedder.check()


async def test_many_texts_go_in_batches_a_few_requests_at_a_time(open_embedder: Open, service: EmbeddingService) -> None:
    """A request costs a round trip, and a service that is asked too much at once answers all of it later."""
    service.delay_s = 0.03
    await open_embedder().embed_passages(passages(*[f"{HERON} {number}" for number in range(640)]))

    assert (len(service.requests), len(service.texts)) == (10, 640)
    assert 2 <= service.max_active_requests <= 4


async def test_a_question_does_not_wait_behind_passages(open_embedder: Open, service: EmbeddingService) -> None:
    """Recall works while an import is embedded, as with the built-in engine."""
    service.delay_s = 0.15
    embedder = open_embedder()
    writing = asyncio.create_task(embedder.embed_passages(passages(*[f"{HERON} {number}" for number in range(64 * 24)])))
    await eventually(lambda: service.active_requests)
    await embedder.embed_query("where do herons nest")

    assert not writing.done()
    await writing


async def test_a_question_asked_by_many_is_asked_once(open_embedder: Open, service: EmbeddingService) -> None:
    """Each request costs money, and time."""
    embedder = open_embedder()
    await asyncio.gather(*(embedder.embed_query(" where ") for _ in range(20)))
    await embedder.embed_query("where")

    assert service.texts == ["where"]


async def test_a_long_text_is_cut_into_overlapping_chunks_each_after_its_context(open_embedder: Open, service: EmbeddingService) -> None:
    """D-55: all of a text is embedded, chunk by chunk; none is longer than a model's window."""
    words = [f"word{number}" for number in range(2000)]
    (vectors,) = await open_embedder().embed_passages([Passage(context="birds, boats", content=" ".join(words))])
    contents = [text.removeprefix("birds, boats\n") for text in service.texts]

    assert len(vectors) == len(contents) > 5
    assert all(text.startswith("birds, boats\n") for text in service.texts)
    assert {word for content in contents for word in content.split()} == set(words)
    assert all(set(one.split()) & set(other.split()) for one, other in pairwise(contents))
    assert all(len(chunks.approximate_tokens(content)) <= remote.CHUNK_TOKENS for content in contents)


async def test_prefixes_go_before_questions_and_chunks(open_embedder: Open, service: EmbeddingService) -> None:
    """Models trained with prefixes want them; another passage prefix makes other vectors, so another model (D-54)."""
    embedder = open_embedder("?query_prefix=search_query:%20&passage_prefix=search_document:%20")
    await embedder.embed_query("heron")
    await embedder.embed_passages(passages("heron"))

    assert service.texts == ["search_query: heron", "search_document: heron"]
    assert embedder.model not in {open_embedder().model, open_embedder("?passage_prefix=x").model}
    assert open_embedder("?query_prefix=x").model == open_embedder().model


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429, headers={"Retry-After": "0"}),
        Fault(status=429, headers={"Retry-After": "Sat, 01 Jan 2000 00:00:00 GMT"}),
        Fault(status=500),
        Fault(status=503, headers={"Retry-After": "0.01"}),
        Fault(status=0),
        Fault(body=b"{"),
        Fault(body=b"[]"),
        Fault(body=b'{"data": [], "embeddings": []}'),
        Fault(body=b'{"data": [{"embedding": ["a"]}], "embeddings": [["a"]]}'),
        Fault(body=b'{"data": [{"embedding": []}], "embeddings": [[]]}'),
        Fault(body=b'{"data": [7], "embeddings": [7]}'),
        Fault(body=b'{"data": [{"index": 5, "embedding": [1]}], "embeddings": 7}'),
    ],
    ids=lambda fault: f"{fault.status}{fault.headers or ''}{fault.body or ''}",
)
async def test_what_passes_is_tried_again(open_embedder: Open, service: EmbeddingService, fault: Fault) -> None:
    """Limits, overload, cut and mangled answers: the caller notices nothing."""
    service.faults.append(fault)
    vector = await open_embedder().embed_query(HERON)

    assert np.allclose(numbers(vector), expected(HERON), atol=1e-6)
    assert service.texts == [HERON, HERON]


async def test_a_wait_longer_than_ours_is_the_callers(open_embedder: Open, service: EmbeddingService) -> None:
    """D-51: the job kind pauses; Retry-After is passed to the caller."""
    service.permanent_fault = Fault(status=429, headers={"Retry-After": "120"})
    embedder = open_embedder()
    for work in (embedder.embed_query(HERON), embedder.embed_passages(passages(HERON))):
        with pytest.raises(EngineUnavailable) as raised:
            await work

        assert raised.value.headers["Retry-After"] == "120"
    assert len(service.requests) == 2


async def test_a_service_that_stays_broken_is_unavailable_after_some_tries(open_embedder: Open, service: EmbeddingService) -> None:
    """Spec 5: a failing engine is a 503, within a bound."""
    service.permanent_fault = Fault(status=503, headers={"Retry-After": "0"})
    with pytest.raises(EngineUnavailable, match="status 503"):
        await open_embedder().embed_query(HERON)

    assert len(service.requests) == 3


async def test_a_service_that_does_not_answer_is_given_up(
    open_embedder: Open, service: EmbeddingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wait has a bound."""
    monkeypatch.setattr(remote, "_QUERY_RETRY", remote.RetryPolicy(max_attempts=2, timeout_s=0.3))
    service.permanent_fault = Fault(delay_s=2.0)
    started_s = time.monotonic()
    with pytest.raises(EngineUnavailable, match="did not answer in time"):
        await open_embedder().embed_query(HERON)

    assert time.monotonic() - started_s < 2.0 + 10


async def test_a_service_that_is_not_there_is_unavailable(open_embedder: Open, service: EmbeddingService) -> None:
    """The port refuses connections, at the start and later."""
    service.port = 1
    embedder = open_embedder()
    for work in (embedder.check(), embedder.warm(), embedder.embed_query(HERON)):
        with pytest.raises(EngineUnavailable, match="could not be opened"):
            await work


async def test_an_answer_without_end_is_not_read_to_its_end(
    open_embedder: Open, service: EmbeddingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service may be anything."""
    monkeypatch.setattr("rookery.engines.embedders.http_client._MAX_RESPONSE_BYTES", 1000)
    service.permanent_fault = Fault(body=b" " * 200_000)
    with pytest.raises(EngineUnavailable, match="larger"):
        await open_embedder().embed_query(HERON)


async def test_a_redirect_is_not_followed(open_embedder: Open, service: EmbeddingService) -> None:
    """It would take the key elsewhere."""
    service.permanent_fault = Fault(status=307, headers={"Location": "http://127.0.0.1:1/"})
    with pytest.raises(EngineUnavailable, match="status 307"):
        await open_embedder().embed_query(HERON)


@pytest.mark.parametrize("status", [400, 422, 500])
async def test_a_text_that_is_refused_does_not_keep_the_others_from_being_embedded(
    open_embedder: Open, service: EmbeddingService, status: int
) -> None:
    """One bad text must not stop the indexing of all: it is told from a service that is down by asking for another text."""
    service.poison = {"arsenic": status}
    embedder = open_embedder()

    with pytest.raises(NotEmbeddable):
        await embedder.embed_passages(passages(HERON, "arsenic and old lace"))
    with pytest.raises(NotEmbeddable):
        await embedder.embed_query("arsenic")
    assert await embedder.embed_passages(passages(HERON, "old lace"))


async def test_a_text_too_long_for_the_model_is_cut_again(open_embedder: Open, service: EmbeddingService) -> None:
    """D-55: nothing is lost, and nothing silently left out, whatever the model's window is."""
    service.limit = 200
    text = " ".join(f"word{number}" for number in range(80))
    (vectors, short) = await open_embedder().embed_passages(passages(text, HERON))
    taken = [numbers(vector) for vector in vectors]

    assert len(chunks.approximate_tokens(text)) <= remote.CHUNK_TOKENS, "one chunk for us, which the service does not take"
    assert (len(short), len(vectors)) == (1, 4)
    assert [np.allclose(vector, expected(part), atol=1e-6) for vector, part in zip(taken, _quarters(text), strict=True)] == [True] * 4


def _quarters(text: str) -> list[str]:
    halves = text[: len(text) // 2], text[len(text) // 2 :]
    return [part for half in halves for part in (half[: len(half) // 2], half[len(half) // 2 :])]


async def test_of_a_question_too_long_for_the_model_the_beginning_counts(open_embedder: Open, service: EmbeddingService) -> None:
    """Ports: longer than the window, its beginning counts."""
    service.limit = 300
    text = " ".join(f"word{number}" for number in range(200))
    vector = await open_embedder().embed_query(text)

    assert text.startswith(service.texts[-1])
    assert np.allclose(numbers(vector), expected(service.texts[-1]), atol=1e-6)


async def test_a_service_that_refuses_everything_is_unavailable_not_the_text(open_embedder: Open, service: EmbeddingService) -> None:
    """Otherwise every memory would be `failed` for a wrong setting."""
    service.permanent_fault = Fault(status=400)
    embedder = open_embedder()
    for work in (embedder.embed_query(HERON), embedder.embed_passages(passages(HERON, HERON))):
        with pytest.raises(EngineUnavailable, match="status 400"):
            await work


@pytest.mark.parametrize("number", [b"0", b"null", b"1e999"], ids=["zeros", "nothing", "infinite"])
async def test_a_service_that_gives_no_vector_for_anything_is_unavailable_not_the_text(
    open_embedder: Open, service: EmbeddingService, number: bytes
) -> None:
    """Issue 5: a model that broke answers 200 with zeros, or null for what JSON cannot say; no memory is `failed` for that."""
    service.permanent_fault = Fault(body=b'{"data": [{"index": 0, "embedding": [%b]}], "embeddings": [[%b]]}' % (number, number))
    embedder = open_embedder()
    for work in (embedder.embed_query(HERON), embedder.embed_passages(passages(HERON)), embedder.warm()):
        with pytest.raises(EngineUnavailable):
            await work


async def test_a_model_that_is_not_there_is_named(service: EmbeddingService, tmp_path: Path) -> None:
    """Ollama's most common failure: the model was never pulled."""
    engine = embedders.open(service.ollama_url().replace("/words", "/no-such-model:latest"), data_dir=tmp_path)
    with pytest.raises(EngineUnavailable, match="the model 'no-such-model:latest' was not found"):
        await engine.embed_query(HERON)
    await engine.close()


async def test_a_wrong_key_is_said_without_the_key(service: EmbeddingService, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No secret in an answer or in a log: this service quotes what it was sent."""
    right = EmbeddingService(key=KEY)
    with run_embedding_service(right):
        engine = embedders.open(right.openai_url(), data_dir=tmp_path, dimension=32)
        assert await engine.embed_query(HERON)
        await engine.close()
        right.key, sent = "another key", KEY
        engine = embedders.open(right.openai_url().replace("another%20key", sent.replace(" ", "%20")), data_dir=tmp_path, dimension=32)
        with pytest.raises(EngineUnavailable, match="rejects the configured key") as raised:
            await engine.embed_query(HERON)
        await engine.close()
    printed = capsys.readouterr()

    assert all(KEY not in text for text in (str(raised.value), repr(engine), printed.out, printed.err))
    assert "127.0.0.1" not in raised.value.message
    assert service.requests == []


async def test_a_certificate_is_asked_for_unless_the_operator_says_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec 8: verify_ssl, by default true; an authority of one's own is named as everywhere, in SSL_CERT_FILE."""
    with run_embedding_service(EmbeddingService(certificate=write_certificate(tmp_path / "both.pem"), key=KEY)) as service:
        url = service.openai_url().replace("openai:", "openai+https:")

        async def ask(*, verify_ssl: bool) -> bytes:
            engine = embedders.open(url, data_dir=tmp_path, dimension=32, verify_ssl=verify_ssl)
            try:
                return await engine.embed_query(HERON)
            finally:
                await engine.close()

        with pytest.raises(EngineUnavailable, match="could not be opened"):
            await ask(verify_ssl=True)
        assert service.requests == []
        assert await ask(verify_ssl=False)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "both.pem"))
        assert await ask(verify_ssl=True)


async def test_a_closed_one_says_so(open_embedder: Open) -> None:
    """Ports: close; twice does no harm."""
    embedder = open_embedder()
    await embedder.embed_query("before")
    await embedder.close()
    await embedder.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        await embedder.embed_query("after")


async def test_readiness_does_not_ask_a_service_that_has_just_answered(open_embedder: Open, service: EmbeddingService) -> None:
    """Load balancers poll /readyz every few seconds, and services charge per request."""
    embedder = open_embedder()
    for _ in range(5):
        await embedder.warm()

    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("openai://127.0.0.1/v1", "the model is missing"),
        ("openai:///v1?model=m", "the host is missing"),
        ("openai://127.0.0.1:99999/v1?model=m", "invalid URL"),
        ("ollama://127.0.0.1", "the model is missing"),
        ("openai://127.0.0.1?model=m&dimension=5", "unknown option 'dimension'"),
        ("openai://127.0.0.1?model=m&dimensions=0", "from 1 to"),
        ("openai://127.0.0.1?model=m&dimensions=many", "from 1 to"),
        ("openai://:hush@api.example.com/v1?model=m", r"without encryption; use openai\+https"),
        ("ollama://:hush@8.8.8.8/m", r"without encryption; use ollama\+https"),
    ],
)
def test_an_address_that_cannot_be_is_refused_without_its_key(tmp_path: Path, url: str, says: str) -> None:
    """D-02: one clear line, which shows no secret."""
    with pytest.raises(WrongSettings, match=says) as raised:
        embedders.open(url, data_dir=tmp_path)

    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "endpoint", "model"),
    [
        (
            "openai+https://:k@api.example.com/v1?model=text-embedding-3-small",
            "https://api.example.com/v1/embeddings",
            "text-embedding-3-small",
        ),
        ("openai://localhost:8080?model=m", "http://localhost:8080/v1/embeddings", "m"),
        ("openai://embedder/openai/v1/?model=org/m", "http://embedder/openai/v1/embeddings", "org/m"),
        ("openai+http://:k@10.0.0.9:81/v1/embeddings?model=m", "http://10.0.0.9:81/v1/embeddings", "m"),
        ("openai+http://:k@api.example.com/v1?model=m", "http://api.example.com/v1/embeddings", "m"),
        ("ollama://127.0.0.1/nomic-embed-text:v1.5", "http://127.0.0.1:11434/api/embed", "nomic-embed-text:v1.5"),
        ("ollama://[::1]:5/hf.co/org/m", "http://[::1]:5/api/embed", "hf.co/org/m"),
        ("ollama+https://:k@ollama.example.com:443/m", "https://ollama.example.com:443/api/embed", "m"),
    ],
)
def test_an_address_names_an_endpoint_and_a_model(url: str, endpoint: str, model: str) -> None:
    """docs/how-to/embedders.md; 768 wide by default (spec 8)."""
    found = addresses.parse_url(url, dimension=768, setting="ROOKERY_EMBEDDER")

    assert (found.endpoint, found.model_name, found.stored_dimension) == (endpoint, model, 768)
    assert "://" not in found.model
    assert all("k@" not in text for text in (repr(found), found.endpoint))


def test_the_same_model_elsewhere_is_the_same_model() -> None:
    """D-54: a service that moved, or a new key, makes nothing stale; another width or protocol does."""
    urls = ["openai://a/v1?model=m", "openai+https://:k@b.example.com/v1?model=m", "openai://a/v1?model=m&dimensions=8", "ollama://a/m"]
    models = [addresses.parse_url(url, dimension=768, setting="X").model for url in urls]

    assert models[0] == models[1]
    assert len(set(models)) == 3


def test_the_embedder_of_stored_vectors_is_found_by_their_model(tmp_path: Path) -> None:
    """D-54: the former one, with the width that its vectors have, whatever is set now."""
    former = embedders.open("ollama://a/m", data_dir=tmp_path, dimension=1024)
    by_setting = embedders.open_for_model(former.model, 1024, urls=("ollama://elsewhere/m",), data_dir=tmp_path)
    built_in = embedders.open_for_model("all-MiniLM-L6-v2/f32-1", 384, urls=(None,), data_dir=tmp_path)

    assert by_setting is not None
    assert (by_setting.model, by_setting.dimension) == (former.model, 1024)
    assert built_in is not None
    assert embedders.open_for_model("gone/m/5-1", 5, urls=("ollama://a/m", None), data_dir=tmp_path) is None


def test_the_built_in_model_does_not_fit_into_less_than_it_has(tmp_path: Path) -> None:
    """D-54: wrong combinations refuse to start."""
    with pytest.raises(WrongSettings, match="ROOKERY_VECTOR_DIMENSION"):
        embedders.open("embedded:", data_dir=tmp_path, dimension=256)


@given(st.text(max_size=400))
def test_guessed_tokens_are_all_of_a_text(text: str) -> None:
    """D-55: no character but space is in no chunk."""
    spans = chunks.approximate_tokens(text)

    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert "".join(text[start:end] for start, end in spans) == re.sub(r"\s", "", text, flags=re.ASCII)
