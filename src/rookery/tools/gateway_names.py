"""
Gateway names of tools and prompts, and gateway URIs of resources, at /mcp, where all servers share one namespace. No I/O.

`get_current_time` of the server `time` is `time__get_current_time`. Model APIs accept 64 characters of `[A-Za-z0-9_-]`, and MCP clients
put a prefix such as `mcp__rookery__` before the name. Other characters are replaced by `_`, and names beyond a limit, by default 50, are
truncated and end in part of a digest.

`memo://insights` of the server `sqlite` is `sqlite://memo/insights`. A URI whose scheme is the server's id stays unchanged. The interface
of an MCP App keeps its scheme, because hosts accept no other: `ui://board/app.html` of `kanban` is `ui://kanban/board/app.html`. The
mapping is not reversible (`sqlite://memo/insights` might be the server's own URI), so the reverse returns candidates in order.

Servers also list URI templates (RFC 6570). A tool of an MCP App refers to its interface, a resource with a `ui://` URI, which hosts show
beside the result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import cast
from urllib.parse import unquote

from rookery.tools.models import JsonObject

_VARIABLES = re.compile(r"((?:\{[^{}]*\})+)")
"""One variable or several without text between them."""
_OPERATORS = frozenset("+#./;?&")
_FIXED_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def matches_template(uri: str, template: str) -> bool:
    """
    Return whether *uri* contains the fixed parts of *template* in order. Linear time.

    As in the SDKs, `{name}` stands for at least one character and no slash. A variable with an operator, such as `{+path}`, stands for
    any text.
    """
    first, *rest = _parse(template)
    if not uri.startswith(first):
        return False
    at, pairs = len(first), list(zip(rest[::2], rest[1::2], strict=True))
    for index, (variables, text) in enumerate(pairs, start=1):
        takes_any = any(expression[:1] in _OPERATORS for expression in variables[1:-1].split("}{"))
        shortest = at if takes_any else at + 1
        # The last part is at the end of the URI, each other one as early as possible.
        end = uri.find(text, shortest) if index < len(pairs) else len(uri) - len(text) if uri.endswith(text) else -1
        if end < shortest or (not takes_any and "/" in uri[at:end]):
            return False
        at = end + len(text)
    return at == len(uri)


def names_scheme(template: str) -> bool:
    """Return whether *template* begins with a scheme. One that begins with a variable would match the URIs of every other server."""
    return _FIXED_SCHEME.match(template) is not None


@lru_cache(maxsize=1024)
def _parse(template: str) -> tuple[str, ...]:
    """Return the fixed parts of a template and its variables in turn, beginning and ending with a fixed part."""
    return tuple(_VARIABLES.split(template))


MAX_NAME_LENGTH = 64
"""Maximum length of a name that model APIs accept, with all prefixes."""
DEFAULT_NAME_LENGTH = 50
"""Limit on gateway names that leaves 14 characters for the prefix of the client: `mcp__rookery__`."""

_FORBIDDEN = re.compile(r"[^A-Za-z0-9_-]")
_SEPARATOR = "__"
_DIGEST_LENGTH = 6
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
INTERFACE_PREFIX = "ui://"
"""The beginning of the URIs of interfaces, in the extension MCP Apps."""


def to_gateway_name(server_id: str, name: str, max_length: int = DEFAULT_NAME_LENGTH) -> str:
    """Return the gateway name of a tool or prompt *name* of a server."""
    full = server_id + _SEPARATOR + name
    safe_name = _FORBIDDEN.sub("_", full)
    return safe_name if len(safe_name) <= max_length else _with_digest(full, max_length)


def map_gateway_names(server_id: str, names: Iterable[str], max_length: int = DEFAULT_NAME_LENGTH) -> Mapping[str, str]:
    """
    Return the original names of one server's tools or prompts by their gateway names, in their order.

    If two names map to the same gateway name (`a.b` and `a_b`), a name that needed no change keeps it. The others get a digest.
    """
    return _map_unique_names(server_id, tuple(dict.fromkeys(names)), max_length)


@lru_cache(maxsize=512)  # a call of a truncated name needs the map of its server
def _map_unique_names(server_id: str, unique_names: tuple[str, ...], max_length: int) -> Mapping[str, str]:
    unchanged = {name for name in unique_names if to_gateway_name(server_id, name, max_length) == server_id + _SEPARATOR + name}
    taken_names = {server_id + _SEPARATOR + name for name in unchanged}
    own_names: dict[str, str] = {}
    for name in unique_names:
        gateway_name = to_gateway_name(server_id, name, max_length)
        digest_length = _DIGEST_LENGTH
        while name not in unchanged and gateway_name in taken_names:
            gateway_name = _with_digest(server_id + _SEPARATOR + name, max_length, digest_length)
            digest_length += 1
        taken_names.add(gateway_name)
        own_names[gateway_name] = name
    return MappingProxyType(own_names)


def find_original_name(server_id: str, names: Iterable[str], gateway_name: str, max_length: int = DEFAULT_NAME_LENGTH) -> str | None:
    """
    Return which of *names* has this gateway name, or had it under another limit, else None.

    Clients store names, for example in permissions. A name stays valid when the limit changes.
    """
    compared = min(len(server_id), len(gateway_name) // 2)
    if gateway_name[:compared] != server_id[:compared]:
        return None  # the name begins with another id
    own_names = list(names)
    original_name = map_gateway_names(server_id, own_names, max_length).get(gateway_name)
    if original_name is None and len(gateway_name) <= MAX_NAME_LENGTH:
        # A truncated name has exactly the length of its limit, and any other name fits a limit of its own length.
        original_name = map_gateway_names(server_id, own_names, len(gateway_name)).get(gateway_name)
    return original_name


def split_gateway_name(gateway_name: str) -> tuple[str, str] | None:
    """Return the server id and the original name, if *gateway_name* was neither truncated nor altered. Ids contain no `_`."""
    server_id, between, name = gateway_name.partition(_SEPARATOR)
    return (server_id, name) if between and server_id and name else None


def _with_digest(full: str, max_length: int, digest_length: int = _DIGEST_LENGTH) -> str:
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()[:digest_length]
    return f"{_FORBIDDEN.sub('_', full)[: max_length - digest_length - 1]}_{digest}"


def to_gateway_uri(server_id: str, uri: str) -> str:
    """Return the gateway URI for the *uri* of a server's resource or resource template."""
    if uri.startswith(INTERFACE_PREFIX):
        return f"{INTERFACE_PREFIX}{server_id}/{uri.removeprefix(INTERFACE_PREFIX)}"
    if uri.startswith(f"{server_id}://"):
        return uri
    return f"{server_id}://{uri.replace('://', '/', 1)}"


