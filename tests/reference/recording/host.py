"""The part of the story about the server itself, and its documentation."""

from __future__ import annotations

from tests.reference.recording.tape import Tape, beginning


async def play(tape: Tape) -> None:
    """Ask whether it is well, and what it can do."""
    nobody, admin = tape.house.caller(None), tape.house.admin
    await tape.ask(nobody, "GET /")
    await tape.ask(nobody, "GET /favicon.ico")
    await tape.ask(nobody, "GET /healthz")
    await tape.ask(nobody, "GET /readyz")
    await tape.ask(admin, "GET /api/docs/openapi", cut=beginning)
    await tape.ask(admin, "GET /docs/openapi.json", cut=beginning)
    for path in ("", "/scalar", "/redoc"):
        await tape.ask(admin, f"GET /api/docs{path}")
