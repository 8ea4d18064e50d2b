"""The pages of the API description in a real browser with intercepted requests."""

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
from tests.reference.browser import Browser, Page, find_chromium, run_chromium
from tests.reference.vendoring import FOLDER, PACKAGES

"""Time for a page to render: seconds on an idle machine, far more on a busy one."""

_PAGES = {"/api/docs": "swagger", "/api/docs/scalar": "scalar", "/api/docs/redoc": "redoc"}
_FOLDED = {
    "swagger": ".opblock-tag[data-is-open=false]",
    "scalar": "aside button[aria-expanded=false], nav button[aria-expanded=false]",
    "redoc": "[data-component-name='Menu/MenuItem'], aside a, nav a[href*=discovery]",
}
"""The element to click, by viewer, to show the operations of a tag."""
_FRAGMENTS = {"scalar": "#tag/memory", "redoc": "#tag/Memory"}
"""The fragment of the address, by viewer, that leads past the introduction to the operations."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server in its own process."""
    find_chromium()
    with run_server(tmp_path_factory.mktemp("viewers")) as server:
        yield server


@pytest.fixture
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """A browser for one test."""
    async with run_chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


async def test_each_viewer_shows_the_operations_without_other_hosts(server: Server, browser: Browser) -> None:
    """Viewers come from the package; the browser sends the key as Basic user name, and the console has no errors."""
    document = server.client.get("/api/docs/openapi").json()
    titles = [operation["summary"] for methods in document["paths"].values() for operation in methods.values()]
    for path, name in _PAGES.items():
        page = await browser.open(server.url, key=server.keys["api_key"])
        await page.resize(1440, 900)
        await page.go(path + _FRAGMENTS.get(name, ""))

        await eventually(partial(_is_operation_visible, page, titles, _FOLDED.get(name)))
        assert page.challenges == 1, name
        assert page.outside == [], name
        assert page.console_errors == [], name


async def test_on_a_phone_every_link_is_visible_and_an_operation_fits_the_width(server: Server, browser: Browser) -> None:
    """At 360 px the links to the other viewers were outside the window, and an open operation widened the page."""
    outside = "[...document.querySelectorAll('header a')].filter(a => a.getBoundingClientRect().right > innerWidth).map(a => a.innerText)"
    page = await browser.open(server.url, key=server.keys["api_key"])
    await page.resize(360, 900)
    for path in ["/servers", "/connect", *_PAGES]:
        await page.go(path)
        await eventually(partial(_has_element, page, "header a"))
        assert await page.evaluate(outside) == [], path
        assert await page.evaluate("document.querySelector('header a').getBoundingClientRect().top >= 4"), path

    await page.go("/api/docs#/Memory")
    await eventually(partial(_has_element, page, ".opblock-summary-control"))
    await page.evaluate("document.querySelector('.opblock-summary-control').click()")
    await eventually(partial(_has_element, page, ".responses-table"))
    assert await page.evaluate("document.documentElement.scrollWidth") == 360


async def _has_element(page: Page, selector: str) -> bool:
    return bool(await page.evaluate(f"document.querySelector({selector!r}) !== null"))


async def test_try_it_out_uses_the_key_that_opened_the_page(server: Server, browser: Browser) -> None:
    """A call of another part of the API (/v1) needs no second sign-in."""
    page = await browser.open(server.url, key=server.keys["api_key"])
    await page.go("/api/docs#/Memory/recall")

    for button in (".try-out__btn", ".execute"):
        await eventually(partial(_click, page, f"#operations-Memory-recall {button}"))

    async def is_answered() -> bool:
        return str(
            await page.evaluate("document.querySelector('.live-responses-table tbody .response-col_status')?.innerText ?? ''")
        ).startswith("200")

    await eventually(is_answered)
    assert page.requests[-1] == "/v1/brain/recall"
    assert (page.challenges, page.console_errors, page.outside) == (1, [], [])
    assert server.keys["api_key"] not in str(await page.evaluate("document.documentElement.outerHTML"))


@pytest.mark.parametrize("path", _PAGES)
async def test_a_key_in_the_address_opens_the_pages(server: Server, browser: Browser, path: str) -> None:
    """`http://KEY:@host/api/docs` works, although fetch rejects URLs with credentials."""
    page = await browser.open(server.url)
    await page.go(path, user=server.keys["api_key"])

    async def is_rendered() -> bool:
        return "Rookery is a self-hosted home of AI agents" in await page.text()

    await eventually(is_rendered)
    assert (page.console_errors, page.outside) == ([], [])


