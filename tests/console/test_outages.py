"""Pages of the console while an engine or a tool server does not answer: they say what is down and what to do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rookery.console.visit import SECTIONS
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from tests.conftest import SECRET_KEY, Instance, eventually, lend_model, run_instance
from tests.console.browsing import BrowserUser, ConsoleUser, get_text
from tests.fault_proxy import FaultProxy
from tests.processes import Server, run_server
from tests.qdrant_stand_in import run_qdrant_stand_in
from tests.reference.browser import find_chromium

_SEARCH = "document.querySelector('input[type=search]')"


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A server with a tool server that ends as soon as it has started."""
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    settings.servers_file.write_text(json.dumps({"mcpServers": {"dead": {"command": "false"}}}))
    async with run_instance(settings) as opened:
        yield opened


@pytest.mark.external_service
async def test_pages_say_that_the_database_does_not_answer(postgres_database: str, data_dir: Path, model_folder: Path) -> None:
    """No page waits without a bound or is a bare error, and the pages work again when the database does."""
    lend_model(model_folder, data_dir)
    parts = urlsplit(postgres_database)
    with FaultProxy(parts.port or 5432) as proxy:
        url = Secret(postgres_database.replace(f":{parts.port}", f":{proxy.port}"))
        settings = Settings(data_dir=data_dir, database_url=url, secret_key=Secret(SECRET_KEY), bcrypt_cost=4, min_free_disk_mb=0)
        async with run_instance(settings) as instance, ConsoleUser(instance.rookery) as user:
            await user.sign_in(instance.admin.key or "")
            proxy.partition()
            pages = await asyncio.gather(*(user.get(section.path) for section in SECTIONS))
            assert {page.status_code for page in pages} == {503}
            for page in pages:
                text = get_text(page.text)
                assert ("database engine is unavailable" in text, "rookery doctor" in text, "Try again" in text) == (True, True, True), text
            sent = await user.post("keys/api/new", {"name": "n"})
            assert (sent.status_code, "database engine is unavailable" in sent.text) == (503, True)
            proxy.heal()
            await eventually(lambda: _works(user))


async def _works(user: ConsoleUser) -> bool:
    return (await user.get("")).status_code == 200


async def test_recall_names_the_engine_that_does_not_answer(data_dir: Path, model_folder: Path) -> None:
    """Without the vectors, memories are found by their words, and the pages say so."""
    lend_model(model_folder, data_dir)
    with run_qdrant_stand_in() as qdrant, FaultProxy(qdrant.port) as proxy:
        address = Secret(qdrant.address(port=proxy.port))
        settings = Settings(data_dir=data_dir, vectors=address, bcrypt_cost=4, min_free_disk_mb=0, engine_timeout_ms=1_000)
        async with run_instance(settings) as instance, ConsoleUser(instance.rookery) as user:
            await user.sign_in(instance.admin.key or "")
            await instance.admin.remember()
            proxy.partition()
            page = (await user.get("memories/recall?q=Tuesdays")).text
            assert ("We deploy on" in page, 'class="alert warn"' in page, "not compared" in page) == (True, True, True)
            await eventually(lambda: _shows_outage(user))
            proxy.heal()


async def _shows_outage(user: ConsoleUser) -> bool:
    return "Engines: degraded" in await user.read("") and "rookery doctor" in await user.read("settings")


async def test_a_tool_of_a_dead_server_says_so(user: ConsoleUser) -> None:
    """A server that cannot be reached is not a tool that does not exist; its page has the reason."""
    await eventually(lambda: _is_offline(user))
    response = await user.get("tools/dead/echo")
    assert (response.status_code, "because it is offline" in response.text) == (503, True)
    missing = await user.get("tools/brain/nothing")
    assert (missing.status_code, "has no tool" in missing.text) == (404, True)


async def _is_offline(user: ConsoleUser) -> bool:
    return "offline" in await user.read("tools/dead")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in its own process, whose index of texts refuses connections."""
    find_chromium()
    with run_server(tmp_path_factory.mktemp("outage"), texts="opensearch://127.0.0.1:9") as server:
        yield server


async def test_a_search_that_fails_says_so_in_its_place(person: BrowserUser) -> None:
    """A part that htmx loads says what is down, and the page stays usable."""
    await person.go("memories")
    await person.type("input[type=search]", "heron")
    await person.wait_for("document.querySelector('#results')?.innerText.includes('texts engine is unavailable')")
    await person.wait_for("document.querySelector('#results').innerText.includes('rookery doctor')")
    await person.page.evaluate(f"Object.assign({_SEARCH}, {{value: ''}}).dispatchEvent(new Event('input', {{bubbles: true}}))")
    await person.wait_for("!document.querySelector('#results').innerText.includes('unavailable')")
    await person.go("settings")
    await person.wait_for_text("Start the engine, or correct ROOKERY_TEXTS")


async def test_a_part_of_a_page_has_the_error_in_its_place(user: ConsoleUser) -> None:
    """The response has the id that htmx selects, and no other text of the request."""
    for target, expected in (("div#results", True), ('div#results"><script>', False), ("", False)):
        response = await user.get("sessions/none", {"HX-Request": "true", "HX-Target": target})
        assert (response.status_code, 'id="results"' in response.text, "<html" in response.text) == (404, expected, False), target
