"""The public pages: a browser subscribes to notifications, or a subscriber unsubscribes. They need no key but a signed link."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

_HERE = Path(__file__).parent
_HEADERS = {
    # No inline code and no other host. Forms and requests go to this server only.
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # the link is a right
}
_MEDIA_TYPES = {".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8"}

ASSETS = ("page.css", "subscribe.js", "service-worker.js")


class PublicPages:
    """Renders the pages. Texts are escaped."""

    def __init__(self, organization: str) -> None:
        self._organization = organization
        self._templates = Environment(
            loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )

    def render(self, name: str, *, title: str, content: Mapping[str, str], status: int = 200) -> Response:
        """Return the page *name*. It is not stored by caches."""
        text = self._templates.get_template(name).render(title=title, organization=self._organization, **content)
        headers = {**_HEADERS, "Cache-Control": "no-store"}
        return Response(text, status_code=status, media_type="text/html; charset=utf-8", headers=headers)

    def get_asset(self, name: str) -> Response:
        """Return one of `ASSETS`."""
        path = _HERE / name
        headers = {**_HEADERS, "Cache-Control": "no-cache"}
        return Response(path.read_bytes(), media_type=_MEDIA_TYPES[path.suffix], headers=headers)
