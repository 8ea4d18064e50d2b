"""Embedding services with OpenAI's, Ollama's and Text Embeddings Inference's protocol, tested on a local service with faults."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.engines import embedders
from rookery.engines.embedders import inputs, remote
from rookery.kernel.egress.transport import get_tls_context
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import Passage
from tests.certificates import write_certificate
from tests.conftest import eventually
from tests.embedding_service import KEY, EmbeddingService, Fault, embed, run_embedding_service
from tests.engines.embedder_contract import MEANING, EmbedderContract, OpenEngine, numbers
from tests.engines.engine_contracts import HowTested
from tests.stopwatch import Stopwatch

Kind = Literal["openai", "ollama", "tei"]
HERON = "The heron nests on the roof of the boat house."


class OpenEmbedder(Protocol):
    """Opens an embedder on the service, which is closed at the end of the test."""

    def __call__(self, options: str = "", *, width: int = 32) -> embedders.EmbedderEngine: ...


@pytest.fixture
def service() -> Iterator[EmbeddingService]:
    """Yield a service with vectors of 32 dimensions."""
    with run_embedding_service() as running:
        yield running


@pytest.fixture(autouse=True)
def _short_retry_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rookery.engines.embedders.remote._MIN_RETRY_DELAY_S", 0.01)


@pytest.fixture(params=["openai", "ollama", "tei"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return each protocol in turn."""
    return request.param


@pytest.fixture
async def open_embedder(service: EmbeddingService, kind: Kind, tmp_path: Path) -> AsyncIterator[OpenEmbedder]:
    """Yield a function that opens an embedder on the service with each protocol."""
    async with contextlib.AsyncExitStack() as stack:

        def open_it(options: str = "", *, width: int = 32) -> embedders.EmbedderEngine:
            urls = {
                "openai": service.openai_url(options.replace("?", "&")),
                "ollama": service.ollama_url(options),
                "tei": service.tei_url(options),
            }
            engine = embedders.open(urls[kind], data_dir=tmp_path, dimension=width)
            stack.push_async_callback(engine.close)
            return engine

        yield open_it


