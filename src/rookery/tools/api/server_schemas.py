"""
Models of workspace servers: the fields of a file's entry, with secrets in a separate field.

The bodies are made from the declaration of the fields (`tools.entry_fields`). They add the limits that the operator's file does not have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from enum import EnumType
from typing import Annotated, Any, Literal

from pydantic import AliasPath, BeforeValidator, Field, create_model

from rookery.kernel.schema import PatchModel, RequestModel, ResponseModel, Timestamp, enum_schema
from rookery.kernel.unset import UNSET
from rookery.tools.entry_fields import EntryField, list_entry_fields
from rookery.tools.models import HealthStatus, OAuthConfig, Root, Roots, ServerProtocol, ServerStatus, ToolRules
from rookery.tools.schemas import TextOrNull
from rookery.tools.servers.entries import FIELDS

_MAX_ITEMS = 64
_Line = Annotated[str, Field(max_length=500)]
_Lines = Annotated[list[_Line], Field(max_length=_MAX_ITEMS)]
_Key = Annotated[str, Field(min_length=1, max_length=128)]
_SecretName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
_SecretText = Annotated[str, Field(min_length=1, max_length=8000)]


_JSON_TYPES: dict[Any, Any] = {
    tuple[str, ...]: _Lines,
    Mapping[str, str]: Annotated[dict[_Key, Annotated[str, Field(max_length=4000)]], Field(max_length=_MAX_ITEMS)],
}
"""The types of fields in JSON, by the types that the models declare. A type without an entry is the same in JSON."""


def _to_json_type(field: EntryField) -> object:
    kind: Any = field.type
    number = Field(ge=field.minimum, le=field.maximum)
    if kind in {str, datetime}:
        text = Annotated[str, Field(max_length=field.max_length)]
        return text | _Lines if field.takes_list else text
    if kind in {int, float}:
        return Annotated[kind, number]
    if kind == Mapping[str, float]:
        return Annotated[dict[_Key, Annotated[float, number]], Field(max_length=_MAX_ITEMS)]
    if isinstance(kind, EnumType):
        return Literal[tuple(member.value for member in field.type)]
    return _JSON_TYPES.get(kind, kind)


def _build_body(name: str, description: str, fields: Iterable[EntryField], *, null_means_absent: bool = False) -> type[RequestModel]:
    """Return the model of an object with these *fields*. One that is left out is UNSET."""
    definitions = dict[str, Any]()
    for field in fields:
        json_type: Any = _to_json_type(field)
        is_optional = null_means_absent or not field.is_required
        if is_optional:
            json_type |= UNSET
        if null_means_absent or field.is_nullable:
            json_type |= None
        info = Field(
            description=field.http_description or field.description or None,
            examples=None if field.example is None else [field.example],
        )
        definitions[field.name] = (Annotated[json_type, info], UNSET if is_optional else ...)
    return create_model(name, __base__=RequestModel, __doc__=description, __module__=__name__, **definitions)


_JSON_TYPES[ToolRules] = _build_body(
    "ToolRulesBody", "Rules for the server's tools. Patterns are globs of tool names.", list_entry_fields(ToolRules).values()
)
_JSON_TYPES[OAuthConfig] = Literal["oauth"] | _build_body(
    "OAuthBody", "OAuth settings: a client that was registered by hand, and what to request.", list_entry_fields(OAuthConfig).values()
)
_RootBody = _build_body("RootBody", "A folder that the server may work in.", list_entry_fields(Root).values())
_JSON_TYPES[Roots] = Literal["caller"] | Annotated[list[_Line | _RootBody], Field(max_length=_MAX_ITEMS)]

_ServerFields = _build_body(
    "_ServerFields",
    "The fields of an entry. One that is left out is absent from it.",
    (field for field in FIELDS.values() if not field.in_file_only),
    null_means_absent=True,
)


class NewServerBody(_ServerFields):
    """A server to add."""

    id: Annotated[str, Field(min_length=1, max_length=64, description="Letters, digits and dashes.", examples=["tickets"])]
    secrets: Annotated[
        dict[_SecretName, _SecretText],
        Field(max_length=_MAX_ITEMS, description="Values for ${NAME}; never shown again.", examples=[{"TOKEN": "…"}]),
    ] = Field(default_factory=dict)


class ServerChangeBody(PatchModel, _ServerFields):
    """Changes of a server. Omitted fields keep their value; null removes a field."""

    secrets: (
        Annotated[
            dict[_SecretName, _SecretText | None],
            Field(max_length=_MAX_ITEMS, description="Each value replaces the old one; null removes the secret."),
        ]
        | UNSET
    ) = UNSET


class AddedServerResponse(ResponseModel):
    """A server that the workspace added. Of its secrets, only the names are included."""

    id: str
    workspace_id: int
    name: str
    url: str | None = None
    type: str
    headers: dict[str, str] | None = None
    command: str | None = None
    args: list[str] | None = None
    env: dict[str, str] | None = None
    cwd: str | None = None
    secrets: Sequence[str]
    tagline: str
    description: str
    icon: str | None = None
    status: Annotated[str, enum_schema(ServerStatus)]
    use_when: str | None = None
    related_servers: Sequence[str]
    enabled: bool
    sandbox: bool
    isolation: str
    replicas: int
    lifecycle: str
    idle_s: float | None = None
    timeout_s: float
    max_concurrency: int
    forward_headers: Sequence[str]
    forward_meta: Sequence[str]
    tools: dict[str, object] | None = None
    auth: object = None
    roots: object = None
    start_timeout_s: float | None = None
    protocol: Annotated[str, enum_schema(ServerProtocol)]
    deprecated_at: Timestamp | None = None
    sunset_at: Timestamp | None = None
    health: Annotated[str, enum_schema(HealthStatus)]
    last_error: str | None = None
    tool_count: int
    resource_count: int
    created_at: Timestamp
    updated_at: Timestamp


class CheckResponse(ResponseModel):
    """The result of a connection check."""

    id: Annotated[str, Field(validation_alias="server_id")]
    ok: bool
    error: str | None = None
    advice: str | None = None
    warnings: Sequence[str]
    sharing: Annotated[str, Field(description="The callers that share a session with it, and what they share, in a sentence.")]
    concurrency: Annotated[str, Field(description="The number of calls that run at once in one session, in a sentence.")]
    software: Annotated[TextOrNull, Field(validation_alias=AliasPath("info", "software"))] = None
    era: Annotated[str | None, Field(validation_alias=AliasPath("info", "protocol_version"))] = None
    tools: Annotated[list[str], Field(validation_alias="tool_names", description="The names of the tools that callers see.")]
    hidden_tools: Annotated[Sequence[str], Field(description="The names of its tools that Rookery cannot run.")]
    took_ms: Annotated[int, BeforeValidator(round)]
    stderr: Annotated[Sequence[str], Field(description="The first and the last lines that its process wrote to standard error.")]
