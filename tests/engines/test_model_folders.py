"""Models of the user: `embedded:/folder` with BERT weights or an ONNX file."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing

from rookery.engines import embedders
from rookery.engines.embedders import EmbedderEngine, bert, minilm, model_files
from rookery.engines.embedders.embedded import EmbeddedEmbedder
from rookery.engines.embedders.onnx_graph import FLOAT, INT64, OnnxGraph
from rookery.engines.embedders.weights import Array, SafetensorsFile, Weights
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.memory.models import Passage
from tests.engines.embedder_contract import TEXTS, EmbedderContract, OpenEngine, cosine

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "heron", "boat", "roof", "word", "query", "passage", "a", "A", "w", ":"]
HEAD = "encoder.layer.0.attention.self.query.weight"

Numbers = npt.NDArray[np.float32] | npt.NDArray[np.float16] | npt.NDArray[np.uint16] | npt.NDArray[np.int64]
Output = Literal["last_hidden_state", "sentence_embedding"]


def minilm_folder() -> Path:
    """Return the folder of the built-in model's package, which sentence-transformers wrote."""
    return model_files.find_weights()


def copy_minilm(folder: Path) -> Path:
    """Link the files of the built-in model to *folder*, without its weights."""
    shutil.copytree(minilm_folder(), folder, ignore=shutil.ignore_patterns("model.safetensors", "*.md", "data_*"))
    return folder


class BertFolder:
    """A folder with a tiny BERT model with random weights, each part of which a test can change before `write`."""

    def __init__(self, folder: Path, *, dimension: int = 32, layers: int = 2, heads: int = 4, positions: int = 96, words: int = 0) -> None:
        self.folder = folder
        self.config: dict[str, object] = {
            "model_type": "bert",
            "hidden_act": "gelu",
            "hidden_size": dimension,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": 2 * dimension,
            "max_position_embeddings": positions,
            "layer_norm_eps": 1e-12,
            "pad_token_id": 0,
            "vocab_size": len(WORDS) + words,
        }
        self.words = [*WORDS, *(f"w{number}" for number in range(words))]
        self.pooling: Mapping[str, object] | None = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
        self.tensors = random_tensors(dimension, layers, positions, len(self.words))

    def write(self) -> Path:
        """Write all files."""
        self.folder.mkdir(exist_ok=True)
        (self.folder / "config.json").write_text(json.dumps(self.config))
        if self.pooling is not None:
            (self.folder / "1_Pooling").mkdir(exist_ok=True)
            (self.folder / "1_Pooling" / "config.json").write_text(json.dumps(self.pooling))
        write_safetensors(self.folder / "model.safetensors", self.tensors)
        write_tokenizer(self.folder / "tokenizer.json", self.words)
        return self.folder


def random_tensors(dimension: int, layers: int, positions: int, words: int) -> dict[str, Numbers]:
    """Return the tensors of a BERT model."""
    generator = np.random.default_rng(7)

    def normal(*shape: int) -> Array:
        return generator.normal(scale=0.3, size=shape).astype(np.float32)

    tables = {"word": words, "position": positions, "token_type": 2}
    tensors: dict[str, Numbers] = {f"embeddings.{name}_embeddings.weight": normal(rows, dimension) for name, rows in tables.items()}
    shapes = {"attention.self.query": (dimension, dimension), "attention.self.key": (dimension, dimension)}
    shapes |= {"attention.self.value": (dimension, dimension), "attention.output.dense": (dimension, dimension)}
    shapes |= {"intermediate.dense": (2 * dimension, dimension), "output.dense": (dimension, 2 * dimension)}
    norms = ["embeddings.LayerNorm"]
    for layer in range(layers):
        for name, shape in shapes.items():
            tensors[f"encoder.layer.{layer}.{name}.weight"] = normal(*shape)
            tensors[f"encoder.layer.{layer}.{name}.bias"] = normal(shape[0])
        norms += [f"encoder.layer.{layer}.attention.output.LayerNorm", f"encoder.layer.{layer}.output.LayerNorm"]
    for name in norms:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = 1 + normal(dimension), normal(dimension)
    return tensors


