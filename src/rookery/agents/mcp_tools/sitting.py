"""Sessions by tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.mcp_tools.reading import Answer, paged, plain, valid
from rookery.agents.models.sessions import Session
from rookery.agents.schemas.boot import StartedAnswer, boot_answer
from rookery.agents.schemas.session_events import EventBody, EventsQuery, event_answer
from rookery.agents.schemas.sessions import EndBody, ResumeBody, SessionPatch, SessionsQuery, StartBody, heartbeat_answer, session_answer
from rookery.agents.sessions.verbs import SessionServices


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTools:
    """Calls one verb a tool."""

    sessions: SessionServices

    async def call(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Answer | None:
        """Run *tool*; None: it is not one of these."""
        match tool:
            case "session_start":
                return await self._started(caller, await self.sessions.starting.start(caller, valid(StartBody, arguments).new()))
            case "session_resume":
                wanted = valid(ResumeBody, arguments, "session_id").resumption()
                return await self._started(caller, await self.sessions.starting.resume(caller, _id(arguments), wanted))
            case "session_list":
                query = valid(SessionsQuery, arguments)
                found, total = await self.sessions.working.page(
                    caller, query.wanted(), plan=query.plan, limit=query.per_page, offset=query.offset
                )
                return paged("sessions", [session_answer(caller, each) for each in found], query, total)
            case "session_show":
                return plain(session_answer(caller, await self.sessions.working.get(caller, _id(arguments))))
            case "session_events":
                which = valid(EventsQuery, arguments, "session_id")
                events, total = await self.sessions.working.events(
                    caller, _id(arguments), after=which.after, kind=which.kind(), limit=which.per_page, offset=which.offset
                )
                return paged("events", [event_answer(each) for each in events], which, total)
            case _:
                return await self._in_one(tool, arguments, caller)

    async def _in_one(self, tool: str, arguments: Mapping[str, object], caller: Caller) -> Answer | None:
        """Do what is done in a session by who has it."""
        session_id = str(arguments.get("session_id"))
        match tool:
            case "session_log":
                return await self._noted(caller, session_id, valid(EventBody, arguments, "session_id"))
            case "session_checkpoint":
                return await self._noted(caller, session_id, valid(EventBody, {**arguments, "type": "checkpoint"}, "session_id"))
            case "session_heartbeat":
                return plain(heartbeat_answer(await self.sessions.working.heartbeat(caller, session_id)))
            case "session_update":
                change = valid(SessionPatch, arguments, "session_id").change()
                return await self._shown(caller, await self.sessions.working.change(caller, session_id, change))
            case "session_handoff":
                handing = valid(EndBody, {**arguments, "status": "handed_off"}, "session_id")
                return await self._shown(caller, await self.sessions.endings.end(caller, session_id, handing.ending()))
            case "session_end":
                ending = valid(EndBody, arguments, "session_id").ending()
                return await self._shown(caller, await self.sessions.endings.end(caller, session_id, ending))
            case _:
                return None

    async def _noted(self, caller: Caller, session_id: str, body: EventBody) -> Answer:
        return plain(event_answer(await self.sessions.working.append(caller, session_id, body.happening())))

    async def _shown(self, caller: Caller, session: Session) -> Answer:
        return plain(session_answer(caller, await self.sessions.working.shown(session)))

    async def _started(self, caller: Caller, session: Session) -> Answer:
        shown, boot = await self.sessions.working.shown(session), await self.sessions.booting.boot(caller, session)
        return plain(StartedAnswer.model_construct(session=session_answer(caller, shown), boot=boot_answer(caller, boot)))


def _id(arguments: Mapping[str, object]) -> str:
    return str(arguments["session_id"])
