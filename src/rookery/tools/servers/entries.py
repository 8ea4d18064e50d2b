"""
Validation of one server entry, from a client's file or an HTTP request, field by field.

No I/O: `${NAME}` is substituted from the passed variables. Fields of other clients' files are reported and ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from dataclasses import field as dataclass_field
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeVar, cast
from urllib.parse import urlsplit

from rookery.kernel.clock import parse_iso
from rookery.kernel.sentences import find_nearest, suggest
from rookery.tools.entry_fields import EntryField, list_entry_fields
from rookery.tools.models import (
    BUILTIN_IDS,
    CALLER_ROOTS,
    DEPRECATION_PERIOD,
    CommandTarget,
    HttpTarget,
    OAuthConfig,
    Root,
    Roots,
    Server,
    ServerTarget,
    SessionIsolation,
    ToolRules,
)
from rookery.tools.servers.header_forwarding import HEADER_NAME, find_forwarding_fault

SERVER_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
"""A valid server id."""

RESERVED_IDS = BUILTIN_IDS | {"server-card"}
"""Ids that no entry may have: those of built-in servers, and one that would make a gateway path ambiguous."""

VARIABLE_PATTERN = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_VARIABLE_WITH_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):-([^}]*)\}")
"""A variable with a default, as in Claude Code's files."""

_HEADER_VALUE = re.compile(r"[\x21-\x7e]?|[\x21-\x7e][\t\x20-\x7e]*[\x21-\x7e]")

_MAX_ROOTS = 64

_ABSOLUTE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?@!$&'()*+,;=%\[\]-]+")
"""An absolute URI (RFC 3986, section 4.3), which has no fragment."""

FIELDS: Mapping[str, EntryField] = {
    name: field for model in (HttpTarget, CommandTarget, Server) for name, field in list_entry_fields(model).items()
}
"""All fields of an entry, by name."""

_FOREIGN_FIELDS = frozenset(
    "disabled disabledTools autoApprove alwaysAllow transport timeout note notes trust envFile inputs gallery".split()
)
"""Fields of other clients' files, which are ignored without a warning. `disabled` and `transport` are supported."""

T = TypeVar("T")