def write_safetensors(path: Path, tensors: Mapping[str, Numbers]) -> None:
    """Write tensors; those of uint16 are bfloat16."""
    kinds = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64"}
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    data = bytearray()
    for name, value in tensors.items():
        raw = value.tobytes()
        header[name] = {"dtype": kinds[value.dtype.name], "shape": list(value.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + data)


def write_tokenizer(path: Path, words: list[str], *, has_special_tokens: bool = True) -> None:
    """Write a tokenizer of whole words."""
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])  # pyright: ignore[reportUnknownMemberType] - untyped in the package
    if has_special_tokens:
        tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.save(str(path))


def write_export(path: Path, weights: Weights, config: bert.BertConfig, output: Output = "last_hidden_state") -> None:
    """Write an ONNX file with the inputs and outputs that exporters of transformers write."""
    graph = OnnxGraph(name="export")
    network = bert.BertNetwork(graph=graph, weights=weights, config=config, linear=bert.Float32Linear(graph))
    ids = graph.input("input_ids", INT64, ["batch", "sequence"])
    mask = graph.input("attention_mask", INT64, ["batch", "sequence"])
    is_text = graph.node("Cast", mask, to=FLOAT)
    hidden = network.encode(ids, network.words(ids), is_text)
    if output == "sentence_embedding":
        graph.output(graph.node("ReduceMean", hidden, graph.integers(1), keepdims=0), output, FLOAT, ["batch", config.dimension])
    else:
        graph.output(hidden, output, FLOAT, ["batch", "sequence", config.dimension])
    path.write_bytes(b"".join(graph.serialize()))


async def embed(url: str, data_dir: Path, text: str = "heron on the roof", *, query: bool = False) -> bytes:
    """Return the vector of *text* by the embedder at *url*, after its check."""
    engine = embedders.open(url, data_dir=data_dir)
    try:
        await engine.check()
        if query:
            return await engine.embed_query(text)
        ((vector,),) = await engine.embed_passages([Passage(context="", content=text)])
        return vector
    finally:
        await engine.close()


async def reason_to_reject(url: str, data_dir: Path) -> str:
    """Return the error with which the embedder at *url* stops the start."""
    with pytest.raises(WrongSettings) as caught:
        await embed(url, data_dir)
    return caught.value.message


@pytest.fixture(scope="module")
def shared_dir(built_models: Path) -> Path:
    """Return a folder for the graph that the tests of the contract share."""
    return built_models / "folders"


class TestAModelFolder(EmbedderContract):
    """The contract, for the built-in model as a folder of sentence-transformers."""

    engine = "`embedded:/folder`"

    lacks = EmbeddedEmbedder.lacks

    @pytest.fixture
    async def open_engine(self, shared_dir: Path) -> AsyncIterator[OpenEngine]:
        """Yield a function that opens an embedder on the folder."""
        async with contextlib.AsyncExitStack() as stack:

            def open_it() -> EmbedderEngine:
                engine = embedders.open(f"embedded:{minilm_folder()}", data_dir=shared_dir)
                stack.push_async_callback(engine.close)
                return engine

            yield open_it


# The same vectors


@pytest.mark.parametrize(("options", "url"), [("", "embedded:"), ("?precision=f32", "embedded:f32")])
async def test_safetensors_of_the_built_in_model_give_its_vectors(options: str, url: str, tmp_path: Path) -> None:
    """The graph of a folder is the one of the built-in model; pooling and window come from the folder."""
    for text in (TEXTS[0], TEXTS[7][:300]):
        assert await embed(f"embedded:{minilm_folder()}{options}", tmp_path, text) == await embed(url, tmp_path, text)


@pytest.mark.parametrize("output", ["last_hidden_state", "sentence_embedding"])
@pytest.mark.parametrize("name", ["model.onnx", "onnx/model.onnx"])
async def test_an_onnx_file_of_the_built_in_model_gives_its_vectors(output: Output, name: str, tmp_path: Path) -> None:
    """Users bring files as exporters write them, with vectors of tokens or of texts."""
    folder = copy_minilm(tmp_path / "mini")
    (folder / name).parent.mkdir(exist_ok=True)
    write_export(folder / name, SafetensorsFile(minilm_folder() / "model.safetensors"), minilm.CONFIG, output)

    for text in (TEXTS[0], TEXTS[7][:300]):
        assert cosine(await embed(f"embedded:{folder}", tmp_path, text), await embed("embedded:f32", tmp_path, text)) > 0.99999


