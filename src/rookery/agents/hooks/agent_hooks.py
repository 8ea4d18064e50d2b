"""The events of coding agents: the start and the end of their sessions, prompts, and the end of turns; with their metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from http import HTTPStatus

import structlog

from rookery.access.models import Caller
from rookery.agents.hooks.client_sessions import ClientSessions, get_project
from rookery.agents.hooks.payloads import is_injected
from rookery.agents.hooks.project_names import ProjectNames
from rookery.agents.hooks.texts import build_prompt_text, build_start_text, strip_own_text
from rookery.agents.models.agent_hooks import (
    HookCall,
    HookOutcome,
    HookProject,
    HookResult,
    PastMemory,
    PastSession,
    ReadyTask,
    StartContext,
)
from rookery.agents.models.drafts import TaskState
from rookery.agents.models.plans import PlanAccessFilter
from rookery.agents.models.sessions import AgentSession, Handoff, HandoffOutcome, SessionEndRequest, SessionEventType, SessionStatus
from rookery.agents.ports import FreeSpace, MemoryFinder
from rookery.agents.sessions.end import SessionEnder
from rookery.agents.store import handoffs, session_events, tasks
from rookery.agents.store import hooks as store
from rookery.agents.store import sessions as session_store
from rookery.agents.store.tables import HANDOFFS, PLANS
from rookery.coding_agents.hook_declarations import HookEvent
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import RookeryError
from rookery.kernel.logs import FailureLog
from rookery.kernel.metrics import Metrics
from rookery.kernel.pages import PageSlice
from rookery.kernel.questions import extract_question

DOUBLE_WINDOW = timedelta(seconds=3)
"""
Time within which an event is the double of an equal one. `rookery hook` ends within a second.

A person or a client may repeat an event later: each compaction, for example, is a new start with the same source.
"""

_KINDS = {"session-start": store.START, "prompt": store.PROMPT, "stop": store.STOP}

_SEPARATOR = "\n"

_MAX_HANDOFFS = 50
"""Hand-offs in parallel that are read. The text counts those that it has no room for."""

MAX_MEMORIES = 5
MIN_RELEVANCE = 0.06
"""
The lowest relevance of a memory in a text: what the best memory of nine in ten answerable questions reaches in hybrid recall.

