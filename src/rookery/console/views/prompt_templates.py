"""Prompt templates with their versions and a preview, usage by day, and budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from http import HTTPStatus
from typing import TypedDict, cast

from starlette.responses import Response

from rookery.console.arguments import or_unset, parse_integer, parse_json, refuse_field
from rookery.console.day_charts import DayChart, build_day_chart
from rookery.console.formats import to_json
from rookery.console.views.content import (
    READ,
    WRITE,
    cut_messages,
    read_variables,
)
from rookery.console.visit import PER_PAGE, PageLinks, SubmittedForm, View, Visit, get_field_errors, open_call_group
from rookery_client import ApiError
from rookery_client.calls import UNSET, Unset
from rookery_client.generated import inputs, models

MANAGE_BUDGETS = "keys:write"
_PERIODS = {"7": "7 days", "30": "30 days", "90": "90 days"}
_USAGE_PER_PAGE, _MAX_USAGE_PAGES = 100, 20
_MAX_OFFERED_KEYS = 50
"""Keys of each kind that the form of a budget offers. The search finds the others."""

_VERSIONS_SHOWN = 50
_NO_LIMIT = "none"
"""The text of a form that removes a limit."""

_ROLES = frozenset({"system", "user", "assistant"})


class _Content(TypedDict):
    """The fields of a template that its form has."""

    name: str
    description: str
    variables: Mapping[str, object]
    messages: Sequence[inputs.MessageBody]
    model: str | None
    max_tokens: int | None
    temperature: float | None
    schema: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class UsageTotals:
    """The sums of one model, or of all."""

    requests: int
    failed: int
    input_tokens: int
    output_tokens: int
    cost: Decimal
    currency: str


async def list_templates(visit: Visit) -> Response:
    """List the prompt templates, searched by the server."""
    words = visit.query("q")
    page = await visit.client.content.list_prompt_templates(page=visit.page_number, per_page=PER_PAGE, q=words or UNSET)
    return visit.render("content/templates.html", page=page, links=PageLinks.of(visit, page), words=words)


async def show_template(visit: Visit) -> Response:
    """Show a version of a template."""
    return await _show_template(visit, {}, {})


async def preview_template(visit: Visit) -> Response:
    """Fill in a template with the values of the form."""
    form, slug = await visit.form(), visit.path("slug")
    version = form.integer("version")
    template = await visit.client.content.get_prompt_template(slug, version=or_unset(version))
    try:
        preview = await visit.client.content.preview_prompt_template(
            slug, variables=read_variables(form, template.variables), version=template.version
        )
    except ApiError as error:
        return await _show_template(visit, form.as_dict(), get_field_errors(error), version=version, status=error.status)
    return await _show_template(visit, form.as_dict(), {}, version=version, preview=preview)


async def show_new_template(visit: Visit) -> Response:
    """Show the form for a new template."""
    return _show_form(visit, {}, {})


async def create_template(visit: Visit) -> Response:
    form = await visit.form()
    try:
        content = _read_content(form)
        template = await visit.client.content.create_prompt_template(slug=form.get("slug"), **content)
    except ApiError as error:
        return _show_form(visit, form.as_dict(), get_field_errors(error), status=error.status)
    return visit.redirect(f"content/templates/{template.slug}", "created")


async def show_edit_form(visit: Visit) -> Response:
    """Show the form with the current version of a template."""
    template = await visit.client.content.get_prompt_template(visit.path("slug"))
    return _show_form(visit, _to_fields(template), {}, slug=template.slug)


async def save_template(visit: Visit) -> Response:
    """
    Store a new version, unless somebody has stored one since the form was opened.

    The client does not give the ETag of a template. So the version is compared before the write, and of two forms that are sent at the
    same moment the later one is the newest version; the other stays in the list of versions.
    """
    form, slug = await visit.form(), visit.path("slug")
    current = await visit.client.content.get_prompt_template(slug)
    if form.get("version") != str(current.version):
        problem = {"form": [f"Version {current.version} has been stored since this form was opened. Open the form again."]}
        return _show_form(visit, form.as_dict(), problem, slug=slug, status=HTTPStatus.CONFLICT)
    try:
        await visit.client.content.replace_prompt_template(slug, **_read_content(form))
    except ApiError as error:
        return _show_form(visit, form.as_dict(), get_field_errors(error), slug=slug, status=error.status)
    return visit.redirect(f"content/templates/{slug}", "saved")


async def delete_template(visit: Visit) -> Response:
    """Delete a template with all its versions."""
    await visit.client.content.delete_prompt_template(visit.path("slug"))
    return visit.redirect("content/templates", "deleted")


async def show_usage(visit: Visit) -> Response:
    """Show requests, tokens and cost by day and by model."""
    days = visit.query("days") if visit.query("days") in _PERIODS else "30"
    since = datetime.now(UTC).date() - timedelta(days=int(days) - 1)
    model = visit.query("model")
    page = await visit.client.content.list_content_usage(per_page=_USAGE_PER_PAGE, model=model or UNSET, since=since)
    rows = [*page.items]
    for _ in range(_MAX_USAGE_PAGES - 1):
        if (following := await page.next()) is None:
            break
        page = following
        rows += page.items
    is_complete = not page.has_next
    by_model = {name: _sum([row for row in rows if row.model == name]) for name in sorted({row.model for row in rows})}
    links = PageLinks.at(visit, visit.page_number, len(rows))
    return visit.render(
        "content/usage.html",
        rows=rows[links.first - 1 : links.last] if links.first else [],
        links=links,
        total=_sum(rows),
        by_model=by_model,
        is_complete=is_complete,
        charts=_build_charts(rows, since, int(days)),
        filters={"days": days, "model": model},
        has_report=visit.can("usage:read"),
        periods=tuple(_PERIODS.items()),
    )


async def show_budgets(visit: Visit) -> Response:
    """Show the budgets of the workspace and of keys."""
    return await _show_budgets(visit, {}, {})


async def set_budget(visit: Visit) -> Response:
    """Set budgets of the workspace, or of the key that the form names. An empty one stays as it is."""
    form = await visit.form()
    try:
        daily, monthly, key_id = _read_limit(form, "daily"), _read_limit(form, "monthly"), form.get("key_id")
        if key_id:
            await visit.client.content.set_key_content_budget(key_id, daily=daily, monthly=monthly)
        else:
            await visit.client.content.set_workspace_content_budget(daily=daily, monthly=monthly)
    except ApiError as error:
        return await _show_budgets(visit, form.as_dict(), get_field_errors(error), status=error.status)
    return visit.redirect("content/budgets", "saved")


def _read_limit(form: SubmittedForm, name: str) -> float | Unset | None:
    text = form.get(name)
    return None if text == _NO_LIMIT else UNSET if not text else form.number(name)


async def delete_budget(visit: Visit) -> Response:
    """Return to the operator's default."""
    key_id = (await visit.form()).get("key_id")
    if key_id:
        await visit.client.content.delete_key_content_budget(key_id)
    else:
        await visit.client.content.delete_workspace_content_budget()
    return visit.redirect("content/budgets", "deleted")


