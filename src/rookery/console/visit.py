"""One request of a signed-in browser, its client of the API and its answer; the views that answer; and their audit entries."""

from __future__ import annotations

from asyncio import TaskGroup
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, Protocol, cast, get_args
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.audit_log import PLATFORM_CHAIN, AuditSubject
from rookery.access.models import TEST, Actor
from rookery.access.scopes import grants
from rookery.console.arguments import parse_integer, parse_json_object, parse_number
from rookery.console.cookies import ConsoleSession
from rookery.console.operation_schemas import OperationSchemas
from rookery.console.ports import ConsolePorts
from rookery.console.rendering import ConsoleTemplates
from rookery.kernel.errors import ValidationFailed
from rookery.kernel.http.request_body import read_body
from rookery_client import ApiError, AsyncRookery
from rookery_client.generated import models


async def record_action(
    ports: ConsolePorts, request: Request, action: str, fields: Mapping[str, object], own_key: models.Who | None
) -> None:
    """Write an entry to the audit log: of the key's workspace, or of the platform if no key is known."""
    address = ports.find_address(request.scope)
    request_id = cast("Mapping[str, str]", request.scope["state"])["request_id"]
    if own_key is None:
        actor, chain = Actor(kind="system", name="console", address=address, request_id=request_id), PLATFORM_CHAIN
    else:
        kind = "agent" if own_key.kind == "agent" else "api"
        actor = Actor(
            kind=kind,
            id=str(getattr(own_key, "id", "")),
            name=str(getattr(own_key, "name", "")),
            address=address,
            request_id=request_id,
        )
        chain = int(getattr(own_key, "workspace_id", 0))
    environment = "test" if getattr(own_key, "environment", None) == TEST else "live"
    subject = AuditSubject(kind="console", id=actor.id or address, name=actor.name, environment=environment)
    await ports.audit.record_alone(actor, chain, action, subject, after=fields or None)


MAX_FORM_BYTES = 12 * 1024 * 1024
_MAX_FORM_FIELDS = 2_000
_FORM_STATUSES = frozenset({400, 403, 409, 422})
PER_PAGE = 25


@dataclass(frozen=True, slots=True)
class ConsoleSection:
    """
    A section of the console.

    Attributes:
        path: The path of its first page below `/console/`.
        other_paths: Paths of its other pages that do not begin with *path*.
        scope: The scope without which the section is not shown; None: every key.
    """

    path: str
    title: str
    icon: str
    scope: str | None
    other_paths: tuple[str, ...] = ()


SECTIONS = (
    ConsoleSection("", "Overview", "overview", None),
    ConsoleSection("memories", "Memories", "memories", "brain:read"),
    ConsoleSection("tools", "Tools", "tools", "mcp:read"),
    ConsoleSection("plans", "Plans", "plans", "plans.read"),
    ConsoleSection("sessions", "Sessions", "sessions", "sessions.read"),
    ConsoleSection("campaigns", "Campaigns", "campaigns", "notify:read", other_paths=("subscribers",)),
    ConsoleSection("content", "Content", "content", "content.read"),
    ConsoleSection("usage", "Usage", "usage", "usage:read"),
    ConsoleSection("scoring", "Scoring", "scoring", "score:read"),
    ConsoleSection("webhooks", "Webhooks", "webhooks", "webhooks:read"),
    ConsoleSection("keys", "Keys", "keys", "keys:read"),
    ConsoleSection("audit", "Audit", "audit", "audit:read"),
    ConsoleSection("settings", "Settings", "settings", None),
)


def parse_form(body: bytes, *, max_fields: int) -> list[tuple[str, str]]:
    """
    Return the fields of a form in their order. Bytes that are not UTF-8 become U+FFFD.

    Raises:
        ValidationFailed: The form has more than *max_fields* fields.
    """
    try:
        return parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=max_fields)
    except ValueError as error:
        raise ValidationFailed({"form": [f"has more than {max_fields:,} fields"]}) from error


Notice = Literal["saved", "created", "deleted", "sent", "archived", "restored", "revoked", "rotated", "stopped", "started", "queued"]
"""The notices after a redirect. Their names travel in the URL, so that no link can show another text."""


class SubmittedForm:
    """The fields of a form. A field may have several values."""

    def __init__(self, pairs: list[tuple[str, str]]) -> None:
        self._pairs = pairs

    def get(self, name: str, default: str = "") -> str:
        """Return the last value of a field without surrounding space; *default* if the form does not have it."""
        return next((value.strip() for key, value in reversed(self._pairs) if key == name), default)

    def get_text(self, name: str) -> str:
        """Return the last value of a field as it was sent. Its lines end with a line feed alone."""
        return next((value.replace("\r\n", "\n") for key, value in reversed(self._pairs) if key == name), "")

    def number(self, name: str) -> float | None:
        """
        Return the number in a field; None if it is empty.

        Raises:
            ApiError: The field has something else.
        """
        return parse_number(name, self.get(name))

    def integer(self, name: str) -> int | None:
        """
        Return the integer in a field; None if it is empty.

        Raises:
            ApiError: The field has something else.
        """
        return parse_integer(name, self.get(name))

    def json_object(self, name: str) -> dict[str, object] | None:
        """
        Return the JSON object in a field; None if it is empty.

        Raises:
            ApiError: The field has something else.
        """
        return parse_json_object(name, self.get(name))

    def list(self, name: str) -> list[str]:
        """Return all values of a field that are not empty."""
        return [value.strip() for key, value in self._pairs if key == name and value.strip()]

    def has(self, name: str) -> bool:
        """Return whether the form has a field."""
        return any(key == name for key, _ in self._pairs)

    def texts(self, name: str) -> list[str]:
        """Return all values of a field as they were sent. Their lines end with a line feed alone."""
        return [value.replace("\r\n", "\n") for key, value in self._pairs if key == name]

    def split(self, name: str) -> list[str]:
        """Return the parts of a field that are separated by commas, white space or lines."""
        return self.get(name).replace(",", " ").split()

    def as_dict(self) -> dict[str, str]:
        """Return the last value of each field, to show the form again."""
        return dict(self._pairs)


