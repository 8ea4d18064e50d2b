"""
The SQL of full text in PostgreSQL. No I/O.

A row per memory has the fields that queries filter by, and its words twice: as a `tsvector` with a GIN index, which finds and counts them,
and as a text of stems in order, in which phrases are found. A `tsvector` has positions too, but of at most 256 occurrences of a word.

Each lexeme begins with the workspace. So the words of a workspace are a part of the index by themselves, and no count contains other
workspaces. The positions of a lexeme are the numbers of its occurrences in the content; one that is only in the context has the label C.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from rookery.engines.texts.words import StemmedQuery, describe_context, stem_text
from rookery.kernel.clock import to_micros
from rookery.kernel.languages import to_stem_terms
from rookery.kernel.tokenization import to_index_text
from rookery.memory.models import IndexDocument

Parameters = dict[str, object]

SETUP_LOCK = 0x526F6F6B_74657874
"""The advisory lock of those who create the table."""

FIND_TABLE = sql.SQL("SELECT to_regclass('rookery_texts') IS NOT NULL AND to_regclass('rookery_texts_words') IS NOT NULL")
CREATE_TABLE = sql.SQL(
    """
    CREATE TABLE IF NOT EXISTS rookery_texts (
        workspace_id bigint NOT NULL, memory_id text COLLATE "C" NOT NULL,
        words tsvector NOT NULL, stems text COLLATE "C" NOT NULL, context text COLLATE "C" NOT NULL, length integer NOT NULL,
        org text, project text, agent_id text, session_id text, memory_scope text NOT NULL, type text NOT NULL, source text NOT NULL,
        facets text[] NOT NULL, confidence double precision NOT NULL, created_at bigint NOT NULL, updated_at bigint NOT NULL,
        expires_at bigint,
        PRIMARY KEY (workspace_id, memory_id) INCLUDE (length)
    )
    """
)
CREATE_INDEX = sql.SQL("CREATE INDEX IF NOT EXISTS rookery_texts_words ON rookery_texts USING gin (words) WITH (fastupdate = off)")
"""Without `fastupdate`, whose list of pending entries every search would read."""

CREATE_FILTER_INDEXES = {
    "rookery_texts_facets": sql.SQL("CREATE INDEX rookery_texts_facets ON rookery_texts USING gin (facets) WITH (fastupdate = off)"),
    "rookery_texts_agents": sql.SQL("CREATE INDEX rookery_texts_agents ON rookery_texts (agent_id) WHERE agent_id IS NOT NULL"),
    "rookery_texts_sessions": sql.SQL("CREATE INDEX rookery_texts_sessions ON rookery_texts (session_id) WHERE session_id IS NOT NULL"),
    "rookery_texts_times": sql.SQL("CREATE INDEX rookery_texts_times ON rookery_texts (created_at)"),
}
"""
Indexes for filters that few memories meet. Otherwise a search for common words reads the rows of all memories that have one.

They lack the workspace, which searches compare by a sum: PostgreSQL combines them with the index of words.
"""
LACKS_INDEX = sql.SQL("SELECT to_regclass(%(name)s) IS NULL")
"""`CREATE INDEX IF NOT EXISTS` would wait for all writers of the table, even if the index exists."""

DROP = sql.SQL("DELETE FROM rookery_texts WHERE workspace_id = %(workspace_id)s AND memory_id = ANY(%(ids)s)")
LIST_IDS = sql.SQL(
    """
    SELECT workspace_id, memory_id FROM rookery_texts WHERE (workspace_id, memory_id) > (%(workspace_id)s, %(memory_id)s)
    ORDER BY workspace_id, memory_id LIMIT %(at_most)s
    """
)
COUNT_ALL = sql.SQL("SELECT count(*) FROM rookery_texts WHERE workspace_id = %(workspace_id)s")
_COUNT_MATCHES = """
    SELECT wanted.number,
      (SELECT count(*) FROM rookery_texts WHERE workspace_id + 0 = %(workspace_id)s AND words @@ wanted.query), 0::float8
    FROM unnest(%(queries)s::tsquery[]) WITH ORDINALITY AS wanted (query, number)
"""
_MEASURE = "SELECT 0, count(*), coalesce(avg(length), 0)::float8 FROM rookery_texts WHERE workspace_id = %(workspace_id)s"
COUNT_MATCHES = sql.SQL(f"{_COUNT_MATCHES} ORDER BY 1")
"""The sum keeps PostgreSQL from reading the whole workspace by the primary key as well: the lexemes of *queries* belong to it alone."""

COUNT_MATCHES_AND_ALL = sql.SQL(f"{_MEASURE} UNION ALL {_COUNT_MATCHES} ORDER BY 1")
"""The first row has the number of documents of the workspace and their mean length."""

VACUUM = sql.SQL("VACUUM rookery_texts")

_COLUMNS = (
    *("workspace_id", "memory_id", "words", "stems", "context", "length", "org", "project", "agent_id", "session_id", "memory_scope"),
    *("type", "source", "facets", "confidence", "created_at", "updated_at", "expires_at"),
)
_KEY_COLUMNS = frozenset({"workspace_id", "memory_id"})

MAX_OCCURRENCES = 32
"""Occurrences of a word that count. More would raise its score by less than 4 %."""

_MAX_WORDS_BYTES = 1_000_000
"""The size up to which lexemes are added. A `tsvector` has less than 1 MiB, which only 50,000 letters without a repetition exceed."""

_LEXEME_BYTES = 12
"""The space of a lexeme beside its letters and positions, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """
    A word, pair or phrase of a query.

    Attributes:
        query: The `tsquery` that every document with the term matches. Documents that match may lack a term of several stems.
        lexemes: The stem and the stems of other languages, each a `tsquery`; empty for adjacent stems.
        adjacent: Stems that must be adjacent, with spaces around each; empty for one stem.
        is_in_context: The term may stand in the context.
    """

    query: str
    lexemes: tuple[str, ...] = ()
    adjacent: str = ""
    is_in_context: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresQuery:
    """
    A query as terms.

    Attributes:
        words: Terms of which one must match, unless there are *required* ones.
        required: Terms that must match.
        pairs: Terms that raise the score.
        excluded: Terms that must not match.
    """

    words: Sequence[Term]
    required: Sequence[Term]
    pairs: Sequence[Term]
    excluded: Sequence[Term]


