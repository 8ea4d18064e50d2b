"""Changes of a client's files: all of them are prepared before the first is written, so that an invalid file leaves every file as it is."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from rookery.connect import hook_entries, mcp_entries
from rookery.connect.client_files import FileEdit, decode, encode, read_file
from rookery.connect.clients import ClientConfig, Places, Scope, locate_file, locate_hooks, locate_rule
from rookery.connect.errors import ClientFileBroken, UneditableText
from rookery.connect.hook_entries import HookTarget
from rookery.connect.key_files import add_key, build_headers_command, locate_key_file, to_option, to_shell_word
from rookery.tools.discovery.client_guides import SetupTarget

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """
    The set-up of one client in one scope.

    Attributes:
        file: The file of the MCP servers, if it is not in its usual place.
        hooks: True adds the hooks, False removes them. None updates those that are there.
    """

    client: ClientConfig
    scope: Scope
    places: Places
    target: SetupTarget
    hook_target: HookTarget
    file: Path | None = None
    hooks: bool | None = None

    @property
    def mcp_file(self) -> Path:
        """The file of the MCP servers."""
        return self.file or locate_file(self.client.id, self.scope, self.places)

    @property
    def hooks_file(self) -> Path | None:
        """The file of the hooks, or None if the client has no hooks."""
        return locate_hooks(self.client.id, self.scope, self.places)

    @property
    def key_file(self) -> Path | None:
        """The file with the key, or None for a client that has none."""
        return locate_key_file(self.client.id, self.places)

    @property
    def headers_command(self) -> str:
        """The command that prints the headers of a connection; empty for a client without a key file."""
        return "" if self.key_file is None else build_headers_command(to_shell_word(self.key_file, self.places.home))

    @property
    def rule_file(self) -> Path | None:
        """The file of the rule, or None for a client, scope or tool server without one."""
        return locate_rule(self.client.id, self.scope, self.places) if self.target.server in {None, "brain"} else None


@dataclass(frozen=True, slots=True)
class FoundEntry:
    """An entry of an MCP server in a file of a client; *scope* is a `Scope`, or `local` for one project in Claude Code's own file."""

    scope: str
    file: Path
    entry: dict[str, object]


@dataclass(slots=True)
class Changes:
    """
    The changes of a run.

    Attributes:
        notices: What was left out, and why.
    """

    edits: list[FileEdit] = field(default_factory=list[FileEdit])
    notices: list[str] = field(default_factory=list[str])

    @property
    def is_empty(self) -> bool:
        """True if no file changes."""
        return not any(edit.is_change for edit in self.edits)

    def edit(self, path: Path, change: Callable[[str], str | None], *, is_secret: bool = False, is_leak: bool = False) -> bool:
        """
        Add a change of the text of a file, after an earlier one of the same file. Return True if it changes something.

        Raises:
            ClientFileBroken: The file cannot be read, or cannot take the change.
        """
        earlier = next((edit for edit in self.edits if edit.path == path), None)
        before = read_file(path)
        content = before if earlier is None else earlier.after
        text = decode(path, content)
        try:
            after = change(text)
        except UneditableText as error:
            raise ClientFileBroken(f"{path}: {error}. The file stays as it is; correct it, or add the entry by hand.") from error
        if after == text and content is not None:
            return False
        self.edits = [edit for edit in self.edits if edit is not earlier]
        is_secret = is_secret or (earlier is not None and earlier.is_secret)
        is_leak = is_leak or (earlier is not None and earlier.is_leak)
        content = None if after is None else encode(after, before)
        self.edits.append(FileEdit(path, before, content, is_secret=is_secret, is_leak=is_leak))
        return True


def prepare_write(setup: Setup, *, key: str | None = None) -> Changes:
    """
    Return the changes that connect the client. They are empty if it is connected already.

    Args:
        key: A key for a client that reads it from its file or from a key file.

    Raises:
        ClientFileBroken: A file cannot be read, or is not in the format of the client.
    """
    changes = Changes()
    other = None if setup.file is not None else _find_same_entry(setup)
    if other is not None:
        changes.notices.append(
            f"{other.file} (scope {other.scope}) has {setup.target.name} with this address already, so {setup.mcp_file} does not "
            "get it too. To move it, remove that entry first."
        )
    else:
        entry_key = key if setup.client.key_source == "file" else None

        def add(text: str) -> str:
            return mcp_entries.add_entry(setup.client, text, setup.target, key=entry_key, headers_command=setup.headers_command)

        replaced = read_entries(setup.client, setup.mcp_file).get(setup.target.name)
        is_leak = replaced is not None and setup.client.key_source != "file" and mcp_entries.get_file_key(replaced) is not None
        if changes.edit(setup.mcp_file, add, is_secret=entry_key is not None, is_leak=is_leak):
            if replaced is not None and not mcp_entries.is_own_entry(replaced):
                changes.notices.append(
                    f"The entry {setup.target.name} of {setup.mcp_file} was another one and is replaced. The backup has it."
                )
            if is_leak:
                changes.notices.append(f"{setup.mcp_file} had the key in clear. Rotate it if others have seen the file.")
    _prepare_hooks(setup, changes)
    if key is not None and setup.key_file is not None:
        changes.edits.append(add_key(setup.key_file, key))
    return changes


