"""The console as an ASGI application: it finds the view of a request, opens its client, and turns errors into pages."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import cast
from urllib.parse import urlsplit

import structlog
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.access.scopes import grants
from rookery.console.cookies import ConsoleSession, SessionCookies
from rookery.console.in_process import InProcessTransport
from rookery.console.operation_schemas import OperationSchemas
from rookery.console.ports import ConsolePorts
from rookery.console.rendering import ConsoleTemplates, PageTooLarge
from rookery.console.sign_in import SIGN_IN_SCOPE, SignIn, read_scopes, sign_in_location
from rookery.console.views import VIEWS
from rookery.console.visit import SECTIONS, View, Visit
from rookery.kernel.errors import RookeryError
from rookery_client import ApiError, AsyncRookery, ConnectionFailed, UnexpectedResponse
from rookery_client.calls import InvalidPathValue
from rookery_client.generated import models

_ELEMENT_ID = re.compile(r"[a-z][a-z-]{0,40}")
_SAFE_METHODS = frozenset({"GET", "HEAD"})
_SLASHES_OF_FIRST_PAGES = 2
"""Slashes in the path of `/console/` and of the pages directly below it."""
_SIGNED_OUT_CODES = frozenset({"unauthorised", "key_revoked", "key_expired"})

_log = structlog.stdlib.get_logger("rookery.console")


BuildConsole = Callable[[ConsolePorts, ASGIApp], ASGIApp]
"""The type of `build`."""


def build(ports: ConsolePorts, server: ASGIApp) -> ASGIApp:
    """Return the console, whose pages send their calls to *server*."""
    return Console(ports, server)


class Console:
    """
    The pages under `/console`.

    Args:
        server: The server to which the pages send their calls.
    """

    def __init__(self, ports: ConsolePorts, server: ASGIApp) -> None:
        self._ports = ports
        self._server = server
        self._templates = ConsoleTemplates(ports.clock)
        self._cookies = SessionCookies(ports.db, ports.sealer, ports.clock, ports.sign_outs)
        self._operations = OperationSchemas(ports.list_operations())
        self._sign_in = SignIn(ports, self._cookies, self._templates, self._open_client)
        self._views = [(compile_path(view.path)[0], view) for view in VIEWS]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        request = Request(scope, receive, send)
        path = _get_console_path(scope)
        async with AsyncExitStack() as stack:
            response = await self._respond(request, path, stack)
            await response(scope, receive, send)

    async def _respond(self, request: Request, path: str, stack: AsyncExitStack) -> Response:
        base = _get_base(request.scope)
        if request.method not in _SAFE_METHODS and not _is_same_origin(request):
            return self._show_plain_error(request, HTTPStatus.FORBIDDEN, "The form was sent from another site.")
        if path.startswith("/static/") and request.method in _SAFE_METHODS:
            file = self._templates.static_files.get(path.removeprefix("/static/"))
            return file or self._show_plain_error(request, HTTPStatus.NOT_FOUND, "There is no such file.")
        try:
            if path in {"/sign-in", "/sign-out", "/switch"}:
                return await self._respond_to_sign_in(request, path)
            return await self._respond_to_visit(request, path, base, stack)
        except RookeryError as error:
            return self._show_plain_error(request, error.status, error.message, code=error.code)
        except Exception:  # noqa: BLE001 - a browser gets a page with the request id, and the log has the rest
            _log.exception("console.failed", path=path)
            message = "The console failed to show this page. The log of the server has the details."
            return self._show_plain_error(request, HTTPStatus.INTERNAL_SERVER_ERROR, message, shows_id=True)

    async def _respond_to_sign_in(self, request: Request, path: str) -> Response:
        if path == "/sign-in":
            return await (self._sign_in.post(request) if request.method == "POST" else self._sign_in.get(request))
        if request.method != "POST":
            return self._show_plain_error(request, HTTPStatus.METHOD_NOT_ALLOWED, "Use the menu of the console to sign out.")
        return await (self._sign_in.sign_out(request) if path == "/sign-out" else self._sign_in.switch(request))

    async def _respond_to_visit(self, request: Request, path: str, base: str, stack: AsyncExitStack) -> Response:
        session = await self._cookies.read(request)
        if session is None:
            return self._send_to_sign_in(request, path, base)
        client = await stack.enter_async_context(self._open_client(request.scope, session.key))
        try:
            own_key = await client.keys.get_current_key()
        except ApiError as error:
            if error.code in _SIGNED_OUT_CODES:
                return self._send_to_sign_in(request, path, base, refused=True)
            return self._show_plain_error(request, error.status, error.message, code=error.code)
        except (ConnectionFailed, UnexpectedResponse) as error:
            return self._show_plain_error(request, HTTPStatus.BAD_GATEWAY, str(error))
        if not grants(read_scopes(own_key), SIGN_IN_SCOPE):  # it had the scope when it signed in
            return self._send_to_sign_in(request, path, base, refused=True)
        visit = self._build_visit(request, base, session, client, own_key)
        view, parameters = self._find_view(request.method, path)
        if view is None:
            return _show_error(visit, HTTPStatus.NOT_FOUND, "This page does not exist.")
        request.scope["path_params"] = parameters
        if view.scope is not None and not visit.can(view.scope):
            return _show_error(
                visit, HTTPStatus.FORBIDDEN, f"Your key has no scope {view.scope}, which this page needs.", code="scope_missing"
            )
        return await _show_view(view, visit)

    def _build_visit(self, request: Request, base: str, session: ConsoleSession, client: AsyncRookery, own_key: models.Who) -> Visit:
        return Visit(
            request=request,
            ports=self._ports,
            templates=self._templates,
            organization=self._ports.organization,
            has_docs=self._ports.has_docs,
            session=session,
            client=client,
            operations=self._operations,
            own_key=own_key,
            scopes=read_scopes(own_key),
            base=base,
            section=_find_section(request),
        )

    def _find_view(self, method: str, path: str) -> tuple[View | None, Mapping[str, str]]:
        for pattern, view in self._views:
            match = pattern.match(path)
            if match and view.method == ("GET" if method == "HEAD" else method):
                return view, match.groupdict()
        return None, {}

    def _send_to_sign_in(self, request: Request, path: str, base: str, *, refused: bool = False) -> Response:
        location = sign_in_location(base, path.removeprefix("/"), refused=refused)
        if request.headers.get("hx-request") == "true":
            return Response(status_code=204, headers={"HX-Redirect": location})
        if request.headers.get("sec-fetch-site") == "cross-site":
            # The browser withholds a SameSite=Strict cookie when a link of another site leads here. A request of our own page has it.
            return self._templates.render("reload.html", {})
        return Response(status_code=HTTPStatus.SEE_OTHER, headers={"Location": location})

    def _open_client(self, scope: Scope, key: str) -> AsyncRookery:
        # No retries: a page shows at once that an engine is unavailable. The transport sends the Host of the browser, whatever it is.
        return AsyncRookery("http://localhost", key, max_retries=0, transport=InProcessTransport(self._server, scope))

    def _show_plain_error(self, request: Request, status: int, message: str, *, code: str = "", shows_id: bool = False) -> Response:
        request_id = cast("Mapping[str, str]", request.scope["state"])["request_id"] if shows_id else None
        content: dict[str, object] = {"message": message, "code": code, "request_id": request_id}
        if request.headers.get("hx-request") == "true":
            return self._templates.render("error_part.html", {**content, "target": _get_target(request)}, status=status)
        content |= {"base": _get_base(request.scope), "organization": self._ports.organization}
        return self._templates.render("plain_error.html", content, status=status)


async def _show_view(view: View, visit: Visit) -> Response:
    """Return the page of *view*; a page that says why it cannot be shown."""
    try:
        return await view.handler(visit)
    except ApiError as error:
        return _show_error(visit, error.status, error.message, code=error.code, request_id=error.request_id)
    except (ConnectionFailed, UnexpectedResponse) as error:
        return _show_error(visit, HTTPStatus.BAD_GATEWAY, str(error))
    except InvalidPathValue:
        return _show_error(visit, HTTPStatus.NOT_FOUND, "This page does not exist.")
    except PageTooLarge as error:
        _log.error("console.page_too_large", reason=str(error))
        return _show_error(visit, HTTPStatus.INTERNAL_SERVER_ERROR, "This page would be too large. Narrow its filters.")


def _show_error(visit: Visit, status: int, message: str, *, code: str = "", request_id: str | None = None) -> Response:
    if visit.is_partial:
        target = _get_target(visit.request)
        return visit.render("error_part.html", status=status, message=message, code=code, request_id=request_id, target=target)
    back = _find_form_page(visit.request) or visit.section
    return visit.render("error.html", status=status, message=message, code=code, request_id=request_id, back=back)


def _find_form_page(request: Request) -> str:
    """Return the path below `/console/` of the page whose form was sent; an empty text without one."""
    if request.method != "POST":
        return ""
    try:
        referrer = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return ""
    path = referrer.path.partition("/console/")[2]
    return f"{path}?{referrer.query}" if path and referrer.query else path


def _get_target(request: Request) -> str:
    """Return the id of the element that htmx replaces, which it takes from the response too, or an empty text."""
    id_ = request.headers.get("hx-target", "").rpartition("#")[2]
    return id_ if _ELEMENT_ID.fullmatch(id_) else ""


def _find_section(request: Request) -> str:
    first = _get_console_path(request.scope).split("/")[1]
    return next((section.path for section in SECTIONS if first in {section.path, *section.other_paths}), "")


def _get_console_path(scope: Scope) -> str:
    """Return the path below `/console`, with its first slash."""
    return cast("str", scope["path"]).removeprefix(cast("str", scope.get("root_path", ""))) or "/"


def _get_base(scope: Scope) -> str:
    """Return the relative URL of `/console/`. It counts the slashes of the path as it was sent: one that is encoded is part of a name."""
    raw_path = cast("bytes", scope.get("raw_path") or cast("str", scope["path"]).encode())
    return "../" * (raw_path.count(b"/") - _SLASHES_OF_FIRST_PAGES) or "./"


def _is_same_origin(request: Request) -> bool:
    """Return whether a page of this server sent the request (OWASP: fetch metadata, with Origin for browsers that lack it)."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = request.headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
    except ValueError:  # such as `http://[`
        return False
