"""Generations: the list, a generation with its messages and answer, a form for a new one with a live answer, and batches."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, TypedDict, get_args

from starlette.responses import Response

from rookery.console.arguments import choose, parse_variable
from rookery.console.formats import to_json
from rookery.console.visit import PER_PAGE, PageLinks, SubmittedForm, View, Visit, get_field_errors
from rookery.kernel.http import EventStream, encode_event
from rookery.kernel.http.request_body import cancel_on_disconnect
from rookery_client import ApiError
from rookery_client.calls import UNSET, Unset
from rookery_client.generated import inputs, models

READ, WRITE = "content.read", "content.write"
MAX_SHOWN_CHARS = 20_000
"""The longest text of one message or answer that a page shows, so that each page has a bound. The API has the whole."""

_MAX_SHOWN_MESSAGES_CHARS = 40_000
_UNFINISHED = frozenset({"queued", "running"})
_REPEATABLE = frozenset({"failed", "cancelled"})
_PERIODS = {"1": "last day", "7": "last 7 days", "30": "last 30 days"}
_MAX_OFFERED_TEMPLATES = 100

Status = Literal["queued", "running", "succeeded", "failed", "cancelled"]
BatchStatus = Literal["running", "finished"]
Mode = Literal["sync", "queued", "stream"]
STATUSES: tuple[Status, ...] = get_args(Status)
BATCH_STATUSES: tuple[BatchStatus, ...] = get_args(BatchStatus)
MODES: tuple[Mode, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class ShownText:
    """
    A text of a generation.

    Attributes:
        role: The role of a message; empty for an answer.
        hidden: The number of characters at its end that are not shown.
    """

    role: str
    text: str
    hidden: int


class _Draft(TypedDict, total=False):
    """The fields of a generation that a form has."""

    prompt: str
    messages: Sequence[inputs.MessageBody]
    template: str
    variables: Mapping[str, object]
    model: str
    max_tokens: int
    temperature: float
    schema: Mapping[str, object]


async def list_generations(visit: Visit) -> Response:
    """List the generations, newest first."""
    filters = {name: visit.query(name) for name in ("status", "mode", "model", "template", "since")}
    page = await visit.client.content.list_generations(
        page=visit.page_number,
        per_page=PER_PAGE,
        status=choose(filters["status"], STATUSES),
        mode=choose(filters["mode"], MODES),
        model=filters["model"] or UNSET,
        template=filters["template"] or UNSET,
        since=_read_since(filters["since"]),
    )
    return visit.render(
        "content/generations.html",
        page=page,
        links=PageLinks.of(visit, page),
        filters=filters,
        is_filtered=any(filters.values()),
        statuses=STATUSES,
        modes=MODES,
        periods=tuple(_PERIODS.items()),
    )


async def show_generation(visit: Visit) -> Response:
    """Show a generation. The page repeats its request while the generation is not at its end."""
    generation = await visit.client.content.get_generation(visit.path("generation_id"))
    output = generation.output
    text = "" if output is None else output.text or ""
    value = None if output is None else output.json_
    return visit.render(
        "content/generation.html",
        generation=generation,
        messages=cut_messages(generation.messages),
        answer=_cut("", text if value is None else to_json(value)),
        is_json=value is not None,
        reasoning=None if output is None or not output.reasoning else _cut("", output.reasoning),
        schema=None if generation.schema_ is None else _cut("", to_json(generation.schema_)),
        metadata=_cut("", to_json(generation.metadata)) if generation.metadata else None,
        score=await _read_score(visit, generation.id) if text.strip() else None,
        is_unfinished=generation.status in _UNFINISHED,
        is_repeatable=generation.status in _REPEATABLE,
    )


async def cancel_generation(visit: Visit) -> Response:
    """Cancel a generation that is not at its end."""
    generation = await visit.client.content.cancel_generation(visit.path("generation_id"))
    return visit.redirect(f"content/{generation.id}", "stopped")


async def retry_generation(visit: Visit) -> Response:
    """Queue a copy of a failed or cancelled generation, and show the copy."""
    copy = await visit.client.content.retry_generation(visit.path("generation_id"))
    return visit.redirect(f"content/{copy.id}", "queued")


async def show_new_generation(visit: Visit) -> Response:
    """Show the form for a new generation, with the variables of the template that the URL names."""
    return await _show_form(visit, {"template": visit.query("template")}, {})


async def create_generation(visit: Visit) -> Response:
    """Generate and show the answer. Without scripts, a live answer is one for which the browser waits."""
    form = await visit.form()
    try:
        draft = await _read_draft(visit, form)
        mode: Mode = "queued" if form.get("mode") == "queued" else "sync"
        async with cancel_on_disconnect(visit.request):
            generation = await visit.client.content.create_generation(**draft, mode=mode)
    except ApiError as error:
        return await _show_refusal(visit, form, error)
    return visit.redirect(f"content/{generation.id}", "queued" if mode == "queued" else "created")


async def stream_generation(visit: Visit) -> Response:
    """Generate and pass on the events of the answer. When the browser leaves, the call of the provider is cancelled."""
    form = await visit.form()
    try:
        parts = _read_events(visit, await _read_draft(visit, form))
        await anext(parts)
    except ApiError as error:
        return await _show_refusal(visit, form, error)
    return EventStream(parts, headers={"Cache-Control": "no-store"})


async def list_batches(visit: Visit) -> Response:
    """List the batches, newest first."""
    status = choose(visit.query("status"), BATCH_STATUSES)
    page = await visit.client.content.list_generation_batches(page=visit.page_number, per_page=PER_PAGE, status=status)
    return visit.render(
        "content/batches.html", page=page, links=PageLinks.of(visit, page), statuses=BATCH_STATUSES, chosen_status=visit.query("status")
    )


async def show_batch(visit: Visit) -> Response:
    """Show a batch with its progress and its generations in the order of its request."""
    batch = await visit.client.content.get_generation_batch(visit.path("batch_id"))
    page = await visit.client.content.list_generations_of_batch(batch.id, page=visit.page_number, per_page=PER_PAGE)
    counts = batch.counts
    return visit.render(
        "content/batch.html",
        batch=batch,
        ended=counts.succeeded + counts.failed + counts.cancelled,
        page=page,
        links=PageLinks.of(visit, page),
        is_unfinished=batch.status == "running",
    )


async def cancel_batch(visit: Visit) -> Response:
    """Cancel the generations of a batch that are not at their end."""
    batch = await visit.client.content.cancel_generation_batch(visit.path("batch_id"))
    return visit.redirect(f"content/batches/{batch.id}", "stopped")


def cut_messages(messages: Sequence[models.Message]) -> list[ShownText]:
    """Return the messages, of which all together have a bound."""
    left, texts = _MAX_SHOWN_MESSAGES_CHARS, list[ShownText]()
    for message in messages:
        part = _cut(message.role, message.content, min(left, MAX_SHOWN_CHARS))
        left -= len(part.text)
        texts.append(part)
    return texts


def read_variables(form: SubmittedForm, variables: Mapping[str, models.PromptVariable]) -> dict[str, object]:
    """
    Return the values of the variables of a template. Fields that are empty are left out, so that their defaults apply.

    A value that does not have the type of its variable is passed on as text, and the API names it.
    """
    values = dict[str, object]()
    for name, variable in variables.items():
        text = form.get_text(f"variable-{name}")
        if text:
            values[name] = parse_variable(variable.type, text)
    return values


async def _read_draft(visit: Visit, form: SubmittedForm) -> _Draft:
    draft = _Draft()
    if template := form.get("template"):
        declared = await visit.client.content.get_prompt_template(template)
        draft["template"], draft["variables"] = template, read_variables(form, declared.variables)
    elif form.get("system"):
        draft["messages"] = (
            {"role": "system", "content": form.get_text("system")},
            {"role": "user", "content": form.get_text("prompt")},
        )
    else:
        draft["prompt"] = form.get_text("prompt")
    if model := form.get("model"):
        draft["model"] = model
    if (max_tokens := form.integer("max_tokens")) is not None:
        draft["max_tokens"] = max_tokens
    if (temperature := form.number("temperature")) is not None:
        draft["temperature"] = temperature
    if (schema := form.json_object("schema")) is not None:
        draft["schema"] = schema
    return draft


async def _read_events(visit: Visit, draft: _Draft) -> AsyncGenerator[bytes]:
    """Yield a comment when the stream is open, so that closing the generator closes the stream, and then its events."""
    async with visit.client.content.create_generation_stream(**draft, mode="stream") as source:
        yield b": open\n\n"
        async for event in source:
            yield encode_event(event.event, event.data.encode())


async def _show_refusal(visit: Visit, form: SubmittedForm, error: ApiError) -> Response:
    """Show the form again, the page about missing settings, or the generation that failed."""
    if error.code == "generation_not_configured":
        return visit.render("content/not_configured.html", status=error.status, message=error.message)
    if error.status < 500 and error.status != 404 and "generation_id" not in error.detail:
        errors = {"form": [error.message]} if error.status == 429 else get_field_errors(error)
        return await _show_form(visit, form.as_dict(), errors, status=error.status)
    if isinstance(generation_id := error.detail.get("generation_id"), str):
        return visit.redirect(f"content/{generation_id}")
    raise error


async def _show_form(visit: Visit, values: Mapping[str, str], errors: Mapping[str, list[str]], *, status: int = 200) -> Response:
    templates = await visit.client.content.list_prompt_templates(per_page=_MAX_OFFERED_TEMPLATES)
    slug = values.get("template", "")
    template = await visit.client.content.get_prompt_template(slug) if slug else None
    slugs = [item.slug for item in templates.items]
    names = ("template", "system", "prompt", "model", "max_tokens", "temperature", "schema", "mode")
    return visit.render(
        "content/new.html",
        status=status,
        values=dict.fromkeys(names, "") | dict(values),
        errors=errors,
        slugs=slugs if not slug or slug in slugs else [slug, *slugs],
        chosen=template,
    )


async def _read_score(visit: Visit, generation_id: str) -> Mapping[str, object] | None:
    """Return the score of an answer; None if the key may not score, or the text cannot be scored."""
    if not visit.can("score:read"):
        return None
    try:
        return (await visit.client.content.get_generation_score(generation_id)).score
    except ApiError:
        return None


def _read_since(text: str) -> datetime | Unset:
    return datetime.now(UTC) - timedelta(days=int(text)) if text in _PERIODS else UNSET


def _cut(role: str, text: str, limit: int = MAX_SHOWN_CHARS) -> ShownText:
    return ShownText(role, text[:limit], max(0, len(text) - limit))


VIEWS = (
    View("GET", "/content", list_generations, READ),
    View("GET", "/content/new", show_new_generation, WRITE),
    View("POST", "/content/new", create_generation, WRITE),
    View("POST", "/content/stream", stream_generation, WRITE),
    View("GET", "/content/batches", list_batches, READ),
    View("GET", "/content/batches/{batch_id}", show_batch, READ),
    View("POST", "/content/batches/{batch_id}/cancel", cancel_batch, WRITE),
    View("GET", "/content/{generation_id}", show_generation, READ),
    View("POST", "/content/{generation_id}/cancel", cancel_generation, WRITE),
    View("POST", "/content/{generation_id}/retry", retry_generation, WRITE),
)
