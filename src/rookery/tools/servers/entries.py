"""
Validation of one server entry, from a client's file or an HTTP request, field by field.

No I/O: `${NAME}` is substituted from the passed variables. Fields of other clients' files are reported and ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeVar, cast
from urllib.parse import urlsplit

from rookery.kernel.suggestions import find_nearest, suggest
from rookery.tools.models import (
    ANNOUNCED_RESOURCE,
    BUILTIN_IDS,
    CALLER_ROOTS,
    DEPRECATION_PERIOD,
    CommandTarget,
    HttpTarget,
    OAuthConfig,
    Root,
    Roots,
    Server,
    ServerProtocol,
    ServerStatus,
    ServerTarget,
    SessionIsolation,
    SessionLifecycle,
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

_MAX_TIMEOUT_S = 600.0
"""Maximum duration of a call in seconds."""

_MAX_ROOTS = 64

_KNOWN_FIELDS = (
    "command args env cwd url headers type name tagline description icon status use_when related_servers enabled private sandbox "
    "workspaces isolation replicas lifecycle idle_s timeout_s start_timeout_s protocol tools max_concurrency forward_headers forward_meta "
    "auth roots deprecated_at sunset_at"
).split()
_TOOL_RULE_FIELDS = ["allow", "deny", "timeouts", "cache_s"]
_AUTH_FIELDS = ["type", "client_id", "client_secret", "scope", "resource"]
_ABSOLUTE_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[A-Za-z0-9._~:/?@!$&'()*+,;=%\[\]-]+")
"""An absolute URI (RFC 3986, section 4.3), which has no fragment."""
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


class ServerEntry:
    """
    A reader of one entry. Its methods raise `InvalidServerEntry` with the name of the invalid field.

    Args:
        fields: The fields as written.
        environment: The values for `${NAME}`.
        missing_message: The error message for a `${NAME}` that is not set.
        allow_defaults: Substitute `${NAME:-default}` too.
        prefix: Prefix of field names in error messages, for example "tools.".
    """

    def __init__(
        self,
        fields: dict[str, object],
        environment: Mapping[str, str],
        *,
        missing_message: str = "The environment variable {name} is not set.",
        allow_defaults: bool = False,
        prefix: str = "",
    ) -> None:
        self._fields = fields
        self._environment = environment
        self._missing_message = missing_message
        self._allow_defaults = allow_defaults
        self._prefix = prefix
        self._substituted_values: set[str] = set()

    def list_unknown_fields(self) -> list[str]:
        """Return a warning for each unknown field, with the nearest known field. Typing errors are thus reported."""
        unknown_names = [name for name in self._fields if name not in _KNOWN_FIELDS and name not in _FOREIGN_FIELDS]
        return [f"unknown field {name!r} is ignored{suggest(name, _KNOWN_FIELDS)}" for name in unknown_names]

    def to_server(self, server_id: str, key: str) -> Server:
        """Return the server that the entry describes."""
        default = Server(id=server_id, name=key, target=CommandTarget(command=""))
        status = self._get_text("status")
        workspaces = self._get_list("workspaces")
        return Server(
            id=server_id,
            name=self._get_text("name") or key,
            target=self._get_target(),
            tagline=self._get_text("tagline") or "",
            description=self._get_text("description") or "",
            icon=self._get_text("icon"),
            status=ServerStatus.AVAILABLE if status is None else self._get_enum("status", ServerStatus),
            use_when=self._get_text("use_when"),
            related_servers=self._get_texts("related_servers"),
            enabled=self._get_flag("enabled", default=not self._get_flag("disabled")),
            private=self._get_flag("private"),
            sandbox=self._get_flag("sandbox"),
            workspaces=None if workspaces is None else self._parse_workspaces(workspaces),
            isolation=self._get_isolation(),
            replicas=int(self._get_number("replicas", default.replicas, minimum=1, maximum=64, integer_only=True)),
            lifecycle=default.lifecycle if self._get_text("lifecycle") is None else self._get_enum("lifecycle", SessionLifecycle),
            idle_s=self._get_idle_timeout(default.idle_s),
            timeout_s=self._get_number("timeout_s", default.timeout_s, minimum=0.1, maximum=_MAX_TIMEOUT_S),
            rules=self._get_rules(),
            max_concurrency=None
            if self._fields.get("max_concurrency") is None
            else int(self._get_number("max_concurrency", 0, minimum=1, maximum=10_000, integer_only=True)),
            forward_headers=self._get_forward_headers(),
            forward_meta=self._get_texts("forward_meta"),
            auth=self._get_auth(),
            roots=self._get_roots(),
            deprecated_at=self._get_datetime("deprecated_at"),
            sunset_at=self._get_sunset(),
            start_timeout_s=None
            if self._fields.get("start_timeout_s") is None
            else self._get_number("start_timeout_s", 0, minimum=1, maximum=_MAX_TIMEOUT_S),
            protocol=default.protocol if self._fields.get("protocol") is None else self._get_enum("protocol", ServerProtocol),
        )

    def _get_datetime(self, name: str) -> datetime | None:
        text = self._get_text(name)
        if text is None:
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise self._invalid(name, f"must be a date such as 2027-05-31, or a time such as 2027-05-31T12:00:00Z, not {text!r}.") from None
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)

    def _get_sunset(self) -> datetime | None:
        deprecated_at, sunset_at = self._get_datetime("deprecated_at"), self._get_datetime("sunset_at")
        if deprecated_at is not None and sunset_at is not None and sunset_at < deprecated_at + DEPRECATION_PERIOD:
            earliest = (deprecated_at + DEPRECATION_PERIOD).date().isoformat()
            raise self._invalid("sunset_at", f"must be at least six months after deprecated_at: {earliest} or later.")
        return sunset_at

    def _get_isolation(self) -> SessionIsolation:
        """Return the session isolation. Roots of callers require separate sessions per key."""
        takes_callers_roots = self._fields.get("roots") == CALLER_ROOTS
        if self._get_text("isolation") is None:
            return SessionIsolation.PER_KEY if takes_callers_roots else SessionIsolation.PER_WORKSPACE
        isolation = self._get_enum("isolation", SessionIsolation)
        if takes_callers_roots and isolation not in {SessionIsolation.PER_KEY, SessionIsolation.PER_SESSION}:
            raise InvalidServerEntry(
                f'roots "caller" needs isolation per_key (its default) or per_session, not {isolation.value}: '
                "keys that share a session would set each other's folders.",
                field="isolation",
            )
        return isolation

    def _get_roots(self) -> Roots:
        """Return the folders to announce: "caller", or a list of file URIs or {uri, name} objects."""
        raw = self._fields.get("roots")
        if raw is None or raw == CALLER_ROOTS:
            return () if raw is None else CALLER_ROOTS
        if not isinstance(raw, list):
            raise self._invalid("roots", f'must be "caller" or a list of file URIs, for example ["file:///srv/files"], not {raw!r}.')
        root_items = cast("list[object]", raw)
        if len(root_items) > _MAX_ROOTS:
            raise self._invalid("roots", f"has {len(root_items)} entries; at most {_MAX_ROOTS} are allowed.")
        return tuple(self._parse_root(number, root) for number, root in enumerate(root_items))

    def _parse_root(self, index: int, raw: object) -> Root:
        location = f"roots[{index}]"
        fields = cast("dict[str, object]", raw) if isinstance(raw, dict) else {"uri": raw}
        uri, name = fields.get("uri"), fields.get("name")
        if not isinstance(uri, str) or not (name is None or isinstance(name, str)) or not fields.keys() <= {"uri", "name"}:
            raise InvalidServerEntry(f"{location} must be a file URI or an object with uri and name, not {raw!r}.", field="roots")
        filled_uri = self._substitute(uri, location)
        if not filled_uri.startswith("file:///") or any(mark.isspace() for mark in filled_uri):
            raise InvalidServerEntry(f"{location} must be a file URI such as file:///srv/files, not {uri!r}.", field="roots")
        return Root(uri=filled_uri, name=name)

    def _get_forward_headers(self) -> tuple[str, ...]:
        names = self._get_texts("forward_headers")
        for name in names:
            reason = find_forwarding_fault(name)
            if reason is not None:
                raise InvalidServerEntry(f"forward_headers: {reason}", field="forward_headers")
        return names

    def _get_auth(self) -> OAuthConfig | None:
        """Return the OAuth settings: "oauth", or an object with the settings of a registered client."""
        raw = self._fields.get("auth")
        if raw is None or raw == "oauth":
            return None if raw is None else OAuthConfig()
        if not isinstance(raw, dict):
            raise self._invalid("auth", f'must be "oauth" or an object with {", ".join(_AUTH_FIELDS)}, not {raw!r}.')
        fields = cast("dict[str, object]", raw)
        for name in fields:
            if name not in _AUTH_FIELDS:
                nearest = find_nearest(name, _AUTH_FIELDS)
                hint = f"; did you mean auth.{nearest}?" if nearest else f"; allowed are {', '.join(_AUTH_FIELDS)}."
                raise InvalidServerEntry(f"unknown field auth.{name}{hint}", field="auth")
        reader = ServerEntry(fields, self._environment, prefix="auth.")
        if fields.get("type", "oauth") != "oauth":
            raise InvalidServerEntry(f'auth.type must be "oauth", not {fields["type"]!r}.', field="auth")
        client_id, client_secret = reader._get_text("client_id"), reader._get_text("client_secret")
        if client_secret is not None and client_id is None:
            raise self._invalid("auth", "has a client_secret without a client_id.")
        return OAuthConfig(
            client_id=None if client_id is None else self._substitute(client_id, "auth.client_id"),
            client_secret=None if client_secret is None else self._substitute(client_secret, "auth.client_secret"),
            scope=reader._get_scope(),
            resource=reader._get_resource(),
        )

    def _get_scope(self) -> str | None:
        """Return the scopes, written as a text or as a list."""
        if isinstance(self._fields.get("scope"), list):
            return " ".join(self._get_texts("scope")) or None
        return self._get_text("scope")

    def _get_resource(self) -> str | None:
        """Return the resource to request tokens for: a URI, None for null, or the announced one if the field is missing."""
        if "resource" not in self._fields:
            return ANNOUNCED_RESOURCE
        text = self._get_text("resource")
        if text is None:
            return None
        resource = self._substitute(text, "auth.resource")
        if not _ABSOLUTE_URI.fullmatch(resource):
            expected = "must be an absolute URI without a fragment, such as https://example.com/mcp, or null to send none"
            raise self._invalid("resource", f"{expected}, not {text!r}.")
        return resource

    def _get_idle_timeout(self, default: float | None) -> float | None:
        """Return the idle seconds after which a session is closed. null means never."""
        if "idle_s" in self._fields and self._fields["idle_s"] is None:
            return None
        return self._get_number("idle_s", default or 0, minimum=0.1, maximum=86400 * 365)

    def _get_target(self) -> ServerTarget:
        command, url = self._get_text("command"), self._get_text("url")
        if command and url:
            raise InvalidServerEntry("The entry has both a command and a url; only one is allowed.", field="url")
        if command:
            cwd = self._get_text("cwd")
            return CommandTarget(
                command=self._substitute(command, "command"),
                args=tuple(self._substitute(text, "args") for text in self._get_texts("args")),
                env={name: self._substitute(text, f"env.{name}") for name, text in self._get_mapping("env").items()},
                cwd=None if cwd is None else self._substitute(cwd, "cwd"),
                secrets=frozenset(self._substituted_values),
            )
        if not url:
            raise InvalidServerEntry("The entry has neither a command nor a url.", field="url")
        address = self._substitute(url, "url")
        if not _is_http_url(address):
            raise self._invalid("url", "must be an http or https URL.")
        kind = (self._get_text("type") or self._get_text("transport") or "http").lower()
        headers = {name: self._parse_header(name, text) for name, text in self._get_mapping("headers").items()}
        secrets = frozenset(self._substituted_values)
        return HttpTarget(url=address, headers=headers, kind="sse" if kind == "sse" else "http", secrets=secrets)

    def _parse_header(self, name: str, text: str) -> str:
        value = self._substitute(text, f"headers.{name}")
        if not HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise self._invalid(f"headers.{name}", "is invalid: a name has letters, digits and dashes, a value one line of ASCII.")
        return value

    def _get_rules(self) -> ToolRules:
        raw = self._fields.get("tools")
        if raw is None:
            return ToolRules(deny=self._get_texts("disabledTools"))
        if isinstance(raw, list):
            # Another client's form: the list of allowed tools.
            return ToolRules(allow=self._get_texts("tools"), deny=self._get_texts("disabledTools"))
        if not isinstance(raw, dict):
            raise self._invalid("tools", "must be an object with allow, deny, timeouts, cache_s.")
        rules = ServerEntry(cast("dict[str, object]", raw), self._environment, prefix="tools.")
        for name in cast("dict[str, object]", raw):
            if name not in _TOOL_RULE_FIELDS:
                nearest = find_nearest(name, _TOOL_RULE_FIELDS)
                hint = f"; did you mean tools.{nearest}?" if nearest else "."
                raise InvalidServerEntry(f"unknown field tools.{name}{hint}", field="tools")
        allowed = rules._get_list("allow")
        return ToolRules(
            allow=None if allowed is None else rules._get_texts("allow"),
            deny=rules._get_texts("deny") + self._get_texts("disabledTools"),
            timeouts_s=rules._get_seconds("timeouts"),
            cache_s=rules._get_seconds("cache_s"),
        )

    def _substitute(self, text: str, field: str) -> str:
        """Return *text* with each `${NAME}` replaced by its value. A missing variable is an error."""

        def value(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in self._environment:
                raise InvalidServerEntry(self._missing_message.format(name=name), field=field)
            self._substituted_values.add(self._environment[name])
            return self._environment[name]

        if self._allow_defaults:
            text = _VARIABLE_WITH_DEFAULT.sub(lambda match: f"${{{match[1]}}}" if self._environment.get(match[1]) else match[2], text)
        return VARIABLE_PATTERN.sub(value, text)

    def _invalid(self, name: str, message: str) -> InvalidServerEntry:
        return InvalidServerEntry(f"{self._prefix}{name} {message}", field=f"{self._prefix}{name}")

    def _get_typed(self, name: str, kind: type[T], type_name: str) -> T | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._invalid(name, f"must be {type_name}.")
        return value

    def _get_text(self, name: str) -> str | None:
        return self._get_typed(name, str, "a text")

    def _get_flag(self, name: str, *, default: bool = False) -> bool:
        value = self._get_typed(name, bool, "true or false")
        return default if value is None else value

    def _get_list(self, name: str) -> list[object] | None:
        return cast("list[object] | None", self._get_typed(name, list, "a list"))

    def _get_texts(self, name: str) -> tuple[str, ...]:
        values = self._get_list(name) or []
        if not all(isinstance(value, str) for value in values):
            raise self._invalid(name, "must be a list of texts.")
        return tuple(cast("list[str]", values))

    def _get_mapping(self, name: str) -> dict[str, str]:
        values = cast("dict[str, object]", self._get_typed(name, dict, "an object") or {})
        if not all(isinstance(value, str) for value in values.values()):
            raise self._invalid(name, "must be an object of texts.")
        return cast("dict[str, str]", values)

    def _get_seconds(self, name: str) -> dict[str, float]:
        values = cast("dict[str, object]", self._get_typed(name, dict, "an object") or {})
        reader = ServerEntry(values, self._environment, prefix=f"{self._prefix}{name}.")
        return {key: reader._get_number(key, 0, minimum=0, maximum=_MAX_TIMEOUT_S) for key in values}

    def _get_number(self, name: str, default: float, *, minimum: float, maximum: float, integer_only: bool = False) -> float:
        value = self._fields.get(name)
        if value is None:
            return default
        kinds = (int,) if integer_only else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise self._invalid(name, f"must be a {'whole ' if integer_only else ''}number from {minimum:g} to {maximum:g}.")
        return float(value)

    def _get_enum(self, name: str, kind: Callable[[str], T]) -> T:
        value = self._get_text(name) or ""
        try:
            return kind(value)
        except ValueError:
            allowed_values = ", ".join(cast("type[ServerStatus]", kind))
            raise self._invalid(name, f"must be one of {allowed_values}, not {value!r}.") from None

    def _parse_workspaces(self, values: list[object]) -> frozenset[int]:
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            raise self._invalid("workspaces", "must be a list of workspace ids.")
        return frozenset(cast("list[int]", values))


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
