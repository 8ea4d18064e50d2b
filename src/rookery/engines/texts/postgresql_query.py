"""
The queries of full text in PostgreSQL, as SQL. No I/O.

PostgreSQL has no bm25. It is computed here from document frequencies of the workspace and from the occurrences in each document. Nothing in
SQL returns these from a `tsvector` as fast as `ts_rank`, which grows with the occurrences of one lexeme by known steps.

`rookery.memory.visibility` defines who may read a document, and tests compare both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from psycopg import sql

from rookery.engines.texts.postgresql_sql import MAX_OCCURRENCES, PostgresQuery, Term, escape_facet
from rookery.engines.texts.words import CONTEXT_WEIGHT
from rookery.kernel.clock import to_micros
from rookery.memory.models import AccessFilter, MemoryScope

_BM25_K1, _BM25_B = 1.2, 0.75

_RANK_WEIGHTS = sql.Literal(f"{{1, {CONTEXT_WEIGHT}, 0, 0}}")
"""The weights of positions without a label and with C; D and C in PostgreSQL's terms."""

_RANKS = [6 / math.pi**2 * sum(1 / number**2 for number in range(1, count + 1)) for count in range(1, MAX_OCCURRENCES + 1)]
"""Values of `ts_rank` for a lexeme that occurs once, twice and so on: a sum over the squares of 1, 2, … (`calc_rank_or` in tsrank.c)."""

_STEPS = [0.0, CONTEXT_WEIGHT * _RANKS[0], *_RANKS]
_RANK_LIMITS = sql.Literal([(lower + upper) / 2 for lower, upper in pairwise(_STEPS)])
_COUNTS = sql.Literal([0.0, CONTEXT_WEIGHT, *map(float, range(1, MAX_OCCURRENCES + 1))])
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

    def bind(self, value: object) -> sql.Placeholder:
        """Return the placeholder of *value*."""
        name = f"p{len(self.parameters)}"
        self.parameters[name] = value
        return sql.Placeholder(name)


def build_search(
    query: PostgresQuery,
    weights: ScoreWeights,
    access_filter: AccessFilter,
    *,
    candidate_words: Sequence[Term],
    paired: int | None,
    limit: int,
    offset: int,
) -> tuple[sql.Composed, dict[str, object]]:
    """
    Return the query of the best documents: id, score, and which words it has.

    Args:
        candidate_words: The words of which a document must have one, if nothing is required. All words count in the score.
        paired: The number of documents with the best words among which pairs count. None: all.
    """
    statement = Statement()
    norm = sql.SQL("{} * ({} + {} * length / {})").format(
        sql.Literal(_BM25_K1), sql.Literal(1 - _BM25_B), sql.Literal(_BM25_B), statement.bind(weights.average_length)
    )
    units = [*zip(query.words, weights.words, strict=True), *zip(query.required, weights.required, strict=True)]
    word_score = _add([_score(statement, weight, _count(statement, term)) for term, weight in units])
    pair_units = zip(query.pairs, weights.pairs, strict=True)
    pair_score = _add([_score(statement, weight, _count_adjacent(statement, term)) for term, weight in pair_units])
    matched = sql.SQL(", ").join([_match(statement, term) for term in query.words])
    select = sql.SQL(
        "SELECT memory_id, word_score + {pair_score} AS score, ARRAY[{matched}]::boolean[] AS matched FROM ("
        "SELECT memory_id, words, stems, context, norm, {word_score} AS word_score FROM ("
        "SELECT memory_id, words, stems, context, ({norm})::float8 AS norm FROM rookery_texts WHERE {conditions} OFFSET 0"
        ") AS visible{only_best}"
        ") AS found ORDER BY score DESC, memory_id LIMIT {limit} OFFSET {offset}"
    ).format(
        pair_score=pair_score,
        norm=norm,
        matched=matched,
        word_score=word_score,
        conditions=sql.SQL(" AND ").join(build_conditions(statement, query, access_filter, candidate_words=candidate_words)),
        only_best=sql.SQL("")
        if paired is None
        else sql.SQL(" ORDER BY word_score DESC, memory_id LIMIT {}").format(statement.bind(paired)),
        limit=statement.bind(limit),
        offset=statement.bind(offset),
    )
    return select, statement.parameters


def build_count(query: PostgresQuery, access_filter: AccessFilter) -> tuple[sql.Composed, dict[str, object]]:
    """Return the query of the number of documents."""
    statement = Statement()
    conditions = build_conditions(statement, query, access_filter, candidate_words=query.words)
    return sql.SQL("SELECT count(*) FROM rookery_texts WHERE {}").format(sql.SQL(" AND ").join(conditions)), statement.parameters


def build_conditions(
    statement: Statement, query: PostgresQuery, access_filter: AccessFilter, *, candidate_words: Sequence[Term]
) -> list[sql.Composable]:
    """Return what a document must meet to match *query* and *access_filter*."""
    # A sum, so that the index of words is used, and not that of the workspace, whose documents may be many.
    conditions: list[sql.Composable] = [sql.SQL("workspace_id + 0 = {}").format(statement.bind(access_filter.workspace_id))]
    if query.required:
        conditions += [condition for term in query.required for condition in (_find(statement, [term]), _match(statement, term))]
    else:
        conditions.append(_find(statement, candidate_words))
        if any(term.adjacent for term in candidate_words):
            conditions.append(_any_of([_match(statement, term) for term in candidate_words]))
    conditions += [sql.SQL("NOT {}").format(_match(statement, term)) for term in query.excluded]
    return [*conditions, *_iter_access_conditions(statement, access_filter)]


