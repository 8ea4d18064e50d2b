"""
Operations of `client.analytics`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from datetime import datetime
from typing import Literal


from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class AnalyticsOperations:
    """Operations of `client.analytics`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def get_tool_analytics(
        self, *, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, key_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET, agent_id: str | Unset = UNSET, server: str | Unset = UNSET, tool: str | Unset = UNSET,
        by: Literal["tool", "server", "key", "session", "day"] | Unset = UNSET, limit: int | Unset = UNSET,
    ) -> models.Analytics:
        """
        Return the number of calls, the error rate and the duration percentiles of tools.

        The range is free; the calls are grouped by tool, server, key, session or day.

        Requires the scope `tools.read`.

        Args:
            since: Calls at or after this time.
            until: Calls before this time.
            key_id: Calls by this key.
            session_id: Calls of this agent session.
            agent_id: Calls by keys of this agent.
            server: Calls of this server.
            tool: Calls of tools of this name.
            by: The field to group by.
            limit: Maximum number of groups.
        """
        return self._session.send(Call(
            operation="get_tool_analytics", method="GET", path="/api/agent/tools/analytics", result=models.Analytics,
            query=given(
                since=since, until=until, key_id=key_id, session_id=session_id, agent_id=agent_id, server=server, tool=tool, by=by,
                limit=limit,
            ),
        ))

    def get_tool_analytics_by_day(
        self, server_id: str, tool: str, *, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET,
        key_id: str | Unset = UNSET, session_id: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        by: Literal["key", "session", "day"] | Unset = UNSET, limit: int | Unset = UNSET,
    ) -> models.Analytics:
        """
        Return the number of calls, the error rate and the duration percentiles of one tool. A tool that does not exist is 404.

        Requires the scope `tools.read`.

        Args:
            server_id: The id of a tool server.
            tool: The name of a tool on its server.
            since: Calls at or after this time.
            until: Calls before this time.
            key_id: Calls by this key.
            session_id: Calls of this agent session.
            agent_id: Calls by keys of this agent.
            by: The field to group by.
            limit: Maximum number of groups.
        """
        return self._session.send(Call(
            operation="get_tool_analytics_by_day", method="GET",
            path=fill_path("/api/agent/tools/analytics/{server_id}/{tool}", server_id=server_id, tool=tool), result=models.Analytics,
            query=given(since=since, until=until, key_id=key_id, session_id=session_id, agent_id=agent_id, by=by, limit=limit),
        ))

    def list_tool_calls(
        self, *, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, key_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET, agent_id: str | Unset = UNSET, server: str | Unset = UNSET, tool: str | Unset = UNSET,
        cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, success: bool | Unset = UNSET,
        code: str | Unset = UNSET, request_id: str | Unset = UNSET,
    ) -> Page[models.CallShown]:
        """
        List the tool calls of the workspace, newest first.

        Requires the scope `tools.read`.

        Args:
            since: Calls at or after this time.
            until: Calls before this time.
            key_id: Calls by this key.
            session_id: Calls of this agent session.
            agent_id: Calls by keys of this agent.
            server: Calls of this server.
            tool: Calls of tools of this name.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            success: true: successful calls; false: failed or rejected calls.
            code: Calls that ended with this code.
            request_id: The calls of this request (`X-Request-ID`).
        """
        return self._session.send_page(Call(
            operation="list_tool_calls", method="GET", path="/api/agent/tools/calls", result=PageBody[models.CallShown],
            query=given(
                since=since, until=until, key_id=key_id, session_id=session_id, agent_id=agent_id, server=server, tool=tool,
                cursor=cursor, page=page, per_page=per_page, success=success, code=code, request_id=request_id,
            ),
        ))

    def get_tool_call(self, id: str) -> models.CallShown:
        """
        Return the record of one tool call. Its arguments are included if the operator stores them.

        Requires the scope `tools.read`.

        Args:
            id: The id of a server that the workspace has added.
        """
        return self._session.send(Call(
            operation="get_tool_call", method="GET", path=fill_path("/api/agent/tools/calls/{id}", id=id), result=models.CallShown,
        ))


