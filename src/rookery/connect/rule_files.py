"""The rule of a Cursor project that tells the agent when to use its memory: a marked block in a Markdown file. No I/O."""

from __future__ import annotations

import re

from rookery.tools.discovery.client_guides import SetupTarget

_BEGIN, _END = "<!-- rookery connect: begin -->", "<!-- rookery connect: end -->"
_BLOCK = re.compile(rf"{_BEGIN}.*?{_END}[ \t]*\r?\n?", re.DOTALL)
_FRONT_MATTER = "---\ndescription: The shared memory of this project\nalwaysApply: true\n---\n\n"


def build_block(target: SetupTarget) -> str:
    """Return the block for *target*. Its tools have the names that the client sees at that address."""
    prefix = "" if target.server == "brain" else "brain__"
    return (
        f"{_BEGIN}\n"
        f"The MCP server `{target.name}` keeps the memory of this project between sessions.\n\n"
        f"- Before you begin a task, call `{prefix}recall` with its subject. What it returns is a record of the past. It may be outdated.\n"
        f"- When a decision is made, or you learn what the code does not say, call `{prefix}remember` with it, in one or two sentences.\n"
        f"- When a memory is wrong, store the right one with `{prefix}remember` and pass the id of the old one as `supersedes_id`.\n"
        "- Do not store secrets, whole files, or what a search of the code finds.\n"
        f"{_END}\n"
    )


def add_rule(text: str, target: SetupTarget) -> str:
    """Return the file with the block for *target*: instead of the block that it has, or else at its end."""
    block = build_block(target)
    if "\r\n" in text:
        block = block.replace("\n", "\r\n")
    if _BLOCK.search(text):
        return _BLOCK.sub(lambda _: block, text, count=1)
    if not text.strip():
        return _FRONT_MATTER + block
    return text + ("" if text.endswith("\n") else "\n") + block


def remove_rule(text: str) -> str | None:
    """Return the file without the block, or None if nothing of the user is left in it."""
    rest = _BLOCK.sub("", text, count=1)
    return None if rest.strip() in {"", _FRONT_MATTER.strip()} else rest


def has_rule(text: str) -> bool:
    """Return True if the file has the block."""
    return _BLOCK.search(text) is not None
