"""Cross-origin requests from the origins of ROOKERY_CORS_ORIGINS."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError
from rookery.kernel.http.edge import choose_request_id
from rookery.kernel.http.responses import error_response

ALLOWED_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
ALLOWED_HEADERS = (
    "Accept",
    "Authorization",
    "Content-Type",
    "Idempotency-Key",
    "If-Match",
    "If-None-Match",
    "Last-Event-ID",
    "Mcp-Method",
    "Mcp-Name",
    "Mcp-Protocol-Version",
    "Mcp-Session-Id",
    "Prefer",
    "X-API-Key",
    "X-Request-ID",
    "X-Session-ID",
    "X-Workspace-ID",
)
EXPOSED_HEADERS = (
    "Content-Disposition",
    "Deprecation",
    "ETag",
    "Idempotent-Replay",
    "Location",
    "Mcp-Session-Id",
    "Preference-Applied",
    "Retry-After",
    "Sunset",
    "WWW-Authenticate",
    "X-Plan",
    "X-RateLimit-Limit",
    "X-RateLimit-Remaining",
    "X-RateLimit-Reset",
    "X-RateLimit-Scope",
    "X-Reason",
    "X-Request-ID",
)


class OriginNotAllowed(RookeryError):
    """A preflight request with an origin, a method or headers that are not allowed."""

    status, code = 400, "invalid_request"


class CorsMiddleware:
    """
    ASGI middleware that answers preflight requests and lets pages of the allowed origins read responses.

    Args:
        app: Serves all other requests.
        origins: The allowed origins.
    """

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._origins = sorted(origins)
        self._cors = CORSMiddleware(
            app, allow_origins=self._origins, allow_methods=ALLOWED_METHODS, allow_headers=ALLOWED_HEADERS, expose_headers=EXPOSED_HEADERS
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        headers = Headers(scope=scope)
        if scope["method"] == "OPTIONS" and "origin" in headers and "access-control-request-method" in headers:
            await self._preflight(headers)(scope, receive, send)
        else:
            await self._cors(scope, receive, send)

    def _preflight(self, headers: Headers) -> Response:
        """Return the response to a preflight request, with a request id, and with the usual error body if it is rejected."""
        response = self._cors.preflight_response(headers)
        if response.status_code >= OriginNotAllowed.status:
            response = self._copy_cors_headers(response, error_response(OriginNotAllowed(self._rejection_reason(headers))))
        response.headers["X-Request-ID"] = choose_request_id(headers.get("x-request-id"))
        return response

    def _copy_cors_headers(self, rejection: Response, reply: Response) -> Response:
        cors_headers = {name: value for name, value in rejection.headers.items() if name.startswith("access-control-") or name == "vary"}
        reply.headers.update(cors_headers)
        return reply

    def _rejection_reason(self, headers: Headers) -> str:
        origin, method = headers["origin"][:200], headers["access-control-request-method"][:40]
        if not self._cors.is_allowed_origin(origin=headers["origin"]):
            return f"The origin {origin!r} is not allowed. The operator can add it to ROOKERY_CORS_ORIGINS."
        if method not in ALLOWED_METHODS:
            return f"The method {method!r} is not allowed; allowed are {', '.join(ALLOWED_METHODS)}."
        allowed = {header.lower() for header in (*ALLOWED_HEADERS, "Accept-Language", "Content-Language")}
        requested_headers = [header.strip() for header in headers.get("access-control-request-headers", "").split(",")]
        disallowed = ", ".join(repr(header[:100]) for header in requested_headers if header.lower() not in allowed)
        return f"These request headers are not allowed: {disallowed}; allowed are {', '.join(ALLOWED_HEADERS)}."


def list_allowed_origins(settings: Settings) -> frozenset[str]:
    """Return the origins of this server in lower case. Their pages may use a browser's credentials and the MCP endpoint."""
    local = {f"http://{host}:{settings.port}" for host in ("localhost", "127.0.0.1", "[::1]")}
    public = {f"{parts.scheme}://{parts.netloc}" for parts in map(urlsplit, list_public_urls(settings))}
    return frozenset(origin.lower() for origin in (*local, *settings.cors_origins, *public))


def list_public_urls(settings: Settings) -> list[str]:
    """Return the addresses under which clients reach the server."""
    return [url for url in (settings.base_url, settings.api_url, settings.mcp_url, settings.public_url_of("/")) if url]
