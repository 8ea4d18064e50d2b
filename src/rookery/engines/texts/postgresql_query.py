"""
The queries of full text in PostgreSQL, as SQL. No I/O.

They are plain texts, in which every value is a named parameter. Composing them with `psycopg.sql` would take 1.2 ms of a search.

PostgreSQL has no bm25. It is computed here from document frequencies of the workspace and from the occurrences in each document. Nothing in
SQL returns these from a `tsvector` as fast as `ts_rank`, which grows with the occurrences of one lexeme by known steps.

`rookery.memory.visibility` defines who may read a document, and tests compare both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rookery.engines.texts.postgresql_sql import MAX_OCCURRENCES, PostgresQuery, Term, escape_facet
from rookery.engines.texts.words import CONTEXT_WEIGHT
from rookery.kernel.clock import to_micros
from rookery.memory.models import AccessFilter, MemoryScope

_BM25_K1, _BM25_B = 1.2, 0.75

_RANK_WEIGHTS = f"'{{1, {CONTEXT_WEIGHT}, 0, 0}}'::real[]"
"""The weights of positions without a label and with C; D and C in PostgreSQL's terms."""

_RANKS = [6 / math.pi**2 * sum(1 / number**2 for number in range(1, count + 1)) for count in range(1, MAX_OCCURRENCES + 1)]
"""Values of `ts_rank` for a lexeme that occurs once, twice and so on: a sum over the squares of 1, 2, … (`calc_rank_or` in tsrank.c)."""

_STEPS = [0.0, CONTEXT_WEIGHT * _RANKS[0], *_RANKS]
_RANK_LIMITS = f"'{{{', '.join(str((lower + upper) / 2) for lower, upper in pairwise(_STEPS))}}}'::float8[]"
_COUNTS = f"'{{0, {CONTEXT_WEIGHT}, {', '.join(map(str, range(1, MAX_OCCURRENCES + 1)))}}}'::float8[]"
"""Ranks between two counts, and the counts: none, one in the context, one in the content, and so on."""

