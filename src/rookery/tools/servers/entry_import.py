"""
Server entries made from a registry's server.json, another client's file, a command line or a URL. No I/O.

Values that a server.json requires from the user become `${NAME}`, to be set in the environment. No secret is written to a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import cast
from urllib.parse import urlsplit

from rookery.tools.models import JsonObject
from rookery.tools.program_names import find_program_word
from rookery.tools.servers.client_entries import (
    UnsupportedConfig,
    convert_client_entries,
    is_entry,
    other_projects,
    parse_document,
    to_variable_name,
)

_RUNNERS: Mapping[str, Sequence[str]] = {
    "npm": ("npx", "-y"),
    "pypi": ("uvx",),
    "oci": ("docker", "run", "-i", "--rm"),
    "nuget": ("dnx", "--yes"),
}
_VERSION_SEPARATORS = {"npm": "@", "pypi": "==", "oci": ":", "nuget": "@"}
"""The separator between package and version, by registry type."""

_TEMPLATE_VARIABLE = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_GENERIC_AFFIX = re.compile(r"^(?:mcp[-_]server[-_]|server[-_]|mcp[-_])|(?:[-_]mcp[-_]server|[-_]mcp|[-_]server)$")
_NON_ID_CHARACTERS = re.compile(r"[^A-Za-z0-9]+")
_GENERIC_HOST_PARTS = frozenset("www mcp api com co org net gov ac".split())
"""Common parts of host names, which do not identify a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedEntry:
    """
    An entry made from a source.

    Attributes:
        required_variables: Variables that must be set, with the descriptions of the server's publisher.
    """

    id: str
    entry: JsonObject
    required_variables: Mapping[str, str]


def entry_from_url(url: str, *, kind: str | None = None, headers: Mapping[str, str] | None = None) -> ImportedEntry:
    """Return the entry of a server at *url*. Its id comes from the host name."""
    parts = (urlsplit(url).hostname or "").split(".")
    specific_parts = [part for part in parts[:-1] if part not in _GENERIC_HOST_PARTS and not part.isdigit()]
    entry: JsonObject = {"url": url}
    if kind is not None:
        entry["type"] = kind
    if headers:
        entry["headers"] = dict(headers)
    return ImportedEntry(id=_to_server_id("-".join(specific_parts[-1:]) or "server"), entry=entry, required_variables={})


def entry_from_command(command_line: Sequence[str], *, env: Mapping[str, str] | None = None) -> ImportedEntry:
    """Return the entry of a server that *command_line* starts. Its id comes from the package or script."""
    entry: JsonObject = {"command": command_line[0]}
    if command_line[1:]:
        entry["args"] = list(command_line[1:])
    if env:
        entry["env"] = dict(env)
    program = _to_server_id(_strip_generic_parts(find_program_word(command_line)))
    return ImportedEntry(id=program, entry=entry, required_variables={})


def entries_from_document(text: str, *, name: str, folder: PurePath | None = None) -> tuple[list[ImportedEntry], dict[str, str]]:
    """
    Return the entries of a registry's server.json or a client's file called *name*, and the reasons why others were rejected.

    Args:
        folder: The project whose servers are read from a file with servers by project; `unread_projects` lists the others.

    Raises:
        UnsupportedConfig: The file has neither form.
    """
    document = parse_document(text, name)
    if isinstance(document.get("server"), dict):  # the form of a registry's API
        document = cast("JsonObject", document["server"])
    if isinstance(document.get("packages"), list) or isinstance(document.get("remotes"), list):
        return [_entry_from_registry(document)], {}
    entries = convert_client_entries(document, name=name, folder=folder)
    if entries is None and is_entry(document):
        entries = convert_client_entries({"mcpServers": {PurePath(name).stem: document}}, name=name)
    if entries is None:
        raise UnsupportedConfig(
            f"{name} is neither a server.json (packages, remotes) nor a client's configuration file (mcpServers, servers)."
        )
    imported_entries = [
        ImportedEntry(id=entry.key, entry=entry.entry, required_variables=dict.fromkeys(entry.required_variables, ""))
        for entry in entries
        if entry.entry is not None
    ]
    return imported_entries, {entry.key: entry.reason for entry in entries if entry.entry is None}


def unread_projects(text: str, *, name: str, folder: PurePath) -> list[str]:
    """Return the folders of the projects whose servers `entries_from_document` does not read."""
    return other_projects(parse_document(text, name), folder=folder)


def _entry_from_registry(document: JsonObject) -> ImportedEntry:
    required_variables: dict[str, str] = {}
    remotes, packages = _get_objects(document, "remotes"), _get_objects(document, "packages")
    if remotes:
        entry = _convert_remote(remotes[0], required_variables)
    elif packages:
        entry = _convert_package(packages[0], required_variables)
    else:
        raise UnsupportedConfig("The server.json has neither packages nor remotes.")
    full = str(document.get("name") or "server")
    entry["name"] = str(document.get("title") or full.rpartition("/")[2])
    if isinstance(document.get("description"), str):
        entry["tagline"] = document["description"]
    return ImportedEntry(id=_to_server_id(_strip_generic_parts(full)), entry=entry, required_variables=required_variables)


