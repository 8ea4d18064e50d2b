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
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["active", "paused", "completed", "failed", "handed_off", "abandoned"] | Unset = UNSET,
        agent_id: str | Unset = UNSET, plan: str | Unset = UNSET, org: str | Unset = UNSET, project: str | Unset = UNSET,
    ) -> Page[models.Session]:
        """
        List the sessions that the key has access to, newest first.

        Requires the scope `sessions.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only sessions with this status.
            agent_id: Only sessions of this agent.
            plan: The id or slug of the plan.
            org: The organisation namespace.
            project: The project within the org.
        """
        return self._session.send_page(Call(
            operation="list_sessions", method="GET", path="/api/agent/sessions", result=PageBody[models.Session],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status, agent_id=agent_id, plan=plan, org=org, project=project),
        ))

    def start_session(
        self, *, if_match: str | Unset = UNSET, x_session_id: str | Unset = UNSET, agent_type: str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, plan: str | Unset | None = UNSET, org: str | Unset | None = UNSET,
        project: str | Unset | None = UNSET, goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET,
        takeover: bool | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Started:
        """
        Start a session of an agent.

        `boot` in the response is the context of the agent: plan, phase, tasks, hand-off, checkpoint and memories.

        Requires the scope `sessions.write`.

        Args:
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            x_session_id: The agent session that the request belongs to.
            agent_type: The kind of agent, such as claude-code. Default: its agent_id.
            agent_id: The agent. Default: the agent of the key, else the agent_type.
            plan: The id or slug of the plan.
            org: Only for a session without a plan, which has its own.
            project: Only for a session without a plan, which has its own.
            goal: The goal of the session.
            context: Any JSON object, at most 64 KiB.
            takeover: End the open session of the agent on the plan, and continue from it. Default: `false`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="start_session", method="POST", path="/api/agent/sessions", result=models.Started,
            headers=given(**{"If-Match": if_match, "X-Session-ID": x_session_id}),
            body=given(
                agent_type=agent_type, agent_id=agent_id, plan=plan, org=org, project=project, goal=goal, context=context,
                takeover=takeover,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    def get_session(self, session_id: str) -> models.Session:
        """
        Return one session.

        Requires the scope `sessions.read`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
        """
        return self._session.send(Call(
            operation="get_session", method="GET", path=fill_path("/api/agent/sessions/{session_id}", session_id=session_id),
            result=models.Session,
        ))

    def update_session(
        self, session_id: str, *, if_match: str | Unset = UNSET, status: Literal["active", "paused"] | Unset = UNSET,
        goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET, summary: str | Unset | None = UNSET,
        handoff: str | inputs.NotesBody | Unset = UNSET, acknowledge_handoff: Literal["loaded", "ignored_stale"] | Unset = UNSET,
    ) -> models.Session:
        """
        Change the goal or context of an open session, pause it, or continue it.

        Requires the scope `sessions.write`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            status: Pause the session, or continue it.
            goal: The goal of the session.
            context: Any JSON object, at most 64 KiB.
            summary: The outcome of the session.
            handoff: The hand-off of this session, new or replaced. A string is its summary.
            acknowledge_handoff: Take the hand-off that was offered at the start. It is then no longer offered.
        """
        return self._session.send(Call(
            operation="update_session", method="PATCH", path=fill_path("/api/agent/sessions/{session_id}", session_id=session_id),
            result=models.Session, headers=given(**{"If-Match": if_match}),
            body=given(status=status, goal=goal, context=context, summary=summary, handoff=handoff, acknowledge_handoff=acknowledge_handoff),
        ))

    def list_session_events(
        self, session_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        after: int | Unset = UNSET,
        type: Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"] | Unset = UNSET,
    ) -> Page[models.SessionEvent]:
        """
        List the events of a session, in the order of `seq`.

        Requires the scope `sessions.read`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            after: Only events with a greater seq.
            type: Only events of this type.
        """
        return self._session.send_page(Call(
            operation="list_session_events", method="GET",
            path=fill_path("/api/agent/sessions/{session_id}/events", session_id=session_id), result=PageBody[models.SessionEvent],
            query=given(cursor=cursor, page=page, per_page=per_page, after=after, type=type),
        ))

    def add_session_event(
        self, session_id: str, *, if_match: str | Unset = UNSET,
        type: Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"] | Unset = UNSET,
        message: str | Unset = UNSET, data: Mapping[str, object] | Unset | None = UNSET,
        state: Mapping[str, object] | Unset | None = UNSET, task_id: str | Unset | None = UNSET,
        tokens: inputs.TokensBody | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.SessionEvent:
        """
        Append an event to a session: a note, action, decision, checkpoint, question, answer, artifact or error.

        Requires the scope `sessions.write`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            type: The type of the event. Default: `"note"`.
            message: A description in words. Default: `""`.
            data: Structured data of the event: a JSON object, at most 64 KiB.
            state: The state of a checkpoint, from which the work can continue: any JSON object, at most 256 KiB.
            task_id: The task that the event is about.
            tokens: The model tokens used since the last report. The report of usage adds them up by agent and model.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="add_session_event", method="POST",
            path=fill_path("/api/agent/sessions/{session_id}/events", session_id=session_id), result=models.SessionEvent,
            headers=given(**{"If-Match": if_match}),
            body=given(type=type, message=message, data=data, state=state, task_id=task_id, tokens=tokens), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def heartbeat_session(self, session_id: str, *, if_match: str | Unset = UNSET) -> models.Heartbeat:
        """
        Record activity, so that the session is not marked as abandoned.

        Requires the scope `sessions.write`. Does not count against the key's rate limit.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return self._session.send(Call(
            operation="heartbeat_session", method="POST",
            path=fill_path("/api/agent/sessions/{session_id}/heartbeat", session_id=session_id), result=models.Heartbeat,
            headers=given(**{"If-Match": if_match}), repeatable=True,
        ))

    def end_session(
        self, session_id: str, *, if_match: str | Unset = UNSET,
        status: Literal["completed", "failed", "handed_off"] | Unset | None = UNSET, summary: str | Unset | None = UNSET,
        handoff: str | inputs.NotesBody | Unset | None = UNSET, promote: bool | Sequence[str] | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Session:
        """
        End a session as completed, failed or handed over. Ending it again in the same way changes nothing.

        Requires the scope `sessions.write`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            status: Default: handed_off if there is a handoff, else completed.
            summary: The outcome of the session.
            handoff: The information for the next session. A string is its summary.
            promote: The session memories to move to the project: true for all, false for none, or their ids. Default: `false`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="end_session", method="POST", path=fill_path("/api/agent/sessions/{session_id}/end", session_id=session_id),
            result=models.Session, headers=given(**{"If-Match": if_match}),
            body=given(status=status, summary=summary, handoff=handoff, promote=promote), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def resume_session(
        self, session_id: str, *, if_match: str | Unset = UNSET, agent_type: str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET,
        takeover: bool | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Started:
        """
        Start a session that continues an ended or paused one. `boot` in the response is the context of the agent.

        Requires the scope `sessions.write`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            agent_type: The kind of agent, such as claude-code or reviewer.
            agent_id: The agent. Default: the agent of the key, else the agent_type.
            goal: The goal of the session.
            context: Any JSON object, at most 64 KiB.
            takeover: Resume an active session. It ends. Default: `false`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return self._session.send(Call(
            operation="resume_session", method="POST", path=fill_path("/api/agent/sessions/{session_id}/resume", session_id=session_id),
            result=models.Started, headers=given(**{"If-Match": if_match}),
            body=given(agent_type=agent_type, agent_id=agent_id, goal=goal, context=context, takeover=takeover), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def stream_session(self, session_id: str, *, after: int | Unset = UNSET) -> AbstractContextManager[EventSource]:
        """
        Send past and new events. If the session has ended and the client has received all events, the response is 204.

        Server-sent events: one for each event of the session, with the type as its name and the seq as its id; `status` when the
        session is paused or continued; `end` when it has ended, after which the stream closes. To resume a stream, send the last id in
        `Last-Event-ID`.

        Requires the scope `sessions.read`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            after: Start after the event with this seq. The header Last-Event-ID takes precedence.
        """
        return self._session.stream(Call(
            operation="stream_session", method="GET", path=fill_path("/api/agent/sessions/{session_id}/stream", session_id=session_id),
            result=type(None), query=given(after=after), accept="text/event-stream",
        ))

    def send_hook_event(
        self, client: str, event: str, *, org: str | Unset = UNSET, project: str | Unset = UNSET, repository: str | Unset = UNSET,
        folder: str | Unset = UNSET, full_name: str | Unset = UNSET, is_named: bool | Unset = UNSET, branch: str | Unset = UNSET,
        commit: str | Unset = UNSET, session_id: object | Unset = UNSET, turn_id: object | Unset = UNSET,
        source: object | Unset = UNSET, prompt: object | Unset = UNSET, last_assistant_message: object | Unset = UNSET,
    ) -> models.Hook:
        """
        Record an event of a coding agent, and return the text for its conversation.

        The answer is in the schema of the client. It is an empty object if there is nothing to add, and if the server fails or takes
        too long. NUL and half a surrogate pair in a text are replaced by U+FFFD. Memories need `brain:read`, ready tasks `plans.read`,
        and the hand-off note `sessions.read`; a key without them gets the other parts.

        Clients: claude-code, codex, vscode, cursor, gemini, qwen-code. Events: session-start, prompt, stop, end.

        Requires the scope `sessions.write`.

        Args:
            client: The coding agent whose hook it is.
            event: The event of the coding agent.
            org: The org of the project.
            project: The project of the session.
            repository: The ids of the remotes of the repository, separated by commas. The first identifies the repository.
            folder: The id of its folder, which identifies a repository without remotes.
            full_name: The name of the repository with its owner. It is the project if another repository has the name `project`.
            is_named: True: `.rookery.toml` names the project, so the name stays as it is.
            branch: The branch of the repository.
            commit: The subject of the last commit.
            session_id: The client's id of the session. Without it, nothing happens.
            turn_id: The client's id of the turn, if it has one.
            source: The reason of a start, such as startup, resume or compact.
            prompt: The prompt of the user.
            last_assistant_message: The last message of the agent in the turn that ended.
        """
        return self._session.send(Call(
            operation="send_hook_event", method="POST", path=fill_path("/api/agent/hooks/{client}/{event}", client=client, event=event),
            result=models.Hook,
            query=given(
                org=org, project=project, repository=repository, folder=folder, full_name=full_name, is_named=is_named, branch=branch,
                commit=commit,
            ),
            body=given(session_id=session_id, turn_id=turn_id, source=source, prompt=prompt, last_assistant_message=last_assistant_message),
        ))


class AsyncSessionsOperations:
    """Operations of `client.sessions`."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def list_sessions(
        self, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        status: Literal["active", "paused", "completed", "failed", "handed_off", "abandoned"] | Unset = UNSET,
        agent_id: str | Unset = UNSET, plan: str | Unset = UNSET, org: str | Unset = UNSET, project: str | Unset = UNSET,
    ) -> AsyncPage[models.Session]:
        """
        List the sessions that the key has access to, newest first.

        Requires the scope `sessions.read`.

        Args:
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            status: Only sessions with this status.
            agent_id: Only sessions of this agent.
            plan: The id or slug of the plan.
            org: The organisation namespace.
            project: The project within the org.
        """
        return await self._session.send_page(Call(
            operation="list_sessions", method="GET", path="/api/agent/sessions", result=PageBody[models.Session],
            query=given(cursor=cursor, page=page, per_page=per_page, status=status, agent_id=agent_id, plan=plan, org=org, project=project),
        ))

    async def start_session(
        self, *, if_match: str | Unset = UNSET, x_session_id: str | Unset = UNSET, agent_type: str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, plan: str | Unset | None = UNSET, org: str | Unset | None = UNSET,
        project: str | Unset | None = UNSET, goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET,
        takeover: bool | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Started:
        """
        Start a session of an agent.

        `boot` in the response is the context of the agent: plan, phase, tasks, hand-off, checkpoint and memories.

        Requires the scope `sessions.write`.

        Args:
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            x_session_id: The agent session that the request belongs to.
            agent_type: The kind of agent, such as claude-code. Default: its agent_id.
            agent_id: The agent. Default: the agent of the key, else the agent_type.
            plan: The id or slug of the plan.
            org: Only for a session without a plan, which has its own.
            project: Only for a session without a plan, which has its own.
            goal: The goal of the session.
            context: Any JSON object, at most 64 KiB.
            takeover: End the open session of the agent on the plan, and continue from it. Default: `false`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="start_session", method="POST", path="/api/agent/sessions", result=models.Started,
            headers=given(**{"If-Match": if_match, "X-Session-ID": x_session_id}),
            body=given(
                agent_type=agent_type, agent_id=agent_id, plan=plan, org=org, project=project, goal=goal, context=context,
                takeover=takeover,
            ),
            accepts_key=True, idempotency_key=idempotency_key,
        ))

    async def get_session(self, session_id: str) -> models.Session:
        """
        Return one session.

        Requires the scope `sessions.read`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
        """
        return await self._session.send(Call(
            operation="get_session", method="GET", path=fill_path("/api/agent/sessions/{session_id}", session_id=session_id),
            result=models.Session,
        ))

    async def update_session(
        self, session_id: str, *, if_match: str | Unset = UNSET, status: Literal["active", "paused"] | Unset = UNSET,
        goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET, summary: str | Unset | None = UNSET,
        handoff: str | inputs.NotesBody | Unset = UNSET, acknowledge_handoff: Literal["loaded", "ignored_stale"] | Unset = UNSET,
    ) -> models.Session:
        """
        Change the goal or context of an open session, pause it, or continue it.

        Requires the scope `sessions.write`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            status: Pause the session, or continue it.
            goal: The goal of the session.
            context: Any JSON object, at most 64 KiB.
            summary: The outcome of the session.
            handoff: The hand-off of this session, new or replaced. A string is its summary.
            acknowledge_handoff: Take the hand-off that was offered at the start. It is then no longer offered.
        """
        return await self._session.send(Call(
            operation="update_session", method="PATCH", path=fill_path("/api/agent/sessions/{session_id}", session_id=session_id),
            result=models.Session, headers=given(**{"If-Match": if_match}),
            body=given(status=status, goal=goal, context=context, summary=summary, handoff=handoff, acknowledge_handoff=acknowledge_handoff),
        ))

    async def list_session_events(
        self, session_id: str, *, cursor: str | Unset = UNSET, page: int | Unset = UNSET, per_page: int | Unset = UNSET,
        after: int | Unset = UNSET,
        type: Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"] | Unset = UNSET,
    ) -> AsyncPage[models.SessionEvent]:
        """
        List the events of a session, in the order of `seq`.

        Requires the scope `sessions.read`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            cursor: `next_cursor` of the page before: the page after it, however the list changed meanwhile.
            page: The number of the page, from 1.
            per_page: The number of items on a page.
            after: Only events with a greater seq.
            type: Only events of this type.
        """
        return await self._session.send_page(Call(
            operation="list_session_events", method="GET",
            path=fill_path("/api/agent/sessions/{session_id}/events", session_id=session_id), result=PageBody[models.SessionEvent],
            query=given(cursor=cursor, page=page, per_page=per_page, after=after, type=type),
        ))

    async def add_session_event(
        self, session_id: str, *, if_match: str | Unset = UNSET,
        type: Literal["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"] | Unset = UNSET,
        message: str | Unset = UNSET, data: Mapping[str, object] | Unset | None = UNSET,
        state: Mapping[str, object] | Unset | None = UNSET, task_id: str | Unset | None = UNSET,
        tokens: inputs.TokensBody | Unset | None = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.SessionEvent:
        """
        Append an event to a session: a note, action, decision, checkpoint, question, answer, artifact or error.

        Requires the scope `sessions.write`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            type: The type of the event. Default: `"note"`.
            message: A description in words. Default: `""`.
            data: Structured data of the event: a JSON object, at most 64 KiB.
            state: The state of a checkpoint, from which the work can continue: any JSON object, at most 256 KiB.
            task_id: The task that the event is about.
            tokens: The model tokens used since the last report. The report of usage adds them up by agent and model.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="add_session_event", method="POST",
            path=fill_path("/api/agent/sessions/{session_id}/events", session_id=session_id), result=models.SessionEvent,
            headers=given(**{"If-Match": if_match}),
            body=given(type=type, message=message, data=data, state=state, task_id=task_id, tokens=tokens), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    async def heartbeat_session(self, session_id: str, *, if_match: str | Unset = UNSET) -> models.Heartbeat:
        """
        Record activity, so that the session is not marked as abandoned.

        Requires the scope `sessions.write`. Does not count against the key's rate limit.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
        """
        return await self._session.send(Call(
            operation="heartbeat_session", method="POST",
            path=fill_path("/api/agent/sessions/{session_id}/heartbeat", session_id=session_id), result=models.Heartbeat,
            headers=given(**{"If-Match": if_match}), repeatable=True,
        ))

    async def end_session(
        self, session_id: str, *, if_match: str | Unset = UNSET,
        status: Literal["completed", "failed", "handed_off"] | Unset | None = UNSET, summary: str | Unset | None = UNSET,
        handoff: str | inputs.NotesBody | Unset | None = UNSET, promote: bool | Sequence[str] | Unset = UNSET,
        idempotency_key: str | Unset = UNSET,
    ) -> models.Session:
        """
        End a session as completed, failed or handed over. Ending it again in the same way changes nothing.

        Requires the scope `sessions.write`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            status: Default: handed_off if there is a handoff, else completed.
            summary: The outcome of the session.
            handoff: The information for the next session. A string is its summary.
            promote: The session memories to move to the project: true for all, false for none, or their ids. Default: `false`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="end_session", method="POST", path=fill_path("/api/agent/sessions/{session_id}/end", session_id=session_id),
            result=models.Session, headers=given(**{"If-Match": if_match}),
            body=given(status=status, summary=summary, handoff=handoff, promote=promote), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    async def resume_session(
        self, session_id: str, *, if_match: str | Unset = UNSET, agent_type: str | Unset | None = UNSET,
        agent_id: str | Unset | None = UNSET, goal: str | Unset | None = UNSET, context: Mapping[str, object] | Unset | None = UNSET,
        takeover: bool | Unset = UNSET, idempotency_key: str | Unset = UNSET,
    ) -> models.Started:
        """
        Start a session that continues an ended or paused one. `boot` in the response is the context of the agent.

        Requires the scope `sessions.write`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            if_match: The ETag of the version to change, or several. If the current version has another one, nothing changes.
            agent_type: The kind of agent, such as claude-code or reviewer.
            agent_id: The agent. Default: the agent of the key, else the agent_type.
            goal: The goal of the session.
            context: Any JSON object, at most 64 KiB.
            takeover: Resume an active session. It ends. Default: `false`.
            idempotency_key: A text of your choice, the same for each repetition of this request, also after a restart. By default, each
                call has its own.
        """
        return await self._session.send(Call(
            operation="resume_session", method="POST", path=fill_path("/api/agent/sessions/{session_id}/resume", session_id=session_id),
            result=models.Started, headers=given(**{"If-Match": if_match}),
            body=given(agent_type=agent_type, agent_id=agent_id, goal=goal, context=context, takeover=takeover), accepts_key=True,
            idempotency_key=idempotency_key,
        ))

    def stream_session(self, session_id: str, *, after: int | Unset = UNSET) -> AbstractAsyncContextManager[EventSource]:
        """
        Send past and new events. If the session has ended and the client has received all events, the response is 204.

        Server-sent events: one for each event of the session, with the type as its name and the seq as its id; `status` when the
        session is paused or continued; `end` when it has ended, after which the stream closes. To resume a stream, send the last id in
        `Last-Event-ID`.

        Requires the scope `sessions.read`.

        Args:
            session_id: The id of a session, `sess_` and a UUID.
            after: Start after the event with this seq. The header Last-Event-ID takes precedence.
        """
        return self._session.stream(Call(
            operation="stream_session", method="GET", path=fill_path("/api/agent/sessions/{session_id}/stream", session_id=session_id),
            result=type(None), query=given(after=after), accept="text/event-stream",
        ))

    async def send_hook_event(
        self, client: str, event: str, *, org: str | Unset = UNSET, project: str | Unset = UNSET, repository: str | Unset = UNSET,
        folder: str | Unset = UNSET, full_name: str | Unset = UNSET, is_named: bool | Unset = UNSET, branch: str | Unset = UNSET,
        commit: str | Unset = UNSET, session_id: object | Unset = UNSET, turn_id: object | Unset = UNSET,
        source: object | Unset = UNSET, prompt: object | Unset = UNSET, last_assistant_message: object | Unset = UNSET,
    ) -> models.Hook:
        """
        Record an event of a coding agent, and return the text for its conversation.

        The answer is in the schema of the client. It is an empty object if there is nothing to add, and if the server fails or takes
        too long. NUL and half a surrogate pair in a text are replaced by U+FFFD. Memories need `brain:read`, ready tasks `plans.read`,
        and the hand-off note `sessions.read`; a key without them gets the other parts.

        Clients: claude-code, codex, vscode, cursor, gemini, qwen-code. Events: session-start, prompt, stop, end.

        Requires the scope `sessions.write`.

        Args:
            client: The coding agent whose hook it is.
            event: The event of the coding agent.
            org: The org of the project.
            project: The project of the session.
            repository: The ids of the remotes of the repository, separated by commas. The first identifies the repository.
            folder: The id of its folder, which identifies a repository without remotes.
            full_name: The name of the repository with its owner. It is the project if another repository has the name `project`.
            is_named: True: `.rookery.toml` names the project, so the name stays as it is.
            branch: The branch of the repository.
            commit: The subject of the last commit.
            session_id: The client's id of the session. Without it, nothing happens.
            turn_id: The client's id of the turn, if it has one.
            source: The reason of a start, such as startup, resume or compact.
            prompt: The prompt of the user.
            last_assistant_message: The last message of the agent in the turn that ended.
        """
        return await self._session.send(Call(
            operation="send_hook_event", method="POST", path=fill_path("/api/agent/hooks/{client}/{event}", client=client, event=event),
            result=models.Hook,
            query=given(
                org=org, project=project, repository=repository, folder=folder, full_name=full_name, is_named=is_named, branch=branch,
                commit=commit,
            ),
            body=given(session_id=session_id, turn_id=turn_id, source=source, prompt=prompt, last_assistant_message=last_assistant_message),
        ))