def _iter_access_conditions(statement: Statement, access_filter: AccessFilter) -> Iterator[sql.Composable]:
    bind = statement.bind
    yield sql.SQL("(expires_at IS NULL OR expires_at > {})").format(bind(to_micros(access_filter.at)))
    yield _any_of([owner for scope in MemoryScope if (owner := _render_owner(statement, access_filter, scope)) is not None])
    for column, name, allowed, scopes in (
        ("org", access_filter.org, access_filter.orgs, _ORG_OPTIONAL_SCOPES),
        ("project", access_filter.project, access_filter.projects, _PROJECT_OPTIONAL_SCOPES),
    ):
        if name is not None or allowed is not None:
            names = {name} if allowed is None else set(allowed) if name is None else {name} & allowed
            yield sql.SQL("({0} = ANY({1}) OR ({0} IS NULL AND memory_scope = ANY({2})))").format(
                sql.Identifier(column), bind(sorted(map(str, names))), bind([scope.value for scope in scopes])
            )
    for column, value in (("type", access_filter.type), ("source", access_filter.source)):
        if value is not None:
            yield sql.SQL("{} = {}").format(sql.Identifier(column), bind(value))
    if access_filter.facets:
        yield sql.SQL("facets @> {}").format(bind([escape_facet(facet) for facet in sorted(access_filter.facets)]))
    if access_filter.min_confidence is not None:
        yield sql.SQL("confidence >= {}").format(bind(access_filter.min_confidence))
    if access_filter.since is not None:
        yield sql.SQL("created_at >= {}").format(bind(to_micros(access_filter.since)))
    if access_filter.until is not None:
        yield sql.SQL("created_at < {}").format(bind(to_micros(access_filter.until)))


def _render_owner(statement: Statement, access_filter: AccessFilter, scope: MemoryScope) -> sql.Composable | None:
    """Return the condition on readable memories of *scope*; None if no memory of it is readable."""
    if access_filter.scopes is not None and scope not in access_filter.scopes:
        return None
    in_scope = sql.SQL("memory_scope = {}").format(statement.bind(scope.value))
    owners = {MemoryScope.AGENT: ("agent_id", access_filter.agent_id), MemoryScope.SESSION: ("session_id", access_filter.session_id)}
    if scope not in owners:
        return in_scope
    column, owner = owners[scope]
    return None if owner is None else sql.SQL("({} AND {} = {})").format(in_scope, sql.Identifier(column), statement.bind(owner))


def _find(statement: Statement, terms: Sequence[Term]) -> sql.Composable:
    """Return the condition that the index answers: a document has one of *terms*, of adjacent stems all in any order."""
    return sql.SQL("words @@ {}::tsquery").format(statement.bind(" | ".join(f"({term.query})" for term in terms)))


def _match(statement: Statement, term: Term) -> sql.Composable:
    """Return the condition that a document has *term*."""
    forms = [sql.SQL("words @@ {}::tsquery").format(statement.bind(" | ".join(term.lexemes)))] if term.lexemes else []
    if not term.adjacent:
        return _any_of(forms)
    return _any_of(
        [*forms, _is_in(statement, "stems", term.adjacent), *([_is_in(statement, "context", term.adjacent)] if term.is_in_context else [])]
    )


def _count(statement: Statement, term: Term) -> sql.Composable:
    """Return how often *term* occurs, at most `MAX_OCCURRENCES` times; only in the context or in another form it counts less than once."""
    counts: list[sql.Composable] = [
        sql.SQL("({}::float8[])[1 + width_bucket(ts_rank({}::real[], words, {}::tsquery)::float8, {}::float8[])]").format(
            _COUNTS, _RANK_WEIGHTS, statement.bind(lexeme), _RANK_LIMITS
        )
        for lexeme in term.lexemes
    ]
    if term.adjacent:
        counts.append(_count_adjacent(statement, term))
    return sql.SQL("greatest({})").format(sql.SQL(", ").join(counts)) if len(counts) > 1 else counts[0]


def _count_adjacent(statement: Statement, term: Term) -> sql.Composable:
    """Return the number 1 if *term* stands in the content, less if it stands in the context, otherwise 0."""
    in_context = (
        sql.SQL(" WHEN {} THEN {}").format(_is_in(statement, "context", term.adjacent), sql.Literal(CONTEXT_WEIGHT))
        if term.is_in_context
        else sql.SQL("")
    )
    return sql.SQL("(CASE WHEN {} THEN 1{} ELSE 0 END)::float8").format(_is_in(statement, "stems", term.adjacent), in_context)


def _score(statement: Statement, weight: float, count: sql.Composable) -> sql.Composable:
    """Return the bm25 score of a term of *weight* that occurs *count* times: count * (k1 + 1) / (count + norm), with *count* once."""
    return sql.SQL("{} * (1 - norm / ({} + norm))").format(statement.bind(weight * (_BM25_K1 + 1)), count)


def _is_in(statement: Statement, column: str, adjacent: str) -> sql.Composable:
    return sql.SQL("strpos({}, {}) > 0").format(sql.Identifier(column), statement.bind(adjacent))


def _add(parts: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL("({})").format(sql.SQL(" + ").join(parts or [sql.SQL("0.0::float8")]))


def _any_of(conditions: Sequence[sql.Composable]) -> sql.Composable:
    return sql.SQL("({})").format(sql.SQL(" OR ").join(conditions or [sql.SQL("false")]))
