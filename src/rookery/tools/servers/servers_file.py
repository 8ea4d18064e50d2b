"""
The file of servers (D-31): the form that every MCP client uses, with our optional fields beside.

Reading it is pure but for the file itself; what is wrong with one entry costs that entry alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import orjson

from rookery.kernel.config_files import read_config_file
from rookery.tools.models import CommandTarget, Server
from rookery.tools.servers.entries import RESERVED_IDS, SERVER_ID_PATTERN, InvalidServerEntry, ServerEntry

_NON_SLUG_CHARACTERS = re.compile(r"[^A-Za-z0-9]+")


class InvalidServersFile(Exception):
    """The file as a whole cannot be used; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersFile:
    """
    What a file says.

    Attributes:
        servers: By id. An entry that cannot be used is there all the same, with its `fault`.
        warnings: What was passed over, one text each.
    """

    servers: Mapping[str, Server] = field(default_factory=dict[str, Server])
    warnings: tuple[str, ...] = ()


def read_servers_file(path: Path, environment: Mapping[str, str]) -> ServersFile:
    """
    Return what the file at *path* says; nothing if there is none.

    Raises:
        FileBroken: It cannot be read, or is no JSON of the right form.
    """
    try:
        raw = read_config_file(path)
    except FileNotFoundError:
        return ServersFile()
    except OSError as error:
        raise InvalidServersFile(f"{path.name} cannot be read: {error.strerror}") from error
    return parse_servers_file(raw, environment, name=path.name)


def parse_servers_file(raw: bytes, environment: Mapping[str, str], *, name: str = "servers.json") -> ServersFile:
    """
    Return what *raw* says; an empty file says nothing.

    Raises:
        FileBroken: No JSON, or not {"mcpServers": {id: {…}}}.
    """
    if not raw.strip():
        return ServersFile()
    try:
        document: object = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise InvalidServersFile(
            f"{name} is not valid JSON: {error.msg.split(':')[0]} (line {error.lineno}, column {error.colno})."
        ) from error
    if not isinstance(document, dict):
        raise InvalidServersFile(f'{name} must be an object {{"mcpServers": {{…}}}}.')
    content = cast("dict[str, object]", document)
    entries = content.get("mcpServers", content.get("servers", {}))
    if not isinstance(entries, dict):
        raise InvalidServersFile(f'"mcpServers" of {name} must be an object of servers by id.')
    servers: dict[str, Server] = {}
    warnings: list[str] = []
    for key, entry in cast("dict[str, object]", entries).items():
        server_id = _choose_server_id(key, servers)
        server, passed_over = _parse_server(server_id, key, entry, environment)
        servers[server_id] = server
        warnings += [f"{key}: {text}" for text in passed_over]
        if server.fault is not None:
            warnings.append(f"{key}: {server.fault}")
    return ServersFile(servers=servers, warnings=tuple(warnings))


def _choose_server_id(key: str, taken: Mapping[str, Server]) -> str:
    """Return the id of a file's *key*: itself if it has the form of one, else its slug; one that is taken or ours gets a suffix."""
    if SERVER_ID_PATTERN.fullmatch(key) and key not in RESERVED_IDS and key not in taken:
        return key
    slug = _NON_SLUG_CHARACTERS.sub("-", key).strip("-")[:57].rstrip("-") or "server"
    if slug in RESERVED_IDS or slug in taken:
        return f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"
    return slug


def _parse_server(server_id: str, key: str, entry: object, environment: Mapping[str, str]) -> tuple[Server, list[str]]:
    if not isinstance(entry, dict):
        return Server(id=server_id, name=key, target=CommandTarget(command=""), fault="The entry must be an object."), []
    reading = ServerEntry(cast("dict[str, object]", entry), environment, allow_defaults=True)
    warnings = reading.list_unknown_fields()
    if key in RESERVED_IDS:
        warnings.append(f"the id is reserved for a built-in server; it is served as {server_id!r}")
    try:
        return reading.to_server(server_id, key), warnings
    except InvalidServerEntry as error:
        return Server(id=server_id, name=key, target=CommandTarget(command=""), fault=str(error)), warnings
