"""
A tantivy index of a large store, 10 to 50 times faster than SQLite for the same words (`benchmarks.large_texts`).

It is a cache of `texts.db` with all documents up to a row. Row numbers increase with each write and rows never change, so newer and deleted
rows are always known. A damaged cache is deleted and built again; meanwhile, and for missing rows, SQLite answers. One process at a time
writes the index, and all read it.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import tantivy
from tantivy import Occur, Query

_PAIR_LENGTH = 2
_BM25_K1, _BM25_B = 1.2, 0.75
"""Parameters of bm25, as in tantivy and SQLite."""

_WRITER_HEAP_BYTES = 48_000_000
_TOKENIZER_NAME = "words"
_ROW_FIELD, _CONTENT_FIELD, _CONTEXT_FIELD, _TOKENS_FIELD = "row", "content", "context", "tokens"


class CacheError(Exception):
    """The cache cannot be read or written. SQLite has all of its documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow:
    """A row of `texts.db`."""

    id: int
    content: str
    context: str
    tokens: str


class TermSnapshot:
    """
    The state of the cache at one moment.

    Attributes:
        last_row: The last row of the snapshot. It contains all rows up to this one that existed at that moment.
    """

    def __init__(self, index: tantivy.Index, analyzer: tantivy.TextAnalyzer, *, context_weight: float) -> None:
        self._schema = index.schema
        self._analyzer = analyzer
        self._context_weight = context_weight
        try:
            self._searcher = index.searcher()
            last = self._searcher.search(Query.all_query(), 1, count=False, order_by_field=_ROW_FIELD).hits
            self.last_row = self._get_row_numbers([address for _, address in last])[0] if last else 0
        except (ValueError, OSError) as error:
            raise CacheError(str(error)) from error

    @property
    def row_count(self) -> int:
        """Number of rows in the snapshot."""
        return self._searcher.num_docs

    def stem(self, word: str) -> list[str]:
        """Return the indexed stems of *word*; usually one."""
        return self._analyzer.analyze(word)

    def count_rows(self, word: str) -> int:
        """Return the approximate number of rows that contain *word*."""
        return max(map(self._count_stem, self.stem(word)), default=0)

    def compute_share(self, tokens: Iterable[str]) -> float:
        """Return the fraction of rows with one of *tokens*. A row with two of them counts twice."""
        return sum(self._count_term(_TOKENS_FIELD, token) for token in tokens) / max(self.row_count, 1)

    def search(self, words: Sequence[str], required_tokens: Sequence[Sequence[str]], limit: int) -> dict[int, float]:
        """
        Return the scores of the best rows with any of *words*, best first; higher scores are better.

        Args:
            required_tokens: Groups of tokens; a row needs one of each group.
        """
        search_query = Query.boolean_query([(Occur.Should, word_query) for word in words for word_query in self._word_queries(word)])
        for tokens in required_tokens:
            any_token = Query.boolean_query(
                [(Occur.Should, Query.term_query(self._schema, _TOKENS_FIELD, token, "basic")) for token in tokens]
            )
            search_query = Query.boolean_query([(Occur.Must, search_query), (Occur.Must, Query.const_score_query(any_token, 0.0))])
        return self._search(search_query, limit)

    def score_pairs(self, pairs: Sequence[str], texts: Mapping[int, str]) -> dict[int, float]:
        """Return additional scores of *texts* in which the words of *pairs* are adjacent. Each pair counts once per text."""
        pair_weights = {tuple(stems): self._inverse_frequency(stems) for stems in map(self.stem, pairs) if len(stems) == _PAIR_LENGTH}
        gains = dict[int, float]()
        stems_by_row = {row: self.stem(text) for row, text in texts.items()} if pair_weights else {}
        average_length = sum(map(len, stems_by_row.values())) / max(len(stems_by_row), 1)
        for row, stems in stems_by_row.items():
            matched_pairs = {pair for pair in pairwise(stems) if pair in pair_weights}
            if matched_pairs:
                gain = sum(map(pair_weights.__getitem__, matched_pairs))
                gains[row] = gain * _bm25_weight(1.0, len(stems) / average_length)
        return gains

    def score_texts(self, words: Sequence[str], texts: Mapping[int, tuple[str, str]]) -> dict[int, float]:
        """Return scores of texts that are not in the cache, on the same scale. *texts* maps rows to (content, context)."""
        weights = {stem: self._inverse_frequency([stem]) for word in words for stem in self.stem(word)}
        if not texts:
            return {}
        stems_by_row = {row: (self.stem(text), self.stem(context)) for row, (text, context) in texts.items()}
        average_length = sum(len(stems) for stems, _ in stems_by_row.values()) / max(len(stems_by_row), 1)
        scores = dict[int, float]()
        for row, (stems, context) in stems_by_row.items():
            length = len(stems) / max(average_length, 1.0)
            scores[row] = sum(
                rarity * (_bm25_weight(stems.count(stem), length) + self._context_weight * _bm25_weight(context.count(stem), 1.0))
                for stem, rarity in weights.items()
            )
        return scores

    def _count_stem(self, stem: str) -> int:
        return max(self._count_term(_CONTENT_FIELD, stem), self._count_term(_CONTEXT_FIELD, stem))

    def _count_term(self, field: str, term: str) -> int:
        """Return the number of rows with *term*, including rows that were deleted recently."""
        try:
            return self._searcher.doc_freq(field, term)
        except (ValueError, OSError) as error:
            raise CacheError(str(error)) from error

    def _inverse_frequency(self, stems: Iterable[str]) -> float:
        """Return the sum of the inverse document frequencies (bm25) of *stems*."""
        row_count = max(self.row_count, 1)
        return sum(math.log(1 + (row_count - min(count, row_count) + 0.5) / (count + 0.5)) for count in map(self._count_stem, stems))

    def _word_queries(self, word: str) -> list[Query]:
        return [
            query
            for stem in self.stem(word)
            for query in (
                Query.term_query(self._schema, _CONTENT_FIELD, stem, "freq"),
                Query.boost_query(Query.term_query(self._schema, _CONTEXT_FIELD, stem, "freq"), self._context_weight),
            )
        ]

    def _search(self, query: Query, limit: int) -> dict[int, float]:
        try:
            hits = self._searcher.search(query, limit, count=False).hits
            rows = self._get_row_numbers([address for _, address in hits])
        except (ValueError, OSError) as error:
            raise CacheError(str(error)) from error
        return {row: float(score) for row, (score, _) in zip(rows, hits, strict=True)}

    def _get_row_numbers(self, addresses: list[tantivy.DocAddress]) -> list[int]:
        return [int(value or 0) for value in self._searcher.fast_field_values(_ROW_FIELD, addresses)]