async def _show_template(
    visit: Visit,
    values: Mapping[str, str],
    errors: Mapping[str, list[str]],
    *,
    version: int | None = None,
    preview: models.RenderedPrompt | None = None,
    status: int = 200,
) -> Response:
    slug = visit.path("slug")
    if version is None:
        version = parse_integer("version", visit.query("version"))
    template = await visit.client.content.get_prompt_template(slug, version=or_unset(version))
    versions = await visit.client.content.list_prompt_template_versions(slug, per_page=_VERSIONS_SHOWN)
    return visit.render(
        "content/template.html",
        status=status,
        chosen=template,
        messages=cut_messages(template.messages),
        schema=None if template.schema_ is None else to_json(template.schema_)[:20_000],
        versions=versions.items,
        is_current=not versions.items or template.version == max(item.version for item in versions.items),
        values=values,
        errors=errors,
        preview=preview,
        preview_messages=[] if preview is None else cut_messages(preview.messages),
    )


def _show_form(visit: Visit, values: Mapping[str, str], errors: Mapping[str, list[str]], *, slug: str = "", status: int = 200) -> Response:
    names = ("slug", "name", "description", "messages", "system", "prompt", "variables", "model", "max_tokens", "temperature", "schema")
    fields = dict.fromkeys((*names, "version"), "") | dict(values)
    return visit.render("content/template_form.html", status=status, slug=slug, values=fields, errors=errors)


def _read_content(form: SubmittedForm) -> _Content:
    model = form.get("model")
    return {
        "name": form.get("name"),
        "description": form.get_text("description"),
        "variables": form.json_object("variables") or {},
        "messages": _read_messages(form),
        "model": model or None,
        "max_tokens": form.integer("max_tokens"),
        "temperature": form.number("temperature"),
        "schema": form.json_object("schema"),
    }


def _read_messages(form: SubmittedForm) -> list[inputs.MessageBody]:
    """
    Return the messages: those of the field with JSON, else the system message and the prompt.

    Raises:
        ApiError: The JSON is not a list of messages.
    """
    if text := form.get("messages"):
        value = parse_json("messages", text)
        if not isinstance(value, list) or not all(_is_message(item) for item in cast("list[object]", value)):
            raise refuse_field("messages", "must be a JSON list of objects with role (system, user or assistant) and content")
        return cast("list[inputs.MessageBody]", value)
    messages: list[inputs.MessageBody] = [{"role": "system", "content": form.get_text("system")}] if form.get("system") else []
    return [*messages, {"role": "user", "content": form.get_text("prompt")}]


