"""Every page of a filled workspace, with all that links from it."""

from __future__ import annotations

import asyncio
import html
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from starlette.routing import compile_path

from rookery.console.rendering import MAX_PAGE_BYTES
from rookery.console.views import VIEWS
from rookery.console.visit import SECTIONS
from rookery.kernel.secret import Secret
from tests.chat_service import ChatService, run_chat_service
from tests.conftest import SECRET_KEY, run_instance
from tests.console.browsing import ConsoleUser, get_text
from tests.console.sample.workspace import SampleServices, fill, make_settings
from tests.webhooks.receiver import run_receiver

ROOT = "http://localhost/console/"
PAGES_OF_A_KIND = 4
"""Pages that differ in ids alone are opened this often."""

_ID = re.compile(r"sess_[0-9a-f-]{36}|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{32}")
_LINK = re.compile(r'(?:href|hx-get|src)="([^"]*)"')
_FORM = re.compile(r"<form\b[^>]*>")
_ACTION = re.compile(r'action="([^"]*)"')


async def test_every_link_and_form_leads_somewhere(tmp_path: Path, database_url: str) -> None:
    """No page links to one that does not exist, no form is sent to where nothing answers, and each page has its bound."""
    with run_chat_service(ChatService(key=None)) as model:
        async with run_receiver() as receiver, run_receiver() as broken:
            services = SampleServices(model, receiver, broken)
            secret_key = None if database_url == "embedded:" else Secret(SECRET_KEY)
            settings = replace(make_settings(tmp_path / "data", services), database_url=Secret(database_url), secret_key=secret_key)
            keys = await fill(settings, services, days=9)
            async with run_instance(settings) as instance, ConsoleUser(instance.rookery) as user:
                await user.sign_in(keys["first"])
                await _follow_links(user)


async def _follow_links(user: ConsoleUser) -> None:
    patterns = [(compile_path(view.path)[0], view.method) for view in VIEWS]
    seen, counts = set[str](), dict[str, int]()
    waiting = [(ROOT + section.path, "the navigation") for section in SECTIONS]
    while waiting:
        url, origin = waiting.pop(0)
        kind = _ID.sub("ID", re.sub(r"=[^&]*", "=", url))
        counts[kind] = counts.get(kind, 0) + 1
        if url in seen or counts[kind] > PAGES_OF_A_KIND:
            continue
        seen.add(url)
        page = await user.http.get(url, follow_redirects=True)
        is_former = page.status_code == 404 and "Former memory" in page.text
        assert page.status_code == 200 or is_former, (url, origin, get_text(page.text)[-300:])
        assert len(page.content) <= MAX_PAGE_BYTES, url
        if "text/html" not in page.headers["content-type"] or not url.startswith(ROOT):
            continue
        targets = [urljoin(str(page.url), html.unescape(link)).partition("#")[0] for link in _LINK.findall(page.text)]
        waiting += [(target, url) for target in targets if target.startswith(ROOT)]
        for form in _FORM.findall(page.text):
            method = "POST" if 'method="post"' in form else "GET"
            action = _ACTION.search(form)
            path = urlsplit(urljoin(str(page.url), html.unescape(action.group(1)) if action else "")).path.removeprefix("/console")
            is_session = path in {"/sign-in", "/sign-out", "/switch"} or 'method="dialog"' in form
            assert is_session or any(each == method and pattern.match(path) for pattern, each in patterns), (url, form)
        await asyncio.sleep(0)
    assert len({path for path in counts if path.startswith(ROOT)}) > 60
