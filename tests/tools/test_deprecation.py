"""The start of a tool server's deprecation and its sunset date."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.tools.catalogue import Catalogue
from rookery.tools.models import Server, ServerStatus
from rookery.tools.servers.registry import ServerRegistry
from rookery.tools.supervision.session_pool import SessionPool
from tests.conftest import eventually, run_instance
from tests.tools.conftest import write
from tests.tools.makers import CONNECTORS, make_caller, make_odd_entry


async def test_the_deprecation_date_is_the_one_of_the_entrys_own_change(db: Database, file: Path) -> None:
    """Unrelated edits of servers.json and restarts do not move the date of `Deprecation`."""
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    dates = [await _load_deprecation_date(db, file, now, make_odd_entry(status="deprecated"))]
    now[0] = datetime(2026, 3, 1, tzinfo=UTC)
    dates.append(await _load_deprecation_date(db, file, now, make_odd_entry(status="deprecated", tagline="Edited"), other=make_odd_entry()))
    await _load_deprecation_date(db, file, now, make_odd_entry(status="beta"))
    dates.append(await _load_deprecation_date(db, file, now, make_odd_entry(status="deprecated")))

    assert dates == [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)]


async def test_a_running_rookery_keeps_the_date_of_an_unchanged_entry(db: Database, file: Path) -> None:
    """An edit applies without a restart, and moves no date of another entry."""
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    write(file, odd=make_odd_entry(status="deprecated"))
    sessions = SessionPool(CONNECTORS)
    catalogue = Catalogue(db, sessions, ServerRegistry(path=file), clock=lambda: now[0])
    await sessions.start()
    await catalogue.start()
    now[0] = datetime(2026, 3, 1, tzinfo=UTC)
    write(file, odd=make_odd_entry(status="deprecated"), late=make_odd_entry(status="deprecated"))

    def find_server(server_id: str) -> Server | None:
        return next((server for server in catalogue.list_servers(make_caller()) if server.id == server_id), None)

    late = await eventually(lambda: find_server("late"))
    assert late is not None
    await eventually(lambda: catalogue.deprecated_at(late) == datetime(2026, 3, 1, tzinfo=UTC))
    odd = find_server("odd")
    await catalogue.aclose()
    await sessions.aclose()

    assert odd is not None
    assert catalogue.deprecated_at(odd) == datetime(2026, 1, 1, tzinfo=UTC)


async def test_responses_have_deprecation_and_sunset_headers(settings: Settings) -> None:
    """`Deprecation` follows RFC 9745; `Sunset` is six months later unless the entry sets it."""
    servers = {
        "dated": make_odd_entry(status="deprecated", deprecated_at="2026-01-31"),
        "long": make_odd_entry(status="deprecated", deprecated_at="2026-01-31T00:00:00Z", sunset_at="2027-06-01"),
        "short": make_odd_entry(status="deprecated", deprecated_at="2026-01-31", sunset_at="2026-03-01"),
        "plain": make_odd_entry(),
    }
    settings.servers_file.write_text(json.dumps({"mcpServers": servers}))
    async with run_instance(settings) as instance:
        responses = {name: await instance.admin.get(f"/api/v1/mcp/servers/{name}") for name in servers}
        call_response = await instance.admin.post("/api/v1/mcp/servers/dated/tools/pid", {})

    headers = {name: (response.headers.get("deprecation"), response.headers.get("sunset")) for name, response in responses.items()}
    assert headers["dated"] == ("@1769817600", "Mon, 03 Aug 2026 00:00:00 GMT")
    assert headers["long"] == ("@1769817600", "Tue, 01 Jun 2027 00:00:00 GMT")
    assert headers["plain"] == (None, None)
    assert (call_response.headers["deprecation"], call_response.headers["sunset"]) == headers["dated"]
    assert "sunset_at must be at least six months after deprecated_at: 2026-08-03 or later" in responses["short"].json()["last_error"]


async def test_a_workspaces_own_server_keeps_the_date_of_its_change(settings: Settings) -> None:
    """Servers added over HTTP keep their date as well."""
    async with run_instance(replace(settings, egress_allow=("127.0.0.0/8",))) as instance:
        await instance.admin.post("/api/v1/servers", {"id": "mine", "url": "http://127.0.0.1:9/mcp"})
        first = (await instance.admin.send("PATCH", "/api/v1/servers/mine", {"status": "deprecated"})).json()
        second = (await instance.admin.send("PATCH", "/api/v1/servers/mine", {"tagline": "Edited"})).json()
        response = await instance.admin.get("/api/v1/mcp/servers/mine")
        assert response.status_code == 200, response.text
        deprecation = response.headers["deprecation"]
        third = (await instance.admin.send("PATCH", "/api/v1/servers/mine", {"status": "available"})).json()

    date = datetime.fromisoformat(cast("str", first["deprecated_at"]))
    assert second["deprecated_at"] == first["deprecated_at"]
    assert deprecation == f"@{int(date.timestamp())}"
    assert third["deprecated_at"] is None


async def _load_deprecation_date(
    db: Database, file: Path, now: list[datetime], odd: dict[str, object], **others: object
) -> datetime | None:
    """Start with the file, and return the date since which its server `odd` is deprecated."""
    write(file, odd=odd, **others)
    sessions = SessionPool(CONNECTORS)
    catalogue = Catalogue(db, sessions, ServerRegistry(path=file), clock=lambda: now[0])
    await sessions.start()
    await catalogue.start()
    (server,) = [server for server in catalogue.list_servers(make_caller()) if server.id == "odd"]
    date = catalogue.deprecated_at(server) if server.status is ServerStatus.DEPRECATED else None
    await catalogue.aclose()
    await sessions.aclose()
    return date
