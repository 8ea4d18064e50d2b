"""
Operations of `client.sessions`.

Written by `make client` from the declarations of the operations. Change those, not this file.
"""

# fmt: off

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Literal

from httpx2 import EventSource

from rookery_client.calls import UNSET, Call, Unset, fill_path, given
from rookery_client.generated import inputs, models
from rookery_client.pages import AsyncPage, Page, PageBody
from rookery_client.sessions import AsyncSession, Session


class SessionsOperations:
    """Operations of `client.sessions`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list_sessions(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["active", "paused", "completed", "failed", "handed_off", "abandoned"] | Unset = UNSET,
        agent_id: str | Unset = UNSET, plan: str | Unset = UNSET, org: str | Unset = UNSET, project: str | Unset = UNSET,
    ) -> Page[models.Session]:
        """List sessions, newest first."""
        return self._session.send_page(Call(
            operation="list_sessions", method="GET", path="/api/agent/sessions", result=PageBody[models.Session],
            query=given(page=page, per_page=per_page, status=status, agent_id=agent_id, plan=plan, org=org, project=project),
        ))

    def start_session(
        self, *, if_match: str | Unset = UNSET, agent_type: str | Unset | None = UNSET, agent_id: str | Unset | None = UNSET,
        plan: str | Unset | None = UNSET, org: str | Unset | None = UNSET, project: str | Unset | None = UNSET,
        goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET, takeover: bool | Unset = UNSET,
    ) -> models.Started:
        """Start a session."""
        return self._session.send(Call(
            operation="start_session", method="POST", path="/api/agent/sessions", result=models.Started,
            headers=given(**{"If-Match": if_match}),
            body=given(
                agent_type=agent_type, agent_id=agent_id, plan=plan, org=org, project=project, goal=goal, context=context,
                takeover=takeover,
            ),
            accepts_key=True,
        ))

    def get_session(self, session_id: str) -> models.Session:
        """Show a session."""
        return self._session.send(Call(
            operation="get_session", method="GET", path=fill_path("/api/agent/sessions/{session_id}", session_id=session_id),
            result=models.Session,
        ))

    def update_session(
        self, session_id: str, *, if_match: str | Unset = UNSET, status: Literal["active", "paused"] | Unset = UNSET,
        goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET, summary: str | Unset | None = UNSET,
        handoff: str | inputs.NotesBody | Unset = UNSET, acknowledge_handoff: Literal["loaded", "ignored_stale"] | Unset = UNSET,
    ) -> models.Session:
        """Change, pause or continue a session."""
        return self._session.send(Call(
            operation="update_session", method="PATCH", path=fill_path("/api/agent/sessions/{session_id}", session_id=session_id),
            result=models.Session, headers=given(**{"If-Match": if_match}),
            body=given(status=status, goal=goal, context=context, summary=summary, handoff=handoff, acknowledge_handoff=acknowledge_handoff),
        ))

    def list_session_events(
        self, session_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, after: int | Unset = UNSET,
        type: Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"] | Unset = UNSET,
    ) -> Page[models.SessionEvent]:
        """List the events of a session."""
        return self._session.send_page(Call(
            operation="list_session_events", method="GET",
            path=fill_path("/api/agent/sessions/{session_id}/events", session_id=session_id), result=PageBody[models.SessionEvent],
            query=given(page=page, per_page=per_page, after=after, type=type),
        ))

    def add_session_event(
        self, session_id: str, *, if_match: str | Unset = UNSET,
        type: Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"] | Unset = UNSET,
        message: str | Unset = UNSET, data: Mapping[str, object] | Unset | None = UNSET,
        state: Mapping[str, object] | Unset | None = UNSET, task_id: str | Unset | None = UNSET,
        tokens: inputs.TokensBody | Unset | None = UNSET,
    ) -> models.SessionEvent:
        """Add an event to a session."""
        return self._session.send(Call(
            operation="add_session_event", method="POST",
            path=fill_path("/api/agent/sessions/{session_id}/events", session_id=session_id), result=models.SessionEvent,
            headers=given(**{"If-Match": if_match}),
            body=given(type=type, message=message, data=data, state=state, task_id=task_id, tokens=tokens), accepts_key=True,
        ))

    def heartbeat_session(self, session_id: str, *, if_match: str | Unset = UNSET) -> models.Heartbeat:
        """Keep a session alive."""
        return self._session.send(Call(
            operation="heartbeat_session", method="POST",
            path=fill_path("/api/agent/sessions/{session_id}/heartbeat", session_id=session_id), result=models.Heartbeat,
            headers=given(**{"If-Match": if_match}),
        ))

    def end_session(
        self, session_id: str, *, if_match: str | Unset = UNSET,
        status: Literal["completed", "failed", "handed_off"] | Unset | None = UNSET, summary: str | Unset | None = UNSET,
        handoff: str | inputs.NotesBody | Unset | None = UNSET, promote: bool | Sequence[str] | Unset = UNSET,
    ) -> models.Session:
        """End a session."""
        return self._session.send(Call(
            operation="end_session", method="POST", path=fill_path("/api/agent/sessions/{session_id}/end", session_id=session_id),
            result=models.Session, headers=given(**{"If-Match": if_match}),
            body=given(status=status, summary=summary, handoff=handoff, promote=promote), accepts_key=True,
        ))

    def resume_session(
        self, session_id: str, *, if_match: str | Unset = UNSET, agent_type: str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET,
        takeover: bool | Unset = UNSET,
    ) -> models.Started:
        """Start the successor of a session."""
        return self._session.send(Call(
            operation="resume_session", method="POST", path=fill_path("/api/agent/sessions/{session_id}/resume", session_id=session_id),
            result=models.Started, headers=given(**{"If-Match": if_match}),
            body=given(agent_type=agent_type, agent_id=agent_id, goal=goal, context=context, takeover=takeover), accepts_key=True,
        ))

    def stream_session(self, session_id: str, *, after: int | Unset = UNSET) -> AbstractContextManager[EventSource]:
        """Follow a session."""
        return self._session.stream(Call(
            operation="stream_session", method="GET", path=fill_path("/api/agent/sessions/{session_id}/stream", session_id=session_id),
            result=type(None), query=given(after=after), accept="text/event-stream",
        ))

    def send_hook_event(
        self, client: str, event: str, *, org: str | Unset = UNSET, project: str | Unset = UNSET, branch: str | Unset = UNSET,
        commit: str | Unset = UNSET, session_id: object | Unset = UNSET, turn_id: object | Unset = UNSET,
        source: object | Unset = UNSET, prompt: object | Unset = UNSET, last_assistant_message: object | Unset = UNSET,
    ) -> models.Hook:
        """Send an event of a coding agent."""
        return self._session.send(Call(
            operation="send_hook_event", method="POST", path=fill_path("/api/agent/hooks/{client}/{event}", client=client, event=event),
            result=models.Hook, query=given(org=org, project=project, branch=branch, commit=commit),
            body=given(session_id=session_id, turn_id=turn_id, source=source, prompt=prompt, last_assistant_message=last_assistant_message),
        ))


class AsyncSessionsOperations:
    """Operations of `client.sessions`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_sessions(
        self, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["active", "paused", "completed", "failed", "handed_off", "abandoned"] | Unset = UNSET,
        agent_id: str | Unset = UNSET, plan: str | Unset = UNSET, org: str | Unset = UNSET, project: str | Unset = UNSET,
    ) -> AsyncPage[models.Session]:
        """List sessions, newest first."""
        return await self._session.send_page(Call(
            operation="list_sessions", method="GET", path="/api/agent/sessions", result=PageBody[models.Session],
            query=given(page=page, per_page=per_page, status=status, agent_id=agent_id, plan=plan, org=org, project=project),
        ))

    async def start_session(
        self, *, if_match: str | Unset = UNSET, agent_type: str | Unset | None = UNSET, agent_id: str | Unset | None = UNSET,
        plan: str | Unset | None = UNSET, org: str | Unset | None = UNSET, project: str | Unset | None = UNSET,
        goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET, takeover: bool | Unset = UNSET,
    ) -> models.Started:
        """Start a session."""
        return await self._session.send(Call(
            operation="start_session", method="POST", path="/api/agent/sessions", result=models.Started,
            headers=given(**{"If-Match": if_match}),
            body=given(
                agent_type=agent_type, agent_id=agent_id, plan=plan, org=org, project=project, goal=goal, context=context,
                takeover=takeover,
            ),
            accepts_key=True,
        ))

    async def get_session(self, session_id: str) -> models.Session:
        """Show a session."""
        return await self._session.send(Call(
            operation="get_session", method="GET", path=fill_path("/api/agent/sessions/{session_id}", session_id=session_id),
            result=models.Session,
        ))

    async def update_session(
        self, session_id: str, *, if_match: str | Unset = UNSET, status: Literal["active", "paused"] | Unset = UNSET,
        goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET, summary: str | Unset | None = UNSET,
        handoff: str | inputs.NotesBody | Unset = UNSET, acknowledge_handoff: Literal["loaded", "ignored_stale"] | Unset = UNSET,
    ) -> models.Session:
        """Change, pause or continue a session."""
        return await self._session.send(Call(
            operation="update_session", method="PATCH", path=fill_path("/api/agent/sessions/{session_id}", session_id=session_id),
            result=models.Session, headers=given(**{"If-Match": if_match}),
            body=given(status=status, goal=goal, context=context, summary=summary, handoff=handoff, acknowledge_handoff=acknowledge_handoff),
        ))

    async def list_session_events(
        self, session_id: str, *, page: int | Unset = UNSET, per_page: int | Unset = UNSET, after: int | Unset = UNSET,
        type: Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"] | Unset = UNSET,
    ) -> AsyncPage[models.SessionEvent]:
        """List the events of a session."""
        return await self._session.send_page(Call(
            operation="list_session_events", method="GET",
            path=fill_path("/api/agent/sessions/{session_id}/events", session_id=session_id), result=PageBody[models.SessionEvent],
            query=given(page=page, per_page=per_page, after=after, type=type),
        ))

    async def add_session_event(
        self, session_id: str, *, if_match: str | Unset = UNSET,
        type: Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"] | Unset = UNSET,
        message: str | Unset = UNSET, data: Mapping[str, object] | Unset | None = UNSET,
        state: Mapping[str, object] | Unset | None = UNSET, task_id: str | Unset | None = UNSET,
        tokens: inputs.TokensBody | Unset | None = UNSET,
    ) -> models.SessionEvent:
        """Add an event to a session."""
        return await self._session.send(Call(
            operation="add_session_event", method="POST",
            path=fill_path("/api/agent/sessions/{session_id}/events", session_id=session_id), result=models.SessionEvent,
            headers=given(**{"If-Match": if_match}),
            body=given(type=type, message=message, data=data, state=state, task_id=task_id, tokens=tokens), accepts_key=True,
        ))

    async def heartbeat_session(self, session_id: str, *, if_match: str | Unset = UNSET) -> models.Heartbeat:
        """Keep a session alive."""
        return await self._session.send(Call(
            operation="heartbeat_session", method="POST",
            path=fill_path("/api/agent/sessions/{session_id}/heartbeat", session_id=session_id), result=models.Heartbeat,
            headers=given(**{"If-Match": if_match}),
        ))

    async def end_session(
        self, session_id: str, *, if_match: str | Unset = UNSET,
        status: Literal["completed", "failed", "handed_off"] | Unset | None = UNSET, summary: str | Unset | None = UNSET,
        handoff: str | inputs.NotesBody | Unset | None = UNSET, promote: bool | Sequence[str] | Unset = UNSET,
    ) -> models.Session:
        """End a session."""
        return await self._session.send(Call(
            operation="end_session", method="POST", path=fill_path("/api/agent/sessions/{session_id}/end", session_id=session_id),
            result=models.Session, headers=given(**{"If-Match": if_match}),
            body=given(status=status, summary=summary, handoff=handoff, promote=promote), accepts_key=True,
        ))

    async def resume_session(
        self, session_id: str, *, if_match: str | Unset = UNSET, agent_type: str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET,
        takeover: bool | Unset = UNSET,
    ) -> models.Started:
        """Start the successor of a session."""
        return await self._session.send(Call(
            operation="resume_session", method="POST", path=fill_path("/api/agent/sessions/{session_id}/resume", session_id=session_id),
            result=models.Started, headers=given(**{"If-Match": if_match}),
            body=given(agent_type=agent_type, agent_id=agent_id, goal=goal, context=context, takeover=takeover), accepts_key=True,
        ))

    def stream_session(self, session_id: str, *, after: int | Unset = UNSET) -> AbstractAsyncContextManager[EventSource]:
        """Follow a session."""
        return self._session.stream(Call(
            operation="stream_session", method="GET", path=fill_path("/api/agent/sessions/{session_id}/stream", session_id=session_id),
            result=type(None), query=given(after=after), accept="text/event-stream",
        ))

    async def send_hook_event(
        self, client: str, event: str, *, org: str | Unset = UNSET, project: str | Unset = UNSET, branch: str | Unset = UNSET,
        commit: str | Unset = UNSET, session_id: object | Unset = UNSET, turn_id: object | Unset = UNSET,
        source: object | Unset = UNSET, prompt: object | Unset = UNSET, last_assistant_message: object | Unset = UNSET,
    ) -> models.Hook:
        """Send an event of a coding agent."""
        return await self._session.send(Call(
            operation="send_hook_event", method="POST", path=fill_path("/api/agent/hooks/{client}/{event}", client=client, event=event),
            result=models.Hook, query=given(org=org, project=project, branch=branch, commit=commit),
            body=given(session_id=session_id, turn_id=turn_id, source=source, prompt=prompt, last_assistant_message=last_assistant_message),
        ))
