"""The entry of Rookery in a client's file of MCP servers: its text before and after a change. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import cast

from rookery.connect.clients import ClientConfig
from rookery.connect.json_edits import append_item, find_node, remove_value, replace_value, set_value
from rookery.connect.jsonc import parse_jsonc
from rookery.connect.toml_edits import get_tables, parse_toml, remove_server, set_server
from rookery.tools.discovery.client_guides import KEY_PLACEHOLDER, KEY_VARIABLE, VSCODE_INPUT, SetupTarget, build_client_entry
from rookery.tools.models import JsonObject

_KEY = r"(?:sk_(?:live|test)|ak)_[A-Za-z0-9]{32}"
_FILE_KEY = re.compile(rf"Bearer ({_KEY}|{KEY_PLACEHOLDER})")
_REFERENCES = (KEY_VARIABLE, str(VSCODE_INPUT["id"]))
_HEADERS_COMMAND, _TOKEN_VARIABLE = "http_headers_helper", "bearer_token_env_var"
_URL_FIELDS = ("url", "serverUrl", "httpUrl")


def read_entries(config: ClientConfig, text: str) -> dict[str, JsonObject]:
    """
    Return the servers of a client's file by name.

    Raises:
        UneditableText: The text is not in the format of the client.
    """
    if config.id == "codex":
        return get_tables(parse_toml(text), config.section)
    root = parse_jsonc(text)
    section = None if root is None else root.get(config.section)
    return {} if section is None else _get_objects(section.to_value())


def read_local_entries(text: str, project: str) -> dict[str, JsonObject]:
    """Return the servers that Claude Code keeps in `~/.claude.json` for one project alone (its scope `local`)."""
    root = parse_jsonc(text)
    projects = None if root is None else root.get("projects")
    state = None if projects is None else projects.get(project)
    return {} if state is None else _get_objects(_get_object(state.to_value()).get("mcpServers"))


def add_entry(config: ClientConfig, text: str, target: SetupTarget, *, key: str | None = None, headers_command: str = "") -> str:
    """
    Return a client's file with *target*. Fields that the user added to our entry stay; another entry of the same name is replaced.

    Args:
        text: The present content; empty if the file does not exist.
        key: A key for clients that read it only from their file. Without it, the key that is there stays, or a placeholder is written.
        headers_command: A command that prints the headers with the key, for Codex. Without it, Codex reads the variable.

    Raises:
        UneditableText: The text is not in the format of the client.
    """
    present = read_entries(config, text).get(target.name)
    if config.id == "codex":
        if present is not None and "command" in present:  # Codex starts with no server that has both a command and an address
            text = remove_server(text, target.name)
        source = {_HEADERS_COMMAND: headers_command} if headers_command else {_TOKEN_VARIABLE: KEY_VARIABLE}
        return set_server(text, target.name, {"url": target.url, **source}, dropped={_HEADERS_COMMAND, _TOKEN_VARIABLE} - source.keys())
    entry = build_client_entry(config.id, target)
    if config.key_source == "file":
        key = key or (None if present is None else get_file_key(present))
        entry = cast("JsonObject", json.loads(json.dumps(entry).replace(KEY_PLACEHOLDER, key or KEY_PLACEHOLDER)))
    if config.key_source == "input":
        text = _add_input(text)
    path = (config.section, target.name)
    if present is not None and not is_own_entry(present):
        return replace_value(text, path, entry)
    return set_value(text, path, entry)


def remove_entry(config: ClientConfig, text: str, name: str) -> str:
    """
    Return a client's file without the server *name*, and without its section if that has become empty.

    Raises:
        UneditableText: The text is not in the format of the client, or has no such server.
    """
    if config.id == "codex":
        return remove_server(text, name)
    text = prune(remove_value(text, (config.section, name)), (config.section,))
    if config.key_source == "input" and f"${{input:{VSCODE_INPUT['id']}}}" not in text:
        text = _remove_input(text)
    return text


def prune(text: str, path: tuple[str | int, ...]) -> str:
    """Return *text* without the object or array at *path* if it has neither content nor comments."""
    node = find_node(text, path)
    return remove_value(text, path) if node is not None and text[node.start : node.end] in {"{}", "[]"} else text


def is_own_entry(entry: Mapping[str, object]) -> bool:
    """Return True if `rookery connect` wrote the entry: it reads the key from where Rookery's configurations read it."""
    authorization = get_authorization(entry)
    return any(reference in authorization for reference in _REFERENCES) or bool(_FILE_KEY.fullmatch(authorization))


def get_authorization(entry: Mapping[str, object]) -> str:
    """Return the authorization of an entry as it stands in the file; empty if it has none."""
    for field, name in (("headers", "Authorization"), ("env", "ROOKERY_AUTH")):
        value = _get_object(_get_transport(entry).get(field)).get(name)
        if isinstance(value, str):
            return value
    sources = (entry.get(name) for name in (_HEADERS_COMMAND, _TOKEN_VARIABLE))
    return next((source for source in sources if isinstance(source, str)), "")


def get_file_key(entry: Mapping[str, object]) -> str | None:
    """Return the key that stands in an entry. None: it has a placeholder or a reference."""
    match = _FILE_KEY.fullmatch(get_authorization(entry))
    return None if match is None or match[1] == KEY_PLACEHOLDER else match[1]


def get_url(entry: Mapping[str, object]) -> str | None:
    """Return the address of an entry, also of one that starts the bridge `mcp-remote`."""
    for field in _URL_FIELDS:
        value = _get_transport(entry).get(field)
        if isinstance(value, str):
            return value
    arguments = entry.get("args")
    texts = [item for item in cast("list[object]", arguments) if isinstance(item, str)] if isinstance(arguments, list) else []
    return next((text for text in texts if text.startswith(("http://", "https://"))), None)


def needs_variable(entry: Mapping[str, object]) -> bool:
    """Return True if Codex reads the key of the entry from its environment alone."""
    return _HEADERS_COMMAND not in entry and _TOKEN_VARIABLE in entry


def _get_transport(entry: Mapping[str, object]) -> Mapping[str, object]:
    """Return the part of an entry with its address and headers. Cline has a member for it, and the other form too."""
    return _get_object(entry.get("transport")) or entry


def _add_input(text: str) -> str:
    return text if _find_input(text) is not None else append_item(text, ("inputs",), VSCODE_INPUT)


def _remove_input(text: str) -> str:
    index = _find_input(text)
    return text if index is None else prune(remove_value(text, ("inputs", index)), ("inputs",))


def _find_input(text: str) -> int | None:
    """Return the index of our input among the inputs of VS Code, or None."""
    inputs = find_node(text, ("inputs",))
    for index, item in enumerate(() if inputs is None else inputs.items):
        if _get_object(item.to_value()).get("id") == VSCODE_INPUT["id"]:
            return index
    return None


def _get_object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _get_objects(value: object) -> dict[str, JsonObject]:
    """Return the members of *value* that are objects."""
    return {name: cast("JsonObject", part) for name, part in _get_object(value).items() if isinstance(part, dict)}
