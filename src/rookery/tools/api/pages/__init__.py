"""The two pages of discovery as HTML: readable at any width, light and dark, with nothing from another host (D-35)."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

_HERE = Path(__file__).parent


class HtmlPages:
    """Fills in the templates beside this file; whatever servers say of themselves is text in them, never markup."""

    def __init__(self, *, has_docs: bool = False) -> None:
        self.icon = (_HERE / "favicon.ico").read_bytes()
        self._style = (_HERE / "style.css").read_text(encoding="utf-8")
        self._script = (_HERE / "page.js").read_text(encoding="utf-8")
        self._templates = Environment(
            loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        # What a page does not say for itself: its name, the way from it to the top, and whether there is documentation to link to.
        self._defaults: dict[str, object] = {"root": "", "page": "", "organization": "Rookery", "has_docs": has_docs}
        # The one style and the one script are named by their digests: nothing that is smuggled into a page can run.
        self._policy = (
            f"default-src 'none'; style-src {_to_csp_hash(self._style)}; script-src {_to_csp_hash(self._script)}; img-src 'self' data:; "
            "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )

    def render(self, name: str, **content: object) -> Response:
        """Return the page *name* with *content* in it; no cache keeps it, since keys see more than others."""
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


def wants_html(request: Request) -> bool:
    """Return True if the client prefers HTML to JSON (RFC 9110, section 12.5.1); one that takes both alike, as curl does, gets JSON."""
    html, as_json = (_get_quality(request.headers.get("accept", "*/*"), kind) for kind in ("text/html", "application/json"))
    return html > as_json


def _get_quality(accept: str, kind: str) -> float:
    """Return how much *kind* is wanted, 0 to 1, by the most exact range that names it."""
    exactness = {"*/*": 1, f"{kind.partition('/')[0]}/*": 2, kind: 3}
    best, quality = 0, 0.0
    for part in accept.split(","):
        name, _, parameters = part.partition(";")
        rank = exactness.get(name.strip().lower(), 0)
        if rank > best:
            best, quality = rank, _parse_weight(parameters)
    return quality


def _parse_weight(parameters: str) -> float:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _to_csp_hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