async def test_a_failure_to_load_the_description_is_shown_on_the_page(server: Server, browser: Browser) -> None:
    """The page shows the status and the error message."""
    page = await browser.open(server.url, key=server.keys["api_key"])
    await page.go("/api/docs")
    await eventually(partial(_is_operation_visible, page, ["Memory"], None))

    message = await page.evaluate(
        "document.body.dataset.document = '/nowhere'; window.loadDescription().catch(() => document.body.innerText)"
    )

    assert "The API description could not be loaded (404): The path '/nowhere' does not exist." in str(message)


async def test_a_page_without_scripts_explains_what_to_do(server: Server, browser: Browser) -> None:
    """A page without JavaScript has a hint and the address of the description."""
    page = await browser.open(server.url, key=server.keys["api_key"])
    await page.disable_scripts()
    await page.go("/api/docs/redoc")

    async def is_shown() -> bool:
        return "This page needs JavaScript" in await page.text()

    await eventually(is_shown)


async def test_the_pages_need_docs_read(instance: Instance) -> None:
    """Needs docs:read; a request without a key gets a Basic challenge here, and nowhere else."""
    viewer, other, nobody = await instance.api_key("docs:read"), await instance.api_key("brain:read"), instance.caller(None)
    for path in [*_PAGES, "/api/docs/static/0/page.css"]:
        assert (await viewer.get(path)).status_code == (404 if "static" in path else 200)
        assert (await other.get(path)).status_code == 403
        challenge = await nobody.get(path)
        assert challenge.status_code == 401
        assert "Basic" in challenge.headers["www-authenticate"]
    assert "Basic" not in (await nobody.get("/api/v1/mcp/servers")).headers["www-authenticate"]


async def test_the_files_of_a_page_are_served_and_immutable(instance: Instance) -> None:
    """Each file that a page names is served, compressed or not, and cacheable; the CSP allows no other host."""
    for path, name in _PAGES.items():
        page = await instance.admin.get(path)
        root = "/api/docs/" if path == "/api/docs" else ""
        references = [part.split('"')[0] for part in page.text.replace("'", '"').split('"') if "static/" in part]

        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert len(references) >= 3, (name, root)
        for reference in references:
            url = "/api/docs/" + reference[reference.index("static/") :]
            compressed = await instance.admin.get(url, **{"Accept-Encoding": "gzip"})
            plain = await instance.admin.get(url, **{"Accept-Encoding": "identity"})
            assert compressed.status_code == plain.status_code == 200
            assert compressed.headers["content-encoding"] == "gzip"
            assert "content-encoding" not in plain.headers
            assert compressed.content == plain.content
            assert "immutable" in compressed.headers["cache-control"]


def test_vendored_files_match_their_manifest() -> None:
    """Pinned versions with SHA-256 and licences; `make viewers ARGS=--check` compares them with npm itself."""
    known = json.loads((FOLDER / "vendored.json").read_text(encoding="utf-8"))["packages"]

    assert [(reference["package"], reference["version"]) for reference in known] == [
        (reference.package, reference.version) for reference in PACKAGES
    ]
    assert {viewer.engine for viewer in VIEWERS} <= {name for reference in known for name in reference["files"]}
    for reference in known:
        for name, digest in reference["sha256"].items():
            content = _read(FOLDER / name) if (FOLDER / name).exists() else gzip.decompress(_read(FOLDER / f"{name}.gz"))
            assert hashlib.sha256(content).hexdigest() == digest, name


async def _click(page: Page, selector: str) -> bool:
    """Click a button; return whether it exists."""
    return bool(
        await page.evaluate(f"(() => {{ const b = document.querySelector({json.dumps(selector)}); b?.click(); return b !== null }})()")
    )


async def _is_operation_visible(page: Page, titles: list[str], folded: str | None) -> bool:
    """Return whether an operation's title is visible; if not, unfold the first tag."""
    text = await page.text()
    if any(title in text for title in titles):
        return True
    if folded is not None:
        await page.evaluate(f"document.querySelector({json.dumps(folded)})?.click()")
    return False


def _read(path: Path) -> bytes:
    return path.read_bytes()