def _convert_remote(remote: JsonObject, required_variables: dict[str, str]) -> JsonObject:
    kind = str(remote.get("type") or remote.get("transport_type") or "")
    entry: JsonObject = {"url": _fill_template(str(remote.get("url") or ""), _get_variables(remote), required_variables)}
    if kind == "sse":
        entry["type"] = "sse"
    headers = {str(header.get("name")): _resolve_value(header, required_variables) for header in _get_objects(remote, "headers")}
    if headers:
        entry["headers"] = headers
    return entry


def _convert_package(package: JsonObject, required_variables: dict[str, str]) -> JsonObject:
    kind = str(_get_first(package, "registryType", "registry_type") or "")
    identifier, version = str(package.get("identifier") or package.get("name") or ""), package.get("version")
    transport = package.get("transport")
    if isinstance(transport, dict) and cast("JsonObject", transport).get("type") not in {None, "stdio"}:
        raise UnsupportedConfig(f"Start {identifier} yourself and add its URL: it is an HTTP server, which clients do not start.")
    if kind not in _RUNNERS:
        raise UnsupportedConfig(
            f"Packages of type {kind!r} are not supported; allowed are {', '.join(_RUNNERS)}. "
            "Start the server yourself, and add its command or URL."
        )
    hint = _get_first(package, "runtimeHint", "runtime_hint")
    runner = [str(hint), *_RUNNERS[kind][1:]] if isinstance(hint, str) and hint else list(_RUNNERS[kind])
    if isinstance(version, str) and version and version != "latest" and _VERSION_SEPARATORS[kind] not in identifier[1:]:
        identifier = f"{identifier}{_VERSION_SEPARATORS[kind]}{version}"
    env = {
        str(variable.get("name")): _resolve_value(variable, required_variables)
        for variable in _get_objects(package, "environmentVariables", "environment_variables")
    }
    env_flags = [word for name in env for word in ("-e", name)] if kind == "oci" else []
    words = [
        *runner,
        *_convert_arguments(_get_objects(package, "runtimeArguments", "runtime_arguments"), required_variables, skip=runner),
        *env_flags,
        identifier,
        *_convert_arguments(_get_objects(package, "packageArguments", "package_arguments"), required_variables),
    ]
    return {"command": words[0], "args": words[1:], **({"env": env} if env else {})}


def _convert_arguments(arguments: Sequence[JsonObject], required_variables: dict[str, str], *, skip: Sequence[str] = ()) -> list[str]:
    words: list[str] = []
    for argument in arguments:
        name, is_named = str(argument.get("name") or ""), argument.get("type") == "named"
        has_value = any(argument.get(field) is not None for field in ("value", "default"))
        is_included = has_value or _get_first(argument, "isRequired", "is_required") is True
        if is_named and name in skip:
            continue
        if is_named and (is_included or not _get_first(argument, "valueHint", "value_hint")):
            words.append(name)
        if is_included and (not is_named or has_value or _get_first(argument, "valueHint", "value_hint")):
            words.append(_resolve_value(argument, required_variables))
    return words


def _resolve_value(definition: JsonObject, required_variables: dict[str, str]) -> str:
    """Return the value of a header, variable or argument: the given value, the default, or `${NAME}` for a value the user must set."""
    value = definition.get("value")
    if isinstance(value, str):
        return _fill_template(value, _get_variables(definition), required_variables)
    default = definition.get("default")
    if default is not None and _get_first(definition, "isSecret", "is_secret") is not True:
        return str(default)
    name = _to_upper_variable_name(str(_get_first(definition, "valueHint", "value_hint") or definition.get("name") or "VALUE"))
    required_variables[name] = str(definition.get("description") or "")
    return f"${{{name}}}"


def _fill_template(text: str, variables: Mapping[str, JsonObject], required_variables: dict[str, str]) -> str:
    """Return *text* with each `{name}` in *variables* replaced by its value, its default, or `${NAME}`."""

    def value(match: re.Match[str]) -> str:
        definition = variables.get(match[1])
        return match[0] if definition is None else _resolve_value({**definition, "name": match[1]}, required_variables)

    return _TEMPLATE_VARIABLE.sub(value, text)


def _get_variables(definition: JsonObject) -> Mapping[str, JsonObject]:
    variables = definition.get("variables")
    return cast("dict[str, JsonObject]", variables) if isinstance(variables, dict) else {}


def _get_objects(document: JsonObject, *names: str) -> list[JsonObject]:
    values = _get_first(document, *names)
    return (
        [cast("JsonObject", value) for value in cast("list[object]", values) if isinstance(value, dict)] if isinstance(values, list) else []
    )


def _get_first(document: JsonObject, *names: str) -> object:
    """Return the value of the first of *names* that is present. Older server.json files use snake case."""
    return next((document[name] for name in names if document.get(name) is not None), None)


def _strip_generic_parts(name: str) -> str:
    """Return the specific part of a package name, without scope, path, version and generic affixes."""
    last = PurePath(name.rstrip("/")).name if not name.startswith("@") else name.rpartition("/")[2]
    last = re.split(r"==|@|:", last.lstrip("@"))[0]
    last = re.sub(r"\.(?:py|js|mjs|ts|sh|exe)$", "", last)
    return _GENERIC_AFFIX.sub("", _GENERIC_AFFIX.sub("", last)) or last


def _to_server_id(text: str) -> str:
    return _NON_ID_CHARACTERS.sub("-", text).strip("-")[:64].rstrip("-") or "server"


def _to_upper_variable_name(name: str) -> str:
    """Return *name* as the name of an environment variable, in capitals."""
    return to_variable_name(name).upper()