def expected_vector(text: str, width: int = 32, dimension: int = 32) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the vector that should be stored for the response of the service."""
    row = np.zeros(dimension)
    row[:width] = embed(text, width)
    return row / np.linalg.norm(row)


def make_passages(*texts: str) -> list[Passage]:
    """Return passages without context."""
    return [Passage(context="", content=text) for text in texts]


class TestAnEmbeddingService(EmbedderContract):
    """The contract, for a service with each protocol. Its vectors are digests of the texts."""

    lacks = remote.RemoteEmbedder.lacks
    untested = frozenset({MEANING})
    engine = "`openai:`, `ollama:`, `tei:`"
    tested_on = HowTested.STAND_IN
    tested_with = "a service whose vectors are digests"

    @pytest.fixture
    def open_engine(self, open_embedder: OpenEmbedder) -> OpenEngine:
        """Return a function that opens an embedder on the service."""
        return open_embedder


async def test_vectors_are_in_the_order_of_the_texts_and_of_unit_length(open_embedder: OpenEmbedder) -> None:
    """OpenAI returns vectors in any order, each with its index."""
    embedder = open_embedder()
    texts = [f"{HERON} {number}" for number in range(150)]
    vectors_of_texts = await embedder.embed_passages(make_passages(*texts))

    assert all(
        np.allclose(numbers(vectors[0]), expected_vector(text), atol=1e-6) for text, vectors in zip(texts, vectors_of_texts, strict=True)
    )
    assert np.allclose(numbers(await embedder.embed_query(HERON)), expected_vector(HERON), atol=1e-6)


async def test_vectors_of_a_smaller_dimension_are_padded_with_zeros(open_embedder: OpenEmbedder) -> None:
    """The default dimension is 768; padding does not change cosines."""
    embedder = open_embedder(width=768)
    await embedder.check()
    vector = numbers(await embedder.embed_query(HERON))

    assert embedder.dimension == len(vector) == 768
    assert np.allclose(vector, expected_vector(HERON, 32, 768), atol=1e-6)


async def test_a_model_of_a_larger_dimension_is_rejected_with_the_setting(open_embedder: OpenEmbedder) -> None:
    """A larger dimension must be configured."""
    embedder = open_embedder(width=16)

    with pytest.raises(WrongSettings, match="ROOKERY_VECTOR_DIMENSION=32"):
        await embedder.check()
    for call in (embedder.embed_query(HERON), embedder.embed_passages(make_passages(HERON)), embedder.warm()):
        with pytest.raises(EngineUnavailable, match="with 32 dimensions, more than the 16"):
            await call


async def test_dimensions_in_the_url_are_requested(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """Some models can return fewer dimensions; then the URL has precedence over the setting."""
    embedder = open_embedder("?dimensions=8", width=768)
    vector = numbers(await embedder.embed_query(HERON))

    assert (embedder.dimension, len(vector), service.requests[-1]["dimensions"]) == (8, 8, 8)


def _make_body(kind: Kind, numbers_of_vector: bytes) -> bytes:
    """Return the body of a response with one vector."""
    if kind == "tei":
        return b"[[%b]]" % numbers_of_vector
    return b'{"data": [{"index": 0, "embedding": [%b]}], "embeddings": [[%b]]}' % (numbers_of_vector, numbers_of_vector)


async def test_a_service_that_ignores_dimensions_is_rejected(open_embedder: OpenEmbedder, service: EmbeddingService, kind: Kind) -> None:
    """Vectors must have the requested dimension, so that dimensions are never mixed."""
    embedder = open_embedder("?dimensions=64")
    service.permanent_fault = Fault(body=_make_body(kind, b"1, 2"))

    with pytest.raises(WrongSettings, match="does not support dimensions=64"):
        await embedder.check()


async def test_many_texts_are_sent_in_batches_with_few_concurrent_requests(
    open_embedder: OpenEmbedder, service: EmbeddingService, kind: Kind
) -> None:
    """Batches save round trips, and few concurrent requests keep the service responsive. TEI takes at most 32 texts by default."""
    service.delay_s = 0.2
    await open_embedder().embed_passages(make_passages(*[f"{HERON} {number}" for number in range(640)]))

    assert (len(service.requests), len(service.texts)) == (20 if kind == "tei" else 10, 640)
    assert 2 <= service.max_active_requests <= 4


async def test_a_query_does_not_wait_for_passages(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """Recall works while an import is embedded, as with the built-in engine."""
    service.delay_s = 0.15
    embedder = open_embedder()
    batch = asyncio.create_task(embedder.embed_passages(make_passages(*[f"{HERON} {number}" for number in range(64 * 24)])))
    await eventually(lambda: service.active_requests)
    await embedder.embed_query("where do herons nest")

    assert not batch.done()
    await batch


async def test_concurrent_equal_queries_are_sent_once(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """Each request costs money and time."""
    embedder = open_embedder()
    await asyncio.gather(*(embedder.embed_query(" where ") for _ in range(20)))
    await embedder.embed_query("where")

    assert service.texts == ["where"]


async def test_a_long_text_is_split_into_overlapping_chunks_with_the_context(
    open_embedder: OpenEmbedder, service: EmbeddingService
) -> None:
    """The whole text is embedded in chunks that fit the model's window."""
    words = [f"word{number}" for number in range(2000)]
    (vectors,) = await open_embedder().embed_passages([Passage(context="birds, boats", content=" ".join(words))])
    contents = [text.removeprefix("birds, boats\n") for text in service.texts]

    assert len(vectors) == len(contents) > 5
    assert all(text.startswith("birds, boats\n") for text in service.texts)
    assert {word for content in contents for word in content.split()} == set(words)
    assert all(set(content.split()) & set(next_content.split()) for content, next_content in pairwise(contents))
    assert all(len(inputs.approximate_tokens(content)) <= remote.CHUNK_TOKENS for content in contents)