def _is_message(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    fields = cast("dict[str, object]", value)
    return fields.keys() == {"role", "content"} and fields["role"] in _ROLES and isinstance(fields["content"], str)


def _to_fields(template: models.PromptTemplate) -> dict[str, str]:
    roles = [message.role for message in template.messages]
    is_simple = roles in (["user"], ["system", "user"])
    messages = [{"role": message.role, "content": message.content} for message in template.messages]
    return {
        "name": template.name,
        "description": template.description,
        "messages": "" if is_simple else to_json(messages),
        "system": template.messages[0].content if is_simple and len(roles) > 1 else "",
        "prompt": template.messages[-1].content if is_simple else "",
        "variables": to_json({name: _to_declaration(variable) for name, variable in template.variables.items()}),
        "model": template.model or "",
        "max_tokens": "" if template.max_tokens is None else str(template.max_tokens),
        "temperature": "" if template.temperature is None else f"{template.temperature:g}",
        "schema": "" if template.schema_ is None else to_json(template.schema_),
        "version": str(template.version),
    }


def _to_declaration(variable: models.PromptVariable) -> dict[str, object]:
    """Return the declaration without fields that say nothing."""
    fields = variable.model_dump(mode="json")
    return {name: value for name, value in fields.items() if value is not None and value != ""}


def _sum(rows: Sequence[models.ContentUsage]) -> UsageTotals:
    return UsageTotals(
        requests=sum(row.requests for row in rows),
        failed=sum(row.failed for row in rows),
        input_tokens=sum(row.input_tokens for row in rows),
        output_tokens=sum(row.output_tokens for row in rows),
        cost=sum((Decimal(str(row.cost)) for row in rows), Decimal()),
        currency=rows[0].currency if rows else "",
    )


def _build_charts(rows: Sequence[models.ContentUsage], first: date, days: int) -> list[tuple[str, DayChart]]:
    """Return the charts of requests and of cost by day."""
    requests, failed, cost = Counter[str](), Counter[str](), dict[str, Decimal]()
    for row in rows:
        day = row.day.isoformat()
        requests[day] += row.requests
        failed[day] += row.failed
        cost[day] = cost.get(day, Decimal()) + Decimal(str(row.cost))
    return [
        ("Requests by day", build_day_chart(first, days, [("requests", "accent", requests), ("failed", "bad", failed)])),
        ("Cost by day", build_day_chart(first, days, [("cost", "accent", {day: float(amount) for day, amount in cost.items()})])),
    ]


async def _show_budgets(visit: Visit, values: Mapping[str, str], errors: Mapping[str, list[str]], *, status: int = 200) -> Response:
    words = visit.query("q")
    async with open_call_group() as group:
        listing = group.create_task(visit.client.content.list_content_budgets(page=visit.page_number, per_page=PER_PAGE, q=words or UNSET))
        finding = group.create_task(_find_keys(visit, words))
    page, keys = listing.result(), finding.result()
    return visit.render(
        "content/budgets.html",
        status=status,
        page=page,
        links=PageLinks.of(visit, page),
        words=words,
        keys=keys,
        values={"key_id": "", "daily": "", "monthly": ""} | dict(values),
        currency=page.items[0].currency if page.items else "",
        errors=errors,
        may_manage=visit.can(MANAGE_BUDGETS),
    )


async def _find_keys(visit: Visit, words: str) -> list[tuple[str, str]]:
    """Return the ids and names of the newest keys with *words* in their name, for the choice of a form."""
    if not visit.can(MANAGE_BUDGETS) or not visit.can("keys:read"):
        return []
    q = words or UNSET
    async with open_call_group() as group:
        api = group.create_task(visit.client.keys.list_api_keys(per_page=_MAX_OFFERED_KEYS, status="Active", q=q))
        agent = group.create_task(visit.client.keys.list_agent_keys(per_page=_MAX_OFFERED_KEYS, status="Active", q=q))
    return [(key.id, f"{key.name} ({key.hint})") for key in (*api.result().items, *agent.result().items)]


VIEWS = (
    View("GET", "/content/templates", list_templates, READ),
    View("GET", "/content/templates/new", show_new_template, WRITE),
    View("POST", "/content/templates/new", create_template, WRITE),
    View("GET", "/content/templates/{slug}", show_template, READ),
    View("POST", "/content/templates/{slug}", preview_template, READ),
    View("GET", "/content/templates/{slug}/edit", show_edit_form, WRITE),
    View("POST", "/content/templates/{slug}/edit", save_template, WRITE),
    View("POST", "/content/templates/{slug}/delete", delete_template, WRITE),
    View("GET", "/content/usage", show_usage, READ),
    View("GET", "/content/budgets", show_budgets, READ),
    View("POST", "/content/budgets", set_budget, MANAGE_BUDGETS),
    View("POST", "/content/budgets/delete", delete_budget, MANAGE_BUDGETS),
)
