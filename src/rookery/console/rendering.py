"""Renders the templates of the console, and serves its static files."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.responses import Response

from rookery.console.formats import build_filters
from rookery.kernel.clock import Clock

MAX_PAGE_BYTES = 512 * 1024
"""The bound of every page. Lists are paged and texts are cut so that no page comes near it."""

_HERE = Path(__file__).parent
_POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
PAGE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "private, no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Vary": "Cookie",
}
"""The headers of every page, beside its content security policy."""

_STATIC_HEADERS = {"Cache-Control": "public, max-age=31536000, immutable", "X-Content-Type-Options": "nosniff"}


class PageTooLarge(Exception):
    """A page that is larger than `MAX_PAGE_BYTES`."""


class ConsoleTemplates:
    """The templates beside this file. Every value is escaped; nothing that a tenant wrote is interpreted as markup."""

    def __init__(self, clock: Clock) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(_HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        self._environment.filters.update(build_filters(clock))
        self.static_files = StaticFiles()
        self._static_version = self.static_files.version

    def render(self, name: str, content: dict[str, object], *, status: int = 200) -> Response:
        """
        Return the page *name* rendered with *content*.

        Raises:
            PageTooLarge: The page is larger than `MAX_PAGE_BYTES`.
        """
        text = self._environment.get_template(name).render(content, static_version=self._static_version).encode()
        if len(text) > MAX_PAGE_BYTES:
            raise PageTooLarge(f"{name} has {len(text)} bytes")
        return Response(text, status, {"Content-Security-Policy": _POLICY, **PAGE_HEADERS}, "text/html; charset=utf-8")


class StaticFiles:
    """
    The static files of the console, in memory. They are 150 kB.

    Attributes:
        version: A digest of all files. It is part of their URLs, so that browsers may cache them for ever.
    """

    def __init__(self) -> None:
        folder = _HERE / "static"
        paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".LICENSE")
        self._contents = {path.relative_to(folder).as_posix(): _read_file(path) for path in paths}
        digest = hashlib.sha256()
        for name, content in self._contents.items():
            digest.update(name.encode() + b"\0" + content)
        self.version = digest.hexdigest()[:12]

    def get(self, name: str) -> Response | None:
        """Return the file *name*; None if there is no such file."""
        content = self._contents.get(name)
        if content is None:
            return None
        return Response(content, headers=_STATIC_HEADERS, media_type=mimetypes.guess_type(name)[0] or "application/octet-stream")


def _read_file(path: Path) -> bytes:
    """Return a file as browsers get it: an own script has neither indentation nor lines that are comments."""
    content = path.read_bytes()
    if path.suffix != ".js" or path.parent.name == "vendor":
        return content
    lines = (line.strip() for line in content.splitlines())
    return b"\n".join(line for line in lines if line and not line.startswith((b"//", b"/**", b"* ", b"*/"))) + b"\n"
