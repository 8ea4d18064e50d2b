"""
The contract of `Embedder` as tests. The test class of an engine inherits `EmbedderContract` and defines the fixture `open_engine`.

    class TestMyEmbedder(EmbedderContract):
        lacks = MyEmbedder.lacks

        @pytest.fixture
        def open_engine(self) -> OpenEngine:
            ...
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import pytest

from rookery.engines import embedders
from rookery.engines.embedders import EmbedderEngine
from rookery.engines.embedders.embedded import EmbeddedEmbedder
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import Passage, Vector
from rookery.memory.ports import EmbedderFeature
from tests.engines.engine_contracts import EngineContract, needs

TEXTS = [
    "We chose PostgreSQL because the team already runs it in production.",
    "The staging password is kept in the vault under team/staging.",
    "Melanie painted a sunrise over the lake last summer.",
    "Deploys happen on Tuesdays, after the smoke tests are green; nobody deploys on a Friday afternoon any more.",
    "tabs, not spaces",
    "def add(a, b):\n    return a + b",
    "Die Katze schläft auf dem Sofa.",
    "The retry budget of the payment worker is three attempts, sixty seconds apart. " * 8,
]


class OpenEngine(Protocol):
    """Opens an instance of the engine, which is closed at the end of the test."""

    def __call__(self) -> EmbedderEngine: ...


def numbers(vector: Vector) -> npt.NDArray[np.float32]:
    """Return the numbers of a vector."""
    return np.frombuffer(vector, dtype="<f4")


def cosine(one: Vector, other: Vector) -> float:
    """Return the cosine of two vectors of unit length."""
    return float(numbers(one) @ numbers(other))


MEANING = "meaning"
"""A part of the contract that needs vectors of a real model, not those of a service that only the tests use."""


class EmbedderContract(EngineContract, ABC):
    """
    Tests of every engine of `Embedder`.

    Attributes:
        questions: Questions, each with the index of the text in `TEXTS` that answers it.
    """

    port = "Embedder"
    questions: ClassVar[tuple[tuple[str, int], ...]] = (
        ("Which database was picked, and why?", 0),
        ("Where do I find the credentials?", 1),
        ("artwork of the dawn", 2),
    )

    @pytest.fixture
    @abstractmethod
    def open_engine(self) -> OpenEngine:
        """Return a function that opens another instance of the same engine."""
        ...

    @pytest.fixture
    def embedder(self, open_engine: OpenEngine) -> EmbedderEngine:
        """Return the engine."""
        return open_engine()

    async def test_an_engine_that_works_passes_its_check(self, embedder: EmbedderEngine) -> None:
        """The server checks the dimension when it starts."""
        await embedder.check()
        await embedder.warm()

        assert (embedder.is_starting, embedder.is_loaded) == (False, True)

    async def test_vectors_have_the_declared_dimension_and_unit_length(self, embedder: EmbedderEngine) -> None:
        """`memory.models.Vector` requires both."""
        query_vector = await embedder.embed_query("Which database do we use?")
        passage_vectors = await embedder.embed_passages([Passage(context="", content=text) for text in TEXTS])

        for vector in [query_vector, *(vector for vectors in passage_vectors for vector in vectors)]:
            assert len(vector) == 4 * embedder.dimension
            assert np.linalg.norm(numbers(vector)) == pytest.approx(1, abs=1e-5)

    @needs(MEANING)
    async def test_a_question_is_nearest_to_the_text_that_answers_it(self, embedder: EmbedderEngine) -> None:
        """Texts are compared by meaning, not by words."""
        passages = await embedder.embed_passages([Passage(context="", content=text) for text in TEXTS])

        for question, expected in self.questions:
            vector = await embedder.embed_query(question)
            assert max(range(len(TEXTS)), key=lambda index: cosine(vector, passages[index][0])) == expected

    async def test_the_same_text_has_the_same_vector_in_a_second_engine(self, open_engine: OpenEngine) -> None:
        """Stored vectors are compared with queries of a later process."""
        one, other = open_engine(), open_engine()

        assert await one.embed_query(TEXTS[0]) == await other.embed_query(TEXTS[0])
        assert (one.model, one.dimension, one.full_similarity) == (other.model, other.dimension, other.full_similarity)

    async def test_the_vector_of_a_text_does_not_depend_on_its_batch(self, embedder: EmbedderEngine) -> None:
        """Otherwise a memory would be found or not depending on what was stored with it."""
        passages = [Passage(context="", content=text) for text in TEXTS]
        batch_vectors = await embedder.embed_passages(passages)
        single_vectors = [(await embedder.embed_passages([passage]))[0] for passage in passages]

        for batch_chunks, single_chunks in zip(batch_vectors, single_vectors, strict=True):
            for batch_vector, single_vector in zip(batch_chunks, single_chunks, strict=True):
                assert np.abs(numbers(batch_vector) - numbers(single_vector)).max() < 1e-4

    async def test_no_passages_give_no_vectors(self, embedder: EmbedderEngine) -> None:
        """There is a result for each passage, here for none."""
        assert await embedder.embed_passages([]) == []

    @pytest.mark.parametrize(
        "text",
        [
            "",
            " \n\t ",
            "\u0001\u0002\u007f",
            "🦜",
            "🦜" * 3000,
            "word " * 10_000,
            "x" * 50_000,
            "長い文" * 2000,
            "[SEP] [PAD] [CLS]",
            "\ud7ff\ue000\uffff",
            "e\u0301" * 500,
        ],
        ids=[
            "empty",
            "spaces",
            "controls",
            "emoji",
            "emojis",
            "50,000 characters",
            "one long word",
            "no spaces",
            "special",
            "private",
            "accents",
        ],
    )
    async def test_unusual_texts_have_vectors(self, embedder: EmbedderEngine, text: str) -> None:
        """Every text that can be stored can be indexed."""
        try:
            query_vector = await embedder.embed_query(text)
            (vectors,) = await embedder.embed_passages([Passage(context=text, content=text)])
        except NotEmbeddable:
            assert EmbedderFeature.WHOLE_TEXTS in self.lacks
            return

        assert vectors
        for vector in (query_vector, *vectors):
            assert np.linalg.norm(numbers(vector)) == pytest.approx(1, abs=1e-5)

    @needs(MEANING)
    async def test_the_context_is_embedded_with_every_chunk(self, embedder: EmbedderEngine) -> None:
        """The embedded text may have more than the content."""
        long_text = "The build was slow again today and nobody knew the reason for it. " * 60
        without_context, with_context = await embedder.embed_passages(
            [Passage(context="", content=long_text), Passage(context="topic: gardening, tomatoes", content=long_text)]
        )
        query_vector = await embedder.embed_query("gardening with tomatoes")

        assert len(without_context) > 1
        assert min(cosine(query_vector, vector) for vector in with_context) > max(
            cosine(query_vector, vector) for vector in without_context
        )

    async def test_a_cancelled_query_does_not_cancel_equal_queries(self, embedder: EmbedderEngine) -> None:
        """Concurrent equal queries share one computation."""
        cancelled_task = asyncio.create_task(embedder.embed_query("shared query"))
        other_task = asyncio.create_task(embedder.embed_query("shared query"))
        await asyncio.sleep(0)
        cancelled_task.cancel()

        assert len(await other_task) == 4 * embedder.dimension
        with pytest.raises(asyncio.CancelledError):
            await cancelled_task

    async def test_a_closed_embedder_raises_an_engine_error(self, embedder: EmbedderEngine) -> None:
        """Embeddings in progress at shutdown fail with an engine error, not with a cancelled task."""
        await embedder.embed_query("before")
        batch = asyncio.gather(embedder.embed_passages([Passage(context="", content=TEXTS[7])] * 40))
        await asyncio.sleep(0)
        await embedder.close()
        await embedder.close()

        with pytest.raises(EngineUnavailable, match="closed"):
            await batch
        with pytest.raises(EngineUnavailable, match="closed"):
            await embedder.embed_query("after")


class BuiltInEmbedderContract(EmbedderContract):
    """The contract, for a model in this process. Its files are shared by all tests of a run."""

    lacks = EmbeddedEmbedder.lacks
    address: ClassVar[str]

    @pytest.fixture
    async def open_engine(self, model_dir: Path) -> AsyncIterator[OpenEngine]:
        """Yield a function that opens an embedder on the shared files."""
        async with contextlib.AsyncExitStack() as stack:

            def open_it() -> EmbedderEngine:
                engine = embedders.open(self.address, data_dir=model_dir)
                stack.push_async_callback(engine.close)
                return engine

            yield open_it
