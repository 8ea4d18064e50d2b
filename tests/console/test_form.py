"""The rules that every page of the console follows."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

import rookery.console
from rookery.console.rendering import MAX_PAGE_BYTES, StaticFiles
from rookery.console.views import VIEWS
from rookery.console.visit import SECTIONS
from tests.conftest import Instance
from tests.console.browsing import ConsoleUser

pytestmark = pytest.mark.embedded_store  # test_links.py opens every page on each record store

CONSOLE = Path(rookery.console.__file__).parent
TEMPLATES = sorted((CONSOLE / "templates").rglob("*.html"))
OWN_SCRIPTS = sorted((CONSOLE / "static").glob("*.js"))
FORBIDDEN = re.compile(
    r"""\sstyle=|<style|<script(?![^>]*\ssrc=)|\shx-on|["']js:|javascript:|hx-trigger="[^"]*\[|\son[a-z]+=|(?:src|href|action)=["']https?://"""
)
MAX_OWN_SCRIPT_BYTES = 15_000


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.relative_to(CONSOLE).as_posix())
def test_templates_have_nothing_that_the_policy_forbids(template: Path) -> None:
    """No inline style or script, no evaluated attribute, no other host: the browser would drop it without a message."""
    assert FORBIDDEN.findall(template.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.relative_to(CONSOLE).as_posix())
def test_links_are_relative(template: Path) -> None:
    """The console works under any path prefix, so that no link starts at the root of the host."""
    assert re.findall(r"""(?:href|src|action|hx-get|hx-post)=["']/""", template.read_text(encoding="utf-8")) == []


def test_templates_escape_what_tenants_wrote() -> None:
    """Nothing is marked as safe markup but what the console itself made."""
    marked = {path.name: re.findall(r"\|\s*safe\b", path.read_text(encoding="utf-8")) for path in TEMPLATES}
    assert {name for name, found in marked.items() if found} == set()


def test_own_scripts_are_small() -> None:
    """At most 15 kB of our own script reach a browser, over all pages together."""
    responses = [StaticFiles().get(path.name) for path in OWN_SCRIPTS]
    assert sum(len(response.body) for response in responses if response) <= MAX_OWN_SCRIPT_BYTES


def test_vendored_files_are_those_of_their_packages() -> None:
    """Vendored with licence and hash."""
    folder = CONSOLE / "static" / "vendor"
    listed = {entry["file"]: entry for entry in json.loads((folder / "vendored.json").read_text(encoding="utf-8"))}
    found = {path.name: path for path in folder.iterdir() if path.name != "vendored.json" and path.suffix != ".LICENSE"}
    assert listed.keys() == found.keys()
    for name, path in found.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == listed[name]["sha256"], name
        assert (folder / listed[name]["license_file"]).is_file(), name


def test_every_section_has_its_first_page() -> None:
    """The navigation leads nowhere else."""
    paths = {view.path for view in VIEWS if view.method == "GET"}
    assert {f"/{section.path}" for section in SECTIONS} <= paths


def test_no_view_is_declared_twice() -> None:
    """Two views of one path would hide each other."""
    assert len({(view.method, view.path) for view in VIEWS}) == len(VIEWS)


async def test_pages_have_a_strict_policy(user: ConsoleUser) -> None:
    """`default-src 'self'`, and neither inline styles nor scripts are allowed."""
    policy = (await user.get("")).headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


async def test_a_browser_is_led_to_the_console(instance: Instance) -> None:
    """`GET /` leads a browser there; a client gets an index of the API."""
    response = await instance.admin.get("/", Accept="text/html")
    assert (response.status_code, response.headers["location"]) == (303, "console/")
    assert (await instance.admin.get("/")).json()["links"]["console"].endswith("/console/")


async def test_the_address_without_slash_leads_to_the_folder(user: ConsoleUser) -> None:
    """Relative links start at `/console/`."""
    response = await user.http.get("http://localhost/console")
    assert (response.status_code, response.headers["location"]) == (308, "console/")


@pytest.mark.parametrize("path", [section.path for section in SECTIONS])
async def test_first_pages_are_empty_or_bounded(user: ConsoleUser, path: str) -> None:
    """Every page of an empty workspace says what to do next, and has a bound in bytes."""
    response = await user.get(path)
    assert response.status_code == 200
    assert len(response.content) < MAX_PAGE_BYTES / 4


@pytest.mark.parametrize(
    "view", [view for view in VIEWS if view.scope is not None and "{" not in view.path], ids=lambda view: f"{view.method} {view.path}"
)
async def test_a_view_needs_its_scope(instance: Instance, view: object) -> None:
    """A key without the scope of a view gets 403 with the name of the scope, and no navigation to it."""
    method, path, scope = (getattr(view, name) for name in ("method", "path", "scope"))
    key = await instance.api_key("console:read")
    async with ConsoleUser(instance.rookery) as user:
        await user.sign_in(key.key or "")
        response = await (user.get(path[1:]) if method == "GET" else user.post(path[1:]))
        assert (response.status_code, scope in response.text) == (403, True)


async def test_unknown_pages_are_found_out(user: ConsoleUser) -> None:
    """An unknown page and an unknown file are 404, as pages."""
    assert (await user.get("nowhere")).status_code == 404
    assert (await user.get("static/nothing.js")).status_code == 404
    assert (await user.get("static/..%2fformats.py")).status_code == 404


async def test_the_files_of_pages_may_be_cached(user: ConsoleUser) -> None:
    """The URL of a file changes with its content."""
    page = (await user.get("")).text
    links = re.findall(r'(?:href|src)="\./(static/[^"#]+)', page)
    assert len(links) > 4
    for link in set(links):
        response = await user.get(link)
        assert (response.status_code, "immutable" in response.headers["cache-control"]) == (200, True), link


async def test_an_encoded_slash_is_part_of_a_name(user: ConsoleUser) -> None:
    """A browser resolves relative links by the address as it was sent."""
    page = await user.get("memories/a%2Fb")
    assert (page.status_code, 'href="../static/style.css' in page.text) == (404, True)