def build_put(*, is_early: bool) -> sql.Composed:
    """Return the statement that writes a row: over an older one if *is_early*, otherwise over one that differs."""
    names = sql.SQL(", ").join(map(sql.Identifier, _COLUMNS))
    values = sql.SQL(", ").join(
        sql.SQL("{}::tsvector").format(sql.Placeholder(name)) if name == "words" else sql.Placeholder(name) for name in _COLUMNS
    )
    changed = [name for name in _COLUMNS if name not in _KEY_COLUMNS]
    updates = sql.SQL(", ").join(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in changed)
    if is_early:
        condition: sql.Composable = sql.SQL("rookery_texts.updated_at < EXCLUDED.updated_at")
    else:
        old, new = (sql.SQL(", ").join(sql.Identifier(table, name) for name in changed) for table in ("rookery_texts", "excluded"))
        condition = sql.SQL("({}) IS DISTINCT FROM ({})").format(old, new)
    statement = "INSERT INTO rookery_texts ({}) VALUES ({}) ON CONFLICT (workspace_id, memory_id) DO UPDATE SET {} WHERE {}"
    return sql.SQL(statement).format(names, values, updates, condition)


def make_row(document: IndexDocument) -> Parameters:
    """Return the parameters of `build_put`."""
    stems = stem_text(to_index_text(document.content))
    context = stem_text(to_index_text(describe_context(document)))
    return {
        "workspace_id": document.workspace_id,
        "memory_id": document.memory_id,
        "words": _to_tsvector(document.workspace_id, stems, [*context, *to_stem_terms(document.content)]),
        "stems": _space(stems),
        "context": _space(context),
        "length": len(stems),
        "org": document.org,
        "project": document.project,
        "agent_id": document.agent_id,
        "session_id": document.session_id,
        "memory_scope": document.memory_scope.value,
        "type": document.type,
        "source": document.source,
        "facets": [escape_facet(facet) for facet in document.facets],
        "confidence": document.confidence,
        "created_at": to_micros(document.created_at),
        "updated_at": to_micros(document.updated_at),
        "expires_at": None if document.expires_at is None else to_micros(document.expires_at),
    }


def build_query(query: StemmedQuery, workspace_id: int) -> PostgresQuery:
    """Return *query* as terms of a workspace."""
    return PostgresQuery(
        words=[_build_term(workspace_id, stems, query.stem_terms.get(word, ())) for word, stems in query.words.items()],
        required=[_build_term(workspace_id, stems, is_in_context=False) for stems in query.phrases],
        pairs=[_build_term(workspace_id, stems, is_in_context=False) for stems in query.pairs],
        excluded=[_build_term(workspace_id, stems, is_in_context=False) for stems in query.excluded],
    )


def _build_term(workspace_id: int, stems: Sequence[str], other_forms: Sequence[str] = (), *, is_in_context: bool = True) -> Term:
    lexemes = [_to_lexeme(workspace_id, stem) for stem in dict.fromkeys(stems)]
    forms = [_to_lexeme(workspace_id, form) for form in other_forms]
    query = " | ".join([" & ".join(lexemes), *forms])
    if len(stems) == 1 and is_in_context:
        return Term(query=query, lexemes=(*lexemes, *forms))
    return Term(query=query, lexemes=tuple(forms), adjacent=_space(stems), is_in_context=is_in_context)


def _to_tsvector(workspace_id: int, stems: Sequence[str], context: Sequence[str]) -> str:
    """Return the text of a `tsvector`. A lexeme without positions is one that occurs once in the content."""
    counts = Counter(stems)
    parts, size = list[str](), 0
    for stem in dict.fromkeys((*context, *stems)):
        lexeme, count = _to_lexeme(workspace_id, stem), min(counts[stem], MAX_OCCURRENCES)
        size += len(lexeme.encode()) + _LEXEME_BYTES + 2 * count
        if size > _MAX_WORDS_BYTES:
            break
        positions = ",".join(map(str, range(1, count + 1))) if count else "1C"
        parts.append(lexeme if count == 1 else f"{lexeme}:{positions}")
    return " ".join(parts)


def _to_lexeme(workspace_id: int, stem: str) -> str:
    """Return the lexeme of a stem as a quoted part of a `tsvector` or `tsquery`."""
    escaped = stem.replace("\\", "\\\\").replace("'", "''")
    return f"'{workspace_id}:{escaped}'"


def _space(stems: Sequence[str]) -> str:
    """Return *stems* with a space before, between and after them."""
    return f" {' '.join(stems)} " if stems else ""


def escape_facet(facet: str) -> str:
    """Return a facet without NUL, which PostgreSQL cannot store. Only labels begin with it."""
    return f"label:{facet[1:]}" if facet.startswith("\0") else f"tag:{facet}"