class AsyncAnalyticsOperations:
    """Operations of `client.analytics`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def get_tool_analytics(
        self, *, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, key_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET, agent_id: str | Unset = UNSET, server: str | Unset = UNSET, tool: str | Unset = UNSET,
        by: Literal["tool", "server", "key", "session", "day"] | Unset = UNSET, limit: int | Unset = UNSET,
    ) -> models.Analytics:
        """
        Return the number of calls, the error rate and the duration percentiles of tools.

        The range is free; the calls are grouped by tool, server, key, session or day.

        Requires the scope `tools.read`.

        Args:
            since: Calls at or after this time.
            until: Calls before this time.
            key_id: Calls by this key.
            session_id: Calls of this agent session.
            agent_id: Calls by keys of this agent.
            server: Calls of this server.
            tool: Calls of tools of this name.
            by: The field to group by.
            limit: Maximum number of groups.
        """
        return await self._session.send(Call(
            operation="get_tool_analytics", method="GET", path="/api/agent/tools/analytics", result=models.Analytics,
            query=given(
                since=since, until=until, key_id=key_id, session_id=session_id, agent_id=agent_id, server=server, tool=tool, by=by,
                limit=limit,
            ),
        ))

    async def get_tool_analytics_by_day(
        self, server_id: str, tool: str, *, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET,
        key_id: str | Unset = UNSET, session_id: str | Unset = UNSET, agent_id: str | Unset = UNSET,
        by: Literal["key", "session", "day"] | Unset = UNSET, limit: int | Unset = UNSET,
    ) -> models.Analytics:
        """
        Return the number of calls, the error rate and the duration percentiles of one tool. A tool that does not exist is 404.

        Requires the scope `tools.read`.

        Args:
            server_id: The id of a tool server.
            tool: The name of a tool on its server.
            since: Calls at or after this time.
            until: Calls before this time.
            key_id: Calls by this key.
            session_id: Calls of this agent session.
            agent_id: Calls by keys of this agent.
            by: The field to group by.
            limit: Maximum number of groups.
        """
        return await self._session.send(Call(
            operation="get_tool_analytics_by_day", method="GET",
            path=fill_path("/api/agent/tools/analytics/{server_id}/{tool}", server_id=server_id, tool=tool), result=models.Analytics,
            query=given(since=since, until=until, key_id=key_id, session_id=session_id, agent_id=agent_id, by=by, limit=limit),
        ))

    async def list_tool_calls(
        self, *, since: datetime | str | Unset = UNSET, until: datetime | str | Unset = UNSET, key_id: str | Unset = UNSET,
        session_id: str | Unset = UNSET, agent_id: str | Unset = UNSET, server: str | Unset = UNSET, tool: str | Unset = UNSET,
        cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET, success: bool | Unset = UNSET,
        code: str | Unset = UNSET, request_id: str | Unset = UNSET,
    ) -> AsyncPage[models.CallShown]:
        """
        List the tool calls of the workspace, newest first.

        Requires the scope `tools.read`.

        Args:
            since: Calls at or after this time.
            until: Calls before this time.
            key_id: Calls by this key.
            session_id: Calls of this agent session.
            agent_id: Calls by keys of this agent.
            server: Calls of this server.
            tool: Calls of tools of this name.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            success: true: successful calls; false: failed or rejected calls.
            code: Calls that ended with this code.
            request_id: The calls of this request (`X-Request-ID`).
        """
        return await self._session.send_page(Call(
            operation="list_tool_calls", method="GET", path="/api/agent/tools/calls", result=PageBody[models.CallShown],
            query=given(
                since=since, until=until, key_id=key_id, session_id=session_id, agent_id=agent_id, server=server, tool=tool,
                cursor=cursor, page=page, per_page=per_page, success=success, code=code, request_id=request_id,
            ),
        ))

    async def get_tool_call(self, id: str) -> models.CallShown:
        """
        Return the record of one tool call. Its arguments are included if the operator stores them.

        Requires the scope `tools.read`.

        Args:
            id: The id of a server that the workspace has added.
        """
        return await self._session.send(Call(
            operation="get_tool_call", method="GET", path=fill_path("/api/agent/tools/calls/{id}", id=id), result=models.CallShown,
        ))
