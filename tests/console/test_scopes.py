"""The scopes of the views are those of the calls that they send."""

from __future__ import annotations

import re

from rookery.console.views import VIEWS
from rookery.console.visit import SECTIONS, View
from tests.conftest import Instance
from tests.console.browsing import ConsoleUser, get_text

NEEDED_BY_THE_PAGE_BEFORE = {"/tools/_added/{server_id}": "servers:read", "/plans/-/templates/{template}": "templates.read"}
"""A second scope that a view needs. Without it, the page that leads to the view does not show the way."""

NOBODY = "01a1fbcc-0000-7000-8000-000000000000"


def find_section_scope(view: View) -> str | None:
    """Return the scope of the section in which a view is."""
    first = view.path.split("/")[1]
    return next(section.scope for section in SECTIONS if first in {section.path, *section.other_paths})


async def test_views_need_no_other_scope(instance: Instance) -> None:
    """A control is shown to callers who may use it. The API refuses a call without its scope before it looks at anything else."""
    refused: list[str] = []
    by_scopes: dict[tuple[str, ...], list[View]] = {}
    for view in VIEWS:
        scopes = {"console:read", view.scope or "", find_section_scope(view) or "", NEEDED_BY_THE_PAGE_BEFORE.get(view.path, "")} - {""}
        by_scopes.setdefault(tuple(sorted(scopes)), []).append(view)
    for scopes, views in by_scopes.items():
        key = await instance.api_key(*scopes)
        async with ConsoleUser(instance.rookery) as user:
            await user.sign_in(key.key or "")
            for view in views:
                path = re.sub(r"\{[^}]+\}", NOBODY, view.path.removeprefix("/"))
                response = await (user.get(path) if view.method == "GET" else user.post(path))
                if "scope_missing" in response.text:
                    refused.append(f"{view.method} {view.path}: {get_text(response.text)[-200:]}")
    assert refused == []


async def test_an_overview_without_figures_leads_to_the_scopes(instance: Instance) -> None:
    """Empty states say what to do next. A key with one scope of the overview gets its figures instead."""
    for scope, is_empty in (("audit:read", True), ("plans.read", False)):
        key = await instance.api_key("console:read", scope)
        async with ConsoleUser(instance.rookery) as user:
            await user.sign_in(key.key or "")
            text = await user.read("")
            assert ("Scopes of your key" in text, "Ready tasks" in text) == (is_empty, not is_empty)
