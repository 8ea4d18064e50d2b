"""
Entries made of what people have: a registry's server.json, another client's file, a command line, an address (D-37). Pure.

What a server.json asks its user for becomes `${NAME}`, to be set in our environment: no secret is written into a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import cast
from urllib.parse import urlsplit

from rookery.tools.models import JsonObject
from rookery.tools.servers.client_entries import NotUnderstood, client_entries, is_entry, other_projects, read_document, variable

_RUNNERS: Mapping[str, Sequence[str]] = {
    "npm": ("npx", "-y"),
    "pypi": ("uvx",),
    "oci": ("docker", "run", "-i", "--rm"),
    "nuget": ("dnx", "--yes"),
}
_JOINED = {"npm": "@", "pypi": "==", "oci": ":", "nuget": "@"}
"""How each runner is told a version."""

_BRACED = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_-]*)\}")
_NOISE = re.compile(r"^(?:mcp[-_]server[-_]|server[-_]|mcp[-_])|(?:[-_]mcp[-_]server|[-_]mcp|[-_]server)$")
_NOT_OF_AN_ID = re.compile(r"[^A-Za-z0-9]+")
_SAYS_NOTHING = frozenset("www mcp api com co org net gov ac".split())
"""Parts of host names, before the last, that many have."""

_RUNNER_NAMES = frozenset(
    "npx uvx uv bunx pnpm yarn docker podman node deno bun python python3 py sh bash env dnx run dlx tool exec -m".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """
    An entry that was made.

    Attributes:
        needs: Variables that must be set for it, and what each is, in the words of who published the server.
    """

    id: str
    entry: JsonObject
    needs: Mapping[str, str]


def of_address(url: str, *, kind: str | None = None, headers: Mapping[str, str] | None = None) -> Found:
    """Return the entry of a server at *url*, named after its host."""
    parts = (urlsplit(url).hostname or "").split(".")
    named = [part for part in parts[:-1] if part not in _SAYS_NOTHING and not part.isdigit()]
    entry: JsonObject = {"url": url}
    if kind is not None:
        entry["type"] = kind
    if headers:
        entry["headers"] = dict(headers)
    return Found(id=_id("-".join(named[-1:]) or "server"), entry=entry, needs={})


def of_command(words: Sequence[str], *, env: Mapping[str, str] | None = None) -> Found:
    """Return the entry of a server that is started by *words*, named after its package or script."""
    entry: JsonObject = {"command": words[0]}
    if words[1:]:
        entry["args"] = list(words[1:])
    if env:
        entry["env"] = dict(env)
    telling = [word for word in words if word not in _RUNNER_NAMES and not word.startswith("-")]
    telling = [word for word in telling if PurePath(word).name not in _RUNNER_NAMES] or [PurePath(words[0]).name]
    return Found(id=_id(_bare(telling[0])), entry=entry, needs={})


def of_document(text: str, *, name: str, folder: PurePath | None = None) -> tuple[list[Found], dict[str, str]]:
    """
    Return the entries of a file that is called *name*, a registry's server.json or any client's file, and why others are refused.

    Args:
        folder: Of the project whose own servers count, in a file that has servers by project; `unread_projects` names the others.

    Raises:
        NotUnderstood: It is neither.
    """
    document = read_document(text, name)
    if isinstance(document.get("server"), dict):  # as a registry's API has it
        document = cast("JsonObject", document["server"])
    if isinstance(document.get("packages"), list) or isinstance(document.get("remotes"), list):
        return [_of_registry(document)], {}
    entries = client_entries(document, name=name, folder=folder)
    if entries is None and is_entry(document):
        entries = client_entries({"mcpServers": {PurePath(name).stem: document}}, name=name)
    if entries is None:
        raise NotUnderstood(f"{name} is neither a server.json (packages, remotes) nor a client's file (mcpServers, servers).")
    found = [Found(id=each.key, entry=each.entry, needs=dict.fromkeys(each.needs, "")) for each in entries if each.entry is not None]
    return found, {each.key: each.reason for each in entries if each.entry is None}


def unread_projects(text: str, *, name: str, folder: PurePath) -> list[str]:
    """Return the folders of the projects whose servers `of_document` does not read, of a file that it can read."""
    return other_projects(read_document(text, name), folder=folder)


def _of_registry(document: JsonObject) -> Found:
    needs: dict[str, str] = {}
    remotes, packages = _objects(document, "remotes"), _objects(document, "packages")
    if remotes:
        entry = _remote(remotes[0], needs)
    elif packages:
        entry = _package(packages[0], needs)
    else:
        raise NotUnderstood("The server.json has neither packages nor remotes.")
    full = str(document.get("name") or "server")
    entry["name"] = str(document.get("title") or full.rpartition("/")[2])
    if isinstance(document.get("description"), str):
        entry["tagline"] = document["description"]
    return Found(id=_id(_bare(full)), entry=entry, needs=needs)


def _remote(remote: JsonObject, needs: dict[str, str]) -> JsonObject:
    kind = str(remote.get("type") or remote.get("transport_type") or "")
    entry: JsonObject = {"url": _braced(str(remote.get("url") or ""), _variables(remote), needs)}
    if kind == "sse":
        entry["type"] = "sse"
    headers = {str(header.get("name")): _value(header, needs) for header in _objects(remote, "headers")}
    if headers:
        entry["headers"] = headers
    return entry


def _package(package: JsonObject, needs: dict[str, str]) -> JsonObject:
    kind = str(_either(package, "registryType", "registry_type") or "")
    identifier, version = str(package.get("identifier") or package.get("name") or ""), package.get("version")
    transport = package.get("transport")
    if isinstance(transport, dict) and cast("JsonObject", transport).get("type") not in {None, "stdio"}:
        raise NotUnderstood(f"Start {identifier} yourself and add its address: it speaks HTTP, and is not started by its clients.")
    if kind not in _RUNNERS:
        raise NotUnderstood(f"We do not know how to run a package of {kind!r}; start it yourself, and add its command or address.")
    hint = _either(package, "runtimeHint", "runtime_hint")
    runner = [str(hint), *_RUNNERS[kind][1:]] if isinstance(hint, str) and hint else list(_RUNNERS[kind])
    if isinstance(version, str) and version and version != "latest" and _JOINED[kind] not in identifier[1:]:
        identifier = f"{identifier}{_JOINED[kind]}{version}"
    env = {str(each.get("name")): _value(each, needs) for each in _objects(package, "environmentVariables", "environment_variables")}
    passed = [word for name in env for word in ("-e", name)] if kind == "oci" else []
    words = [
        *runner,
        *_arguments(_objects(package, "runtimeArguments", "runtime_arguments"), needs, skip=runner),
        *passed,
        identifier,
        *_arguments(_objects(package, "packageArguments", "package_arguments"), needs),
    ]
    return {"command": words[0], "args": words[1:], **({"env": env} if env else {})}


def _arguments(arguments: Sequence[JsonObject], needs: dict[str, str], *, skip: Sequence[str] = ()) -> list[str]:
    words: list[str] = []
    for argument in arguments:
        name, is_named = str(argument.get("name") or ""), argument.get("type") == "named"
        has_value = any(argument.get(field) is not None for field in ("value", "default"))
        is_wanted = has_value or _either(argument, "isRequired", "is_required") is True
        if is_named and name in skip:
            continue
        if is_named and (is_wanted or not _either(argument, "valueHint", "value_hint")):
            words.append(name)
        if is_wanted and (not is_named or has_value or _either(argument, "valueHint", "value_hint")):
            words.append(_value(argument, needs))
    return words


def _value(thing: JsonObject, needs: dict[str, str]) -> str:
    """Return the value of a header, variable or argument: given, by default, or `${NAME}` of what its user must say."""
    value = thing.get("value")
    if isinstance(value, str):
        return _braced(value, _variables(thing), needs)
    default = thing.get("default")
    if default is not None and _either(thing, "isSecret", "is_secret") is not True:
        return str(default)
    name = _named_variable(str(_either(thing, "valueHint", "value_hint") or thing.get("name") or "VALUE"))
    needs[name] = str(thing.get("description") or "")
    return f"${{{name}}}"


def _braced(text: str, variables: Mapping[str, JsonObject], needs: dict[str, str]) -> str:
    """Return *text* with each `{name}` that is one of *variables* filled in by its default, or made `${NAME}`."""

    def value(found: re.Match[str]) -> str:
        told = variables.get(found[1])
        return found[0] if told is None else _value({**told, "name": found[1]}, needs)

    return _BRACED.sub(value, text)


def _variables(thing: JsonObject) -> Mapping[str, JsonObject]:
    named = thing.get("variables")
    return cast("dict[str, JsonObject]", named) if isinstance(named, dict) else {}


def _objects(thing: JsonObject, *names: str) -> list[JsonObject]:
    values = _either(thing, *names)
    return [cast("JsonObject", each) for each in cast("list[object]", values) if isinstance(each, dict)] if isinstance(values, list) else []


def _either(thing: JsonObject, *names: str) -> object:
    """Return the first of *names* that is there: the registry's form was in snake case once."""
    return next((thing[name] for name in names if thing.get(name) is not None), None)


def _bare(name: str) -> str:
    """Return what tells in a package's name: no scope, no path, no version, no word that all of them have."""
    last = PurePath(name.rstrip("/")).name if not name.startswith("@") else name.rpartition("/")[2]
    last = re.split(r"==|@|:", last.lstrip("@"))[0]
    last = re.sub(r"\.(?:py|js|mjs|ts|sh|exe)$", "", last)
    return _NOISE.sub("", _NOISE.sub("", last)) or last


def _id(text: str) -> str:
    return _NOT_OF_AN_ID.sub("-", text).strip("-")[:64].rstrip("-") or "server"


def _named_variable(name: str) -> str:
    """Return *name* as the name of a variable of the environment, in capitals."""
    return variable(name).upper()
