"""
The pages that show the API documentation, and their files.

All files are in this package and none is loaded from another host, so the documentation works without internet access. Third-party files
are in `static/vendored`, as npm serves them, with their sources. `make viewers` downloads them again.
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
The Content-Security-Policy of the pages. It limits the viewers' requests to this server.

All three viewers write style elements, and Redoc may run its search in a worker made from a blob.
"""

_MEDIA_TYPES = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
_DIGEST_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """
    A viewer of the API documentation.

    Attributes:
        name: The name of its page, also in its URL.
        root: The relative path from the page to the documentation folder, so that a proxy may serve it under a prefix.
        home: The relative path from the page to the root of the server.
        engine: The script of the viewer. A module is imported by the start script, other scripts by the page.
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
    A file of the pages.

    Attributes:
        digest: The digest of the content. It is part of the URL, so the content at a URL never changes.
        gzipped: The content as gzip.
    """

    name: str
    media_type: str
    digest: str
    gzipped: bytes

    def decompress(self) -> bytes:
        """Return the content without compression, for clients that do not accept gzip."""
        return gzip.decompress(self.gzipped)


class Viewers:
    """The pages and files, read on first use."""

    @cached_property
    def assets(self) -> Mapping[str, Asset]:
        """All files by name. The first access reads 2.4 MB from the disk."""
        folder = resources.files("rookery.reference") / "static"
        packed = {file.name.removesuffix(".gz"): file.read_bytes() for file in (folder / "vendored").iterdir() if file.name.endswith(".gz")}
        for file in folder.iterdir():
            if file.name.endswith((".js", ".css")):
                packed[file.name] = gzip.compress(file.read_bytes(), mtime=0)
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
        template = Template((resources.files("rookery.reference") / "static" / "page.html").read_text(encoding="utf-8"))
        return {viewer.name: template.substitute(self._template_values(viewer)).encode() for viewer in VIEWERS}

    def find_asset(self, digest: str, name: str) -> Asset | None:
        """Return the file at this URL; None if it does not exist or has other content now."""
        asset = self.assets.get(name)
        return asset if asset is not None and asset.digest == digest else None

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


def _link(viewer: Viewer, other: Viewer) -> str:
    """Return a link between two pages. The first viewer's page has the path of the documentation itself."""
    target = f"{viewer.root}{other.name}" if not other.root else "docs" if viewer.root else "../docs"
    current = ' aria-current="page"' if viewer is other else ""
    return f'<a href="{target}"{current}>{other.title}</a>'
