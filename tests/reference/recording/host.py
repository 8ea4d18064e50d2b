"""The part of the story about the server itself, and its documentation."""

from __future__ import annotations

from tests.reference.recording.recorder import Recorder, first_operation


async def play(recorder: Recorder) -> None:
    """Read health, readiness and the documentation."""
    anonymous, admin = recorder.instance.caller(None), recorder.instance.admin
    await recorder.send(anonymous, "GET /")
    await recorder.send(anonymous, "GET /favicon.ico")
    await recorder.send(anonymous, "GET /healthz")
    await recorder.send(anonymous, "GET /readyz")
    await recorder.send(admin, "GET /api/docs/openapi", shorten_response=first_operation)
    await recorder.send(admin, "GET /docs/openapi.json", shorten_response=first_operation)
    for path in ("", "/scalar", "/redoc"):
        await recorder.send(admin, f"GET /api/docs{path}")
