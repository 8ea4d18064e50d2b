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

_PAIR = 2
_SATURATION, _LENGTH = 1.2, 0.75
"""Of bm25, as tantivy and SQLite have them."""

_HEAP_BYTES = 48_000_000
_WORDS = "words"
_ROW, _CONTENT, _CONTEXT, _TOKENS = "row", "content", "context", "tokens"


class CacheError(Exception):
    """The cache cannot be read or written; SQLite has everything that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A row of `texts.db`."""

    id: int
    content: str
    context: str
    tokens: str


class Snapshot:
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
            last = self._searcher.search(Query.all_query(), 1, count=False, order_by_field=_ROW).hits
            self.upto = self._rows([address for _, address in last])[0] if last else 0
        except (ValueError, OSError) as error:
            raise CacheError(str(error)) from error

    @property
    def total(self) -> int:
        """How many rows are in it."""
        return self._searcher.num_docs

    def stems(self, word: str) -> list[str]:
        """Return what is indexed of *word*: mostly one."""
        return self._analyzer.analyze(word)

    def frequency(self, word: str) -> int:
        """Return about how many rows have *word*."""
        return max(map(self._frequency, self.stems(word)), default=0)

    def share(self, tokens: Iterable[str]) -> float:
        """Return the share of rows that have one of *tokens*; one that has two counts twice."""
        return sum(self._with(_TOKENS, token) for token in tokens) / max(self.total, 1)

    def best(self, words: Sequence[str], needed: Sequence[Sequence[str]], limit: int) -> dict[int, float]:
        """
        Return scores, the higher the better, of the best rows that have any of *words*; best first.

        Args:
            needed: Of each of these, one token must be there.
        """
        asked = Query.boolean_query([(Occur.Should, each) for word in words for each in self._word(word)])
        for tokens in needed:
            some = Query.boolean_query([(Occur.Should, Query.term_query(self._schema, _TOKENS, token, "basic")) for token in tokens])
            asked = Query.boolean_query([(Occur.Must, asked), (Occur.Must, Query.const_score_query(some, 0.0))])
        return self._search(asked, limit)

    def together(self, pairs: Sequence[str], texts: Mapping[int, str]) -> dict[int, float]:
        """Return what those of *texts* gain in which words of *pairs* stand side by side: each counts once."""
        sides = {tuple(stems): self._rarity(stems) for stems in map(self.stems, pairs) if len(stems) == _PAIR}
        gains = dict[int, float]()
        read = {row: self.stems(text) for row, text in texts.items()} if sides else {}
        middling = sum(map(len, read.values())) / max(len(read), 1)
        for row, stems in read.items():
            beside = {side for side in pairwise(stems) if side in sides}
            if beside:
                gain = sum(map(sides.__getitem__, beside))
                gains[row] = gain * _weight(1.0, len(stems) / middling)
        return gains

    def scores(self, words: Sequence[str], texts: Mapping[int, tuple[str, str]]) -> dict[int, float]:
        """Return scores of *texts*, and what stands beside them, that are not in the cache, in its measure."""
        sought = {stem: self._rarity([stem]) for word in words for stem in self.stems(word)}
        if not texts:
            return {}
        read = {row: (self.stems(text), self.stems(beside)) for row, (text, beside) in texts.items()}
        middling = sum(len(stems) for stems, _ in read.values()) / max(len(read), 1)
        scores = dict[int, float]()
        for row, (stems, beside) in read.items():
            length = len(stems) / max(middling, 1.0)
            scores[row] = sum(
                rarity * (_weight(stems.count(stem), length) + self._context_weight * _weight(beside.count(stem), 1.0))
                for stem, rarity in sought.items()
            )
        return scores

    def _frequency(self, stem: str) -> int:
        return max(self._with(_CONTENT, stem), self._with(_CONTEXT, stem))

    def _with(self, field: str, term: str) -> int:
        """Return how many rows have *term*, also such as were taken out a while ago."""
        try:
            return self._searcher.doc_freq(field, term)
        except (ValueError, OSError) as error:
            raise CacheError(str(error)) from error

    def _rarity(self, stems: Iterable[str]) -> float:
        """Return the sum of how rare *stems* are, by bm25."""
        number = max(self.total, 1)
        return sum(math.log(1 + (number - min(each, number) + 0.5) / (each + 0.5)) for each in map(self._frequency, stems))

    def _word(self, word: str) -> list[Query]:
        return [
            each
            for stem in self.stems(word)
            for each in (
                Query.term_query(self._schema, _CONTENT, stem, "freq"),
                Query.boost_query(Query.term_query(self._schema, _CONTEXT, stem, "freq"), self._context_weight),
            )
        ]

    def _search(self, query: Query, limit: int) -> dict[int, float]:
        try:
            hits = self._searcher.search(query, limit, count=False).hits
            rows = self._rows([address for _, address in hits])
        except (ValueError, OSError) as error:
            raise CacheError(str(error)) from error
        return {row: float(score) for row, (score, _) in zip(rows, hits, strict=True)}

    def _rows(self, addresses: list[tantivy.DocAddress]) -> list[int]:
        return [int(value or 0) for value in self._searcher.fast_field_values(_ROW, addresses)]


def _weight(times: float, length: float) -> float:
    """Return what a word counts for that is found so many *times* in a text of *length*, the middling one being 1 (bm25)."""
    return times * (_SATURATION + 1) / (times + _SATURATION * (1 - _LENGTH + _LENGTH * length)) if times else 0.0


class Terms:
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
        self._index = self._opened()

    def snapshot(self) -> Snapshot:
        """Return it as it is now, with what other processes added; raises `CacheError`."""
        try:
            self._index.reload()
        except (ValueError, OSError) as error:
            raise CacheError(str(error)) from error
        return Snapshot(self._index, self._analyzer, context_weight=self._context_weight)

    def writer(self) -> tantivy.IndexWriter | None:
        """Return the one writer, or None: another process has it."""
        try:
            return self._index.writer(_HEAP_BYTES, 1)
        except ValueError:
            return None

    @staticmethod
    def add(writer: tantivy.IndexWriter, row: Row) -> None:
        """Add *row*, later than all that are there; it counts once the writer commits."""
        document = tantivy.Document()
        document.add_integer(_ROW, row.id)
        document.add_text(_CONTENT, row.content)
        document.add_text(_CONTEXT, row.context)
        document.add_text(_TOKENS, row.tokens)
        writer.add_document(document)

    @staticmethod
    def take_out(writer: tantivy.IndexWriter, row: int) -> None:
        """Take a row out; it counts once the writer commits."""
        writer.delete_documents_by_term(_ROW, row)

    def _opened(self) -> tantivy.Index:
        for is_last in (False, True):
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                index = tantivy.Index(_schema(), path=str(self._folder))
                index.register_tokenizer(_WORDS, self._analyzer)
                index.searcher()
            except (ValueError, OSError) as error:
                if is_last:
                    raise CacheError(str(error)) from error
                shutil.rmtree(self._folder, ignore_errors=True)
            else:
                return index
        raise AssertionError("unreachable")


def _schema() -> tantivy.Schema:
    builder = tantivy.SchemaBuilder()
    builder.add_integer_field(_ROW, indexed=True, fast=True)
    builder.add_text_field(_CONTENT, tokenizer_name=_WORDS, index_option="freq")
    builder.add_text_field(_CONTEXT, tokenizer_name=_WORDS, index_option="freq")
    builder.add_text_field(_TOKENS, tokenizer_name="whitespace", index_option="basic")
    return builder.build()
