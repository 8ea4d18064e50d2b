"""
Take the pictures of the console in the documentation: `make pictures`.

A server with the sample workspace runs in a process of its own. `--all FOLDER` takes every page there, wide and narrow, light and dark.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import tempfile
from pathlib import Path
from typing import Literal, cast

from tests.chat_service import ChatService, run_chat_service
from tests.console.browsing import BrowserUser
from tests.console.sample.workspace import SampleServices, fill, make_settings
from tests.processes import run_server
from tests.reference.browser import run_chromium
from tests.webhooks.receiver import run_receiver

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
_SIZES = {1440: 900, 360: 740}
_SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_IS_DRAWN = "document.readyState === 'complete' && [...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('canvas'))"
_IS_MAP_DRAWN = "document.querySelector('[data-map]')?.dataset.ready"
_MAX_PAGES_OF_A_KIND = 2
_ID = re.compile(r"sess_[0-9a-f-]{36}|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}")
_LINKS = "[...document.querySelectorAll('main a[href], .side a[href]')].map((link) => link.href.split('#')[0])"

PICTURES: dict[str, tuple[str, str]] = {
    "console.png": ("", _IS_DRAWN),
    "console-recall.png": ("memories/recall?q=How+do+we+roll+back+a+release%3F", _IS_DRAWN),
    "console-map.png": ("memories/map", _IS_MAP_DRAWN),
}
"""The pictures of the documentation: path below `/console/`, and what is true when the page is complete."""


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description="Take the pictures of the console.")
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="take every page into this folder, instead of the documentation's")
    folder: Path | None = parser.parse_args().all
    asyncio.run(_take(folder))


async def _take(folder: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="rookery-pictures-") as name, run_chat_service(ChatService(key=None)) as model:
        async with run_receiver() as receiver, run_receiver() as broken:
            services = SampleServices(model, receiver, broken)
            settings = make_settings(Path(name, "data"), services)
            keys = await fill(settings, services)
            (settings.data_dir / "first-run.json").write_text(f'{{"api_key": "{keys["first"]}"}}', encoding="utf-8")
            with run_server(settings.data_dir, generation=model.url("ok"), generation_prices="*=0.25/2") as server:
                async with run_chromium(Path(name)) as browser:
                    person = BrowserUser(await browser.open(server.url), "")
                    await person.page.resize(1440, 900)
                    await person.page.set_color_scheme("light")
                    await person.page.hide_scrollbars()
                    await person.sign_in(keys["first"])
                    if folder is None:
                        await _take_documented(person)
                    else:
                        folder.mkdir(parents=True, exist_ok=True)
                        await _take_all(person, folder)


async def _take_documented(person: BrowserUser) -> None:
    for name, (path, is_complete) in PICTURES.items():
        for _ in range(2):  # the first recall of a new server loads the model, and the page shows how long it took
            await person.go(path)
            await person.wait_for(is_complete)
        await person.page.screenshot(IMAGES / name)


async def _take_all(person: BrowserUser, folder: Path) -> None:
    """Follow the links of all pages, and take each kind of page a few times."""
    prefix = f"{person.page.origin}/console/"
    waiting, seen, counts = [""], set[str](), dict[str, int]()
    while waiting:
        path = waiting.pop(0)
        kind = _ID.sub("ID", path.partition("?")[0])
        if path in seen or counts.get(kind, 0) >= _MAX_PAGES_OF_A_KIND or "export" in path:
            continue
        seen.add(path)
        counts[kind] = counts.get(kind, 0) + 1
        for width, height in _SIZES.items():
            await person.page.resize(width, height)
            for scheme in _SCHEMES:
                await person.page.set_color_scheme(scheme)
                await person.go(path)
                await person.wait_for(_IS_DRAWN)
                name = re.sub(r"[^a-z0-9]+", "-", kind.lower()).strip("-") or "overview"
                await person.page.screenshot(folder / f"{name}-{counts[kind]}-{width}-{scheme}.png")
        links = cast("list[str]", await person.page.evaluate(_LINKS))
        waiting += [link.removeprefix(prefix) for link in links if link.startswith(prefix)]


if __name__ == "__main__":
    main()