@pytest.mark.parametrize(("dimension", "layers", "heads"), [(32, 1, 4), (48, 3, 2), (64, 12, 16)])
@pytest.mark.parametrize("pooling", ["mean", "cls"])
async def test_models_of_any_shape_give_the_vectors_of_their_export(
    dimension: int, layers: int, heads: int, pooling: str, tmp_path: Path
) -> None:
    """The graph from safetensors and an exported ONNX file agree, with both poolings."""
    model = BertFolder(tmp_path / "one", dimension=dimension, layers=layers, heads=heads)
    folder = model.write()
    exported = shutil.copytree(folder, tmp_path / "two", ignore=shutil.ignore_patterns("model.safetensors"))
    config = bert.BertConfig(
        name="export",
        dimension=dimension,
        layers=layers,
        heads=heads,
        intermediate=2 * dimension,
        vocabulary=len(WORDS),
        window_tokens=96,
        padding_id=0,
        pooling="mean",
    )
    write_export(exported / "model.onnx", SafetensorsFile(folder / "model.safetensors"), config)

    own = await embed(f"embedded:{folder}?precision=f32&pooling={pooling}", tmp_path)
    assert len(own) == 4 * dimension
    assert cosine(own, await embed(f"embedded:{exported}?pooling={pooling}", tmp_path)) > 0.99999
    assert cosine(own, await embed(f"embedded:{folder}?pooling={pooling}", tmp_path)) > 0.98


async def test_half_precision_weights_and_names_with_a_prefix_are_read(tmp_path: Path) -> None:
    """Models are published in F32, F16 and BF16, some with the name of a whole model before each tensor."""
    model = BertFolder(tmp_path / "model")
    expected = await embed(f"embedded:{model.write()}?precision=f32", tmp_path)
    single = {name: value.astype(np.float32) for name, value in model.tensors.items()}
    halves: list[dict[str, Numbers]] = [
        {f"bert.{name}": value.astype(np.float16) for name, value in single.items()},
        {f"bert.{name}": (value.view(np.uint32) >> 16).astype(np.uint16) for name, value in single.items()},
    ]
    for number, tensors in enumerate(halves):
        model.folder, model.tensors = tmp_path / f"half{number}", tensors

        assert cosine(await embed(f"embedded:{model.write()}?precision=f32", tmp_path), expected) > 0.999


async def test_prefixes_are_those_of_the_folder_or_of_the_address(tmp_path: Path) -> None:
    """`config_sentence_transformers.json` has the prompts of the model; options replace them."""
    folder = BertFolder(tmp_path / "model").write()
    plain_query, plain_passage = await embed(f"embedded:{folder}", tmp_path, query=True), await embed(f"embedded:{folder}", tmp_path)
    prompts = {"prompts": {"query": "query: ", "document": "passage: "}}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))

    assert await embed(f"embedded:{folder}", tmp_path, query=True) == await embed(
        f"embedded:{folder}?query_prefix=query:%20&passage_prefix=x", tmp_path, query=True
    )
    assert await embed(f"embedded:{folder}", tmp_path) == await embed(f"embedded:{folder}?passage_prefix=passage:%20", tmp_path)
    assert await embed(f"embedded:{folder}", tmp_path, query=True) != plain_query
    assert await embed(f"embedded:{folder}", tmp_path) != plain_passage
    no_prefixes = f"embedded:{folder}?query_prefix=&passage_prefix="
    assert (await embed(no_prefixes, tmp_path, query=True), await embed(no_prefixes, tmp_path)) == (plain_query, plain_passage)


