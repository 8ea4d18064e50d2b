"""The memories: the list, the page of one, and what removes it from recall or from the store."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from starlette.responses import Response

from rookery.console.views.memory_filters import SCOPES, STATES, MemoryListFilters, list_types
from rookery.console.visit import PER_PAGE, PageLinks, View, Visit
from rookery_client import ApiError
from rookery_client.generated import models

_MAX_OPTIONS = 200
"""The names that a filter offers. Others can be typed."""

_REFUSED_FILTER = frozenset({403, 422})


async def list_memories(visit: Visit) -> Response:
    """Show the memories that the key may see, newest first, or best first if words are given."""
    filters = MemoryListFilters.read(visit)
    memories: Sequence[models.Memory] = ()
    links, problem = None, ""
    try:
        if filters.q:
            memories, links = await filters.search(visit)
        else:
            memories, links = await filters.list_page(visit)
    except ApiError as error:
        if error.status not in _REFUSED_FILTER:
            raise
        problem = error.message
    scopes = await visit.client.memory.list_scopes()
    tags = await visit.client.memory.list_tags()
    projects = {project.name for org in scopes.scopes for project in org.projects}
    return visit.render(
        "memories/list.html",
        filters=filters,
        memories=memories,
        links=links,
        problem=problem,
        types=list_types(filters.type),
        projects=sorted({*sorted(projects)[:_MAX_OPTIONS], *([filters.project] if filters.project else [])}),
        tags=[tag.name for tag in tags.tags[:_MAX_OPTIONS]],
        scopes=SCOPES,
        states=STATES,
    )


async def show_memory(visit: Visit) -> Response:
    """Show a memory with all its fields, and what it replaced and what replaced it."""
    memory_id = visit.path("memory_id")
    try:
        memory = await visit.client.memory.get_memory(memory_id)
    except ApiError as error:
        return await _show_former(visit, memory_id, error)
    history = await visit.client.memory.get_memory_history(memory.id, page=visit.page_number, per_page=PER_PAGE)
    return visit.render("memories/memory.html", memory=memory, versions=history.items, links=PageLinks.of(visit, history))


async def _show_former(visit: Visit, memory_id: str, error: ApiError) -> Response:
    """
    Show what became of a memory that was superseded or deleted.

    Raises:
        ApiError: There never was such a memory, or the key may not read it: *error*.
    """
    if error.status != HTTPStatus.NOT_FOUND:
        raise error
    try:
        history = await visit.client.memory.get_memory_history(memory_id, page=visit.page_number, per_page=PER_PAGE)
    except ApiError:
        raise error from None
    content = {"memory_id": memory_id, "versions": history.items, "links": PageLinks.of(visit, history)}
    return visit.render("memories/former.html", status=HTTPStatus.NOT_FOUND, **content)


async def archive(visit: Visit) -> Response:
    """Remove a memory from recall, and keep it."""
    memory = await visit.client.memory.archive_memory(visit.path("memory_id"))
    return visit.redirect(f"memories/{memory.id}", done="archived")


async def restore(visit: Visit) -> Response:
    """Return an archived memory to recall."""
    memory = await visit.client.memory.restore_memory(visit.path("memory_id"))
    return visit.redirect(f"memories/{memory.id}", done="restored")


async def delete(visit: Visit) -> Response:
    """Delete a memory from every store."""
    await visit.client.memory.delete_memory(visit.path("memory_id"))
    return visit.redirect("memories", done="deleted")


VIEWS = (
    View("GET", "/memories", list_memories, "brain:read"),
    View("GET", "/memories/{memory_id}", show_memory, "brain:read"),
    View("POST", "/memories/{memory_id}/archive", archive, "brain:delete"),
    View("POST", "/memories/{memory_id}/restore", restore, "brain:delete"),
    View("POST", "/memories/{memory_id}/delete", delete, "brain:delete"),
)
