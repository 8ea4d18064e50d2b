"""
One ledger of usage, budgets by period, the currency of generations, and what agents report with the tokens of a session.

The ledger takes over the sums of content generation, of the tool calls that are still stored, and of the tokens that agents reported.
An empty currency is that of the settings.
"""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"

_DAY = {"sqlite": "strftime('%Y-%m-%d', {column} / 1000000, 'unixepoch')"}
_DAY["postgresql"] = "to_char(to_timestamp({column} / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"

_FROM_CONTENT = """
    INSERT INTO usage_days
    SELECT workspace_id, day, 'generation', key_id, '', model, '', '', requests, failed, cancelled, input_tokens, cached_tokens,
        output_tokens, reasoning_tokens, 0,
        CASE WHEN cost_nanos = 0 AND input_tokens + output_tokens > 0 THEN requests ELSE 0 END, cost_nanos, 0
    FROM content_usage
"""
_FROM_TOOL_CALLS = """
    INSERT INTO usage_days
    SELECT workspace_id, {day}, 'tool_call', key_id, COALESCE(agent_id, ''), '', server_id || '/' || tool, '', COUNT(*),
        SUM(CASE WHEN success = 0 AND (code IS NULL OR code <> 'input_required') THEN 1 ELSE 0 END), 0, 0, 0, 0, 0, 0, 0, 0,
        CAST(SUM(duration_ms) * 1000 AS BIGINT)
    FROM tool_calls
    GROUP BY workspace_id, {day}, key_id, COALESCE(agent_id, ''), server_id || '/' || tool
"""
_FROM_SESSIONS = """
    INSERT INTO usage_days
    SELECT events.workspace_id, {day}, 'session', sessions.key_id, sessions.agent_id, '', '', '', COUNT(*), 0, 0,
        CAST(SUM(events.tokens_in) AS BIGINT), 0, CAST(SUM(events.tokens_out) AS BIGINT), 0, 0, COUNT(*), 0, 0
    FROM agent_session_events AS events
    JOIN agent_sessions AS sessions ON sessions.id = events.session_id AND sessions.workspace_id = events.workspace_id
    WHERE events.tokens_in + events.tokens_out > 0
    GROUP BY events.workspace_id, {day}, sessions.key_id, sessions.agent_id
"""
_SPENDING = """
    INSERT INTO budget_spending (workspace_id, holder, span, reserved_nanos, spent_nanos)
    SELECT workspace_id, key_id, {span}, CAST(SUM(reserved_nanos) AS BIGINT), CAST(SUM(spent_nanos) AS BIGINT)
    FROM content_spending
    GROUP BY workspace_id, key_id, {span}
"""


def upgrade() -> None:
    """Create the ledger with the usage so far, and change the tables of budgets and of events."""
    op.create_table(
        "usage_days",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("day", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("key_id", sa.Text, primary_key=True),
        sa.Column("agent_id", sa.Text, primary_key=True),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("tool", sa.Text, primary_key=True),
        sa.Column("currency", sa.Text, primary_key=True),
        sa.Column("calls", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("cancelled", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("estimated_calls", sa.BigInteger, nullable=False),
        sa.Column("unpriced_calls", sa.BigInteger, nullable=False),
        sa.Column("cost_nanos", sa.BigInteger, nullable=False),
        sa.Column("duration_us", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_usage_days_day", "usage_days", ["day"])
    day = _DAY[op.get_bind().dialect.name]
    op.execute(_FROM_CONTENT)
    op.execute(_FROM_TOOL_CALLS.format(day=day.format(column="called_at")))
    op.execute(_FROM_SESSIONS.format(day=day.format(column="events.created_at")))
    op.drop_table("content_usage")
    op.create_table(
        "budget_limits",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("holder", sa.Text, primary_key=True),
        sa.Column("period", sa.Text, primary_key=True),
        sa.Column("limit_nanos", sa.BigInteger),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.execute(
        "INSERT INTO budget_limits (workspace_id, holder, period, limit_nanos, updated_at)"
        " SELECT workspace_id, key_id, 'day', daily_nanos, updated_at FROM content_budgets"
    )
    op.drop_table("content_budgets")
    op.create_table(
        "budget_spending",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("holder", sa.Text, primary_key=True),
        sa.Column("span", sa.Text, primary_key=True),
        sa.Column("reserved_nanos", sa.BigInteger, nullable=False),
        sa.Column("spent_nanos", sa.BigInteger, nullable=False),
    )
    op.execute(_SPENDING.format(span="day"))
    op.execute(_SPENDING.format(span="substr(day, 1, 7)"))  # the months of these days
    op.drop_table("content_spending")
    op.add_column("generations", sa.Column("currency", sa.Text))
    op.add_column("agent_session_events", sa.Column("tokens_cached", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("agent_session_events", sa.Column("model", sa.Text))
    op.add_column("agent_session_events", sa.Column("cost_nanos", sa.BigInteger))
    op.add_column("agent_session_events", sa.Column("currency", sa.Text))