def _bm25_weight(count: float, length: float) -> float:
    """Return the bm25 weight of a word that occurs *count* times in a text of *length*, relative to the average length."""
    return count * (_BM25_K1 + 1) / (count + _BM25_K1 * (1 - _BM25_B + _BM25_B * length)) if count else 0.0


class TermIndex:
    """
    The cache in its folder, for one `texts.db`.

    Args:
        context_weight: Weight of a word in the context relative to one in the content.
    """

    def __init__(self, folder: Path, *, context_weight: float) -> None:
        """Open or create the index. Delete a damaged one first. Raises `CacheError`."""
        self._folder = folder
        self._context_weight = context_weight
        words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.lowercase())
        self._analyzer = words.filter(tantivy.Filter.ascii_fold()).filter(tantivy.Filter.stemmer("english")).build()
        self._index = self._open_index()

    def take_snapshot(self) -> TermSnapshot:
        """Return a snapshot of the current state, including changes of other processes; raises `CacheError`."""
        try:
            self._index.reload()
        except (ValueError, OSError) as error:
            raise CacheError(str(error)) from error
        return TermSnapshot(self._index, self._analyzer, context_weight=self._context_weight)

    def open_writer(self) -> tantivy.IndexWriter | None:
        """Return the writer; None if another process has it."""
        try:
            return self._index.writer(_WRITER_HEAP_BYTES, 1)
        except ValueError:
            return None

    @staticmethod
    def add(writer: tantivy.IndexWriter, row: TextRow) -> None:
        """Add *row*, which must be newer than all others; effective after a commit."""
        document = tantivy.Document()
        document.add_integer(_ROW_FIELD, row.id)
        document.add_text(_CONTENT_FIELD, row.content)
        document.add_text(_CONTEXT_FIELD, row.context)
        document.add_text(_TOKENS_FIELD, row.tokens)
        writer.add_document(document)

    @staticmethod
    def delete(writer: tantivy.IndexWriter, row: int) -> None:
        """Delete a row; effective after a commit."""
        writer.delete_documents_by_term(_ROW_FIELD, row)

    def _open_index(self) -> tantivy.Index:
        for is_last in (False, True):
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                index = tantivy.Index(_build_schema(), path=str(self._folder))
                index.register_tokenizer(_TOKENIZER_NAME, self._analyzer)
                index.searcher()
            except (ValueError, OSError) as error:
                if is_last:
                    raise CacheError(str(error)) from error
                shutil.rmtree(self._folder, ignore_errors=True)
            else:
                return index
        raise AssertionError("unreachable")


def _build_schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field(_ROW_FIELD, indexed=True, fast=True)
    builder.add_text_field(_CONTENT_FIELD, tokenizer_name=_TOKENIZER_NAME, index_option="freq")
    builder.add_text_field(_CONTEXT_FIELD, tokenizer_name=_TOKENIZER_NAME, index_option="freq")
    builder.add_text_field(_TOKENS_FIELD, tokenizer_name="whitespace", index_option="basic")
    return builder.build()