_ORG_OPTIONAL_SCOPES = (MemoryScope.AGENT, MemoryScope.SESSION)
_PROJECT_OPTIONAL_SCOPES = (MemoryScope.SHARED, *_ORG_OPTIONAL_SCOPES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreWeights:
    """
    The parts of scores that do not depend on a document.

    Attributes:
        words: The inverse document frequency of each of `PostgresQuery.words`.
        required: Those of `PostgresQuery.required`.
        pairs: Those of `PostgresQuery.pairs`.
        average_length: The mean number of words of a document, above 0.
    """

    words: Sequence[float]
    required: Sequence[float]
    pairs: Sequence[float]
    average_length: float


class Statement:
    """A statement with its parameters, which get names in their order."""

    def __init__(self) -> None:
        self.parameters: dict[str, object] = {}

    def bind(self, value: object) -> str:
        """Return the placeholder of *value*."""
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return f"%({name})s"


def build_search(
    query: PostgresQuery,
    weights: ScoreWeights,
    access_filter: AccessFilter,
    *,
    candidate_words: Sequence[Term],
    paired: int | None,
    limit: int,
    offset: int,
) -> tuple[bytes, dict[str, object]]:
    """
    Return the query of the best documents: id, score, and which words it has.

    Args:
        candidate_words: The words of which a document must have one, if nothing is required. All words count in the score.
        paired: The number of documents with the best words among which pairs count. None: all.
    """
    statement = Statement()
    norm = f"{_BM25_K1} * ({1 - _BM25_B} + {_BM25_B} * length / {statement.bind(weights.average_length)})"
    units = [*zip(query.words, weights.words, strict=True), *zip(query.required, weights.required, strict=True)]
    word_score = _add([_score(statement, weight, _count(statement, term)) for term, weight in units])
    pair_units = zip(query.pairs, weights.pairs, strict=True)
    pair_score = _add([_score(statement, weight, _count_adjacent(statement, term)) for term, weight in pair_units])
    matched = ", ".join(_match(statement, term) for term in query.words)
    conditions = " AND ".join(build_conditions(statement, query, access_filter, candidate_words=candidate_words))
    only_best = "" if paired is None else f" ORDER BY word_score DESC, memory_id LIMIT {statement.bind(paired)}"
    select = (
        f"SELECT memory_id, word_score + {pair_score} AS score, ARRAY[{matched}]::boolean[] AS matched FROM ("
        f"SELECT memory_id, words, stems, context, norm, {word_score} AS word_score FROM ("
        f"SELECT memory_id, words, stems, context, ({norm})::float8 AS norm FROM rookery_texts WHERE {conditions} OFFSET 0"
        f") AS visible{only_best}"
        f") AS found ORDER BY score DESC, memory_id LIMIT {statement.bind(limit)} OFFSET {statement.bind(offset)}"
    )
    return select.encode(), statement.parameters


def build_count(query: PostgresQuery, access_filter: AccessFilter) -> tuple[bytes, dict[str, object]]:
    """Return the query of the number of documents."""
    statement = Statement()
    conditions = " AND ".join(build_conditions(statement, query, access_filter, candidate_words=query.words))
    return f"SELECT count(*) FROM rookery_texts WHERE {conditions}".encode(), statement.parameters


def build_conditions(
    statement: Statement, query: PostgresQuery, access_filter: AccessFilter, *, candidate_words: Sequence[Term]
) -> list[str]:
    """Return what a document must meet to match *query* and *access_filter*."""
    # A sum, so that the index of words is used, and not that of the workspace, whose documents may be many.
    conditions = [f"workspace_id + 0 = {statement.bind(access_filter.workspace_id)}"]
    if query.required:
        conditions += [condition for term in query.required for condition in (_find(statement, [term]), _match(statement, term))]
    else:
        conditions.append(_find(statement, candidate_words))
        if any(term.adjacent for term in candidate_words):
            conditions.append(_any_of([_match(statement, term) for term in candidate_words]))
    conditions += [f"NOT {_match(statement, term)}" for term in query.excluded]
    return [*conditions, *_iter_access_conditions(statement, access_filter)]


def _iter_access_conditions(statement: Statement, access_filter: AccessFilter) -> Iterator[str]:
    bind = statement.bind
    yield f"(expires_at IS NULL OR expires_at > {bind(to_micros(access_filter.at))})"
    yield _any_of([owner for scope in MemoryScope if (owner := _render_owner(statement, access_filter, scope)) is not None])
    for column, name, allowed, scopes in (
        ("org", access_filter.org, access_filter.orgs, _ORG_OPTIONAL_SCOPES),
        ("project", access_filter.project, access_filter.projects, _PROJECT_OPTIONAL_SCOPES),
    ):
        if name is not None or allowed is not None:
            names = {name} if allowed is None else set(allowed) if name is None else {name} & allowed
            is_named = f"{column} = ANY({bind(sorted(map(str, names)))})"
            yield f"({is_named} OR ({column} IS NULL AND memory_scope = ANY({bind([scope.value for scope in scopes])})))"
    for column, value in (("type", access_filter.type), ("source", access_filter.source)):
        if value is not None:
            yield f"{column} = {bind(value)}"
    if access_filter.facets:
        yield f"facets @> {bind([escape_facet(facet) for facet in sorted(access_filter.facets)])}"
    if access_filter.min_confidence is not None:
        yield f"confidence >= {bind(access_filter.min_confidence)}"
    if access_filter.since is not None:
        yield f"created_at >= {bind(to_micros(access_filter.since))}"
    if access_filter.until is not None:
        yield f"created_at < {bind(to_micros(access_filter.until))}"


def _render_owner(statement: Statement, access_filter: AccessFilter, scope: MemoryScope) -> str | None:
    """Return the condition on readable memories of *scope*; None if no memory of it is readable."""
    if access_filter.scopes is not None and scope not in access_filter.scopes:
        return None
    in_scope = f"memory_scope = {statement.bind(scope.value)}"
    agent_ids = [] if access_filter.agent_id is None else [access_filter.agent_id]
    owners = {MemoryScope.AGENT: ("agent_id", agent_ids), MemoryScope.SESSION: ("session_id", sorted(access_filter.session_ids))}
    if scope not in owners:
        return in_scope
    column, owner_ids = owners[scope]
    return f"({in_scope} AND {column} = ANY({statement.bind(owner_ids)}))" if owner_ids else None


def _find(statement: Statement, terms: Sequence[Term]) -> str:
    """Return the condition that the index answers: a document has one of *terms*, of adjacent stems all in any order."""
    return f"words @@ {statement.bind(' | '.join(f'({term.query})' for term in terms))}::tsquery"


def _match(statement: Statement, term: Term) -> str:
    """Return the condition that a document has *term*."""
    forms = [f"words @@ {statement.bind(' | '.join(term.lexemes))}::tsquery"] if term.lexemes else []
    if term.adjacent:
        forms.append(_is_in(statement, "stems", term.adjacent))
        if term.is_in_context:
            forms.append(_is_in(statement, "context", term.adjacent))
    return _any_of(forms)


def _count(statement: Statement, term: Term) -> str:
    """Return how often *term* occurs, at most `MAX_OCCURRENCES` times; only in the context or in another form it counts less than once."""
    counts = [
        f"({_COUNTS})[1 + width_bucket(ts_rank({_RANK_WEIGHTS}, words, {statement.bind(lexeme)}::tsquery)::float8, {_RANK_LIMITS})]"
        for lexeme in term.lexemes
    ]
    if term.adjacent:
        counts.append(_count_adjacent(statement, term))
    return f"greatest({', '.join(counts)})" if len(counts) > 1 else counts[0]


def _count_adjacent(statement: Statement, term: Term) -> str:
    """Return the number 1 if *term* stands in the content, less if it stands in the context, otherwise 0."""
    in_context = f" WHEN {_is_in(statement, 'context', term.adjacent)} THEN {CONTEXT_WEIGHT}" if term.is_in_context else ""
    return f"(CASE WHEN {_is_in(statement, 'stems', term.adjacent)} THEN 1{in_context} ELSE 0 END)::float8"


def _score(statement: Statement, weight: float, count: str) -> str:
    """Return the bm25 score of a term of *weight* that occurs *count* times: count * (k1 + 1) / (count + norm), with *count* once."""
    return f"{statement.bind(weight * (_BM25_K1 + 1))} * (1 - norm / ({count} + norm))"


def _is_in(statement: Statement, column: str, adjacent: str) -> str:
    return f"strpos({column}, {statement.bind(adjacent)}) > 0"


def _add(parts: Sequence[str]) -> str:
    return f"({' + '.join(parts or ['0.0::float8'])})"


def _any_of(conditions: Sequence[str]) -> str:
    return f"({' OR '.join(conditions or ['false'])})"
