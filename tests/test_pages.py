"""`make docs`: the folder that it writes, and its errors for broken links."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.deadlines import HANG_S
from tests.pages import ROOT, broken_links, pages


def test_make_docs_writes_the_pages_and_the_api_document_without_broken_links(tmp_path: Path) -> None:
    """Issue 14: the exit code is 0, and the folder has every page of `docs` and the OpenAPI document."""
    command = [sys.executable, "-m", "tests.pages", "--out", str(tmp_path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)

    assert (process.returncode, process.stderr) == (0, "")
    written = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.md")}
    assert written == {page.relative_to(ROOT / "docs") for page in pages(ROOT) if page.is_relative_to(ROOT / "docs")}
    assert "/v1/brain/remember" in json.loads((tmp_path / "openapi.json").read_bytes())["paths"]


def test_broken_links_are_reported_with_their_line(tmp_path: Path) -> None:
    """Issue 14: missing files and headings are reported; code blocks, images and other hosts are not checked."""
    (tmp_path / "other.md").write_text("# A heading of it\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[good](other.md#a-heading-of-it) [here](#here) [far](https://example.org/x)\n"
        "[gone](gone.md)\n```text\n[code](gone.md)\n```\n[no heading](other.md#nowhere) ![image](gone.png)\n",
        encoding="utf-8",
    )

    assert list(broken_links(page)) == ["page.md:3: gone.md: no such file", "page.md:7: other.md#nowhere: no such heading"]
