"""The built-in model: files, tokenizer and onnxruntime session. Synchronous and thread-safe; `embedded` runs it in threads."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, cast
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt
import onnxruntime
import structlog
from tokenizers import Tokenizer

from rookery.engines.embedders import minilm, model_files
from rookery.engines.embedders.inputs import split_tokens
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import Passage, Vector

_log = structlog.stdlib.get_logger("rookery.embedder")

GRAPH_FORMAT = 2
"""Version of the graph that `minilm` writes. With another version, the graph is written again and old files are removed."""

CHUNK_TOKENS, OVERLAP_TOKENS = 128, 24
"""Content tokens of a chunk, and the number of them that it shares with the previous chunk.

A chunk is half of the window, since a shorter text has a more specific vector. Against chunks of 254 tokens, SciFact's nDCG@10 by meaning
is 69.3 instead of 67.5, and MRR on LoCoMo's sessions .651 instead of .602; 64 is no better (development half of the data, int8).
"""
MAX_CONTEXT_TOKENS = 48
"""Maximum context tokens before each chunk of a passage; further ones are cut off."""

_ABANDONED_AGE_S = 600
"""Age in seconds after which a temporary file counts as left by a killed process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A part of a passage's content, text[start:end], with the model's input tokens, those of the context included."""

    start: int
    end: int
    ids: list[int]


class _Session(Protocol):
    """The used part of `onnxruntime.InferenceSession`; the package has no types."""

    def run(self, outputs: list[str], inputs: dict[str, npt.NDArray[np.int64]]) -> list[npt.NDArray[np.float32]]: ...


class _Options(Protocol):
    """The used part of `onnxruntime.SessionOptions`."""

    intra_op_num_threads: int
    inter_op_num_threads: int
    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    log_severity_level: int

    def add_session_config_entry(self, key: str, value: str) -> None: ...


@dataclass(frozen=True, slots=True, weakref_slot=True, kw_only=True)
class EmbeddingModel:
    """A loaded model that splits texts into chunks and computes vectors."""

    session: _Session = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)

    def embed_query(self, text: str) -> Vector:
        """Return the vector of the first window of *text*."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids[: minilm.WINDOW_TOKENS - 2]
        return self.embed_tokens([[minilm.CLS_ID, *ids, minilm.SEP_ID]])[0]

    def split_passage(self, passage: Passage) -> list[Chunk]:
        """Return the overlapping chunks of a passage. Together they cover its whole content."""
        context: list[int] = self.tokenizer.encode(passage.context, add_special_tokens=False).ids[:MAX_CONTEXT_TOKENS]
        encoding = self.tokenizer.encode(passage.content, add_special_tokens=False)
        ids: list[int] = encoding.ids
        offsets: list[tuple[int, int]] = encoding.offsets
        ranges = split_tokens(offsets, max_tokens=CHUNK_TOKENS, overlap_tokens=OVERLAP_TOKENS)
        return [
            Chunk(
                start=offsets[first][0] if first else 0,
                end=offsets[last][0] if last < len(ids) else len(passage.content),
                ids=[minilm.CLS_ID, *context, *ids[first:last], minilm.SEP_ID],
            )
            for first, last in ranges
        ]

    def embed_tokens(self, rows: Sequence[Sequence[int]]) -> list[Vector]:
        """Return a vector for each row of token ids. Rows are padded to the longest one."""
        ids = np.full((len(rows), max(map(len, rows))), minilm.PADDING_ID, dtype=np.int64)
        for index, row in enumerate(rows):
            ids[index, : len(row)] = row
        (vectors,) = self.session.run([minilm.OUTPUT_NAME], {minilm.INPUT_NAME: ids})
        return [vector.astype("<f4", copy=False).tobytes() for vector in vectors]


_FileIdentity = tuple[int, int, int, int]
_MODELS = WeakValueDictionary[tuple[_FileIdentity, _FileIdentity], EmbeddingModel]()
"""The loaded models of this process, which embedders of the same files share."""


