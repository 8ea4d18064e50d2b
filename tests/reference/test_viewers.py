"""The pages that show the API's description (spec 4.5, D-83): in a real browser, of which each request is looked at."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path

import pytest

from rookery.reference.viewers import VIEWERS
from tests.conftest import Instance, eventually
from tests.processes import Server, run_server
from tests.reference.browser import Browser, Page, chromium, program
from tests.reference.vendoring import FOLDER, PACKAGES

_DRAWN_S = 120.0
"""Until a page has drawn what a test waits for: seconds on an idle machine, far more beside other work."""
_TEST_S = 480

_PAGES = {"/api/docs": "swagger", "/api/docs/scalar": "scalar", "/api/docs/redoc": "redoc"}
_FOLDED = {
    "swagger": ".opblock-tag[data-is-open=false]",
    "scalar": "aside button[aria-expanded=false], nav button[aria-expanded=false]",
    "redoc": "[data-component-name='Menu/MenuItem'], aside a, nav a[href*=discovery]",
}
"""Where the operations of a tag are under it, what is clicked to see them."""
_OPENED = {"scalar": "#tag/memory", "redoc": "#tag/Memory"}
"""Where a page begins with the introduction, the part of its address that leads to the operations."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server as users run it."""
    program()
    with run_server(tmp_path_factory.mktemp("viewers")) as server:
        yield server


@pytest.fixture
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """A browser of the test's own."""
    async with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.mark.timeout(_TEST_S)
async def test_each_viewer_shows_the_operations_and_asks_no_other_host(server: Server, browser: Browser) -> None:
    """D-83: viewers from the package, no outside host; a browser uses Basic with the key as user name, and nothing complains."""
    document = server.client.get("/api/docs/openapi").json()
    titles = [operation["summary"] for methods in document["paths"].values() for operation in methods.values()]
    for path, name in _PAGES.items():
        page = await browser.open(server.url, key=server.keys["api_key"])
        await page.resize(1440, 900)
        await page.go(path + _OPENED.get(name, ""))

        await eventually(partial(_shown, page, titles, _FOLDED.get(name)), within_s=_DRAWN_S)
        assert page.challenges == 1, name
        assert page.outside == [], name
        assert page.complaints == [], name


@pytest.mark.timeout(_TEST_S)
async def test_what_is_tried_out_uses_the_key_that_opened_the_page(server: Server, browser: Browser) -> None:
    """Issue 14: Swagger UI asked for the key twice; a call of another part of the API (/v1) needs no second sign-in. D-09, D-83."""
    page = await browser.open(server.url, key=server.keys["api_key"])
    await page.go("/api/docs#/Memory/recall")

    for button in (".try-out__btn", ".execute"):
        await eventually(partial(_pressed, page, f"#operations-Memory-recall {button}"), within_s=_DRAWN_S)

    async def is_answered() -> bool:
        return str(
            await page.tell("document.querySelector('.live-responses-table tbody .response-col_status')?.innerText ?? ''")
        ).startswith("200")

    await eventually(is_answered, within_s=_DRAWN_S)
    assert page.requests[-1] == "/v1/brain/recall"
    assert (page.challenges, page.complaints, page.outside) == (1, [], [])
    assert server.keys["api_key"] not in str(await page.tell("document.documentElement.outerHTML"))


@pytest.mark.timeout(_TEST_S)
@pytest.mark.parametrize("path", _PAGES)
async def test_a_key_in_the_address_opens_the_pages(server: Server, browser: Browser, path: str) -> None:
    """Issue 14: `http://KEY:@host/api/docs` ended with "Request cannot be constructed from a URL that includes credentials". D-83."""
    page = await browser.open(server.url)
    await page.go(path, user=server.keys["api_key"])

    async def is_drawn() -> bool:
        return "Rookery is a self-hosted home of AI agents" in await page.text()

    await eventually(is_drawn, within_s=_DRAWN_S)
    assert (page.complaints, page.outside) == ([], [])


