"""The hooks of Rookery in a client's file: its text before and after a change. No I/O."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from rookery.coding_agents.hook_declarations import EVENTS, HOOKS, HookDeclaration, hook_path
from rookery.connect.json_edits import append_item, find_node, remove_value, replace_value
from rookery.connect.jsonc import JsoncNode, parse_jsonc
from rookery.connect.mcp_entries import prune
from rookery.tools.discovery.client_guides import KEY_VARIABLE
from rookery.tools.models import JsonObject

_COMMAND = re.compile(rf"\bhook\s+({'|'.join(EVENTS)})\s+--client\s+([a-z-]+)")
_URL_OPTION = re.compile(r"\s--url[ =](\S+)")
_KEY_FILE_OPTION = re.compile(r"\s--key-file[ =]('[^']*'|\S+)")
_ROUTE = re.compile(rf"/api/agent/hooks/([a-z-]+)/({'|'.join(EVENTS)})$")

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """
    The form of a client's hooks.

    Attributes:
        is_grouped: An event has groups of hooks with a matcher. Otherwise it has hooks.
        has_arguments: A hook names its program and its arguments apart, and no shell runs it, which is also right on Windows.
        type: The value of the field `type`; without it, a hook has no such field.
        units_per_s: The unit of a time limit.
        has_version: The file states the version of its format.
    """

    is_grouped: bool = False
    has_arguments: bool = False
    type: str = "command"
    units_per_s: int = 1
    has_version: bool = False


_FORMS: Mapping[str, _Form] = {
    "claude-code": _Form(is_grouped=True, has_arguments=True),
    "codex": _Form(is_grouped=True),
    "vscode": _Form(),
    "cursor": _Form(type="", has_version=True),
    "gemini": _Form(is_grouped=True, units_per_s=1000),
    "qwen-code": _Form(is_grouped=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HookTarget:
    """
    The server and the program that hooks call.

    Attributes:
        url: The base URL of the server.
        program: The program `rookery` with its first arguments.
        key_file: A file with the key, for a client that has one.
    """

    url: str
    program: tuple[str, ...] = ("rookery",)
    key_file: str = ""


@dataclass(frozen=True, slots=True)
class FoundHook:
    """A hook of Rookery in a file: the client's name of its event, its place, and its content."""

    event: str
    place: Place
    handler: JsonObject


def build_hooks(client: str, target: HookTarget) -> dict[str, JsonObject]:
    """Return the hooks of *client* by the client's names of the events."""
    return {hook.name: _build_handler(client, hook, target) for hook in HOOKS[client]}


def find_hooks(text: str) -> list[FoundHook]:
    """
    Return the hooks of Rookery in a client's file. They call its route, or run `rookery hook`; this is their marker.

    Raises:
        UneditableText: The text is not JSON with comments.
    """
    root = parse_jsonc(text)
    section = None if root is None else root.get("hooks")
    hooks = list[FoundHook]()
    for member in () if section is None else section.members:
        for place, node in _iter_handlers(("hooks", member.name), member.value):
            handler = node.to_value()
            if isinstance(handler, dict) and _is_own(cast("JsonObject", handler)):
                hooks.append(FoundHook(member.name, place, cast("JsonObject", handler)))
    return hooks


def add_hooks(client: str, text: str, target: HookTarget) -> str:
    """
    Return a client's file with all hooks of *client*. Fields that the user added to one of them stay.

    A hook that is there is changed in its place, and a new one comes last: Codex trusts the hooks of others by their positions.

    Raises:
        UneditableText: The text is not JSON with comments, or its hooks have another form.
    """
    handlers = build_hooks(client, target)
    if _FORMS[client].has_version and find_node(text, ("version",)) is None:
        text = _set_version(text)
    for name, handler in handlers.items():
        present = [hook for hook in find_hooks(text) if hook.event == name]
        if not present:
            matcher = next(hook.matcher for hook in HOOKS[client] if hook.name == name)
            group = {**({"matcher": matcher} if matcher else {}), "hooks": [handler]}
            text = append_item(text, ("hooks", name), group if _FORMS[client].is_grouped else handler)
            continue
        own_fields = {"type", "command", "args", "url", "timeout", "headers", "allowedEnvVars"}
        merged = {**{field: value for field, value in present[0].handler.items() if field not in own_fields}, **handler}
        if {**present[0].handler} != merged:
            text = replace_value(text, present[0].place, merged)
    return _remove(text, _find_surplus(text, handlers))


