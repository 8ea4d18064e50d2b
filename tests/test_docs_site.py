"""The documentation site: what `make docs` writes, the faults that fail it, and its pages in a browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import tomllib
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from benchmarks.table import load_results
from distribution.docs_site.build import ROOT, BuildFailed, build_site
from distribution.docs_site.links import list_broken_links, list_site_faults
from distribution.docs_site.recording import PICTURE, SESSION, draw, record
from tests.conftest import eventually
from tests.documentation import table
from tests.reference.browser import Page, run_chromium

_FOUND = """
(() => {
  const host = [...document.body.children].find(element => element.shadowRoot);
  return host ? [...host.shadowRoot.querySelectorAll("a")].map(link => link.href) : [];
})()
"""
"""The addresses of the results of the search, which the theme shows in a shadow root."""

_SCREENS = ((360, "light", "default"), (1440, "dark", "slate"))
"""Widths, each with the scheme that the system prefers and the one of the theme."""

_PAGES = ("index", "architecture", "how-to/keys", "reference/settings", "reference/routes")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this repository, built once."""
    out = tmp_path_factory.mktemp("site") / "docs"
    build_site(out)
    return out


@pytest.fixture
async def page(site: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    """A tab on the folder of the site, without a server."""
    async with run_chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield await browser.open(site.as_uri())


def test_make_docs_writes_every_page_and_the_api_description(site: Path) -> None:
    """A page for each file of `docs`, and the OpenAPI document. A build with a fault raises, so this one has none."""
    sources = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    overviews = {path.with_name("index") if path.name == "README" else path for path in sources}

    assert {site / f"{path}.html" for path in overviews} <= set(site.rglob("*.html"))
    assert "/v1/brain/remember" in json.loads((site / "openapi.json").read_bytes())["paths"]


def test_the_site_names_no_other_host_in_what_a_browser_fetches(site: Path) -> None:
    """No fonts, scripts or styles of other hosts, also not in the scripts of the theme."""
    scripts = "\n".join(path.read_text(encoding="utf-8") for path in site.rglob("*.js") if path.name != "search.js")
    styles = "\n".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    heads = "\n".join(path.read_text(encoding="utf-8").partition("</head>")[0] for path in site.rglob("*.html"))

    assert [host for host in ("unpkg.com", "jsdelivr", "googleapis", "gstatic", "github.com") if host in scripts + heads] == []
    assert "url(http" not in styles
    assert "@import" not in styles


async def test_pages_fit_a_phone_and_a_wide_screen_in_light_and_dark(page: Page) -> None:
    """At 360 and 1440 px nothing is wider than the window, nothing is requested elsewhere, and the console has no errors."""
    for width, scheme, theme in _SCREENS:
        await page.resize(width, 900)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        await page.browser.send_command("Emulation.setEmulatedMedia", media, page.session)
        for name in _PAGES:
            await page.go(f"/{name}.html")
            await eventually(partial(_has_scheme, page, name, theme))
            assert cast("int", await page.evaluate("document.documentElement.scrollWidth")) <= width, name
    assert page.outside == []
    assert page.console_errors == []


async def test_the_search_finds_a_page_without_a_server(page: Page) -> None:
    """Search offline. The site is opened from its folder, where a browser starts no worker."""
    await page.go("/index.html")
    await eventually(partial(page.evaluate, "document.readyState === 'complete' && !!document.querySelector('.md-search__button')"))

    await eventually(partial(_search, page, "rotate key", "/how-to/keys.html"))
    assert page.outside == []
    assert page.console_errors == []


def test_the_picture_and_the_table_of_layers_have_every_layer() -> None:
    """The layers of the architecture page are those of the contract, which the checks enforce."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (tree,) = [contract for contract in contracts if contract["name"] == "Layers of the package"]
    layers = {name for layer in tree["layers"] for name in re.findall(r"\w+", layer)} - {"terminal"}  # the shared parts of commands
    picture = " ".join(re.findall(r">([^<]+)</text>", (ROOT / "docs" / "images" / "layers.svg").read_text(encoding="utf-8")))
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")

    assert layers - {"__main__"} - set(re.findall(r"\w+", picture)) == set()
    assert {name for name in layers if f"`{name}`" not in page} == set()


def test_the_recorded_terminal_shows_what_its_commands_print(tmp_path: Path) -> None:
    """The picture of the README is a real session: recorded again it has the same words, except for ids, dates and times."""
    again = tmp_path / "terminal.svg"
    again.write_text(draw(record(SESSION)), encoding="utf-8")
    texts = (html.unescape(" ".join(re.findall(r">([^<]+)</text>", path.read_text(encoding="utf-8"))).lower()) for path in (PICTURE, again))
    # On a slow host, the check of the tool server says after some seconds that it still waits.
    shown, real = (re.findall(r"[a-z]{3,}", re.sub(r"\w+\s+has\s+not\s+answered\s+for\s+\d+\s+s\.", "", text)) for text in texts)

    assert [word for word in shown if not set(word) <= set("abcdef")] == [word for word in real if not set(word) <= set("abcdef")]
    assert "https:" not in PICTURE.read_text(encoding="utf-8")


def test_the_comparison_of_the_readme_is_the_measured_one() -> None:
    """The figures of the README's comparison are those of the newest results."""
    results = load_results()
    memory, tools = (results[name]["runs"][-1]["values"] for name in ("peers", "tools"))
    by_session, by_turn = memory["38 sessions"], memory["788 turns"]
    gateways = {
        "Rookery, mcp-server-time": tools["figures"]["Rookery, time"],
        "mcpo 0.0.20": tools["figures"]["mcpo, time"],
        "ContextForge 1.0.7": tools["figures"]["ContextForge, time"],
    }

    assert table(ROOT / "README.md", "Memory: `python -m benchmarks.peers`") == [
        [name, f"{by_session[name]['frac@10']} %", f"{by_turn[name]['frac@10']} %", f"{by_session[name]['recall_p50_ms']} ms"]
        for name in ("Rookery, hybrid", "mcp-memory-service, hybrid", "Hindsight", "mem0", "LangGraph on SQLite")
    ]
    assert table(ROOT / "README.md", "Tools: `python -m benchmarks.tools`") == [
        [name, f"{figures['p50_ms']} ms", f"{figures['per_s_at_16']} a second"] for name, figures in gateways.items()
    ]


def test_broken_links_are_reported_with_their_line(tmp_path: Path) -> None:
    """Missing files, pictures and headings are reported; code blocks and other hosts are not checked."""
    (tmp_path / "other.md").write_text("# A heading of it\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[good](other.md#a-heading-of-it) [here](#here) [far](https://example.org/x)\n"
        "[gone](gone.md)\n```text\n[code](gone.md)\n```\n[no heading](other.md#nowhere) ![image](gone.png)\n",
        encoding="utf-8",
    )

    assert list(list_broken_links(page)) == [
        "page.md:3: gone.md: no such file",
        "page.md:7: other.md#nowhere: no such heading",
        "page.md:7: gone.png: no such file",
    ]


@pytest.mark.parametrize(
    ("page", "text", "fault"),
    [
        ("tutorial.md", "[gone](gone.md)", "gone.md: no such file"),
        ("how-to/forgotten.md", "# Not in the overview", "how-to/forgotten.md: not a page, or not in the overview page of its folder"),
    ],
)
def test_a_fault_in_a_page_fails_the_build(tmp_path: Path, page: str, text: str, fault: str) -> None:
    """A broken link fails the build, and so does a page that no reader would find; the site is not written."""
    for name in ("docs", "benchmarks", "training", "examples", "deploy"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "*.npz", "*.json.gz"))
    for path in ROOT.glob("*.md"):
        shutil.copyfile(path, tmp_path / path.name)
    for name in ("LICENSE", "Makefile", "pyproject.toml"):
        shutil.copyfile(ROOT / name, tmp_path / name)
    with (tmp_path / "docs" / page).open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")

    with pytest.raises(BuildFailed, match=fault):
        build_site(tmp_path / "site", tmp_path)
    assert not (tmp_path / "site").exists()


