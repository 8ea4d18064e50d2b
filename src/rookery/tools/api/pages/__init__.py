"""The HTML pages of discovery and logins, for all screen widths, light and dark, without external resources."""

from __future__ import annotations

import base64
import hashlib
from http import HTTPStatus
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.responses import prefers

_HERE = Path(__file__).parent


class HtmlPages:
    """Renders the templates beside this file. Texts of servers are escaped, never interpreted as markup."""

    def __init__(self, *, has_docs: bool = False) -> None:
        self.icon = (_HERE / "favicon.ico").read_bytes()
        self._style = (_HERE / "style.css").read_text(encoding="utf-8")
        self._script = (_HERE / "page.js").read_text(encoding="utf-8")
        self._templates = Environment(
            loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        # Defaults of variables that a page may not set: its name, the path to the root, and whether the documentation is served.
        self._defaults: dict[str, object] = {"root": "", "page": "", "organization": "Rookery", "has_docs": has_docs}
        # The only style and script are allowed by their digests, so that injected content cannot run.
        self._policy = (
            f"default-src 'none'; style-src {_to_csp_hash(self._style)}; script-src {_to_csp_hash(self._script)}; img-src 'self' data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )

    def render(self, name: str, **content: object) -> Response:
        """Return the page *name* rendered with *content*. Shared caches must not store it, because its content depends on the key."""
        text = self._templates.get_template(name).render(style=self._style, script=self._script, **{**self._defaults, **content})
        return Response(
            text,
            media_type="text/html; charset=utf-8",
            headers={
                "Content-Security-Policy": self._policy,
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cache-Control": "private, no-cache",
                "Vary": "Accept, Authorization, X-API-Key",
            },
        )

    def render_error(self, request: Request, error: RookeryError) -> Response | None:
        """Return the page about an error if the client prefers HTML to JSON. None: it gets the usual error body."""
        if request.method not in {"GET", "HEAD"} or not wants_html(request):
            return None
        title = "Not found" if error.status == HTTPStatus.NOT_FOUND else "Error"
        root = "../" * (request.url.path.count("/") - 1)
        response = self.render("message.html", root=root, title=title, text=error.message, fields={})
        response.status_code = error.status
        return response


def wants_html(request: Request) -> bool:
    """Return True if the client prefers HTML to JSON (RFC 9110, section 12.5.1). Without a preference, as with curl, it is False."""
    return prefers(request.headers.get("accept"), "text/html", over="application/json")


def _to_csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