def prepare_removal(setup: Setup) -> Changes:
    """
    Return the changes that remove our entry, our hooks and our rule. Nothing else is changed.

    Raises:
        ClientFileBroken: A file cannot be read, or is not in the format of the client.
    """
    changes = Changes()
    name = setup.target.name
    entry = read_entries(setup.client, setup.mcp_file).get(name)
    if entry is not None and mcp_entries.is_own_entry(entry):
        changes.edit(setup.mcp_file, lambda text: mcp_entries.remove_entry(setup.client, text, name))
    elif entry is not None:
        changes.notices.append(f"{setup.mcp_file} has {name}, but not as this command writes it, so it stays. Remove it by hand.")
    _remove_hooks(setup, changes)
    if setup.key_file is not None and setup.key_file.exists() and not changes.is_empty:
        changes.notices.append(f"{setup.key_file} keeps the key. Delete it once you have revoked the key.")
    return changes


def find_entries(setup: Setup, name: str) -> list[FoundEntry]:
    """
    Return the entries *name* of all scopes, the one that the client uses first.

    Raises:
        ClientFileBroken: A file cannot be read, or is not in the format of the client.
    """
    entries = list[FoundEntry]()
    if setup.client.id == "claude-code":
        file = locate_file("claude-code", "user", setup.places)
        local = _read(file, lambda text: mcp_entries.read_local_entries(text, str(setup.places.project))).get(name)
        entries += [] if local is None else [FoundEntry("local", file, local)]
    for scope in setup.client.scopes:
        file = setup.mcp_file if scope == setup.scope else locate_file(setup.client.id, scope, setup.places)
        entry = read_entries(setup.client, file).get(name)
        if entry is not None and all(other.file != file or other.scope == "local" for other in entries):
            entries.append(FoundEntry(scope, file, entry))
    return entries


def read_entries(client: ClientConfig, file: Path) -> dict[str, dict[str, object]]:
    """
    Return the MCP servers of a file by name; empty if it does not exist.

    Raises:
        ClientFileBroken: The file cannot be read, or is not in the format of the client.
    """
    return _read(file, lambda text: mcp_entries.read_entries(client, text))


def read_hooks(file: Path) -> list[hook_entries.FoundHook]:
    """
    Return our hooks in a file; empty if it does not exist.

    Raises:
        ClientFileBroken: The file cannot be read, or is not JSON with comments.
    """
    return _read(file, hook_entries.find_hooks)


def is_in_repository(file: Path) -> bool:
    """Return True if *file*, with links followed, lies in a git repository."""
    real = Path(os.path.realpath(file))
    return any((folder / ".git").exists() for folder in real.parents)


def _find_same_entry(setup: Setup) -> FoundEntry | None:
    """Return an entry of another scope that is the same, so that a second one would double its tools."""
    for other in find_entries(setup, setup.target.name):
        is_elsewhere = other.file != setup.mcp_file or other.scope == "local"
        if is_elsewhere and mcp_entries.get_url(other.entry) == setup.target.url and mcp_entries.is_own_entry(other.entry):
            return other
    return None


def _prepare_hooks(setup: Setup, changes: Changes) -> None:
    file = setup.hooks_file
    if file is None:
        if setup.hooks:
            changes.notices.append(f"Rookery has no hooks for {setup.client.name}. Its agent uses the memory by the tools alone.")
        return
    if setup.hooks is False:
        _remove_hooks(setup, changes)
        return
    other = _find_hooks_elsewhere(setup)
    if other is not None:
        if setup.hooks:
            changes.notices.append(f"{other} has the hooks already, so {file} does not get them too.")
        return
    if not setup.hooks and not read_hooks(file):
        return
    target = setup.hook_target
    if setup.key_file is not None:
        target = replace(target, key_file=to_option(setup.key_file, setup.places.home))
    changes.edit(file, lambda text: hook_entries.add_hooks(setup.client.hook_client, text, target))
    if setup.rule_file is not None:
        changes.edit(setup.rule_file, lambda text: add_rule(text, setup.target))


def _remove_hooks(setup: Setup, changes: Changes) -> None:
    file, rule = setup.hooks_file, setup.rule_file
    if file is not None and read_hooks(file):
        is_own_file = file.name == "rookery.json"

        def remove(text: str) -> str | None:
            rest = hook_entries.remove_hooks(text)
            return None if is_own_file and rest.strip() == "{}" else rest

        changes.edit(file, remove)
    if rule is not None and _read(rule, has_rule, default=False):
        changes.edit(rule, remove_rule)


def _find_hooks_elsewhere(setup: Setup) -> Path | None:
    """Return the file of another scope that has our hooks, so that a second set would run each of them twice."""
    for scope in setup.client.scopes:
        file = locate_hooks(setup.client.id, scope, setup.places)
        if scope != setup.scope and file is not None and file != setup.hooks_file and read_hooks(file):
            return file
    return None


def _read(path: Path, read: Callable[[str], T], *, default: T | None = None) -> T:
    """Return what *read* finds in the file at *path*. A file that does not exist counts as empty, or as *default*."""
    content = read_file(path)
    if content is None and default is not None:
        return default
    try:
        return read(decode(path, content))
    except UneditableText as error:
        raise ClientFileBroken(f"{path}: {error}. The file stays as it is; correct it, or add the entry by hand.") from error


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