async def test_long_texts_are_split_to_fit_a_small_window(tmp_path: Path) -> None:
    """A model with 64 positions embeds any text too."""
    folder = BertFolder(tmp_path / "model", positions=64).write()
    engine = embedders.open(f"embedded:{folder}?passage_prefix=passage:%20", data_dir=tmp_path)
    (vectors,) = await engine.embed_passages([Passage(context="boat " * 90, content="heron " * 500)])
    await engine.embed_query("heron " * 500)
    await engine.close()

    assert len(vectors) >= 10


# The identity


def test_each_model_pooling_prefix_and_window_has_its_own_identity(tmp_path: Path) -> None:
    """Their vectors cannot be compared, so a change makes memories stale. A query prefix changes no stored vector."""
    folder = BertFolder(tmp_path / "model").write()
    other = BertFolder(tmp_path / "other")
    other.tensors[HEAD] = other.tensors[HEAD] * np.float32(1.5)
    other.write()
    (tmp_path / "moved").mkdir()
    options = ["", "?pooling=cls", "?passage_prefix=passage:%20", "?window=80", "?precision=f32"]
    engines = [embedders.open(f"embedded:{folder}{option}", data_dir=tmp_path) for option in options]
    engines.append(embedders.open(f"embedded:{other.folder}", data_dir=tmp_path))
    moved = shutil.copytree(folder, tmp_path / "moved" / "model")

    assert len({engine.model for engine in engines}) == len(engines)
    assert {engine.full_similarity for engine in engines} == {None}
    for same in (f"embedded:{folder}?query_prefix=query:", f"embedded:{moved}"):
        assert embedders.open(same, data_dir=tmp_path).model == engines[0].model
        found = embedders.open_for_model(engines[0].model, 32, urls=(same, None), data_dir=tmp_path)
        assert found is not None


# Errors


Change = Callable[[BertFolder], None]


def set_config(**fields: object) -> Change:
    """Return a change of config.json."""
    return lambda model: model.config.update(fields)


def set_tensor(name: str, value: Numbers) -> Change:
    """Return a change of one tensor."""
    return lambda model: model.tensors.update({name: value})


def set_pooling(**fields: object) -> Change:
    """Return a change of the pooling."""

    def change(model: BertFolder) -> None:
        model.pooling = fields or None

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (set_config(model_type="xlm-roberta"), "model_type is 'xlm-roberta', but only 'bert' can be computed"),
        (set_config(model_type="t5"), "model_type is 't5'"),
        (set_config(position_embedding_type="relative_key"), "position_embedding_type is 'relative_key'"),
        (set_config(hidden_act="relu"), "hidden_act is 'relu'"),
        (set_config(num_hidden_layers=3), r"the tensor encoder\.layer\.2\..* is missing"),
        (set_config(num_hidden_layers=1), "more than the 1 layers"),
        (set_config(hidden_size=64), r"has the shape \(32.*expected \(64"),
        (set_config(num_attention_heads=5), "hidden_size 32 is not a multiple of num_attention_heads 5"),
        (set_config(num_attention_heads="four"), "num_attention_heads must be a whole number of at least 1, not 'four'"),
        (set_config(intermediate_size=65), r"intermediate.* has the shape \(64.*expected \(65"),
        (set_config(vocab_size=5000), r"tokenizer\.json has 14 tokens, but the vocabulary of the model has 5,000"),
        (set_config(max_position_embeddings=512), r"position_embeddings\.weight has the shape \(96, 32\), expected \(at least 512, 32\)"),
        (set_config(max_position_embeddings=40), "accepts only 40 tokens; at least 64 are required"),
        (set_tensor(HEAD, np.full((32, 32), np.nan, dtype=np.float32)), f"the tensor {HEAD} contains NaN"),
        (set_tensor(HEAD, np.zeros((32, 31), dtype=np.float32)), r"has the shape \(32, 31\), expected \(32, 32\)"),
        (set_tensor(HEAD, np.zeros((32, 32), dtype=np.int64)), f"{HEAD} has the type I64; use F32, F16, BF16"),
        (set_pooling(), "the pooling is missing; set pooling=mean or pooling=cls"),
        (set_pooling(pooling_mode_max_tokens=True), "the pooling pooling_mode_max_tokens is not supported, only cls, mean"),
        (set_pooling(pooling_mode_cls_token=True, pooling_mode_mean_tokens=True), "the pooling cls with mean is not supported"),
        (set_pooling(pooling_mode_mean_tokens=True, include_prompt=False), "include_prompt is false"),
    ],
)
async def test_a_folder_with_another_model_stops_the_start(change: Change, reason: str, tmp_path: Path) -> None:
    """A wrong vector gives no error later, only worse answers."""
    model = BertFolder(tmp_path / "model")
    change(model)
    message = await reason_to_reject(f"embedded:{model.write()}", tmp_path)

    assert message.startswith(f"ROOKERY_EMBEDDER: {model.folder}: ")
    assert re.search(reason, message), message


