"""The part of the story about the server itself, and its documentation."""

from __future__ import annotations

from tests.reference.recording.recorder import Recorder, first_operation


async def play(tape: Recorder) -> None:
    """Ask whether it is well, and what it can do."""
    nobody, admin = tape.instance.caller(None), tape.instance.admin
    await tape.send(nobody, "GET /")
    await tape.send(nobody, "GET /favicon.ico")
    await tape.send(nobody, "GET /healthz")
    await tape.send(nobody, "GET /readyz")
    await tape.send(admin, "GET /api/docs/openapi", cut=first_operation)
    await tape.send(admin, "GET /docs/openapi.json", cut=first_operation)
    for path in ("", "/scalar", "/redoc"):
        await tape.send(admin, f"GET /api/docs{path}")
