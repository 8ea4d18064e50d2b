"""
The full-text index of a large store, by tantivy: the same words as in `texts.db`, found 10 to 50 times faster (`benchmarks.large_texts`).

It is a cache of that file, and holds its documents up to a row: rows are numbered as they are written and never change, so what is
newer, and what is gone since, can always be told. Whatever is wrong with it, it is thrown away and built anew; meanwhile, and for
what it does not have yet, SQLite answers. One process at a time adds to it, all read it.
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
"""Of bm25, as tantivy and SQLite have them."""

_WRITER_HEAP_BYTES = 48_000_000
_TOKENIZER_NAME = "words"
_ROW_FIELD, _CONTENT_FIELD, _CONTEXT_FIELD, _TOKENS_FIELD = "row", "content", "context", "tokens"


class CacheError(Exception):
    """The cache cannot be read or written; SQLite has everything that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextRow:
    """A row of `texts.db`."""

    id: int
    content: str
    context: str
    tokens: str


class TermSnapshot:
    """
    The cache as it was at one moment.

    Attributes:
        upto: The last row that it has; every row before that was there then is in it.
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
        """How many rows are in it."""
        return self._searcher.num_docs

    def stem(self, word: str) -> list[str]:
        """Return what is indexed of *word*: mostly one."""
        return self._analyzer.analyze(word)

    def count_rows(self, word: str) -> int:
        """Return about how many rows have *word*."""
        return max(map(self._count_stem, self.stem(word)), default=0)

    def compute_share(self, tokens: Iterable[str]) -> float:
        """Return the share of rows that have one of *tokens*; one that has two counts twice."""
        return sum(self._count_term(_TOKENS_FIELD, token) for token in tokens) / max(self.row_count, 1)

    def search(self, words: Sequence[str], required_tokens: Sequence[Sequence[str]], limit: int) -> dict[int, float]:
        """
        Return scores, the higher the better, of the best rows that have any of *words*; best first.

        Args:
            required_tokens: Of each of these, one token must be there.
        """
        asked = Query.boolean_query([(Occur.Should, each) for word in words for each in self._word_queries(word)])
        for tokens in required_tokens:
            some = Query.boolean_query([(Occur.Should, Query.term_query(self._schema, _TOKENS_FIELD, token, "basic")) for token in tokens])
            asked = Query.boolean_query([(Occur.Must, asked), (Occur.Must, Query.const_score_query(some, 0.0))])
        return self._search(asked, limit)

    def score_pairs(self, pairs: Sequence[str], texts: Mapping[int, str]) -> dict[int, float]:
        """Return what those of *texts* gain in which words of *pairs* stand side by side: each counts once."""
        sides = {tuple(stems): self._inverse_frequency(stems) for stems in map(self.stem, pairs) if len(stems) == _PAIR_LENGTH}
        gains = dict[int, float]()
        read = {row: self.stem(text) for row, text in texts.items()} if sides else {}
        middling = sum(map(len, read.values())) / max(len(read), 1)
        for row, stems in read.items():
            beside = {side for side in pairwise(stems) if side in sides}
            if beside:
                gain = sum(map(sides.__getitem__, beside))
                gains[row] = gain * _bm25_weight(1.0, len(stems) / middling)
        return gains

    def score_texts(self, words: Sequence[str], texts: Mapping[int, tuple[str, str]]) -> dict[int, float]:
        """Return scores of *texts*, and what stands beside them, that are not in the cache, in its measure."""
        sought = {stem: self._inverse_frequency([stem]) for word in words for stem in self.stem(word)}
        if not texts:
            return {}
        read = {row: (self.stem(text), self.stem(beside)) for row, (text, beside) in texts.items()}
        middling = sum(len(stems) for stems, _ in read.values()) / max(len(read), 1)
        scores = dict[int, float]()
        for row, (stems, beside) in read.items():
            length = len(stems) / max(middling, 1.0)
            scores[row] = sum(
                rarity * (_bm25_weight(stems.count(stem), length) + self._context_weight * _bm25_weight(beside.count(stem), 1.0))
                for stem, rarity in sought.items()
            )
        return scores

    def _count_stem(self, stem: str) -> int:
        return max(self._count_term(_CONTENT_FIELD, stem), self._count_term(_CONTEXT_FIELD, stem))

    def _count_term(self, field: str, term: str) -> int:
        """Return how many rows have *term*, also such as were taken out a while ago."""
        try:
            return self._searcher.doc_freq(field, term)
        except (ValueError, OSError) as error:
            raise CacheError(str(error)) from error

    def _inverse_frequency(self, stems: Iterable[str]) -> float:
        """Return the sum of how rare *stem* are, by bm25."""
        number = max(self.row_count, 1)
        return sum(math.log(1 + (number - min(each, number) + 0.5) / (each + 0.5)) for each in map(self._count_stem, stems))

    def _word_queries(self, word: str) -> list[Query]:
        return [
            each
            for stem in self.stem(word)
            for each in (
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
    """Return what a word counts for that is found so many *count* in a text of *length*, the middling one being 1 (bm25)."""
    return count * (_BM25_K1 + 1) / (count + _BM25_K1 * (1 - _BM25_B + _BM25_B * length)) if count else 0.0


class TermIndex:
    """
    The cache in its folder, for one `texts.db`.

    Args:
        context_weight: Of a word found beside the text.
    """

    def __init__(self, folder: Path, *, context_weight: float) -> None:
        """Open or create it, and empty it if it is damaged; raises `CacheError`."""
        self._folder = folder
        self._context_weight = context_weight
        words = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple()).filter(tantivy.Filter.lowercase())
        self._analyzer = words.filter(tantivy.Filter.ascii_fold()).filter(tantivy.Filter.stemmer("english")).build()
        self._index = self._open_index()

    def take_snapshot(self) -> TermSnapshot:
        """Return it as it is now, with what other processes added; raises `CacheError`."""
        try:
            self._index.reload()
        except (ValueError, OSError) as error:
            raise CacheError(str(error)) from error
        return TermSnapshot(self._index, self._analyzer, context_weight=self._context_weight)

    def open_writer(self) -> tantivy.IndexWriter | None:
        """Return the one writer, or None: another process has it."""
        try:
            return self._index.writer(_WRITER_HEAP_BYTES, 1)
        except ValueError:
            return None

    @staticmethod
    def add(writer: tantivy.IndexWriter, row: TextRow) -> None:
        """Add *row*, later than all that are there; it counts once the writer commits."""
        document = tantivy.Document()
        document.add_integer(_ROW_FIELD, row.id)
        document.add_text(_CONTENT_FIELD, row.content)
        document.add_text(_CONTEXT_FIELD, row.context)
        document.add_text(_TOKENS_FIELD, row.tokens)
        writer.add_document(document)

    @staticmethod
    def delete(writer: tantivy.IndexWriter, row: int) -> None:
        """Take a row out; it counts once the writer commits."""
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