@pytest.mark.timeout(_TEST_S)
async def test_who_may_not_read_the_description_is_told_so_on_the_page(server: Server, browser: Browser) -> None:
    """Issue 14: whatever goes wrong is a sentence on the page, here after the key lost its scope. D-83."""
    page = await browser.open(server.url, key=server.keys["api_key"])
    await page.go("/api/docs")
    await eventually(partial(_shown, page, ["Memory"], None), within_s=_DRAWN_S)

    told = await page.tell("document.body.dataset.document = '/nowhere'; window.loadDescription().catch(() => document.body.innerText)")

    assert "The API description could not be loaded (404): The path '/nowhere' does not exist." in str(told)


async def test_without_scripts_a_page_says_what_to_do(server: Server, browser: Browser) -> None:
    """D-83: a reader who has JavaScript off is told what to switch on, and where the description itself is."""
    page = await browser.open(server.url, key=server.keys["api_key"])
    await page.without_scripts()
    await page.go("/api/docs/redoc")

    async def is_shown() -> bool:
        return "This page needs JavaScript" in await page.text()

    await eventually(is_shown, within_s=_DRAWN_S)


async def test_the_pages_are_for_keys_that_may_view_the_documentation(instance: Instance) -> None:
    """D-83: needs docs:read; a request without a key gets a Basic challenge here, and nowhere else."""
    viewer, other, nobody = await instance.api_key("docs:read"), await instance.api_key("brain:read"), instance.caller(None)
    for path in [*_PAGES, "/api/docs/static/0/page.css"]:
        assert (await viewer.get(path)).status_code == (404 if "static" in path else 200)
        assert (await other.get(path)).status_code == 403
        refused = await nobody.get(path)
        assert refused.status_code == 401
        assert "Basic" in refused.headers["www-authenticate"]
    assert "Basic" not in (await nobody.get("/api/v1/mcp/servers")).headers["www-authenticate"]


async def test_the_files_of_a_page_are_there_and_never_change(instance: Instance) -> None:
    """D-83: each file that a page names is served, compressed or not, and cacheable; the CSP allows no other host."""
    for path, name in _PAGES.items():
        page = await instance.admin.get(path)
        root = "/api/docs/" if path == "/api/docs" else ""
        named = [part.split('"')[0] for part in page.text.replace("'", '"').split('"') if "static/" in part]

        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert len(named) >= 3, (name, root)
        for each in named:
            address = "/api/docs/" + each[each.index("static/") :]
            packed = await instance.admin.get(address, **{"Accept-Encoding": "gzip"})
            plain = await instance.admin.get(address, **{"Accept-Encoding": "identity"})
            assert packed.status_code == plain.status_code == 200
            assert packed.headers["content-encoding"] == "gzip"
            assert "content-encoding" not in plain.headers
            assert packed.content == plain.content
            assert "immutable" in packed.headers["cache-control"]


def test_what_is_shipped_of_others_is_what_was_written_down() -> None:
    """Pinned versions with SHA-256 and licences; `make viewers ARGS=--check` compares them with npm itself."""
    known = json.loads((FOLDER / "vendored.json").read_text(encoding="utf-8"))["packages"]

    assert [(each["package"], each["version"]) for each in known] == [(each.package, each.version) for each in PACKAGES]
    assert {viewer.engine for viewer in VIEWERS} <= {name for each in known for name in each["files"]}
    for each in known:
        for name, digest in each["sha256"].items():
            content = _content(FOLDER / name) if (FOLDER / name).exists() else gzip.decompress(_content(FOLDER / f"{name}.gz"))
            assert hashlib.sha256(content).hexdigest() == digest, name


async def _pressed(page: Page, selector: str) -> bool:
    """Press a button, if it is there."""
    return bool(await page.tell(f"(() => {{ const b = document.querySelector({json.dumps(selector)}); b?.click(); return b !== null }})()"))


async def _shown(page: Page, titles: list[str], folded: str | None) -> bool:
    """Tell whether an operation's title is to be read; if not, unfold the first tag."""
    text = await page.text()
    if any(title in text for title in titles):
        return True
    if folded is not None:
        await page.tell(f"document.querySelector({json.dumps(folded)})?.click()")
    return False


def _content(path: Path) -> bytes:
    return path.read_bytes()
