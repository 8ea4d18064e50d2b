"""
Write the documentation into a folder, and check its links: `make docs`.

`dist/docs` gets the pages of `docs/` and the API description as `openapi.json`, as a server would serve it. The command ends with 1 if a
link leads to a file or a heading that does not exist, and names it with its page and line.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import orjson

from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.reference.examples import load_packaged_examples
from rookery.reference.openapi import build_document
from rookery.wiring import build_platform

ROOT = Path(__file__).parents[1]
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def main() -> int:
    """Write the folder and print what is wrong; return 1 if anything is."""
    parser = argparse.ArgumentParser(prog="make docs", description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / "docs")
    options = parser.parse_args()
    broken = [link for page in pages(ROOT) for link in broken_links(page)]
    for link in broken:
        print(link, file=sys.stderr)
    out: Path = options.out
    shutil.copytree(ROOT / "docs", out, dirs_exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        settings = Settings(data_dir=Path(name))
        document = build_document(
            build_route_table(build_platform(settings)).endpoints, public_url=settings.public_url_of, examples=load_packaged_examples()
        )
    (out / "openapi.json").write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    print(f"{len(list(out.rglob('*.md')))} pages and openapi.json in {out.relative_to(ROOT) if out.is_relative_to(ROOT) else out}")
    return 1 if broken else 0


def pages(root: Path) -> list[Path]:
    """Return all pages of the documentation."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), root / "benchmarks" / "README.md"])


def broken_links(page: Path) -> Iterator[str]:
    """Yield each broken link of *page* with its line. Links to other hosts are not checked."""
    text = page.read_text(encoding="utf-8")
    plain = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), text)
    for match in _LINK.finditer(plain):
        target, _, anchor = match[1].partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        where = f"{page.name}:{plain.count(chr(10), 0, match.start()) + 1}"
        file = page if not target else (page.parent / target).resolve()
        if not file.exists():
            yield f"{where}: {match[1]}: no such file"
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text(encoding="utf-8")):
            yield f"{where}: {match[1]}: no such heading"


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = _HEADING.findall(_FENCE.sub("", text))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


if __name__ == "__main__":
    sys.exit(main())
