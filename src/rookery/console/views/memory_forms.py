"""The forms that store, change and correct a memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import cast

from starlette.responses import Response

from rookery.console.arguments import or_unset
from rookery.console.views.memory_filters import KNOWN_TYPES, SCOPES, ScopeName
from rookery.console.visit import SubmittedForm, View, Visit, get_field_errors
from rookery_client import ApiError
from rookery_client.calls import UNSET, Unset
from rookery_client.generated import models

Errors = dict[str, list[str]]

_WAIT_MS = 2000
"""The time for which a new memory may be indexed before its page is shown, in milliseconds."""

_CHANGED_SINCE = "This memory has changed since you opened the form. Its present text is below; your text is in the field."
_NEW_FIELDS = {"type": "observation", "memory_scope": "project", "confidence": "0.8"}


async def show_new(visit: Visit) -> Response:
    """Show the form of a new memory."""
    return _render(visit, "new", {**_NEW_FIELDS, "project": visit.query("project"), "type": visit.query("type", "observation")}, {})


async def create(visit: Visit) -> Response:
    """Store a memory."""
    form = await visit.form()
    try:
        stored = await _remember(visit, form, supersedes_id=UNSET)
    except ApiError as error:
        return _render(visit, "new", form.as_dict(), get_field_errors(error), status=error.status)
    return visit.redirect(f"memories/{stored.id}", done="saved" if stored.duplicate else "created")


async def show_edit(visit: Visit) -> Response:
    """Show the form that changes a memory."""
    memory = await visit.client.memory.get_memory(visit.path("memory_id"))
    return _render(visit, "edit", _to_fields(memory), {}, memory=memory)


async def edit(visit: Visit) -> Response:
    """Change the fields that differ from the stored ones."""
    form = await visit.form()
    memory = await visit.client.memory.get_memory(visit.path("memory_id"))
    if form.get("seen") != memory.updated_at.isoformat():
        errors = {"content": [_CHANGED_SINCE]}
        return _render(visit, "edit", form.as_dict(), errors, memory=memory, status=HTTPStatus.CONFLICT)
    try:
        await _change(visit, memory, form)
    except ApiError as error:
        return _render(visit, "edit", form.as_dict(), get_field_errors(error), memory=memory, status=error.status)
    return visit.redirect(f"memories/{memory.id}", done="saved")


async def show_supersede(visit: Visit) -> Response:
    """Show the form of a memory that replaces another one."""
    memory = await visit.client.memory.get_memory(visit.path("memory_id"))
    return _render(visit, "supersede", _to_fields(memory), {}, memory=memory)


async def supersede(visit: Visit) -> Response:
    """Store a memory that replaces another one, whose content is deleted."""
    form = await visit.form()
    memory = await visit.client.memory.get_memory(visit.path("memory_id"))
    try:
        stored = await _remember(visit, form, supersedes_id=memory.id)
    except ApiError as error:
        return _render(visit, "supersede", form.as_dict(), get_field_errors(error), memory=memory, status=error.status)
    return visit.redirect(f"memories/{stored.id}", done="created")


async def _remember(visit: Visit, form: SubmittedForm, *, supersedes_id: str | Unset) -> models.Remember:
    scope = form.get("memory_scope")
    return await visit.client.memory.remember(
        content=form.get_text("content"),
        type=_given(form, "type"),
        org=_given(form, "org"),
        project=_given(form, "project"),
        agent_id=_given(form, "agent_id"),
        session_id=_given(form, "session_id"),
        memory_scope=cast("ScopeName", scope) if scope else UNSET,
        tags=read_tags(form),
        metadata=form.json_object("metadata") or UNSET,
        confidence=or_unset(form.number("confidence")),
        source=_given(form, "source"),
        supersedes_id=supersedes_id,
        expires_in=or_unset(form.number("expires_in")),
        dedupe=True if form.get("dedupe") else UNSET,
        wait_ms=_WAIT_MS,
    )


async def _change(visit: Visit, memory: models.Memory, form: SubmittedForm) -> models.Memory:
    content, tags, metadata = form.get_text("content"), read_tags(form), form.json_object("metadata") or {}
    confidence = form.number("confidence")
    expires_in: float | Unset | None = None if form.get("never_expires") else or_unset(form.number("expires_in"))
    return await visit.client.memory.update_memory(
        memory.id,
        content=content if content != memory.content else UNSET,
        type=form.get("type") if form.get("type") != memory.type else UNSET,
        org=_changed_or_null(form, "org", memory.org),
        project=_changed_or_null(form, "project", memory.project),
        tags=tags if tags != memory.tags else UNSET,
        metadata=metadata if metadata != memory.metadata else UNSET,
        confidence=confidence if confidence is not None and round(confidence, 4) != round(memory.confidence, 4) else UNSET,
        source=form.get("source") if form.get("source") not in {"", memory.source} else UNSET,
        expires_in=expires_in,
    )


def read_tags(form: SubmittedForm) -> list[str]:
    """Return the tags of the form, which are separated by commas or lines."""
    return [tag.strip() for tag in form.get("tags").replace("\n", ",").split(",") if tag.strip()]


def _changed_or_null(form: SubmittedForm, name: str, value: str | None) -> str | Unset | None:
    text = form.get(name)
    return UNSET if text == (value or "") else (text or None)


def _given(form: SubmittedForm, name: str) -> str | Unset:
    return form.get(name) or UNSET


def _to_fields(memory: models.Memory) -> dict[str, str]:
    return {
        "content": memory.content,
        "type": memory.type,
        "org": memory.org or "",
        "project": memory.project or "",
        "agent_id": memory.agent_id or "",
        "session_id": memory.session_id or "",
        "memory_scope": memory.memory_scope,
        "tags": ", ".join(memory.tags),
        "metadata": json.dumps(memory.metadata, ensure_ascii=False, indent=2) if memory.metadata else "",
        "confidence": f"{memory.confidence:g}",
        "source": memory.source,
    }


def _render(
    visit: Visit, kind: str, fields: Mapping[str, str], errors: Errors, *, memory: models.Memory | None = None, status: int = 200
) -> Response:
    return visit.render(
        "memories/form.html",
        status=status,
        kind=kind,
        fields=fields,
        errors=errors,
        memory=memory,
        types=KNOWN_TYPES,
        scopes=SCOPES,
    )


VIEWS = (
    View("GET", "/memories/new", show_new, "brain:write"),
    View("POST", "/memories/new", create, "brain:write"),
    View("GET", "/memories/{memory_id}/edit", show_edit, "brain:write"),
    View("POST", "/memories/{memory_id}/edit", edit, "brain:write"),
    View("GET", "/memories/{memory_id}/supersede", show_supersede, "brain:write"),
    View("POST", "/memories/{memory_id}/supersede", supersede, "brain:write"),
)