`python -m benchmarks.coding_agent_hooks` shows the effect of other values. With 0.3, only 1 in 12 of its questions got an answer.
"""

_MAX_TASKS = 5
_MEMORY_DEADLINE_SHARE = 0.6
"""The share of the deadline after which the text for a start goes on without memories."""

_RETENTION = timedelta(days=30)

_NOTHING = HookResult(outcome=HookOutcome.EMPTY)
_IGNORED = HookResult(outcome=HookOutcome.IGNORED)
_DUPLICATE = HookResult(outcome=HookOutcome.DUPLICATE)
_RECORDED = HookResult(outcome=HookOutcome.RECORDED)


def is_double(tx: Tx, workspace_id: int, call: HookCall, *, at: datetime) -> bool:
    """
    Return True if an equal event was saved within `DOUBLE_WINDOW` and the session has not gone on since.

    The double of a start may arrive after the first prompt, but only from the hooks of another client.
    """
    kind, mark = _describe(call)
    recent_events = store.list_events(tx, workspace_id, call.session_id, after=at - DOUBLE_WINDOW)
    following_times = [event.at for event in recent_events if event.kind != kind]
    for event in recent_events:
        if event.kind != kind or (event.mark.partition(_SEPARATOR)[0] if kind == store.START else event.mark) != mark:
            continue
        is_of_other_client = kind == store.START and event.mark != _add_client(mark, call)
        if is_of_other_client or not any(time > event.at for time in following_times):
            return True
    return False


def save_event(tx: Tx, workspace_id: int, call: HookCall, *, at: datetime) -> None:
    """Save an event that is no double, so that its doubles are found. The session must be locked."""
    kind, mark = _describe(call)
    store.save_mark(tx, workspace_id, call.session_id, kind, _add_client(mark, call) if kind == store.START else mark, at=at)


def _describe(call: HookCall) -> tuple[str, str]:
    """Return the kind of an event and what its doubles have in common."""
    kind = _KINDS[call.event]
    if kind == store.START:
        return kind, " ".join(call.source.split())
    if kind == store.PROMPT:
        return kind, call.turn or _digest(call.prompt)
    return kind, f"{call.turn or ''}:{_digest(call.message)}"


def _add_client(mark: str, call: HookCall) -> str:
    return f"{mark}{_SEPARATOR}{call.client}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


def list_past_sessions(tx: Tx, caller: Caller, project: HookProject, *, present: AgentSession | None) -> list[PastSession]:
    """
    Return the newest session of *project* with a hand-off or a note, and the hand-offs that it could not know.

    Those were written after its start and nobody took them. Hand-offs come first, the newest first; a note of the newest session is the
    last.

    Args:
        present: The present session. It and those that it continues are left out.
    """
    access_filter = replace(PlanAccessFilter.from_caller(caller), projects=frozenset({project.project}))
    if project.org is not None:
        access_filter = replace(access_filter, orgs=frozenset({project.org}))
    own_ids = [] if present is None else [present.id, *session_store.list_predecessor_ids(tx, present.workspace_id, present.id)]
    newest = handoffs.find_newest_session(tx, access_filter, without=own_ids)
    if newest is None:
        return []
    own_handoff = HANDOFFS.find(tx, newest.workspace_id, session_id=newest.id)
    if own_handoff is not None and own_handoff.taken_how is HandoffOutcome.IGNORED_STALE:
        own_handoff = None
    parallel = handoffs.list_pending_handoffs(
        tx, access_filter, written_after=newest.started_at, without=[*own_ids, newest.id], limit=_MAX_HANDOFFS
    )
    note = list[PastSession]()
    if own_handoff is None:
        note = _list_note(tx, newest)
    else:
        parallel = sorted([own_handoff, *parallel], key=lambda handoff: handoff.written_at, reverse=True)
    return [*map(_from_handoff, parallel), *note]


def _from_handoff(handoff: Handoff) -> PastSession:
    return PastSession(agent_id=handoff.agent_id, at=handoff.written_at, handoff=handoff)


def _list_note(tx: Tx, session: AgentSession) -> list[PastSession]:
    note = session_events.find_last_of_type(tx, session.workspace_id, session.id, SessionEventType.NOTE)
    if note is None or not note.message:
        return []
    return [PastSession(agent_id=session.agent_id, at=note.created_at, handoff=None, message=note.message)]


_PLANS_SCOPE, _SESSIONS_SCOPE = "plans.read", "sessions.read"
_ABILITIES = {
    "brain:read": "recall memories",
    "brain:write": "store memories",
    _PLANS_SCOPE: "read plans and tasks",
    "phases.write": "claim and complete tasks",
    _SESSIONS_SCOPE: "read sessions and hand-offs",
    "sessions.write": "write hand-offs",
}
"""The acts that each scope allows with the tools, for the text of a start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _StartState:
    """The part of a start that comes from the record store."""

    project: HookProject | None
    session_id: str | None
    is_duplicate: bool
    past_sessions: Sequence[PastSession]
    tasks: Sequence[ReadyTask]


