"""
Build the site: put the pages together, let Zensical write the HTML, and check the links.

The pages are written for a repository, where a link leads to any file. `stage_pages` copies what they link to, and changes the links.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import orjson

from distribution.docs_site.links import find_links, is_external, list_broken_links, list_site_faults
from distribution.docs_site.navigation import PROJECT_PAGES, list_navigation, list_paths, to_toml
from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.reference.examples import load_packaged_examples
from rookery.reference.openapi import build_document
from rookery.wiring import build_platform

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
_BUILD_LIMIT_S = 300
_FILES = "files"
"""The folder of the site with the files of the repository that pages link to."""

_SCRIPT_HOSTS = re.compile(r"https?://(?!www\.w3\.org)[\w.-]+/?")
"""Hosts that the theme's script names for features that the site does not use: diagrams, editors, image zoom, figures of a repository."""

_COLOUR = re.compile(r"\x1b\[[\d;]*m")


class BuildFailed(Exception):
    """The pages or the site have faults; the text lists them, one a line."""


def build_site(out: Path, root: Path = ROOT) -> int:
    """
    Build the site of the repository *root* into *out*, which is replaced, and return the number of its pages.

    Raises:
        BuildFailed: A link has no target, a page is not in the navigation, or the site would fetch something from another host.
    """
    faults = [fault for page in list_pages(root) for fault in list_broken_links(page)]
    if faults:
        raise BuildFailed("\n".join(faults))
    with tempfile.TemporaryDirectory(prefix="rookery-site-") as name:
        folder = Path(name)
        stage_pages(root, folder / "pages")
        navigation = list_navigation(root / "docs")
        written = {str(path.relative_to(folder / "pages")) for path in (folder / "pages").rglob("*.md")} - {
            str(path.relative_to(folder / "pages")) for path in (folder / "pages" / _FILES).rglob("*.md")
        }
        if missing := sorted(written ^ set(list_paths(navigation))):
            raise BuildFailed("\n".join(f"{path}: not a page, or not in the overview page of its folder" for path in missing))
        settings = (HERE / "zensical.toml").read_text(encoding="utf-8")
        (folder / "zensical.toml").write_text(settings.replace("# NAVIGATION", f"nav = {to_toml(navigation)}"), encoding="utf-8")
        _run_generator(folder)
        site = folder / "site"
        for script in site.rglob("*.js"):
            script.write_text(_SCRIPT_HOSTS.sub("unused:", script.read_text(encoding="utf-8")), encoding="utf-8")
        (site / "openapi.json").write_bytes(orjson.dumps(load_api_description(), option=orjson.OPT_INDENT_2))
        if faults := list(list_site_faults(site)):
            raise BuildFailed("\n".join(faults))
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(site, out)
    return len(written)


def list_pages(root: Path) -> list[Path]:
    """Return all pages of the documentation, also those that the site does not have."""
    return sorted([*root.glob("*.md"), *(root / "docs").rglob("*.md"), *root.glob("*/README.md"), *root.glob("examples/*/README.md")])


def stage_pages(root: Path, folder: Path) -> None:
    """Copy the pages of the site, and what they link to, into *folder*, with links that hold there."""
    places = {path: str(path.relative_to(root / "docs")) for path in sorted((root / "docs").rglob("*")) if path.is_file()}
    places |= {root / path: place for path, (place, _) in PROJECT_PAGES.items() if (root / path).exists()}
    places[root / "README.md"] = "index.md"
    for source, place in places.items():
        if source == root / "README.md":
            continue
        target = folder / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            target.write_text(_change_links(source, place, places, root, folder), encoding="utf-8")
        else:
            shutil.copyfile(source, target)
    shutil.copytree(HERE / "assets", folder / "assets", dirs_exist_ok=True)


def load_api_description() -> dict[str, object]:
    """Return the description of the API, as a server with default settings serves it."""
    with tempfile.TemporaryDirectory() as name:
        settings = Settings(data_dir=Path(name))
        return build_document(
            build_route_table(build_platform(settings)).endpoints, public_url=settings.public_url_of, examples=load_packaged_examples()
        )


def _change_links(source: Path, place: str, places: Mapping[Path, str], root: Path, folder: Path) -> str:
    """Return the text of a page with links that hold in the site. A linked file is copied; a link to a folder becomes plain text."""
    text = source.read_text(encoding="utf-8")
    for link in reversed(list(find_links(text))):
        address, hash_mark, anchor = link.address.partition("#")
        if not address or is_external(link.address):
            continue
        file = (source.parent / address).resolve()
        target = places.get(file)
        if target is None and file.is_file():
            target = f"{_FILES}/{file.relative_to(root)}" + (".txt" if file.suffix == ".md" else "")
            copy = folder / target
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
        if target is not None:
            changed = os.path.relpath(target, Path(place).parent)
            text = f"{text[: link.start]}{changed}{hash_mark}{anchor}{text[link.end :]}"
        else:
            start = text.rindex("[", 0, link.start)
            text = f"{text[:start]}{text[start + 1 : link.start - 2]}{text[link.end + 1 :]}"
    return text


def _run_generator(folder: Path) -> None:
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(folder / "zensical.toml")]
    process = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=_BUILD_LIMIT_S, env={**os.environ, "NO_COLOR": "1"}, cwd=folder
    )
    if process.returncode:
        raise BuildFailed(_COLOUR.sub("", process.stdout + process.stderr).strip())