async def test_prefixes_are_added_to_queries_and_chunks(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """Another passage prefix gives other vectors, so it counts as another model."""
    embedder = open_embedder("?query_prefix=search_query:%20&passage_prefix=search_document:%20")
    await embedder.embed_query("heron")
    await embedder.embed_passages(make_passages("heron"))

    assert service.texts == ["search_query: heron", "search_document: heron"]
    assert embedder.model not in {open_embedder().model, open_embedder("?passage_prefix=x").model}
    assert open_embedder("?query_prefix=x").model == open_embedder().model


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=429, headers={"Retry-After": "0"}),
        Fault(status=429, headers={"Retry-After": "Sat, 01 Jan 2000 00:00:00 GMT"}),
        Fault(status=424),
        Fault(status=500),
        Fault(status=503, headers={"Retry-After": "0.01"}),
        Fault(status=0),
        Fault(body=b"{"),
        Fault(body=b"[]"),
        Fault(body=b"[[]]"),
        Fault(body=b'{"data": [], "embeddings": []}'),
        Fault(body=b'{"data": [{"embedding": ["a"]}], "embeddings": [["a"]]}'),
        Fault(body=b'{"data": [{"embedding": []}], "embeddings": [[]]}'),
        Fault(body=b'{"data": [7], "embeddings": [7]}'),
        Fault(body=b'{"data": [{"index": 5, "embedding": [1]}], "embeddings": 7}'),
    ],
    ids=lambda fault: f"{fault.status}{fault.headers or ''}{fault.body or ''}",
)
async def test_temporary_failures_are_retried(open_embedder: OpenEmbedder, service: EmbeddingService, fault: Fault) -> None:
    """Rate limits, overload and broken responses are invisible to the caller."""
    service.faults.append(fault)
    vector = await open_embedder().embed_query(HERON)

    assert np.allclose(numbers(vector), expected_vector(HERON), atol=1e-6)
    assert service.texts == [HERON, HERON]


@pytest.mark.parametrize("name", ["Retry-After", "llm_provider-retry-after"])
async def test_a_long_retry_after_is_passed_to_the_caller(open_embedder: OpenEmbedder, service: EmbeddingService, name: str) -> None:
    """The jobs of this kind pause for that time."""
    service.permanent_fault = Fault(status=429, headers={name: "120"})
    embedder = open_embedder()
    for call in (embedder.embed_query(HERON), embedder.embed_passages(make_passages(HERON))):
        with pytest.raises(EngineUnavailable) as error:
            await call

        assert error.value.headers["Retry-After"] == "120"
    assert len(service.requests) == 2


