"""
The servers file: the format of all MCP clients, with optional fields of Rookery.

An invalid entry does not affect the others. The only I/O is reading the file.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import orjson

from rookery.kernel.data_folder import read_config_file
from rookery.tools.models import CommandTarget, Server
from rookery.tools.servers.entries import RESERVED_IDS, SERVER_ID_PATTERN, InvalidServerEntry, ServerEntry

_NON_SLUG_CHARACTERS = re.compile(r"[^A-Za-z0-9]+")


class InvalidServersFile(Exception):
    """The file as a whole is invalid. The message states the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServersFile:
    """
    The content of a servers file.

    Attributes:
        servers: The servers by id. An invalid entry is included, with its `fault`.
        warnings: Descriptions of what was ignored.
    """

    servers: Mapping[str, Server] = field(default_factory=dict[str, Server])
    warnings: tuple[str, ...] = ()


def read_servers_file(path: Path, environment: Mapping[str, str]) -> ServersFile:
    """
    Return the content of the file at *path*; empty if it does not exist.

    Raises:
        InvalidServersFile: The file cannot be read, or is not JSON of the right form.
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
    Return the content of *raw*. An empty file has no servers.

    Raises:
        InvalidServersFile: *raw* is not JSON, or not {"mcpServers": {id: {…}}}.
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
        raise InvalidServersFile(f'"mcpServers" of {name} must be an object that maps ids to servers.')
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


def _choose_server_id(key: str, servers_by_id: Mapping[str, Server]) -> str:
    """Return the id for a file's *key*: the key itself if valid, else its slug, with a suffix if the slug is taken or reserved."""
    if SERVER_ID_PATTERN.fullmatch(key) and key not in RESERVED_IDS and key not in servers_by_id:
        return key
    slug = _NON_SLUG_CHARACTERS.sub("-", key).strip("-")[:57].rstrip("-") or "server"
    if slug in RESERVED_IDS or slug in servers_by_id:
        return f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"
    return slug


def _parse_server(server_id: str, key: str, entry: object, environment: Mapping[str, str]) -> tuple[Server, list[str]]:
    if not isinstance(entry, dict):
        return Server(id=server_id, name=key, target=CommandTarget(command=""), fault="The entry must be an object."), []
    reader = ServerEntry(cast("dict[str, object]", entry), environment, allow_defaults=True)
    warnings = reader.list_unknown_fields()
    if key in RESERVED_IDS:
        warnings.append(f"the id is reserved for a built-in server; it is served as {server_id!r}")
    try:
        return reader.to_server(server_id, key), warnings
    except InvalidServerEntry as error:
        return Server(id=server_id, name=key, target=CommandTarget(command=""), fault=str(error)), warnings
