"""The names of the packages and programs in the command lines of tool servers. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

_RUNNER_NAMES = frozenset(
    "npx uvx uv bunx pnpm yarn docker podman node deno bun python python3 py sh bash env dnx run dlx tool exec -m".split()
)


def find_program_word(command_line: Sequence[str]) -> str:
    """Return the word of a command line that names the package or script, not the program that runs it."""
    specific_words = (word for word in command_line if not word.startswith("-") and _get_file_name(word) not in _RUNNER_NAMES)
    return next(specific_words, PurePath(command_line[0]).name)


def _get_file_name(word: str) -> str:
    return word.replace("\\", "/").rpartition("/")[2].removesuffix(".cmd").removesuffix(".exe")


def to_package_name(word: str) -> str:
    """Return the name of the package or program that *word* names, with a path or a version: `/opt/x`, `@a/b@1.2`."""
    path = word.replace("\\", "/")
    _, separator, inner = path.rpartition("/node_modules/")
    if separator and not inner.startswith(".bin/"):
        return "/".join(inner.split("/")[: 2 if inner.startswith("@") else 1])
    if path.startswith("@"):
        return path[0] + path[1:].partition("@")[0]
    return _get_file_name(path).partition("@")[0]