class AgentHooks:
    """
    The hooks of coding agents.

    Args:
        disk: Rejects records while the disk is nearly full.
        deadline_s: Seconds after which a hook answers with nothing.
    """

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        sessions: ClientSessions,
        projects: ProjectNames,
        ender: SessionEnder,
        memories: MemoryFinder,
        disk: FreeSpace,
        deadline_s: float,
        min_relevance: float = MIN_RELEVANCE,
    ) -> None:
        self._db = db
        self._clock = clock
        self._sessions = sessions
        self._projects = projects
        self._ender = ender
        self._memories = memories
        self._disk = disk
        self.deadline_s = deadline_s
        self._min_relevance = min_relevance
        self._failures = FailureLog(structlog.stdlib.get_logger("rookery.agents"), "agents.hook_failed")

    async def handle(self, caller: Caller, call: HookCall, project: HookProject | None) -> HookResult:
        """
        Handle an event and return the text for the conversation. Never raises; a failure is logged and returns no text.

        Args:
            project: The project as the request names it. None: that of the session, as its start named it.
        """
        try:
            async with asyncio.timeout(self.deadline_s):
                if project is not None and call.event != "end":
                    project = await self._projects.resolve(caller, project)
                match call.event:
                    case "session-start":
                        return await self._start(caller, call, project)
                    case "prompt":
                        return await self._submit_prompt(caller, call, project)
                    case "stop":
                        return await self._stop(caller, call, project)
                    case "end":
                        return await self._end(caller, call)
        except TimeoutError:
            self._failures.report(HookTimedOut(self.deadline_s), client=call.client, hook=call.event)
        except RookeryError as error:
            if error.status < HTTPStatus.INTERNAL_SERVER_ERROR:
                return _IGNORED  # the session belongs to another agent, or the key does not allow the project
            self._failures.report(error, client=call.client, hook=call.event)
        except Exception as error:  # noqa: BLE001 - a hook must never disturb the work of the agent
            self._failures.report(error, client=call.client, hook=call.event)
        return HookResult(outcome=HookOutcome.FAILED)

    async def delete_old(self) -> int:
        """Delete what hooks stored about sessions that were not used for 30 days, and return the number of rows."""
        before = self._clock() - _RETENTION
        return await self._db.write(lambda tx: store.delete_unused(tx, before))

    async def _start(self, caller: Caller, call: HookCall, project: HookProject | None) -> HookResult:
        now = self._clock()
        state = await self._db.read(lambda tx: self._load_start(tx, caller, call, project, now))
        if state.is_duplicate:
            return _DUPLICATE
        target = state.project
        if target is None:
            return _IGNORED
        memories = await self._find_memories_for_start(caller, target, state)
        context = StartContext(past_sessions=state.past_sessions, memories=memories, tasks=state.tasks)

        def write(tx: Tx) -> HookResult:
            session = self._sessions.open(tx, caller, call, target, at=now)
            if session is None:
                return _IGNORED
            if is_double(tx, caller.workspace_id, call, at=now):
                return _DUPLICATE
            save_event(tx, caller.workspace_id, call, at=now)
            self._sessions.record_event(tx, caller, call, at=now)
            # The conversation may no longer contain what was given before this start.
            store.delete_marks(tx, caller.workspace_id, call.session_id, store.MEMORY)
            text, shown_ids = build_start_text(context, project=target, session_id=session.id, abilities=_list_abilities(caller), now=now)
            for memory_id in shown_ids:
                store.save_mark(tx, caller.workspace_id, call.session_id, store.MEMORY, memory_id, at=now)
            return HookResult(outcome=HookOutcome.TEXT, text=text) if text else _NOTHING

        self._disk.require()
        return await self._db.write(write, is_synced=False)

    def _load_start(self, tx: Tx, caller: Caller, call: HookCall, project: HookProject | None, now: datetime) -> _StartState:
        session = self._sessions.find(tx, caller, call.session_id)
        project = project or get_project(session)
        is_duplicate = is_double(tx, caller.workspace_id, call, at=now)
        past_sessions, ready = list[PastSession](), list[ReadyTask]()
        if project is not None and not is_duplicate:
            caller.require_in_allow_lists(org=project.org, project=project.project)
            if caller.has_scope(_SESSIONS_SCOPE):
                past_sessions = list_past_sessions(tx, caller, project, present=session)
            if caller.has_scope(_PLANS_SCOPE):
                ready = _list_ready_tasks(tx, caller, project, now)
        return _StartState(
            project=project,
            session_id=None if session is None else session.id,
            is_duplicate=is_duplicate,
            past_sessions=past_sessions,
            tasks=ready,
        )

    async def _find_memories_for_start(self, caller: Caller, project: HookProject, state: _StartState) -> Sequence[PastMemory]:
        """Return memories that relate to the work in progress. Without them, the text has the other parts."""
        try:
            async with asyncio.timeout(self.deadline_s * _MEMORY_DEADLINE_SHARE):
                return await self._memories.find_related(
                    caller,
                    _build_queries(project, state),
                    org=project.org,
                    project=project.project,
                    session_id=state.session_id,
                    without=frozenset[str](),
                    limit=MAX_MEMORIES,
                    min_relevance=self._min_relevance,
                )
        except (RookeryError, TimeoutError) as error:
            self._failures.report(error if isinstance(error, RookeryError) else HookTimedOut(self.deadline_s), hook="session-start")
            return ()

    async def _submit_prompt(self, caller: Caller, call: HookCall, project: HookProject | None) -> HookResult:
        if not call.prompt or not is_injected(call.client, call.event):
            return _IGNORED
        now = self._clock()

        def read(tx: Tx) -> tuple[HookProject | None, str | None, frozenset[str]]:
            session = self._sessions.find(tx, caller, call.session_id)
            given_ids = store.list_marks(tx, caller.workspace_id, call.session_id, store.MEMORY)
            return project or get_project(session), None if session is None else session.id, frozenset(given_ids)

        target, session_id, given_ids = await self._db.lookup(read)
        if target is None:
            return _IGNORED
        memories = await self._memories.find_related(
            caller,
            [extract_question(call.prompt)],
            org=target.org,
            project=target.project,
            session_id=session_id,
            without=given_ids,
            limit=MAX_MEMORIES,
            min_relevance=self._min_relevance,
        )
        text, shown_ids = build_prompt_text(memories, now=now)

        def write(tx: Tx) -> HookResult:
            session = self._sessions.open(tx, caller, call, target, at=now)
            if is_double(tx, caller.workspace_id, call, at=now):
                return _DUPLICATE
            save_event(tx, caller.workspace_id, call, at=now)
            if session is not None:
                self._sessions.record_event(tx, caller, call, at=now)
            for memory_id in shown_ids:
                store.save_mark(tx, caller.workspace_id, call.session_id, store.MEMORY, memory_id, at=now)
            return HookResult(outcome=HookOutcome.TEXT, text=text) if text else _NOTHING

        self._disk.require()
        return await self._db.write(write, is_synced=False)

    async def _stop(self, caller: Caller, call: HookCall, project: HookProject | None) -> HookResult:
        message = strip_own_text(call.message)
        if not message:
            return _NOTHING
        now = self._clock()

        def write(tx: Tx) -> HookResult:
            session = self._sessions.open(tx, caller, call, project, at=now)
            if session is None:
                return _IGNORED
            if is_double(tx, caller.workspace_id, call, at=now):
                return _DUPLICATE
            save_event(tx, caller.workspace_id, call, at=now)
            self._sessions.record_event(tx, caller, call, at=now)
            self._sessions.append_message(tx, caller, session, call, message, at=now)
            return _RECORDED

        self._disk.require()
        return await self._db.write(write)

    async def _end(self, caller: Caller, call: HookCall) -> HookResult:
        def read(tx: Tx) -> tuple[str, bool] | None:
            session = self._sessions.find(tx, caller, call.session_id)
            if session is None or not session.is_open:
                return None
            return session.id, HANDOFFS.find(tx, caller.workspace_id, session_id=session.id) is not None

        open_session = await self._db.lookup(read)
        if open_session is None:
            return _IGNORED
        session_id, has_handoff = open_session
        status = SessionStatus.HANDED_OFF if has_handoff else SessionStatus.COMPLETED
        # People leave a session and resume it days later, so an exit finishes nothing.
        await self._ender.end(caller, session_id, SessionEndRequest(status=status, keeps_memories=True))
        await self._db.write(lambda tx: store.delete_marks(tx, caller.workspace_id, call.session_id, store.START), is_synced=False)
        return _RECORDED


