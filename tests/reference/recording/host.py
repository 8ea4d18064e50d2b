"""The part of the story about the server itself, and its documentation."""

from __future__ import annotations

from typing import cast

from tests.reference.recording.recorder import Recorder, first_operation


async def play(recorder: Recorder) -> None:
    """Read health, readiness and the documentation."""
    anonymous, admin = recorder.instance.caller(None), recorder.instance.admin
    await recorder.send(anonymous, "GET /")
    await recorder.send(anonymous, "GET /favicon.ico")
    await recorder.send(anonymous, "GET /healthz")
    await recorder.send(anonymous, "GET /readyz")
    await recorder.send(admin, "GET /api/v1/doctor", shorten_response=_keep_database_finding)
    await recorder.send(admin, "GET /api/docs/openapi", shorten_response=first_operation)
    await recorder.send(admin, "GET /docs/openapi.json", shorten_response=first_operation)
    for path in ("", "/scalar", "/redoc"):
        await recorder.send(admin, f"GET /api/docs{path}")


def _keep_database_finding(body: dict[str, object]) -> dict[str, object]:
    """Keep the finding about the database. The others differ between machines."""
    findings = cast("list[dict[str, object]]", body["findings"])
    return body | {"findings": [finding for finding in findings if finding["about"] == "database"]}