def load_model(data_dir: Path, precision: minilm.Precision, *, bundle_dir: Path = model_files.BUNDLE) -> EmbeddingModel:
    """
    Load and return the model.

    An installed wheel contains the int8 graph, which is opened in place. Otherwise the graph is built from the weights' package and written
    to *data_dir*/models, once per machine. A graph is opened only if its SHA-256 is the one stored when it was written.

    Raises:
        EngineUnavailable: The weights are missing or not as expected, a file of the wheel is damaged, or a file cannot be read or written.
    """
    bundle = model_files.find_bundle(bundle_dir) if precision == "int8" else None
    try:
        if bundle is not None and bundle.provenance.graph_format == GRAPH_FORMAT:
            bundle.verify()
            return _open_model(bundle.graph, bundle.tokenizer)
        source = model_files.find_weights()
        graph = data_dir / "models" / f"all-MiniLM-L6-v2.{precision}.{GRAPH_FORMAT}.{_fingerprint(source / 'model.safetensors')}.onnx"
        return _open_graph(graph, source=source, precision=precision)
    except EngineUnavailable:
        raise
    except Exception as error:  # tokenizers and onnxruntime raise their own classes, and bare Exception
        raise EngineUnavailable("embedder", f"the model could not be loaded: {error}") from error


def _open_model(graph: Path, tokenizer: Path) -> EmbeddingModel:
    """Return the model of two files. As long as an embedder of this process uses the same files, it is not loaded again (0.2 s)."""
    key = (_identify_file(graph), _identify_file(tokenizer))
    model = _MODELS.get(key)
    if model is None:
        model = _MODELS[key] = EmbeddingModel(session=_open_session(graph), tokenizer=_load_tokenizer(tokenizer))
    return model


def _identify_file(path: Path) -> _FileIdentity:
    stat = path.stat()
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def _load_tokenizer(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path))
    # The file enables both with 128 tokens: a short text would cost as much as a long one.
    tokenizer.no_padding()
    tokenizer.no_truncation()
    # "[SEP]" and "[PAD]" in a text are plain text, not special tokens.
    tokenizer.encode_special_tokens = True
    return tokenizer


def _fingerprint(path: Path) -> str:
    """Return a fingerprint of *path* from its size, its beginning and 64 samples, without reading all 90 MB."""
    size = path.stat().st_size
    digest = hashlib.blake2b(str(size).encode(), digest_size=8)
    with path.open("rb") as file:
        for sample in range(64):
            file.seek(size * sample // 64)
            digest.update(file.read(4096))
    return digest.hexdigest()


def _open_graph(path: Path, *, source: Path, precision: minilm.Precision) -> EmbeddingModel:
    """Open the model with the graph at *path*. Write the graph first if it is missing or damaged."""
    weights, tokenizer = source / "model.safetensors", source / "tokenizer.json"
    if path.exists():
        try:
            if model_files.is_intact(path):
                return _open_model(path, tokenizer)
        except Exception as error:  # noqa: BLE001 - onnxruntime raises many classes for a damaged file; a new graph replaces it
            _log.warning("embedder.graph_unreadable", path=str(path), reason=str(error))
        _log.warning("embedder.graph_rewritten", path=str(path), reason="the file is damaged, or its digest is missing")
    graph = minilm.write_graph(minilm.read_weights(weights), precision)
    _write_atomically(path, graph)
    _write_atomically(model_files.digest_file(path), hashlib.sha256(graph).hexdigest().encode())
    _remove_old_files(path, precision)
    return _open_model(path, tokenizer)


def _write_atomically(path: Path, data: bytes) -> None:
    """Write to a temporary file and rename it. Of concurrent writers, the last one wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=path.stem + ".", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _remove_old_files(path: Path, precision: minilm.Precision) -> None:
    """Remove graphs of other versions, and temporary files that killed processes left."""
    for other in path.parent.glob(f"all-MiniLM-L6-v2.{precision}.*"):
        is_abandoned = other.suffix == ".part" and time.time() - other.stat().st_mtime > _ABANDONED_AGE_S
        is_outdated = other.suffix in {".onnx", ".sha256"} and other not in {path, model_files.digest_file(path)}
        if is_abandoned or is_outdated:
            other.unlink(missing_ok=True)


def _open_session(path: Path) -> _Session:
    options = cast("_Options", onnxruntime.SessionOptions())  # pyright: ignore[reportUnknownMemberType] - no types in the package
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = True  # a tenth faster than malloc; a batch's size limits the memory that it keeps
    options.enable_mem_pattern = False
    options.log_severity_level = 4  # errors are raised; nothing else is written to stderr
    return cast("_Session", onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]))