class HookTimedOut(RookeryError):
    """A hook took longer than its deadline. It is logged, and the client gets an empty answer."""

    def __init__(self, deadline_s: float) -> None:
        super().__init__(f"A hook of a coding agent took longer than {deadline_s:g} s and answered with nothing.")


def _list_abilities(caller: Caller) -> list[str]:
    """Return what the key of *caller* may do with the tools of Rookery, in words."""
    return [ability for scope, ability in _ABILITIES.items() if caller.has_scope(scope)]


def _list_ready_tasks(tx: Tx, caller: Caller, project: HookProject, now: datetime) -> list[ReadyTask]:
    access_filter = replace(PlanAccessFilter.from_caller(caller), projects=frozenset({project.project}))
    if project.org is not None:
        access_filter = replace(access_filter, orgs=frozenset({project.org}))
    task_page = tasks.list_page(
        tx, access_filter, TaskState.READY, plan_id=None, phase_id=None, session_id=None, at=now, page=PageSlice(_MAX_TASKS)
    )
    ready = task_page.items
    plan_ids = sorted({task.plan_id for task in ready})
    slugs = {plan.id: plan.slug for plan in PLANS.find_all(tx, access_filter.workspace_id, id=plan_ids)}
    return [ReadyTask(id=task.id, name=task.name, plan=slugs.get(task.plan_id, "")) for task in ready]


def _build_queries(project: HookProject, state: _StartState) -> list[str]:
    """Return the questions for memories at a start: the last session, the ready tasks, and the last work in the repository."""
    queries = list[str]()
    past = state.past_sessions[0] if state.past_sessions else None
    if past is not None and past.handoff is not None:
        notes = past.handoff.notes
        queries.append("; ".join([*notes.next_steps, *notes.remaining, *notes.blockers]) or notes.summary or "")
    elif past is not None:
        queries.append(past.message)
    queries.append("; ".join(task.name for task in state.tasks))
    branch = (project.branch or "").replace("-", " ").replace("_", " ").replace("/", " ")
    queries.append(" ".join([branch, project.commit or ""]).strip())
    return [extract_question(query) for query in queries if query.strip()]


class HookMetrics:
    """The counter of this process."""

    def __init__(self, metrics: Metrics) -> None:
        self._hooks = metrics.add_counter(
            "rookery_agent_hooks_total", "Events of coding agents, by client, event and outcome.", "client", "event", "outcome"
        )

    def record(self, client: str, event: HookEvent, outcome: HookOutcome) -> None:
        """Count an event."""
        self._hooks.add(client, event, outcome.value)