def get_field_errors(error: ApiError) -> dict[str, list[str]]:
    """
    Return the errors of each field, to show a refused form again.

    Raises:
        ApiError: *error* is not about the fields of a form.
    """
    if error.status not in _FORM_STATUSES:
        raise error
    return cast("dict[str, list[str]]", error.detail.get("errors")) or {"form": [error.message]}


@dataclass(slots=True)
class Visit:
    """
    One request of a signed-in browser.

    Attributes:
        client: A client of this server with the key of the session.
        own_key: The key.
        scopes: The scopes of the key.
        operations: The schemas of the operations that *client* calls.
        base: The relative URL of `/console/` from this page, such as `../`. All links of a page begin with it, so that the console works
            under any prefix that a proxy adds.
        section: The path of the section, for the navigation.
    """

    request: Request
    ports: ConsolePorts
    templates: ConsoleTemplates
    organization: str
    has_docs: bool
    session: ConsoleSession
    client: AsyncRookery
    operations: OperationSchemas
    own_key: models.Who
    scopes: frozenset[str]
    base: str
    section: str

    @property
    def is_partial(self) -> bool:
        """True if htmx replaces a part of the page with the response."""
        return self.request.headers.get("hx-request") == "true"

    @property
    def page_number(self) -> int:
        """The page of a list, from 1."""
        text = self.query("page", "1")
        return max(1, int(text)) if text.isdecimal() and len(text) < 8 else 1

    async def record(self, action: str, fields: Mapping[str, object]) -> None:
        """Add an entry to the audit log of the key's workspace."""
        await record_action(self.ports, self.request, action, fields, self.own_key)

    def can(self, scope: str) -> bool:
        """Return whether the key has *scope*. A control that the key may not use is not shown."""
        return grants(self.scopes, scope)

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the URL without surrounding space."""
        return self.request.query_params.get(name, default).strip() or default

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        return cast("str", self.request.path_params[name])

    async def form(self) -> SubmittedForm:
        """
        Return the fields of the submitted form.

        Raises:
            PayloadTooLarge: The form is larger than `MAX_FORM_BYTES`.
            ValidationFailed: It has too many fields.
        """
        raw = await read_body(self.request.receive, limit=MAX_FORM_BYTES, scope=self.request.scope)
        return SubmittedForm(parse_form(raw, max_fields=_MAX_FORM_FIELDS))

    def render(self, template: str, *, status: int = 200, **content: object) -> Response:
        """Return the page *template*. `visit` is among its variables."""
        done = self.query("done")
        notice = f"{done.capitalize()}." if done in get_args(Notice) else ""
        return self.templates.render(
            template,
            {"visit": self, "base": self.base, "sections": SECTIONS, "section": self.section, "notice": notice, **content},
            status=status,
        )

    def redirect(self, path: str, done: Notice | None = None) -> Response:
        """Return a redirect to *path* below `/console/`, after a form has been submitted. *done* selects the notice of that page."""
        mark = "" if done is None else f"{'&' if '?' in path else '?'}done={done}"
        location = f"{self.base}{path}{mark}"
        if self.is_partial:
            return Response(status_code=204, headers={"HX-Redirect": location})
        return Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": location})


class ListedPage(Protocol):
    """A page of a list, of items of any type."""

    @property
    def items(self) -> Sequence[object]: ...

    @property
    def number(self) -> int: ...

    @property
    def total(self) -> int: ...


@dataclass(frozen=True, slots=True)
class PageLinks:
    """
    The position of a list, for the links below it.

    Attributes:
        total: The number of items on all pages.
        first: The number of the first item of this page, from 1; 0 without items.
    """

    number: int
    total: int
    first: int
    last: int
    has_next: bool
    query: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, visit: Visit, page: ListedPage, per_page: int = PER_PAGE) -> PageLinks:
        """Return the position of *page*. The links keep the other parameters of the URL."""
        return cls.at(visit, page.number, page.total, per_page)

    @classmethod
    def at(cls, visit: Visit, number: int, total: int, per_page: int = PER_PAGE) -> PageLinks:
        """Return the position of page *number* of a list of *total* items. The links keep the other parameters of the URL."""
        first = (number - 1) * per_page
        last = min(first + per_page, total)
        query = tuple((name, value) for name, value in visit.request.query_params.multi_items() if name not in {"page", "done"})
        return cls(number, total, first + 1 if first < total else 0, max(first, last), last < total, query)


@asynccontextmanager
async def open_call_group() -> AsyncGenerator[TaskGroup]:
    """
    Yield a group for the calls of a page. All have ended when the block ends. The first that fails cancels the others.

    Its error leaves the block as it is, and not as an `ExceptionGroup`, so that it becomes the page of one failed call.
    """
    try:
        async with TaskGroup() as group:
            yield group
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


ViewHandler = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class View:
    """
    A view: one method of one path below `/console`.

    Attributes:
        path: A path of Starlette, such as `/keys/{key_id}`.
        scope: The scope without which the view is refused; None: every key. The API checks each call once more.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: ViewHandler
    scope: str | None = None