def remove(name: str) -> Change:
    """Return a change that removes a file."""
    return lambda model: (model.folder / name).unlink()


def write(name: str, content: str) -> Change:
    """Return a change that writes a file."""

    def change(model: BertFolder) -> None:
        (model.folder / name).write_text(content)

    return change


def truncate(name: str, share: float) -> Change:
    """Return a change that keeps a share of a file."""

    def change(model: BertFolder) -> None:
        content = (model.folder / name).read_bytes()
        (model.folder / name).write_bytes(content[: int(len(content) * share)])

    return change


def rename(name: str, new: str) -> Change:
    """Return a change that renames a file."""

    def change(model: BertFolder) -> None:
        (model.folder / name).rename(model.folder / new)

    return change


def save_tokenizer(*, words: int, has_special_tokens: bool = True) -> Change:
    """Return a change of the tokenizer."""
    names = [*WORDS, *(f"w{number}" for number in range(words))]
    return lambda model: write_tokenizer(model.folder / "tokenizer.json", names, has_special_tokens=has_special_tokens)


LONG_PROMPT = json.dumps({"prompts": {"document": "boat " * 90}})
DENSE = json.dumps(
    [{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}, {"idx": 1, "path": "2_Dense", "type": "x.Dense"}]
)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (remove("config.json"), "config.json is missing"),
        (write("config.json", "{"), "config.json is not JSON"),
        (write("config.json", "[]"), "config.json is not a JSON object"),
        (remove("tokenizer.json"), "tokenizer.json is missing"),
        (write("tokenizer.json", "{}"), "tokenizer.json cannot be read"),
        (save_tokenizer(words=1000), "tokenizer.json has 1,014 tokens, but the vocabulary of the model has 14"),
        (save_tokenizer(words=0, has_special_tokens=False), "adds no special tokens around a text"),
        (remove("model.safetensors"), "the weights are missing: the folder has none of model.safetensors, model.onnx, onnx/model.onnx"),
        (rename("model.safetensors", "pytorch_model.bin"), "pytorch_model.bin can run code when it is read"),
        (truncate("model.safetensors", 0.9), "model.safetensors is damaged or truncated"),
        (truncate("model.safetensors", 0.001), "model.safetensors is not a complete safetensors file"),
        (write("model.safetensors", ""), "model.safetensors is empty"),
        (write("model.safetensors", "not a model"), "model.safetensors is not a complete safetensors file"),
        (write("modules.json", DENSE), "modules.json: the module Dense is not supported"),
        (write("modules.json", "{}"), "modules.json is not a list of modules"),
        (write("sentence_bert_config.json", '{"do_lower_case": true}'), "do_lower_case is set, but tokenizer.json distinguishes"),
        (write("config_sentence_transformers.json", LONG_PROMPT), "passage_prefix has 90 tokens, too many"),
        (rename("model.safetensors", "model.onnx"), "model.onnx cannot be loaded"),
    ],
)  # fmt: skip
async def test_a_missing_or_damaged_file_stops_the_start(change: Change, reason: str, tmp_path: Path) -> None:
    """The message names the file and what to do."""
    model = BertFolder(tmp_path / "model")
    model.write()
    change(model)

    message = await reason_to_reject(f"embedded:{model.folder}", tmp_path)
    assert re.search(reason, message), message


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("{folder}?pooling=max", "pooling must be one of cls, mean, not 'max'"),
        ("{folder}?precision=int4", "precision must be one of f32, int8, not 'int4'"),
        ("{folder}?window=97", "window must be at most 96, the positions of the model, not 97"),
        ("{folder}?window=10", "window must be a number of tokens, at least 64, not '10'"),
        ("{folder}?poling=cls", "unknown option 'poling'; the options are passage_prefix, pooling, precision, query_prefix, window"),
        ("models/mine", "must be an absolute path, such as embedded:/FOLDER, not 'models/mine'"),
        ("{folder}/none", "the folder does not exist"),
        ("{folder}/config.json", "it is not a folder"),
        ("e5-smal", "unknown embedder 'embedded:e5-smal'; use one of embedded:, .*embedded:/FOLDER"),
    ],
)
async def test_an_invalid_address_stops_the_start(address: str, reason: str, tmp_path: Path) -> None:
    """The message lists what is allowed."""
    folder = BertFolder(tmp_path / "model").write()

    message = await reason_to_reject(f"embedded:{address.format(folder=folder)}", tmp_path)
    assert re.search(reason, message), message