def test_faults_of_a_built_site_are_found(tmp_path: Path) -> None:
    """The check reads the HTML, the styles and the scripts, so that it also covers what the generator adds."""
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="https://fonts.example/x.css"><script src="app.js"></script><h1 id="here">Here</h1>'
        '<a href="#here">x</a><a href="#gone">x</a><a href="gone.html">x</a><a href="https://example.org">x</a>',
        encoding="utf-8",
    )
    (tmp_path / "app.js").write_text("load('https://cdn.example/lib.js'); ns = 'http://www.w3.org/2000/svg'", encoding="utf-8")
    (tmp_path / "app.css").write_text("a { background: url('//cdn.example/x.png') }", encoding="utf-8")

    assert list(list_site_faults(tmp_path)) == [
        "index.html: https://fonts.example/x.css: another host",
        "index.html: #gone: no such heading",
        "index.html: gone.html: no such file",
        "app.css: //cdn.example/x.png: another host",
        "app.js: https://cdn.example: another host",
    ]


async def _has_scheme(page: Page, name: str, scheme: str) -> object:
    loaded = f"document.readyState === 'complete' && location.pathname.endsWith('/{name}.html')"
    return await page.evaluate(f"{loaded} && document.body.getAttribute('data-md-color-scheme') === '{scheme}'")


async def _search(page: Page, words: str, target: str) -> bool:
    """Type *words* into the search, unless they are there, and return whether a result leads to *target*."""
    found = cast("list[str]", await page.evaluate(_FOUND))
    if not found:
        await page.evaluate("document.querySelector('.md-search__button').click()")
        typed = "(() => { const host = [...document.body.children].find(element => element.shadowRoot);"
        typed += " const field = host && host.shadowRoot.querySelector('input'); return field ? field.value : null; })()"
        if await page.evaluate(typed) == "":
            await page.browser.send_command("Input.insertText", {"text": words}, page.session)
    return any(target in address for address in found)
