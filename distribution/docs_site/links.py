"""The links of the documentation: found in the pages, and checked in the pages and in the built site."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_FETCHED_ATTRIBUTES = {"img": "src", "script": "src", "link": "href", "iframe": "src", "source": "src", "object": "data"}
"""The attributes, by tag, whose address a browser fetches without a click."""

_OWN_LINKS = {"icon", "stylesheet", "preconnect", "dns-prefetch", "preload", "modulepreload", "manifest"}
"""The relations of `<link>` that fetch something."""

_CSS_ADDRESS = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"]?)((?:https?:)?//[^'")\s]+)""")
_SCRIPT_ADDRESS = re.compile(r"https?://[\w.-]+")
_NAMESPACE = "http://www.w3.org"


@dataclass(frozen=True, slots=True)
class Link:
    """A link of a page; *start* and *end* enclose its address in the text of the page."""

    address: str
    start: int
    end: int
    is_image: bool


def find_links(text: str) -> Iterator[Link]:
    """Yield the links and images of a page that stand outside its code blocks."""
    plain = _FENCE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for match in _LINK.finditer(plain):
        yield Link(match[2], match.start(2), match.end(2), is_image=bool(match[1]))


def is_external(address: str) -> bool:
    """Return whether an address leads to another host or to a mail program."""
    return "://" in address or address.startswith("mailto:")


def list_broken_links(page: Path) -> Iterator[str]:
    """Yield each broken link of *page* with its line. Links to other hosts are not checked."""
    text = page.read_text(encoding="utf-8")
    for link in find_links(text):
        if is_external(link.address):
            continue
        target, _, anchor = link.address.partition("#")
        where = f"{page.name}:{text.count(chr(10), 0, link.start) + 1}"
        file = page if not target else (page.parent / target).resolve()
        if not file.exists():
            yield f"{where}: {link.address}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in list_anchors(file.read_text(encoding="utf-8")):
            yield f"{where}: {link.address}: no such heading"


def list_anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def list_site_faults(site: Path) -> Iterator[str]:
    """Yield each link of the built *site* without a target, and each address of another host that a browser would fetch."""
    pages = {path: _parse(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        where = path.relative_to(site)
        yield from (f"{where}: {address}: another host" for address in page.fetched if urlsplit(address).netloc)
        for address in page.addresses:
            if fault := _find_fault(path, address, pages):
                yield f"{where}: {address}: {fault}"
    for path in sorted(site.rglob("*.css")):
        for address in _CSS_ADDRESS.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(site)}: {address}: another host"
    for path in sorted(site.rglob("*.js")):
        for address in _SCRIPT_ADDRESS.findall(path.read_text(encoding="utf-8")):
            if address != _NAMESPACE:
                yield f"{path.relative_to(site)}: {address}: another host"


def _find_fault(path: Path, address: str, pages: Mapping[Path, _HtmlPage]) -> str | None:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or (path.name == "404.html" and address.startswith("/")):
        return None
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.is_file():
        return "no such file"
    if parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
        return "no such heading"
    return None


@dataclass
class _HtmlPage(HTMLParser):
    """
    The links of one page of HTML.

    Attributes:
        addresses: The addresses of links, images, scripts and styles.
        fetched: Those that a browser fetches without a click.
    """

    addresses: list[str] = field(default_factory=list[str])
    fetched: list[str] = field(default_factory=list[str])
    ids: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value for name, value in attrs if value}
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and "href" in values:
            self.addresses.append(values["href"])
        if address := values.get(_FETCHED_ATTRIBUTES.get(tag, "")):
            self.addresses.append(address)
            if tag != "link" or not _OWN_LINKS.isdisjoint(values.get("rel", "").split()):
                self.fetched.append(address)


def _parse(path: Path) -> _HtmlPage:
    page = _HtmlPage()
    page.feed(path.read_text(encoding="utf-8"))
    return page
