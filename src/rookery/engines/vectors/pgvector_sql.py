"""
The SQL of vectors in PostgreSQL with the extension pgvector. No I/O.

Each model version has a table with a row per chunk, which has the fields that queries filter by. `embedding` has full precision. An index
over its halves serves large workspaces, and its results are scored again from the full vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from psycopg import sql

from rookery.kernel.clock import to_micros
from rookery.memory.models import EmbeddedDocument, Vector
from rookery.memory.visibility import AllOf, AnyOf, Condition, Conditions, VectorFilter

Parameters = dict[str, object]

MAX_INDEXED_DIMENSION = 4_000
"""The dimension up to which pgvector builds an index of halves."""

SETUP_LOCK = 0x526F6F6B_76656374
"""The advisory lock of those who create tables and indexes."""

FIND_EXTENSION = sql.SQL(
    """
    SELECT nspname, has_schema_privilege(pg_namespace.oid, 'USAGE'), current_user::text
    FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector'
    """
)
CREATE_EXTENSION = sql.SQL("CREATE EXTENSION IF NOT EXISTS vector")
CREATE_VERSIONS = sql.SQL(
    """
    CREATE TABLE IF NOT EXISTS rookery_vector_versions (
        id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, model text NOT NULL, dimension integer NOT NULL, UNIQUE (model, dimension)
    )
    """
)
FIND_VERSIONS_TABLE = sql.SQL("SELECT to_regclass('rookery_vector_versions') IS NOT NULL")
FIND_VERSION = sql.SQL("SELECT id FROM rookery_vector_versions WHERE model = %(model)s AND dimension = %(dimension)s")
LIST_VERSIONS = sql.SQL("SELECT id FROM rookery_vector_versions ORDER BY id")
ADD_VERSION = sql.SQL("INSERT INTO rookery_vector_versions (model, dimension) VALUES (%(model)s, %(dimension)s) RETURNING id")

_CREATE_TABLE = """
CREATE TABLE {table} (
    workspace_id bigint NOT NULL, memory_id text COLLATE "C" NOT NULL, chunk integer NOT NULL, put_id bigint NOT NULL,
    embedding {extension}.vector({dimension}) NOT NULL,
    org text, project text, agent_id text, session_id text, memory_scope text NOT NULL, type text NOT NULL, source text NOT NULL,
    facets text[] NOT NULL, confidence double precision NOT NULL, created_at bigint NOT NULL, expires_at bigint,
    PRIMARY KEY (workspace_id, memory_id, chunk)
)
"""
_COLUMNS = (
    *("workspace_id", "memory_id", "chunk", "put_id", "embedding", "org", "project", "agent_id", "session_id", "memory_scope"),
    *("type", "source", "facets", "confidence", "created_at", "expires_at"),
)
_KEY_COLUMNS = frozenset({"workspace_id", "memory_id", "chunk"})


@dataclass(frozen=True, slots=True)
class VersionTable:
    """
    The table of a model version.

    Attributes:
        extension_schema: The schema of pgvector, which need not be in the search path: hosted PostgreSQL often has it in `extensions`. All
            types, operators and functions of pgvector are named with it.
    """

    version_id: int
    dimension: int
    extension_schema: str

    @property
    def name(self) -> str:
        return f"rookery_vectors_{self.version_id}"

    @property
    def index_name(self) -> str:
        """The name of its index of halves."""
        return f"{self.name}_hnsw"

    @property
    def is_indexable(self) -> bool:
        """True if pgvector can index vectors of this dimension."""
        return self.dimension <= MAX_INDEXED_DIMENSION

    def create(self) -> list[sql.Composed]:
        """Return the statements that create the table. A sequence numbers the writes."""
        return [
            self._compose(_CREATE_TABLE),
            self._compose("CREATE SEQUENCE IF NOT EXISTS {sequence}"),
        ]

    def create_index(self) -> sql.Composed:
        """Return the statement that builds the index while others write."""
        statement = "CREATE INDEX CONCURRENTLY {index} ON {table} USING hnsw "
        statement += "((embedding::{extension}.halfvec({dimension})) {extension}.halfvec_ip_ops)"
        return self._compose(statement)

    def drop_index(self) -> sql.Composed:
        """Return the statement that removes an index whose build failed."""
        return self._compose("DROP INDEX IF EXISTS {index}")

    def find_index(self) -> sql.Composed:
        """Return the query of whether the index is complete: a row with True or False, or no row."""
        return self._compose("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass({index_text})")

    def find_index_build(self) -> sql.Composed:
        """Return the query for a build of an index that is in progress: a row, or no row."""
        return self._compose("SELECT 1 FROM pg_stat_progress_create_index WHERE relid = to_regclass({table_text})")

    def next_put(self) -> sql.Composed:
        """Return the query for the number of a write."""
        return self._compose("SELECT nextval({sequence_text}::regclass)")

    def put(self) -> sql.Composed:
        """Return the statement that writes a row, in place of an existing one."""
        names = sql.SQL(", ").join(map(sql.Identifier, _COLUMNS))
        values = sql.SQL(", ").join(
            sql.SQL("{}::{}.vector").format(sql.Placeholder(name), self._extension) if name == "embedding" else sql.Placeholder(name)
            for name in _COLUMNS
        )
        updates = sql.SQL(", ").join(
            sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in _COLUMNS if name not in _KEY_COLUMNS
        )
        statement = "INSERT INTO {table} ({names}) VALUES ({values}) ON CONFLICT (workspace_id, memory_id, chunk) DO UPDATE SET {updates}"
        return self._compose(statement, names=names, values=values, updates=updates)

    def delete_chunks(self) -> sql.Composed:
        """Return the statement that deletes the chunks of a memory from a number on."""
        return self._compose(
            "DELETE FROM {table} WHERE workspace_id = %(workspace_id)s AND memory_id = %(memory_id)s AND chunk >= %(chunk)s"
        )

    def delete_memories(self) -> sql.Composed:
        """Return the statement that deletes the memories with given ids."""
        return self._compose("DELETE FROM {table} WHERE workspace_id = %(workspace_id)s AND memory_id = ANY(%(ids)s)")

    def delete_before(self) -> sql.Composed:
        """Return the statement that deletes rows of a workspace, at most a given number, that were written before a given write."""
        return self._compose(
            """
            DELETE FROM {table} WHERE workspace_id = %(workspace_id)s AND put_id < %(put_id)s AND (memory_id, chunk) IN (
                SELECT memory_id, chunk FROM {table} WHERE workspace_id = %(workspace_id)s AND put_id < %(put_id)s LIMIT %(at_most)s
            )
            """
        )

    def fetch(self) -> sql.Composed:
        """Return the query of the vectors of given memories, by id and chunk."""
        return self._compose(
            "SELECT memory_id, {extension}.vector_send(embedding) FROM {table} "
            "WHERE workspace_id = %(workspace_id)s AND memory_id = ANY(%(ids)s) ORDER BY memory_id, chunk"
        )

    def count(self) -> sql.Composed:
        """Return the query of the number of memories of a workspace."""
        return self._compose("SELECT count(*) FROM {table} WHERE workspace_id = %(workspace_id)s AND chunk = 0")

    def count_rows(self) -> sql.Composed:
        """Return the query of the number of rows of a workspace, up to a limit."""
        return self._compose("SELECT count(*) FROM (SELECT 1 FROM {table} WHERE workspace_id = %(workspace_id)s LIMIT %(at_most)s) AS rows")

    def vacuum(self) -> sql.Composed:
        """Return the statement that frees the space of deleted rows."""
        return self._compose("VACUUM {table}")

    def search_exactly(self, condition: sql.Composable) -> sql.Composed:
        """Return the query of the best memories by id and similarity, computed from all rows that match."""
        return self._compose(
            "SELECT memory_id, max(-(embedding OPERATOR({extension}.<#>) %(query)s::{extension}.vector)) AS similarity "
            "FROM {table} WHERE {condition} "
            "GROUP BY memory_id ORDER BY similarity DESC, memory_id LIMIT %(at_most)s",
            condition=condition,
        )

    def search_index(self, condition: sql.Composable) -> sql.Composed:
        """Return the query of the nearest rows, found by the index, with their exact similarity."""
        return self._compose(
            "SELECT memory_id, -(embedding OPERATOR({extension}.<#>) %(query)s::{extension}.vector) AS similarity "
            "FROM {table} WHERE {condition} "
            "ORDER BY (embedding::{extension}.halfvec({dimension})) OPERATOR({extension}.<#>) "
            "%(query)s::{extension}.vector::{extension}.halfvec({dimension}) LIMIT %(at_most)s",
            condition=condition,
        )

    @property
    def _extension(self) -> sql.Identifier:
        return sql.Identifier(self.extension_schema)

    def _compose(self, statement: str, **parts: sql.Composable) -> sql.Composed:
        sequence = f"{self.name}_puts"
        return sql.SQL(statement).format(  # pyright: ignore[reportArgumentType] - the texts above
            table=sql.Identifier(self.name),
            extension=self._extension,
            sequence=sql.Identifier(sequence),
            sequence_text=sql.Literal(sequence),
            table_text=sql.Literal(self.name),
            index=sql.Identifier(self.index_name),
            index_text=sql.Literal(self.index_name),
            dimension=sql.Literal(self.dimension),
            **parts,
        )


def render_condition(where: VectorFilter) -> tuple[sql.Composable, Parameters] | None:
    """Return the condition of a filter with its parameters; None if nothing can match."""
    parameters: Parameters = {"workspace_id": where.workspace_id}
    parts: list[sql.Composable] = [sql.SQL("workspace_id = %(workspace_id)s")]
    parts += _render_conditions(where.required, parameters)
    if where.alternatives is not None:
        if not where.alternatives:
            return None
        alternatives = [
            sql.SQL("({})").format(sql.SQL(" AND ").join(_render_conditions(conditions, parameters) or [sql.SQL("true")]))
            for conditions in where.alternatives
        ]
        parts.append(sql.SQL("({})").format(sql.SQL(" OR ").join(alternatives)))
    return sql.SQL(" AND ").join(parts), parameters


def _render_conditions(conditions: Conditions, parameters: Parameters) -> list[sql.Composable]:
    return [_render_one(sql.Identifier(column), condition, parameters) for column, condition in conditions.items()]


def _render_one(column: sql.Identifier, condition: Condition, parameters: Parameters) -> sql.Composable:
    def bind(value: object) -> sql.Placeholder:
        name = f"p{len(parameters)}"
        parameters[name] = value
        return sql.Placeholder(name)

    if isinstance(condition, AnyOf):
        names = sorted(value for value in condition.values if value is not None)
        is_any = sql.SQL("{} = ANY({})").format(column, bind(names))
        return sql.SQL("({} OR {} IS NULL)").format(is_any, column) if None in condition.values else is_any
    if isinstance(condition, AllOf):
        return sql.SQL("{} @> {}").format(column, bind(sorted(_escape(value) for value in condition.values)))
    limits: list[sql.Composable] = []
    if condition.minimum is not None:
        limits.append(sql.SQL("{} >= {}").format(column, bind(condition.minimum)))
    if condition.end is not None:
        limits.append(sql.SQL("{} < {}").format(column, bind(condition.end)))
    within = sql.SQL("({})").format(sql.SQL(" AND ").join(limits or [sql.SQL("{} IS NOT NULL").format(column)]))
    return sql.SQL("({} OR {} IS NULL)").format(within, column) if condition.or_missing else within


def make_rows(item: EmbeddedDocument, put_id: int) -> list[Parameters]:
    """Return the parameters of `VersionTable.put` for each chunk of a document."""
    document = item.document
    fields: Parameters = {
        "workspace_id": document.workspace_id,
        "memory_id": document.memory_id,
        "put_id": put_id,
        "org": document.org,
        "project": document.project,
        "agent_id": document.agent_id,
        "session_id": document.session_id,
        "memory_scope": document.memory_scope.value,
        "type": document.type,
        "source": document.source,
        "facets": [_escape(facet) for facet in document.facets],
        "confidence": document.confidence,
        "created_at": to_micros(document.created_at),
        "expires_at": None if document.expires_at is None else to_micros(document.expires_at),
    }
    return [{**fields, "chunk": number, "embedding": to_literal(chunk)} for number, chunk in enumerate(item.vectors)]


def to_literal(vector: Vector) -> str:
    """Return a vector as the text that pgvector reads, without a loss of precision."""
    return f"[{','.join(map(repr, np.frombuffer(vector, '<f4').tolist()))}]"


def from_binary(data: bytes) -> Vector:
    """Return the vector that `vector_send` encoded: two numbers of two bytes, then floats, in network order."""
    return np.frombuffer(data, ">f4", offset=4).astype("<f4").tobytes()


def group_by_memory(rows: Sequence[tuple[str, float]]) -> dict[str, float]:
    """Return the best similarity of each memory of *rows*."""
    best = dict[str, float]()
    for memory_id, similarity in rows:
        best[memory_id] = max(similarity, best.get(memory_id, -1.0))
    return best


def _escape(facet: str) -> str:
    """Return a facet without NUL, which PostgreSQL cannot store. Only labels begin with it."""
    return f"label:{facet[1:]}" if facet.startswith("\0") else f"tag:{facet}"
