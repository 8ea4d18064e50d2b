"""The navigation of the site. The overview pages of the folders declare it: their headings are groups, their links are pages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from distribution.docs_site.links import find_links, is_external

Entry: TypeAlias = "str | dict[str, str | list[Entry]]"
"""A page by its path, or a page or group by its title."""

PROJECT_PAGES: Mapping[str, tuple[str, str]] = {
    "benchmarks/README.md": ("project/figures.md", "Figures"),
    "CHANGELOG.md": ("project/changes.md", "Changes"),
    "CONTRIBUTING.md": ("project/contributing.md", "Contributing"),
    "SECURITY.md": ("project/security.md", "Security"),
    "examples/typescript/README.md": ("project/typescript.md", "TypeScript client"),
    "training/README.md": ("project/training.md", "Training of the scoring model"),
}
"""The pages outside `docs` that the site has: their paths in the site, and their titles."""


def list_navigation(docs: Path) -> list[Entry]:
    """Return the navigation of the pages in *docs*."""
    return [
        {"Home": "index.md"},
        {"Tutorial": "tutorial.md"},
        {"Guides": [{"Guides": "how-to/README.md"}, *list_groups(docs / "how-to" / "README.md")]},
        {"Reference": [{"Reference": "reference/README.md"}, *list_groups(docs / "reference" / "README.md")]},
        {"Architecture": "architecture.md"},
        {"Design": [{"Design notes": "design/README.md"}, *list_groups(docs / "design" / "README.md")]},
        {"Project": [{title: path} for path, title in PROJECT_PAGES.values()]},
    ]


def list_groups(overview: Path) -> list[Entry]:
    """Return the groups of an overview page with the pages of its own folder that it links to, by their titles there."""
    groups = list[Entry]()
    for section in re.split(r"^## ", overview.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        pages = list[Entry]()
        for link in find_links(section):
            if not is_external(link.address) and "/" not in link.address and link.address.endswith(".md"):
                title = section[section.rindex("[", 0, link.start) + 1 : link.start - 2]
                pages.append({title: f"{overview.parent.name}/{link.address}"})
        if pages:
            groups.append({section.splitlines()[0].strip(): pages})
    return groups


def list_paths(entries: Sequence[Entry]) -> list[str]:
    """Return the paths of all pages of a navigation, in order."""
    paths = list[str]()
    for entry in entries:
        for value in [entry] if isinstance(entry, str) else entry.values():
            paths += [value] if isinstance(value, str) else list_paths(value)
    return paths


def to_toml(entries: Sequence[Entry]) -> str:
    """Return a navigation as a value of TOML."""
    values = list[str]()
    for entry in entries:
        if isinstance(entry, str):
            values.append(json.dumps(entry))
            continue
        for title, value in entry.items():
            values.append(f"{{ {json.dumps(title)} = {json.dumps(value) if isinstance(value, str) else to_toml(value)} }}")
    return f"[{', '.join(values)}]"
