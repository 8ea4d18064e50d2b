"""The audit log in the console."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from tests.conftest import Instance
from tests.console.browsing import ConsoleUser

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store


async def test_entries_are_filtered_by_days(user: ConsoleUser, instance: Instance) -> None:
    """Every list is filtered by the server. The last day of a filter is part of it."""
    entries = (await instance.admin.get("/api/v1/audit?action=console.signed_in")).json()["data"]
    day = datetime.fromisoformat(entries[0]["at"]).date()
    before, after = day - timedelta(days=1), day + timedelta(days=1)
    for query, is_listed in {f"since={day}&until={day}": True, f"until={before}": False, f"since={after}": False}.items():
        assert ("console.signed_in" in await user.read(f"audit?action=console.signed_in&{query}")) == is_listed, query


async def test_a_day_that_does_not_exist_is_refused(user: ConsoleUser) -> None:
    """A filter with a mistake is named, not ignored."""
    response = await user.get("audit?until=2026-02-31")
    assert (response.status_code, "until" in response.text) == (422, True)