async def test_a_failing_service_is_unavailable_after_some_attempts(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """The number of attempts is bounded."""
    service.permanent_fault = Fault(status=503, headers={"Retry-After": "0"})
    with pytest.raises(EngineUnavailable, match="status 503"):
        await open_embedder().embed_query(HERON)

    assert len(service.requests) == 3


async def test_a_service_without_a_response_is_unavailable(
    open_embedder: OpenEmbedder, service: EmbeddingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every wait has a bound."""
    monkeypatch.setattr(remote, "_QUERY_RETRY", remote.RetryPolicy(max_attempts=2, timeout_s=0.3))
    service.permanent_fault = Fault(delay_s=2.0)
    with Stopwatch() as watch, pytest.raises(EngineUnavailable, match="did not answer in time"):
        await open_embedder().embed_query(HERON)

    assert watch.reference_s < 2.0 + 10


async def test_a_service_that_refuses_connections_is_unavailable(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """This applies at the start and later."""
    service.port = 1
    embedder = open_embedder()
    for call in (embedder.check(), embedder.warm(), embedder.embed_query(HERON)):
        with pytest.raises(EngineUnavailable, match="could not be opened"):
            await call


async def test_a_response_that_is_too_large_is_not_read_to_its_end(
    open_embedder: OpenEmbedder, service: EmbeddingService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service is not trusted."""
    monkeypatch.setattr("rookery.engines.embedders.remote._MAX_RESPONSE_BYTES", 1000)
    service.permanent_fault = Fault(body=b" " * 200_000)
    with pytest.raises(EngineUnavailable, match="larger"):
        await open_embedder().embed_query(HERON)


async def test_a_redirect_is_not_followed(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """It would send the key to another host."""
    service.permanent_fault = Fault(status=307, headers={"Location": "http://127.0.0.1:1/"})
    with pytest.raises(EngineUnavailable, match="status 307"):
        await open_embedder().embed_query(HERON)


@pytest.mark.parametrize("status", [400, 413, 422, 424, 500])
async def test_a_rejected_text_is_not_mistaken_for_a_failing_service(
    open_embedder: OpenEmbedder, service: EmbeddingService, status: int
) -> None:
    """The engine embeds another text to tell a bad text from a service that is down."""
    service.poison = {"arsenic": status}
    embedder = open_embedder()

    with pytest.raises(NotEmbeddable) as error:
        await embedder.embed_passages(make_passages(HERON, "arsenic and old lace"))
    assert error.value.positions == {1}
    with pytest.raises(NotEmbeddable):
        await embedder.embed_query("arsenic")
    assert await embedder.embed_passages(make_passages(HERON, "old lace"))


async def test_rejected_texts_of_a_large_batch_are_found_without_a_wait(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """Once the probe text has a vector, halves are tried at once: waits between attempts would add up to a minute."""
    service.poison = {"arsenic": 500}
    texts = [f"Note {number} about sheds." if number not in {7, 30} else "arsenic" for number in range(32)]
    with Stopwatch() as watch, pytest.raises(NotEmbeddable) as error:
        await open_embedder().embed_passages(make_passages(*texts))

    assert error.value.positions == {7, 30}
    assert len(service.requests) < 32
    assert watch.reference_s < 5


async def test_a_text_too_long_for_the_model_is_split_again(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """The whole text is embedded, whatever the model's window is."""
    service.limit = 200
    text = " ".join(f"word{number}" for number in range(80))
    (vectors, short) = await open_embedder().embed_passages(make_passages(text, HERON))
    stored_vectors = [numbers(vector) for vector in vectors]

    assert len(inputs.approximate_tokens(text)) <= remote.CHUNK_TOKENS, "one chunk by our estimate, which the service rejects"
    assert (len(short), len(vectors)) == (1, 4)
    assert [
        np.allclose(vector, expected_vector(part), atol=1e-6) for vector, part in zip(stored_vectors, _quarters(text), strict=True)
    ] == [True] * 4


def _quarters(text: str) -> list[str]:
    halves = text[: len(text) // 2], text[len(text) // 2 :]
    return [part for half in halves for part in (half[: len(half) // 2], half[len(half) // 2 :])]


async def test_a_query_too_long_for_the_model_loses_its_middle(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """The port defines this for queries that are longer than the window: a question stands at the end, or at the beginning."""
    service.limit = 300
    text = " ".join(f"word{number}" for number in range(200))
    vector = await open_embedder().embed_query(text)

    embedded = service.texts[-1]
    head = len(embedded) // 4
    assert len(embedded) <= 300
    assert text.startswith(embedded[: head - 1])
    assert text.endswith(embedded[head + 2 :])
    assert np.allclose(numbers(vector), expected_vector(service.texts[-1]), atol=1e-6)


async def test_a_service_that_rejects_every_text_is_unavailable(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """Otherwise a wrong setting would mark every memory as `failed`."""
    service.permanent_fault = Fault(status=400)
    embedder = open_embedder()
    for call in (embedder.embed_query(HERON), embedder.embed_passages(make_passages(HERON, HERON))):
        with pytest.raises(EngineUnavailable, match="status 400"):
            await call


@pytest.mark.parametrize("number", [b"0", b"null", b"1e999"], ids=["zeros", "nothing", "infinite"])
async def test_a_service_without_valid_vectors_is_unavailable(
    open_embedder: OpenEmbedder, service: EmbeddingService, kind: Kind, number: bytes
) -> None:
    """A broken model responds 200 with zeros or null; this must not mark memories as `failed`."""
    service.permanent_fault = Fault(body=_make_body(kind, number))
    embedder = open_embedder()
    for call in (embedder.embed_query(HERON), embedder.embed_passages(make_passages(HERON)), embedder.warm()):
        with pytest.raises(EngineUnavailable):
            await call


async def test_a_missing_model_is_named_in_the_error(service: EmbeddingService, tmp_path: Path) -> None:
    """This is Ollama's most common failure; the model was never pulled."""
    engine = embedders.open(service.ollama_url().replace("/words", "/no-such-model:latest"), data_dir=tmp_path)
    with pytest.raises(EngineUnavailable, match="the model 'no-such-model:latest' was not found"):
        await engine.embed_query(HERON)
    await engine.close()


@pytest.mark.parametrize("served", ["words", "/data/words"])
async def test_the_model_of_the_address_is_compared_with_the_served_one(service: EmbeddingService, tmp_path: Path, served: str) -> None:
    """A server of Text Embeddings Inference has one model, and vectors of two models may not be mixed. It may be in a folder."""
    engine = embedders.open(service.tei_url().replace("/words", "/org/words"), data_dir=tmp_path, dimension=32)
    service.name = served
    await engine.check()
    service.name = "another-org/other-words"
    with pytest.raises(WrongSettings, match="ROOKERY_EMBEDDER: the service has the model 'another-org/other-words', not 'org/words'"):
        await engine.check()
    await engine.close()


async def test_a_wrong_key_is_reported_without_the_key(
    service: EmbeddingService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Errors and logs have no secret, although this service returns the key that it received."""
    authenticated_service = EmbeddingService(key=KEY)
    with run_embedding_service(authenticated_service):
        engine = embedders.open(authenticated_service.openai_url(), data_dir=tmp_path, dimension=32)
        assert await engine.embed_query(HERON)
        await engine.close()
        authenticated_service.key, old_key = "another key", KEY
        engine = embedders.open(
            authenticated_service.openai_url().replace("another%20key", old_key.replace(" ", "%20")), data_dir=tmp_path, dimension=32
        )
        with pytest.raises(EngineUnavailable, match="rejects the configured key") as error:
            await engine.embed_query(HERON)
        await engine.close()
    printed = capsys.readouterr()

    assert all(KEY not in text for text in (str(error.value), repr(engine), printed.out, printed.err))
    assert "127.0.0.1" not in error.value.message
    assert service.requests == []


async def test_the_certificate_is_verified_unless_it_is_turned_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """verify_ssl is true by default; SSL_CERT_FILE can add an own authority."""
    with run_embedding_service(EmbeddingService(certificate=write_certificate(tmp_path / "both.pem"), key=KEY)) as service:
        url = service.openai_url().replace("openai:", "openai+https:")

        async def embed_query(*, verify_ssl: bool) -> bytes:
            engine = embedders.open(url, data_dir=tmp_path, dimension=32, verify_ssl=verify_ssl)
            try:
                return await engine.embed_query(HERON)
            finally:
                await engine.close()

        with pytest.raises(EngineUnavailable, match="could not be opened"):
            await embed_query(verify_ssl=True)
        assert service.requests == []
        assert await embed_query(verify_ssl=False)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "both.pem"))
        get_tls_context.cache_clear()
        assert await embed_query(verify_ssl=True)
    get_tls_context.cache_clear()


async def test_a_closed_embedder_raises_an_engine_error(open_embedder: OpenEmbedder) -> None:
    """It may be closed twice."""
    embedder = open_embedder()
    await embedder.embed_query("before")
    await embedder.close()
    await embedder.close()
    with pytest.raises(EngineUnavailable, match="closed"):
        await embedder.embed_query("after")


async def test_readiness_sends_no_request_right_after_a_response(open_embedder: OpenEmbedder, service: EmbeddingService) -> None:
    """Load balancers read /readyz every few seconds, and services charge per request."""
    embedder = open_embedder()
    for _ in range(5):
        await embedder.warm()

    assert len(service.requests) == 1


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("openai://127.0.0.1/v1", "the model is missing"),
        ("openai:///v1?model=m", "the host is missing"),
        ("openai://127.0.0.1:99999/v1?model=m", "invalid URL"),
        ("ollama://127.0.0.1", "the model is missing"),
        ("tei://127.0.0.1:8080/", "the model is missing"),
        ("tei://127.0.0.1/m?model_id=m", "unknown option 'model_id'"),
        ("tei://:hush@8.8.8.8/m", r"without encryption; use tei\+https"),
        ("openai://127.0.0.1?model=m&dimension=5", "unknown option 'dimension'"),
        ("openai://127.0.0.1?model=m&dimensions=0", "from 1 to"),
        ("openai://127.0.0.1?model=m&dimensions=many", "from 1 to"),
        ("openai://:hush@api.example.com/v1?model=m", r"without encryption; use openai\+https"),
        ("ollama://:hush@8.8.8.8/m", r"without encryption; use ollama\+https"),
    ],
)
def test_an_invalid_url_is_rejected_without_its_key(tmp_path: Path, url: str, message: str) -> None:
    """The error is one clear line without a secret."""
    with pytest.raises(WrongSettings, match=message) as error:
        embedders.open(url, data_dir=tmp_path)

    assert "hush" not in str(error.value)


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
        ("tei://127.0.0.1:8080/BAAI/bge-m3", "http://127.0.0.1:8080/embed", "BAAI/bge-m3"),
        ("tei+https://:k@tei.example.com/?model=BAAI/bge-m3", "https://tei.example.com/embed", "BAAI/bge-m3"),
    ],
)
def test_a_url_gives_an_endpoint_and_a_model(url: str, endpoint: str, model: str) -> None:
    """See docs/how-to/embedders.md; the default dimension is 768."""
    address = embedders.parse_url(url, dimension=768, setting="ROOKERY_EMBEDDER")

    assert (address.endpoint, address.model_name, address.stored_dimension) == (endpoint, model, 768)
    assert "://" not in address.model
    assert all("k@" not in text for text in (repr(address), address.endpoint))


def test_the_same_model_on_another_host_is_the_same_model() -> None:
    """Another host or key makes no memory stale; another dimension or protocol does."""
    urls = [
        "openai://a/v1?model=m",
        "openai+https://:k@b.example.com/v1?model=m",
        "openai://a/v1?model=m&dimensions=8",
        "ollama://a/m",
        "tei://a/m",
    ]
    models = [embedders.parse_url(url, dimension=768, setting="X").model for url in urls]

    assert models[0] == models[1]
    assert len(set(models)) == 4


@pytest.mark.parametrize(
    ("url", "scale"),
    [
        ("openai://a/v1?model=sentence-transformers/all-MiniLM-L6-v2", 0.7),
        ("openai://a/v1?model=all-minilm-l6-v2", 0.7),
        ("ollama://a/all-minilm", 0.7),
        ("tei://a/sentence-transformers/all-MiniLM-L6-v2", 0.7),
        ("ollama://a/all-minilm:22m-l6-v2-fp16", 0.7),
        ("ollama://a/all-minilm:33m", None),
        ("ollama://a/all-minilm:l12-v2", None),
        ("openai://a/v1?model=sentence-transformers/all-MiniLM-L12-v2", None),
        ("openai://a/v1?model=my-all-minilm-l6-v2", None),
        ("openai://a/v1?model=all-minilm-l6-v2&query_prefix=query:%20", None),
        ("openai://a/v1?model=text-embedding-3-small", None),
        ("ollama://a/bge-m3", None),
    ],
)
def test_only_the_built_in_model_has_a_known_scale_at_services(url: str, scale: float | None, tmp_path: Path) -> None:
    """Cosines of other models are not comparable with 0.7: e5's are seldom below it, whatever the texts."""
    assert embedders.open(url, data_dir=tmp_path).full_similarity == scale


def test_the_embedder_of_stored_vectors_is_found_by_their_model(tmp_path: Path) -> None:
    """It has the dimension of its vectors, whatever the setting is now."""
    original = embedders.open("ollama://a/m", data_dir=tmp_path, dimension=1024)
    by_setting = embedders.open_for_model(original.model, 1024, urls=("ollama://elsewhere/m",), data_dir=tmp_path)
    built_in = embedders.open_for_model("all-MiniLM-L6-v2/f32-1", 384, urls=(None,), data_dir=tmp_path)

    assert by_setting is not None
    assert (by_setting.model, by_setting.dimension) == (original.model, 1024)
    assert built_in is not None
    assert embedders.open_for_model("gone/m/5-1", 5, urls=("ollama://a/m", None), data_dir=tmp_path) is None


def test_the_built_in_model_rejects_a_smaller_dimension(tmp_path: Path) -> None:
    """Wrong combinations of settings stop the start."""
    with pytest.raises(WrongSettings, match="ROOKERY_VECTOR_DIMENSION"):
        embedders.open("embedded:", data_dir=tmp_path, dimension=256)


@given(st.text(max_size=400))
def test_approximate_tokens_cover_the_whole_text(text: str) -> None:
    """Every character except white space is in a token."""
    spans = inputs.approximate_tokens(text)

    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    assert "".join(text[start:end] for start, end in spans) == re.sub(r"\s", "", text, flags=re.ASCII)
