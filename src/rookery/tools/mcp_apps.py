"""The extension MCP Apps: tools refer to an interface, a resource with a `ui://` URI, which hosts show beside the tool's result. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from rookery.tools.gateway_names import INTERFACE_PREFIX, to_gateway_uri
from rookery.tools.models import JsonObject

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