def list_server_ids(uri: str) -> list[str]:
    """Return the ids of the servers whose gateway URI *uri* may be, the likeliest first. Empty if it names no server."""
    scheme, separator, rest = restore_slashes(uri).partition("://")
    if not separator or not scheme:
        return []
    owner, slash, _ = rest.partition("/")
    is_interface = scheme + separator == INTERFACE_PREFIX and slash and owner
    return list(dict.fromkeys([owner, scheme])) if is_interface else [scheme]


def find_listed_uri(server_id: str, uri: str, listed_uris: Iterable[str]) -> str | None:
    """Return which of a server's *listed_uris* a gateway *uri* stands for, else None."""
    restored_uri = restore_slashes(uri)
    own_uris = {to_gateway_uri(server_id, own_uri): own_uri for own_uri in listed_uris}
    if restored_uri in own_uris:
        return own_uris[restored_uri]
    # If a client puts the URI into the path unescaped, its percent-escapes arrive decoded.
    return next((own_uri for name, own_uri in own_uris.items() if unquote(name) == restored_uri), None)


def list_upstream_candidates(server_id: str, uri: str, listed_uris: Iterable[str], templates: Iterable[str]) -> list[str]:
    """
    Return the upstream URIs that a gateway *uri* may stand for, the likeliest first: listed, matching a template, possible.

    Args:
        listed_uris: The URIs of the server's resources, as the server lists them.
        templates: The server's URI templates.
    """
    listed_uri = find_listed_uri(server_id, uri, listed_uris)
    if listed_uri is not None:
        return [listed_uri]
    restored_uri = restore_slashes(uri)
    interface = restored_uri.removeprefix(f"{INTERFACE_PREFIX}{server_id}/")
    possible = [INTERFACE_PREFIX + interface] if interface != restored_uri else []
    rest = restored_uri.removeprefix(f"{server_id}://")
    scheme, slash, tail = rest.partition("/")
    possible += [f"{scheme}://{tail}"] if slash and _SCHEME.fullmatch(scheme) else []
    possible += [rest, restored_uri] if ":" in rest else [restored_uri, rest]
    own_templates = list(templates)
    return sorted(dict.fromkeys(possible), key=lambda candidate: not any(matches_template(candidate, own) for own in own_templates))


def restore_slashes(uri: str) -> str:
    """Return *uri* with the second slash restored that some proxies remove from `scheme://`."""
    return uri if "://" in uri else uri.replace(":/", "://", 1)


EXTENSION = "io.modelcontextprotocol/ui"
"""The extension's name in the capabilities of a client. Some servers offer their interfaces only to clients that announce it."""

_REFERENCE_KEYS = ("ui/resourceUri", "openai/outputTemplate")
"""Keys of `_meta` in which older hosts look for the interface. The present one is `resourceUri` of `ui`."""


def select_extensions(capabilities: Mapping[str, object]) -> dict[str, JsonObject]:
    """Return the extensions of a client that Rookery announces to servers on its behalf: MCP Apps and no other."""
    extensions = capabilities.get("extensions")
    settings = cast("Mapping[str, object]", extensions).get(EXTENSION) if isinstance(extensions, Mapping) else None
    return {EXTENSION: cast("JsonObject", settings)} if isinstance(settings, dict) else {}


def list_interface_uris(item: JsonObject) -> list[str]:
    """Return the interfaces that the `_meta` of a tool or of a result refers to."""
    meta = item.get("_meta")
    if not isinstance(meta, dict):
        return []
    fields = cast("JsonObject", meta)
    nested = fields.get("ui")
    values = [fields.get(key) for key in _REFERENCE_KEYS]
    values += [cast("JsonObject", nested).get("resourceUri")] if isinstance(nested, dict) else []
    return [value for value in values if isinstance(value, str) and value.startswith(INTERFACE_PREFIX)]


def rename_interfaces(server_id: str, item: JsonObject) -> JsonObject:
    """Return a tool or a result with gateway URIs in the references of its `_meta`."""
    if not list_interface_uris(item):
        return item
    meta = dict(cast("JsonObject", item["_meta"]))
    for key in _REFERENCE_KEYS:
        meta |= _rename(server_id, meta, key)
    nested = meta.get("ui")
    if isinstance(nested, dict):
        meta["ui"] = {**nested, **_rename(server_id, cast("JsonObject", nested), "resourceUri")}
    return {**item, "_meta": meta}


def _rename(server_id: str, fields: JsonObject, key: str) -> JsonObject:
    uri = fields.get(key)
    return {key: to_gateway_uri(server_id, uri)} if isinstance(uri, str) and uri.startswith(INTERFACE_PREFIX) else {}
