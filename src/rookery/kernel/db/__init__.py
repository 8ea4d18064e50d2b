"""
The record store: SQLAlchemy Core statements in transactions, on SQLite or PostgreSQL.

A transaction is a plain function of a `Tx` that runs to its end: no await happens while it holds a lock, and on SQLite many
transactions share a commit. Columns hold primitive values (text, integers, floats, bytes), so that rows are the same in both
dialects: times are UTC microseconds, flags are 0 or 1, JSON is text. A `Mapper` converts between them and a dataclass,
and a `WorkspaceTable` has the queries that every table of a workspace has.

The migrations create all indexes. The tables name the condition of a partial index for SQLite only, because `postgresql_where` would import
SQLAlchemy's dialect of PostgreSQL at each start (25 ms).
"""

from rookery.kernel.db.database import Database, MessageChannel, describe_pooler, dry_run, open_channel, open_database
from rookery.kernel.db.keyset import KeysetList
from rookery.kernel.db.mapper import Codec, Mapper, codec_for, encode_json
from rookery.kernel.db.statements import Row, Statement, Upsert, Value, match_part, metadata, upsert
from rookery.kernel.db.transaction import TRANSACTION_HOOKS, Dialect, TransactionHook, Tx, fetch_count, get_transaction_hook, purge_tables
from rookery.kernel.db.workspace_table import Nested, WorkspaceTable, map_table

__all__ = [
    "TRANSACTION_HOOKS",
    "Codec",
    "Database",
    "Dialect",
    "KeysetList",
    "Mapper",
    "MessageChannel",
    "Nested",
    "Row",
    "Statement",
    "TransactionHook",
    "Tx",
    "Upsert",
    "Value",
    "WorkspaceTable",
    "codec_for",
    "describe_pooler",
    "dry_run",
    "encode_json",
    "fetch_count",
    "get_transaction_hook",
    "map_table",
    "match_part",
    "metadata",
    "open_channel",
    "open_database",
    "purge_tables",
    "upsert",
]
