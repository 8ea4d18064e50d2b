"""The title, description, icon and instructions that tool servers give themselves, for entries that say nothing. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from rookery.kernel.safe_texts import remove_control_characters
from rookery.tools.models import Server, ServerFeatures, ServerInfo

MAX_TAGLINE_LENGTH = 200
_MAX_TITLE_LENGTH = 100
_MAX_DESCRIPTION_LENGTH = 1000
_MAX_ICON_LENGTH = 8192
_ICON = re.compile(r"https?://[^\s\"'<>]+|data:image/[^\s\"'<>]+", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=\S)")
_MARKUP = re.compile(r"#|```|---|===|\||<")
"""The beginnings of lines that are no sentence: headings, code, rules, tables and tags."""
_LIST_MARKER = re.compile(r"^(?:[-*•>]\s+)+")

INSTRUCTIONS_TEMPLATE = "rookery://instructions/{server}"
"""The template of the resources at /mcp that hold the instructions of each server."""
_INSTRUCTIONS_PREFIX = INSTRUCTIONS_TEMPLATE.partition("{")[0]


def build_server_info(title: str | None, description: str | None, icons: Iterable[str]) -> ServerInfo:
    """Return what a server says about itself, in a form that can be shown. The first icon with an allowed address is used."""
    return ServerInfo(
        title=shorten(title or "", _MAX_TITLE_LENGTH),
        description=shorten(description or "", _MAX_DESCRIPTION_LENGTH),
        icon=next((icon for icon in icons if len(icon) <= _MAX_ICON_LENGTH and _ICON.fullmatch(icon)), None),
    )


def complete_server(server: Server, features: ServerFeatures, *, has_instructions: bool = True) -> Server:
    """
    Return *server* with what its entry does not say filled in from what the server says about itself.

    Args:
        has_instructions: Use the first sentence of its instructions too.
    """
    info = features.info
    instructions = features.instructions or "" if has_instructions else ""
    is_named = server.name != server.id
    completed = {
        "name": server.name if is_named else info.title or server.name,
        "tagline": server.tagline or find_first_sentence(server.description or info.description or instructions),
        "description": server.description or info.description,
        "icon": server.icon or info.icon,
    }
    changed = {name: value for name, value in completed.items() if value != getattr(server, name)}
    return replace(server, **changed) if changed else server


def find_first_sentence(text: str) -> str:
    """Return the first sentence of *text*, which may be Markdown, as one line; a heading if there is no other text."""
    heading, sentence, is_code = "", "", False
    for line in text[:10_000].splitlines():
        stripped = line.strip()
        if stripped.startswith("```"):
            is_code = not is_code
        if is_code or not stripped or _MARKUP.match(stripped):
            heading = heading or stripped.strip("#`-=|<> ")
            if sentence:
                break
        else:
            sentence = f"{sentence} {_LIST_MARKER.sub('', stripped)}".replace("**", "").strip()
            if len(sentence) > MAX_TAGLINE_LENGTH:
                break
    return shorten(_SENTENCE_END.split(sentence or heading, maxsplit=1)[0], MAX_TAGLINE_LENGTH)


def shorten(text: str, max_length: int) -> str:
    """Return *text* as one line without control characters, truncated between words."""
    line = remove_control_characters(text[: max_length * 20])
    if len(line) <= max_length:
        return line
    cut = line[: max_length - 1].rsplit(" ", 1)[0]
    return f"{cut[: max_length - 1]}…"


def parse_instructions_uri(uri: str) -> str | None:
    """Return the id of the server whose instructions *uri* names, else None."""
    return uri.removeprefix(_INSTRUCTIONS_PREFIX) if uri.startswith(_INSTRUCTIONS_PREFIX) else None
