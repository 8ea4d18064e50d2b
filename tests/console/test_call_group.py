"""The calls of a page at the same time."""

from __future__ import annotations

import asyncio

import pytest

from rookery.console.visit import open_call_group
from rookery_client import ApiError
from tests.conftest import Instance
from tests.console.browsing import BrowserUser, ConsoleUser, get_text

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store


async def _wait_until_cancelled(cancelled: asyncio.Event) -> None:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        cancelled.set()
        raise


async def test_the_first_failure_ends_all_calls() -> None:
    """No call of a page outlives it, and its error is that of the failed call."""
    cancelled, failure = asyncio.Event(), ApiError("gone", status=503, code="engine_unavailable", detail={})

    async def fail() -> None:
        raise failure

    async def show() -> None:
        async with open_call_group() as group:
            group.create_task(_wait_until_cancelled(cancelled))
            group.create_task(fail())

    with pytest.raises(ApiError) as caught:
        await show()
    assert (caught.value, cancelled.is_set()) == (failure, True)


async def test_a_page_that_is_left_ends_its_calls() -> None:
    """The calls end with the request of the browser."""
    cancelled, started = asyncio.Event(), asyncio.Event()

    async def show() -> None:
        async with open_call_group() as group:
            group.create_task(_wait_until_cancelled(cancelled))
            started.set()

    page = asyncio.create_task(show())
    await started.wait()
    await asyncio.sleep(0)
    page.cancel()
    with pytest.raises(asyncio.CancelledError):
        await page
    assert cancelled.is_set()


async def test_the_doctor_has_a_page_for_browsers_without_scripts(user: ConsoleUser, instance: Instance) -> None:
    """Settings shows the findings of the doctor, and waits for none of them. Keys without the scope do not see it."""
    settings = (await user.get("settings")).text
    assert ('hx-get="./settings/doctor"' in settings, "disk" in get_text(settings)) == (True, False)
    page = await user.read("settings/doctor")
    assert ("API reference" in page, "disk" in page) == (True, True)
    part = (await user.get("settings/doctor", {"HX-Request": "true"})).text
    assert ("<html" in part, "disk" in part) == (False, True)
    reader = await instance.api_key("console:read")
    await user.sign_in(reader.key or "")
    assert "settings/doctor" not in (await user.get("settings")).text


async def test_settings_load_the_doctor(person: BrowserUser) -> None:
    """In a real browser, the findings appear by themselves."""
    await person.go("settings")
    await person.wait_for("document.querySelectorAll('#doctor tbody tr').length > 3")
    assert await person.find_faults() == []
