"""
Operations of `client.usage`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Literal


from rookery_client.calls import UNSET, Call, Unset, given
from rookery_client.generated import models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class UsageOperations:
    """Operations of `client.usage`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_usage(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: date | str | Unset = UNSET, until: date | str | Unset = UNSET, month: str | Unset = UNSET, last: str | Unset = UNSET,
        by: Sequence[Literal["day", "month", "workspace", "kind", "key", "agent", "model", "tool"]] | Unset = UNSET,
        kind: Sequence[Literal["generation", "judge", "embedding", "session", "tool_call"]] | Unset = UNSET,
        key_id: str | Unset = UNSET, agent_id: str | Unset = UNSET, model: str | Unset = UNSET, tool: str | Unset = UNSET,
        workspace: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> Page[models.UsageGroup]:
        """
        Add up calls, tokens and cost of generations, judge calls, embeddings, sessions of agents, and tool calls.

        `kind` tells them apart. The tokens of `session` are those that agents report; everything else is counted by Rookery. Days are
        in UTC. The newest day or month is first, then the highest cost.

        Requires the scope `usage:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: The first day, UTC.
            until: The last day, UTC; by default today.
            month: A calendar month such as 2026-11, or `this` or `last`, in place of days.
            last: The last days up to today, such as 7d, in place of days.
            by: Fields to group by: day, month, workspace, kind, key, agent, model, tool.
            kind: Only these kinds: generation, judge, embedding, session, tool_call.
            key_id: Only this key.
            agent_id: Only this agent.
            model: Only this model.
            tool: Only this tool, as `server/tool`.
            workspace: The id of another workspace, or `all`. Needs platform:workspaces; by default the workspace of the key.
            format: CSV contains all groups instead of one page. `Accept: text/csv` asks for it too.
        """
        return self._session.send_page(Call(
            operation="get_usage", method="GET", path="/api/agent/usage", result=PageBody[models.UsageGroup],
            query=given(
                cursor=cursor, page=page, per_page=per_page, since=since, until=until, month=month, last=last, by=by, kind=kind,
                key_id=key_id, agent_id=agent_id, model=model, tool=tool, workspace=workspace, format=format,
            ),
        ))

    def get_usage_csv(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: date | str | Unset = UNSET, until: date | str | Unset = UNSET, month: str | Unset = UNSET, last: str | Unset = UNSET,
        by: Sequence[Literal["day", "month", "workspace", "kind", "key", "agent", "model", "tool"]] | Unset = UNSET,
        kind: Sequence[Literal["generation", "judge", "embedding", "session", "tool_call"]] | Unset = UNSET,
        key_id: str | Unset = UNSET, agent_id: str | Unset = UNSET, model: str | Unset = UNSET, tool: str | Unset = UNSET,
        workspace: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> str:
        """
        Add up calls, tokens and cost of generations, judge calls, embeddings, sessions of agents, and tool calls.

        `kind` tells them apart. The tokens of `session` are those that agents report; everything else is counted by Rookery. Days are
        in UTC. The newest day or month is first, then the highest cost.

        Requires the scope `usage:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: The first day, UTC.
            until: The last day, UTC; by default today.
            month: A calendar month such as 2026-11, or `this` or `last`, in place of days.
            last: The last days up to today, such as 7d, in place of days.
            by: Fields to group by: day, month, workspace, kind, key, agent, model, tool.
            kind: Only these kinds: generation, judge, embedding, session, tool_call.
            key_id: Only this key.
            agent_id: Only this agent.
            model: Only this model.
            tool: Only this tool, as `server/tool`.
            workspace: The id of another workspace, or `all`. Needs platform:workspaces; by default the workspace of the key.
            format: CSV contains all groups instead of one page. `Accept: text/csv` asks for it too.
        """
        return self._session.send(Call(
            operation="get_usage", method="GET", path="/api/agent/usage", result=str,
            query=given(
                cursor=cursor, page=page, per_page=per_page, since=since, until=until, month=month, last=last, by=by, kind=kind,
                key_id=key_id, agent_id=agent_id, model=model, tool=tool, workspace=workspace, format=format,
            ),
            reader="text", accept="text/csv",
        ))


class AsyncUsageOperations:
    """Operations of `client.usage`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get_usage(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: date | str | Unset = UNSET, until: date | str | Unset = UNSET, month: str | Unset = UNSET, last: str | Unset = UNSET,
        by: Sequence[Literal["day", "month", "workspace", "kind", "key", "agent", "model", "tool"]] | Unset = UNSET,
        kind: Sequence[Literal["generation", "judge", "embedding", "session", "tool_call"]] | Unset = UNSET,
        key_id: str | Unset = UNSET, agent_id: str | Unset = UNSET, model: str | Unset = UNSET, tool: str | Unset = UNSET,
        workspace: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> AsyncPage[models.UsageGroup]:
        """
        Add up calls, tokens and cost of generations, judge calls, embeddings, sessions of agents, and tool calls.

        `kind` tells them apart. The tokens of `session` are those that agents report; everything else is counted by Rookery. Days are
        in UTC. The newest day or month is first, then the highest cost.

        Requires the scope `usage:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: The first day, UTC.
            until: The last day, UTC; by default today.
            month: A calendar month such as 2026-11, or `this` or `last`, in place of days.
            last: The last days up to today, such as 7d, in place of days.
            by: Fields to group by: day, month, workspace, kind, key, agent, model, tool.
            kind: Only these kinds: generation, judge, embedding, session, tool_call.
            key_id: Only this key.
            agent_id: Only this agent.
            model: Only this model.
            tool: Only this tool, as `server/tool`.
            workspace: The id of another workspace, or `all`. Needs platform:workspaces; by default the workspace of the key.
            format: CSV contains all groups instead of one page. `Accept: text/csv` asks for it too.
        """
        return await self._session.send_page(Call(
            operation="get_usage", method="GET", path="/api/agent/usage", result=PageBody[models.UsageGroup],
            query=given(
                cursor=cursor, page=page, per_page=per_page, since=since, until=until, month=month, last=last, by=by, kind=kind,
                key_id=key_id, agent_id=agent_id, model=model, tool=tool, workspace=workspace, format=format,
            ),
        ))

    async def get_usage_csv(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        since: date | str | Unset = UNSET, until: date | str | Unset = UNSET, month: str | Unset = UNSET, last: str | Unset = UNSET,
        by: Sequence[Literal["day", "month", "workspace", "kind", "key", "agent", "model", "tool"]] | Unset = UNSET,
        kind: Sequence[Literal["generation", "judge", "embedding", "session", "tool_call"]] | Unset = UNSET,
        key_id: str | Unset = UNSET, agent_id: str | Unset = UNSET, model: str | Unset = UNSET, tool: str | Unset = UNSET,
        workspace: str | Unset = UNSET, format: Literal["json", "csv"] | Unset = UNSET,
    ) -> str:
        """
        Add up calls, tokens and cost of generations, judge calls, embeddings, sessions of agents, and tool calls.

        `kind` tells them apart. The tokens of `session` are those that agents report; everything else is counted by Rookery. Days are
        in UTC. The newest day or month is first, then the highest cost.

        Requires the scope `usage:read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            since: The first day, UTC.
            until: The last day, UTC; by default today.
            month: A calendar month such as 2026-11, or `this` or `last`, in place of days.
            last: The last days up to today, such as 7d, in place of days.
            by: Fields to group by: day, month, workspace, kind, key, agent, model, tool.
            kind: Only these kinds: generation, judge, embedding, session, tool_call.
            key_id: Only this key.
            agent_id: Only this agent.
            model: Only this model.
            tool: Only this tool, as `server/tool`.
            workspace: The id of another workspace, or `all`. Needs platform:workspaces; by default the workspace of the key.
            format: CSV contains all groups instead of one page. `Accept: text/csv` asks for it too.
        """
        return await self._session.send(Call(
            operation="get_usage", method="GET", path="/api/agent/usage", result=str,
            query=given(
                cursor=cursor, page=page, per_page=per_page, since=since, until=until, month=month, last=last, by=by, kind=kind,
                key_id=key_id, agent_id=agent_id, model=model, tool=tool, workspace=workspace, format=format,
            ),
            reader="text", accept="text/csv",
        ))