async def test_a_model_wider_than_the_setting_stops_the_start(tmp_path: Path) -> None:
    """The default width is 768."""
    folder = BertFolder(tmp_path / "model", dimension=1024, layers=1, positions=64).write()

    assert "ROOKERY_VECTOR_DIMENSION: must be at least 1024" in await reason_to_reject(f"embedded:{folder}", tmp_path)
    engine = embedders.open(f"embedded:{folder}", data_dir=tmp_path, dimension=1024)
    await engine.check()
    await engine.close()
    assert engine.dimension == 1024


@pytest.mark.parametrize(
    ("inputs", "output", "pooling", "reason"),
    [
        (
            ("input_ids", "pixels"),
            "last_hidden_state",
            "mean",
            "has the inputs input_ids, pixels; the known ones are input_ids, attention_mask",
        ),
        (("tokens",), "last_hidden_state", "mean", "has the inputs tokens; the known ones"),
        (("input_ids",), "logits", "mean", "has the outputs logits; the known ones are sentence_embedding, last_hidden_state"),
        (("input_ids",), "last_hidden_state", None, "the pooling is missing; set pooling=mean"),
        (("input_ids",), "sentence_embedding", None, "the vectors have 3 dimensions, but config.json says 32"),
        (("input_ids",), "last_hidden_state", "cls", r"the output last_hidden_state has the shape \(1, 3\)"),
    ],
)
async def test_an_onnx_file_of_another_form_stops_the_start(
    inputs: tuple[str, ...], output: str, pooling: str | None, reason: str, tmp_path: Path
) -> None:
    """Its inputs and outputs are found by their names."""
    model = BertFolder(tmp_path / "model")
    model.pooling = None
    model.write()
    (model.folder / "model.safetensors").unlink()
    graph = OnnxGraph(name="export")
    (first, *_) = [graph.input(name, INT64, ["batch", "sequence"]) for name in inputs]
    weight = graph.node("Cast", graph.node("Slice", first, graph.integers(0), graph.integers(3), graph.integers(1)), to=FLOAT)
    graph.output(weight, output, FLOAT, ["batch", 3])
    (model.folder / "model.onnx").write_bytes(b"".join(graph.serialize()))

    message = await reason_to_reject(f"embedded:{model.folder}{'' if pooling is None else f'?pooling={pooling}'}", tmp_path)
    assert re.search(reason, message), message


async def test_a_graph_that_cannot_be_written_is_an_outage(tmp_path: Path) -> None:
    """The folder is usable; the server starts, and recall searches by words meanwhile."""
    folder = BertFolder(tmp_path / "model").write()
    (tmp_path / "models").write_text("a file where a folder should be")

    with pytest.raises(EngineUnavailable, match="could not be loaded"):
        await embed(f"embedded:{folder}", tmp_path)


async def test_a_damaged_graph_of_a_folder_is_written_again(tmp_path: Path) -> None:
    """As for the built-in model."""
    folder = BertFolder(tmp_path / "model").write()
    expected = await embed(f"embedded:{folder}", tmp_path)
    (file,) = (tmp_path / "models").glob("*.onnx")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x55
    file.write_bytes(content)

    assert await embed(f"embedded:{folder}", tmp_path) == expected