def remove_hooks(text: str) -> str:
    """
    Return a client's file without the hooks of Rookery, and without the lists that have become empty.

    Raises:
        UneditableText: The text is not JSON with comments.
    """
    return _remove(text, find_hooks(text))


def find_client(handler: Mapping[str, object]) -> str | None:
    """Return the client whose hook it is, or None if it is no hook of Rookery."""
    url = handler.get("url")
    if isinstance(url, str) and (route := _ROUTE.search(url.partition("?")[0])):
        return route[1]
    command = _COMMAND.search(_join_words(handler))
    return None if command is None else command[2]


def get_program(handler: Mapping[str, object]) -> str | None:
    """Return the program that a hook starts, or None for one that is sent over HTTP."""
    command = handler.get("command")
    if not isinstance(command, str):
        return None
    if "args" in handler:
        return command
    try:
        return next(iter(shlex.split(command)), None)
    except ValueError:
        return command


def get_address(handler: Mapping[str, object]) -> str:
    """Return the URL that a hook of Rookery calls, or the one that it passes to `rookery hook`; empty if it passes none."""
    url = handler.get("url")
    if isinstance(url, str):
        return url
    match = _URL_OPTION.search(_join_words(handler))
    return "" if match is None else match[1]


def get_key_file(handler: Mapping[str, object]) -> str:
    """Return the file from which a hook of Rookery reads its key; empty if it reads the variable alone."""
    match = _KEY_FILE_OPTION.search(_join_words(handler))
    return "" if match is None else match[1].strip("'")


def _join_words(handler: Mapping[str, object]) -> str:
    """Return the command of a hook with its arguments, in one line."""
    arguments = handler.get("args")
    words = [str(word) for word in cast("list[object]", arguments)] if isinstance(arguments, list) else []
    return " ".join([str(handler.get("command", "")), *words])


def _is_own(handler: JsonObject) -> bool:
    return find_client(handler) is not None


def _build_handler(client: str, hook: HookDeclaration, target: HookTarget) -> JsonObject:
    if hook.transport == "http":
        return {
            "type": "http",
            "url": target.url + hook_path(client, hook.event),
            "headers": {"Authorization": f"Bearer ${KEY_VARIABLE}"},
            "allowedEnvVars": [KEY_VARIABLE],
            "timeout": hook.timeout_s,
        }
    form = _FORMS[client]
    key_options = ("--key-file", target.key_file) if target.key_file else ()
    words = [*target.program, *hook.command(client, "--url", target.url, *key_options)]
    return {
        **({"type": form.type} if form.type else {}),
        **({"command": words[0], "args": words[1:]} if form.has_arguments else {"command": shlex.join(words)}),
        "timeout": hook.timeout_s * form.units_per_s,
    }


def _iter_handlers(place: Place, event: JsoncNode) -> Iterator[tuple[Place, JsoncNode]]:
    """Yield the hooks of an event with their places: those in groups, and those that stand alone."""
    for index, item in enumerate(event.items):
        group = item.get("hooks")
        if group is None:
            yield (*place, index), item
            continue
        for number, handler in enumerate(group.items):
            yield (*place, index, "hooks", number), handler


def _find_surplus(text: str, handlers: Mapping[str, JsonObject]) -> list[FoundHook]:
    """Return our hooks of other events, and all but the first of each event."""
    surplus, events = list[FoundHook](), set[str]()
    for hook in find_hooks(text):
        if hook.event not in handlers or hook.event in events:
            surplus.append(hook)
        events.add(hook.event)
    return surplus


def _remove(text: str, hooks: Sequence[FoundHook]) -> str:
    for hook in reversed(hooks):
        text = remove_value(text, hook.place)
        *parents, _ = hook.place
        if "hooks" in parents[1:]:  # it stands in a group
            group = tuple(parents[:-1])
            node = find_node(text, (*group, "hooks"))
            text = text if node is None or node.items else remove_value(text, group)
        text = prune(prune(text, ("hooks", hook.event)), ("hooks",))
    return text


def _set_version(text: str) -> str:
    """Return Cursor's file with the version of its format, which it requires."""
    root = parse_jsonc(text)
    if root is None or not root.members:
        return '{\n  "version": 1\n}\n' if not text.strip() else text
    return text