class InvalidServerEntry(Exception):
    """An entry is invalid. The message states the reason, and *field* the invalid field."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True, repr=False)
class ServerEntry:
    """
    A reader of one entry. It has no repr, because its fields may be secrets.

    Its methods raise `InvalidServerEntry` with the name of the invalid field.

    Attributes:
        fields: The fields as written.
        environment: The values for `${NAME}`.
        missing_message: The error message for a `${NAME}` that is not set.
        allow_defaults: Substitute `${NAME:-default}` too.
        prefix: Prefix of field names in error messages, for example "tools.".
    """

    fields: dict[str, object]
    environment: Mapping[str, str]
    _: KW_ONLY
    missing_message: str = "The environment variable {name} is not set."
    allow_defaults: bool = False
    prefix: str = ""
    _substituted_values: set[str] = dataclass_field(default_factory=set[str], init=False)

    def list_unknown_fields(self) -> list[str]:
        """Return a warning for each unknown field, with the nearest known field. Typing errors are thus reported."""
        unknown_names = [name for name in self.fields if name not in FIELDS and name not in _FOREIGN_FIELDS]
        return [f"unknown field {name!r} is ignored{suggest(name, FIELDS)}" for name in unknown_names]

    def to_server(self, server_id: str, key: str) -> Server:
        """Return the server that the entry describes."""
        target, values = self._read_target(), self.read_fields(Server)
        values["name"] = values["name"] or key
        return Server(id=server_id, target=target, **values)

    def _read_target(self) -> ServerTarget:
        command, url = (self._get(name, str, "a text") for name in ("command", "url"))
        if command and url:
            raise InvalidServerEntry("The entry has both a command and a url; only one is allowed.", field="url")
        if not command and not url:
            raise InvalidServerEntry("The entry has neither a command nor a url.", field="url")
        model = CommandTarget if command else HttpTarget
        values = self.read_fields(model)
        return model(**values, secrets=frozenset(self._substituted_values))

    def read_fields(self, model: type) -> dict[str, Any]:
        """Return the values of the fields that *model* declares, by attribute."""
        return {field.attribute: self._read_field(field) for field in list_entry_fields(model).values()}

    def _read_field(self, field: EntryField) -> object:
        raw = self.fields.get(field.name)
        if raw is not None:
            value = self._PARSERS.get(field.type, ServerEntry._parse_choice)(self, field, raw)
        else:
            value = None if field.is_nullable and field.name in self.fields else field.default
        complete = self._COMPLETIONS.get(self.prefix + field.name)
        return value if complete is None else complete(self, value)

    def _read_object(self, name: str, fields: dict[str, object], model: type, *, hint: str = "") -> dict[str, Any]:
        """Return the values of the object *name*. Its unknown fields are errors; *hint* follows if no known field is near."""
        names = list_entry_fields(model)
        for unknown_name in (written_name for written_name in fields if written_name not in names):
            nearest = find_nearest(unknown_name, names)
            suggestion = f"; did you mean {name}.{nearest}?" if nearest else f"{hint}."
            raise InvalidServerEntry(f"unknown field {name}.{unknown_name}{suggestion}", field=name)
        reader = replace(self, fields=fields, prefix=f"{name}.")
        return reader.read_fields(model)

    # Parsers of values, by the types that the models declare.

    def _parse_text(self, field: EntryField, raw: object) -> str | None:
        if field.takes_list and isinstance(raw, list):
            return " ".join(self._require_texts(field.name, cast("object", raw))) or None
        text = self._require(field.name, raw, str, "a text")
        return self._substitute(text, f"{self.prefix}{field.name}") if field.has_variables else text

    def _parse_flag(self, field: EntryField, raw: object) -> bool:
        return self._require(field.name, raw, bool, "true or false")

    def _parse_number(self, field: EntryField, raw: object, *, name: str = "") -> float:
        minimum, maximum, is_whole = cast("float", field.minimum), cast("float", field.maximum), field.type is int
        if not isinstance(raw, int if is_whole else (int, float)) or isinstance(raw, bool) or not minimum <= raw <= maximum:
            kind = "whole number" if is_whole else "number"
            raise self._invalid(name or field.name, f"must be a {kind} from {minimum:g} to {maximum:g}.")
        return raw if is_whole else float(raw)

    def _parse_choice(self, field: EntryField, raw: object) -> object:
        text = self._require(field.name, raw, str, "a text")
        try:
            return field.type(text)
        except ValueError:
            raise self._invalid(field.name, f"must be one of {', '.join(field.type)}, not {text!r}.") from None

    def _parse_datetime(self, field: EntryField, raw: object) -> datetime:
        text = self._require(field.name, raw, str, "a text")
        try:
            return parse_iso(text)
        except ValueError:
            expected = "must be a date such as 2027-05-31, or a time such as 2027-05-31T12:00:00Z"
            raise self._invalid(field.name, f"{expected}, not {text!r}.") from None

    def _parse_texts(self, field: EntryField, raw: object) -> tuple[str, ...]:
        texts = self._require_texts(field.name, raw)
        return tuple(self._substitute(text, field.name) for text in texts) if field.has_variables else texts

    def _parse_mapping(self, field: EntryField, raw: object) -> dict[str, str]:
        values = cast("dict[str, object]", self._require(field.name, raw, dict, "an object"))
        if not all(isinstance(value, str) for value in values.values()):
            raise self._invalid(field.name, "must be an object of texts.")
        return {name: self._substitute(text, f"{field.name}.{name}") for name, text in cast("dict[str, str]", values).items()}

    def _parse_seconds(self, field: EntryField, raw: object) -> dict[str, float]:
        values = cast("dict[str, object]", self._require(field.name, raw, dict, "an object"))
        return {
            pattern: 0.0 if seconds is None else self._parse_number(field, seconds, name=f"{field.name}.{pattern}")
            for pattern, seconds in values.items()
        }

    def _parse_workspaces(self, field: EntryField, raw: object) -> frozenset[int]:
        values = cast("list[object]", self._require(field.name, raw, list, "a list"))
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            raise self._invalid(field.name, "must be a list of workspace ids.")
        return frozenset(cast("list[int]", values))

    def _parse_rules(self, field: EntryField, raw: object) -> ToolRules:
        """Return the rules: an object, or the list of allowed tools as another client writes it."""
        if isinstance(raw, list):
            return ToolRules(allow=self._require_texts(field.name, cast("object", raw)))
        if not isinstance(raw, dict):
            raise self._invalid(field.name, f"must be an object with {', '.join(list_entry_fields(ToolRules))}.")
        return ToolRules(**self._read_object(field.name, cast("dict[str, object]", raw), ToolRules))

    def _parse_auth(self, field: EntryField, raw: object) -> OAuthConfig:
        """Return the OAuth settings: "oauth", or an object with the settings of a registered client."""
        if raw == "oauth":
            return OAuthConfig()
        names = ", ".join(list_entry_fields(OAuthConfig))
        if not isinstance(raw, dict):
            raise self._invalid(field.name, f'must be "oauth" or an object with {names}, not {raw!r}.')
        settings = cast("dict[str, object]", raw)
        if settings.get("client_secret") is not None and settings.get("client_id") is None:
            raise self._invalid(field.name, "has a client_secret without a client_id.")
        return OAuthConfig(**self._read_object(field.name, settings, OAuthConfig, hint=f"; allowed are {names}"))

    def _parse_auth_kind(self, field: EntryField, raw: object) -> str:
        if raw != "oauth":
            raise InvalidServerEntry(f'{self.prefix}{field.name} must be "oauth", not {raw!r}.', field="auth")
        return "oauth"

    def _parse_roots(self, field: EntryField, raw: object) -> Roots:
        """Return the folders to announce: "caller", or a list of file URIs or {uri, name} objects."""
        if raw == CALLER_ROOTS:
            return CALLER_ROOTS
        if not isinstance(raw, list):
            raise self._invalid(field.name, f'must be "caller" or a list of file URIs, for example ["file:///srv/files"], not {raw!r}.')
        root_items = cast("list[object]", raw)
        if len(root_items) > _MAX_ROOTS:
            raise self._invalid(field.name, f"has {len(root_items)} entries; at most {_MAX_ROOTS} are allowed.")
        return tuple(self._parse_root(number, root) for number, root in enumerate(root_items))

    def _parse_root(self, index: int, raw: object) -> Root:
        location = f"roots[{index}]"
        fields = cast("dict[str, object]", raw) if isinstance(raw, dict) else {"uri": raw}
        uri, name = fields.get("uri"), fields.get("name")
        if not isinstance(uri, str) or not (name is None or isinstance(name, str)) or not fields.keys() <= list_entry_fields(Root).keys():
            raise InvalidServerEntry(f"{location} must be a file URI or an object with uri and name, not {raw!r}.", field="roots")
        filled_uri = self._substitute(uri, location)
        if not filled_uri.startswith("file:///") or any(mark.isspace() for mark in filled_uri):
            raise InvalidServerEntry(f"{location} must be a file URI such as file:///srv/files, not {uri!r}.", field="roots")
        return Root(uri=filled_uri, name=name)

    # Completions of values: rules that one type does not have, other fields, and fields of other clients.

    def _complete_url(self, url: str) -> str:
        if not _is_http_url(url):
            raise self._invalid("url", "must be an http or https URL.")
        return url

    def _complete_headers(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        for name, value in headers.items():
            if not HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
                raise self._invalid(f"headers.{name}", "is invalid: a name has letters, digits and dashes, a value one line of ASCII.")
        return headers

    def _complete_enabled(self, enabled: bool) -> bool:  # noqa: FBT001 - the value of the field
        is_disabled = self._get("disabled", bool, "true or false")
        return enabled if self.fields.get("enabled") is not None else not is_disabled

    def _complete_kind(self, kind: str) -> str:
        text = kind if self.fields.get("type") else self._get("transport", str, "a text")
        return "sse" if text is not None and text.lower() == "sse" else "http"

    def _complete_isolation(self, isolation: SessionIsolation) -> SessionIsolation:
        """Return the session isolation. Roots of callers require separate sessions per key."""
        if self.fields.get("roots") != CALLER_ROOTS:
            return isolation
        if self.fields.get("isolation") is None:
            return SessionIsolation.PER_KEY
        if isolation not in {SessionIsolation.PER_KEY, SessionIsolation.PER_SESSION}:
            raise InvalidServerEntry(
                f'roots "caller" needs isolation per_key (its default) or per_session, not {isolation.value}: '
                "keys that share a session would set each other's folders.",
                field="isolation",
            )
        return isolation

    def _complete_forward_headers(self, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            reason = find_forwarding_fault(name)
            if reason is not None:
                raise InvalidServerEntry(f"forward_headers: {reason}", field="forward_headers")
        return names

    def _complete_rules(self, rules: ToolRules) -> ToolRules:
        denied_names = self.fields.get("disabledTools")
        return rules if denied_names is None else replace(rules, deny=rules.deny + self._require_texts("disabledTools", denied_names))

    def _complete_resource(self, resource: str | None) -> str | None:
        raw = self.fields.get("resource")
        if raw is not None and not _ABSOLUTE_URI.fullmatch(str(resource)):
            expected = "must be an absolute URI without a fragment, such as https://example.com/mcp, or null to send none"
            raise self._invalid("resource", f"{expected}, not {raw!r}.")
        return resource

    def _complete_sunset(self, sunset_at: datetime | None) -> datetime | None:
        deprecated_at = self._read_field(list_entry_fields(Server)["deprecated_at"])
        if isinstance(deprecated_at, datetime) and sunset_at is not None and sunset_at < deprecated_at + DEPRECATION_PERIOD:
            earliest = (deprecated_at + DEPRECATION_PERIOD).date().isoformat()
            raise self._invalid("sunset_at", f"must be at least six months after deprecated_at: {earliest} or later.")
        return sunset_at

    _PARSERS: ClassVar[Mapping[object, Callable[..., object]]] = {
        str: _parse_text,
        bool: _parse_flag,
        int: _parse_number,
        float: _parse_number,
        datetime: _parse_datetime,
        tuple[str, ...]: _parse_texts,
        frozenset[int]: _parse_workspaces,
        Mapping[str, str]: _parse_mapping,
        Mapping[str, float]: _parse_seconds,
        ToolRules: _parse_rules,
        OAuthConfig: _parse_auth,
        Roots: _parse_roots,
        Literal["http", "sse"]: _parse_text,
        Literal["oauth"]: _parse_auth_kind,
    }

    _COMPLETIONS: ClassVar[Mapping[str, Callable[..., object]]] = {
        "url": _complete_url,
        "type": _complete_kind,
        "headers": _complete_headers,
        "enabled": _complete_enabled,
        "isolation": _complete_isolation,
        "forward_headers": _complete_forward_headers,
        "tools": _complete_rules,
        "auth.resource": _complete_resource,
        "sunset_at": _complete_sunset,
    }
    """Rules for fields beyond their types, by the path in the entry."""

    def _substitute(self, text: str, field: str) -> str:
        """Return *text* with each `${NAME}` replaced by its value. A missing variable is an error."""

        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in self.environment:
                raise InvalidServerEntry(self.missing_message.format(name=name), field=field)
            self._substituted_values.add(self.environment[name])
            return self.environment[name]

        if self.allow_defaults:
            text = _VARIABLE_WITH_DEFAULT.sub(lambda match: f"${{{match[1]}}}" if self.environment.get(match[1]) else match[2], text)
        return VARIABLE_PATTERN.sub(value, text)

    def _invalid(self, name: str, message: str) -> InvalidServerEntry:
        return InvalidServerEntry(f"{self.prefix}{name} {message}", field=f"{self.prefix}{name}")

    def _get(self, name: str, kind: type[T], type_name: str) -> T | None:
        value = self.fields.get(name)
        return None if value is None else self._require(name, value, kind, type_name)

    def _require(self, name: str, value: object, kind: type[T], type_name: str) -> T:
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._invalid(name, f"must be {type_name}.")
        return value

    def _require_texts(self, name: str, value: object) -> tuple[str, ...]:
        texts = cast("list[object]", self._require(name, value, list, "a list"))
        if not all(isinstance(text, str) for text in texts):
            raise self._invalid(name, "must be a list of texts.")
        return tuple(cast("list[str]", texts))


def _is_http_url(address: str) -> bool:
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises ValueError if the port is invalid
    except ValueError:
        return False
    return (
        parts.scheme in {"http", "https"}
        and bool(parts.hostname)
        and not any(character.isspace() or character < "!" for character in address)
    )
