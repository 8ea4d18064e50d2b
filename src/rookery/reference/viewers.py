"""
The pages that show the API's description to people, and the files that a browser needs for them (spec 4.5, D-83).

All of it is in this package and nothing is asked of another host: a server without the internet shows its documentation too. What others
wrote lies in `static/vendored`, as npm serves it, with where it is from; `make viewers` makes it anew.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from string import Template

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; "
    "frame-ancestors 'none'; style-src 'self' 'unsafe-inline'; worker-src 'self' blob:"
)
"""
The Content-Security-Policy of the pages: whatever the viewers' makers had in mind, a browser asks nobody but this server.

Style elements are written by all three as they go; Redoc may search in a worker made of its own text.
"""

_MEDIA_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_DIGEST_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """
    One way to show the description.

    Attributes:
        name: What its page is called, also in its address.
        root: From the page to the folder of the documentation; relative, so that a proxy may serve all of it under a prefix.
        home: From the page to the root of the server.
        engine: The file that draws; one that is a module is loaded by the script that starts it, the others by the page.
    """

    name: str
    title: str
    root: str
    home: str
    engine: str
    is_module: bool = False
    styles: Sequence[str] = ()


VIEWERS = (
    Viewer(name="swagger", title="Swagger UI", root="docs/", home="../", engine="swagger-ui.js", styles=("swagger-ui.css",)),
    Viewer(name="scalar", title="Scalar", root="", home="../../", engine="scalar.js"),
    Viewer(name="redoc", title="Redoc", root="", home="../../", engine="redoc.js", is_module=True),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """
    A file for browsers.

    Attributes:
        digest: Of its content, and part of its address: under one address it is always the same.
        gzipped: Its content as gzip.
    """

    name: str
    media_type: str
    digest: str
    gzipped: bytes

    def decompress(self) -> bytes:
        """Return its content as it is, for the few that take no gzip."""
        return gzip.decompress(self.gzipped)


class Viewers:
    """The pages and files, read once when first asked for: most servers never are."""

    @cached_property
    def assets(self) -> Mapping[str, Asset]:
        """All files, by name. The first look reads 2.4 MB from disk."""
        folder = resources.files("rookery.reference") / "static"
        packed = {each.name.removesuffix(".gz"): each.read_bytes() for each in (folder / "vendored").iterdir() if each.name.endswith(".gz")}
        for each in folder.iterdir():
            if each.name.endswith((".js", ".css")):
                packed[each.name] = gzip.compress(each.read_bytes(), mtime=0)
        return {
            name: Asset(
                name=name,
                media_type=_MEDIA_TYPES[name.rpartition(".")[2]],
                digest=hashlib.sha256(content).hexdigest()[:_DIGEST_LENGTH],
                gzipped=content,
            )
            for name, content in packed.items()
        }

    @cached_property
    def pages(self) -> Mapping[str, bytes]:
        """The page of each viewer, by its name."""
        template = Template((resources.files("rookery.reference") / "static" / "page.html").read_text(encoding="utf-8"))
        return {viewer.name: template.substitute(self._template_values(viewer)).encode() for viewer in VIEWERS}

    def find_asset(self, digest: str, name: str) -> Asset | None:
        """Return the file at this address; None: there is none, or not with this content any more."""
        found = self.assets.get(name)
        return found if found is not None and found.digest == digest else None

    def _template_values(self, viewer: Viewer) -> dict[str, str]:
        start = f"{viewer.name}.start.js"
        scripts = [("load.js", "defer"), *(() if viewer.is_module else ((viewer.engine, "defer"),))]
        scripts.append((start, 'type="module"' if viewer.is_module else "defer"))
        return {
            "name": viewer.name,
            "title": viewer.title,
            "root": viewer.root,
            "home": viewer.home,
            "engine": self._asset_url(viewer, viewer.engine),
            "styles": "\n".join(f'<link rel="stylesheet" href="{self._asset_url(viewer, name)}">' for name in ("page.css", *viewer.styles)),
            "scripts": "\n".join(f'<script {kind} src="{self._asset_url(viewer, name)}"></script>' for name, kind in scripts),
            "links": "\n".join([*(_link(viewer, other) for other in VIEWERS), f'<a href="{viewer.root}openapi">openapi.json</a>']),
        }

    def _asset_url(self, viewer: Viewer, name: str) -> str:
        return f"{viewer.root}static/{self.assets[name].digest}/{name}"


def _link(here: Viewer, other: Viewer) -> str:
    """A link from one page to another; the first viewer's address is that of the documentation itself."""
    target = f"{here.root}{other.name}" if not other.root else "docs" if here.root else "../docs"
    marked = ' aria-current="page"' if here is other else ""
    return f'<a href="{target}"{marked}>{other.title}</a>'
