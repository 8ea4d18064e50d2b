"""
One entry of a tool server (D-31), as a client's file has it or as it is sent over HTTP, read field by field.

Pure: `${NAME}` is filled in from what is passed in. What other clients' files have beside is noted and passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TypeVar, cast
from urllib.parse import urlsplit

from rookery.kernel.suggestions import did_you_mean, nearest
from rookery.tools.models import (
    BUILTIN_IDS,
    CALLER_ROOTS,
    DEPRECATION_PERIOD,
    Address,
    Command,
    Isolation,
    Lifecycle,
    OAuth,
    Root,
    Roots,
    Server,
    Status,
    Target,
    ToolRules,
)
from rookery.tools.servers.headers import why_not

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
"""D-30."""

RESERVED_IDS = BUILTIN_IDS | {"server-card"}
"""Ids that no entry gets: the built-in servers', and one that would make a path of ours ambiguous."""

VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WITH_DEFAULT = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*):-([^}]*)\}")
"""As Claude Code's files have it."""

_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]?|[\x21-\x7e][\t\x20-\x7e]*[\x21-\x7e]")

_MAX_S = 600.0
"""The longest call (D-34)."""

_MAX_ROOTS = 64

_OURS = (
    "command args env cwd url headers type name tagline description icon status use_when related_servers enabled private sandbox "
    "workspaces isolation replicas lifecycle idle_s timeout_s start_timeout_s tools max_concurrency forward_headers auth roots "
    "deprecated_at sunset_at"
).split()
_OURS_OF_TOOLS = ["allow", "deny", "timeouts", "cache_s"]
_OURS_OF_AUTH = ["type", "client_id", "client_secret", "scope"]
_OTHERS = frozenset("disabled disabledTools autoApprove alwaysAllow transport timeout note notes trust envFile inputs gallery".split())
"""Fields of other clients' files; they say nothing to us. `disabled` and `transport` we understand."""

T = TypeVar("T")


class EntryBroken(Exception):
    """An entry cannot be used; the text says why, *field* where."""

    def __init__(self, message: str, *, field: str) -> None:
        super().__init__(message)
        self.field = field


class Entry:
    """
    One entry, field by field; every reader raises `EntryBroken` with the field's name.

    Args:
        fields: As they were written.
        environment: What `${NAME}` stands for.
        missing: What is said of a name that is not in it.
        has_defaults: Whether `${NAME:-default}` is filled in too.
        within: What the fields' names begin with when they are told, for example "tools.".
    """

    def __init__(
        self,
        fields: dict[str, object],
        environment: Mapping[str, str],
        *,
        missing: str = "The environment variable {name} is not set.",
        has_defaults: bool = False,
        within: str = "",
    ) -> None:
        self._fields = fields
        self._environment = environment
        self._missing = missing
        self._has_defaults = has_defaults
        self._within = within
        self._filled_in: set[str] = set()

    def unknown(self) -> list[str]:
        """Return what is passed over, naming the nearest field of ours: a slip of the pen should not go unnoticed."""
        found: list[str] = []
        for name in self._fields:
            if name in _OURS or name in _OTHERS:
                continue
            found.append(f"unknown field {name!r} is passed over{did_you_mean(name, _OURS)}")
        return found

    def server(self, server_id: str, key: str) -> Server:
        """Return the server of this entry."""
        default = Server(id=server_id, name=key, target=Command(command=""))
        status = self._text("status")
        workspaces = self._list("workspaces")
        return Server(
            id=server_id,
            name=self._text("name") or key,
            target=self._target(),
            tagline=self._text("tagline") or "",
            description=self._text("description") or "",
            icon=self._text("icon"),
            status=Status.AVAILABLE if status is None else self._one_of("status", Status),
            use_when=self._text("use_when"),
            related_servers=self._texts("related_servers"),
            enabled=self._claim("enabled", default=not self._claim("disabled")),
            private=self._claim("private"),
            sandbox=self._claim("sandbox"),
            workspaces=None if workspaces is None else self._workspaces(workspaces),
            isolation=self._isolation(),
            replicas=int(self._number("replicas", default.replicas, least=1, most=64, whole=True)),
            lifecycle=default.lifecycle if self._text("lifecycle") is None else self._one_of("lifecycle", Lifecycle),
            idle_s=self._idle(default.idle_s),
            timeout_s=self._number("timeout_s", default.timeout_s, least=0.1, most=_MAX_S),
            rules=self._rules(),
            max_concurrency=int(self._number("max_concurrency", default.max_concurrency, least=1, most=10_000, whole=True)),
            forward_headers=self._forward_headers(),
            auth=self._auth(),
            roots=self._roots(),
            deprecated_at=self._moment("deprecated_at"),
            sunset_at=self._sunset(),
            start_timeout_s=None
            if self._fields.get("start_timeout_s") is None
            else self._number("start_timeout_s", 0, least=1, most=_MAX_S),
        )

    def _moment(self, name: str) -> datetime | None:
        text = self._text(name)
        if text is None:
            return None
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise self._broken(name, f"must be a date such as 2027-05-31, or a time such as 2027-05-31T12:00:00Z, not {text!r}.") from None
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)

    def _sunset(self) -> datetime | None:
        deprecated_at, sunset_at = self._moment("deprecated_at"), self._moment("sunset_at")
        if deprecated_at is not None and sunset_at is not None and sunset_at < deprecated_at + DEPRECATION_PERIOD:
            earliest = (deprecated_at + DEPRECATION_PERIOD).date().isoformat()
            raise self._broken("sunset_at", f"must be at least six months after deprecated_at: {earliest} or later.")
        return sunset_at

    def _isolation(self) -> Isolation:
        """Return who shares a session; roots of callers demand that no two keys do."""
        takes_callers_roots = self._fields.get("roots") == CALLER_ROOTS
        if self._text("isolation") is None:
            return Isolation.PER_KEY if takes_callers_roots else Isolation.PER_WORKSPACE
        isolation = self._one_of("isolation", Isolation)
        if takes_callers_roots and isolation not in {Isolation.PER_KEY, Isolation.PER_SESSION}:
            raise EntryBroken(
                f'roots "caller" needs isolation per_key (its default) or per_session, not {isolation.value}: '
                "keys that share a session would set each other's folders.",
                field="isolation",
            )
        return isolation

    def _roots(self) -> Roots:
        """Return the folders to announce: "caller", or a list of file URIs or {uri, name}."""
        raw = self._fields.get("roots")
        if raw is None or raw == CALLER_ROOTS:
            return () if raw is None else CALLER_ROOTS
        if not isinstance(raw, list):
            raise EntryBroken(
                f'roots must be "caller" or a list of file URIs, for example ["file:///srv/files"], not {raw!r}.', field="roots"
            )
        listed = cast("list[object]", raw)
        if len(listed) > _MAX_ROOTS:
            raise EntryBroken(f"roots has {len(listed)} entries; at most {_MAX_ROOTS} are allowed.", field="roots")
        return tuple(self._root(number, each) for number, each in enumerate(listed))

    def _root(self, number: int, raw: object) -> Root:
        where = f"roots[{number}]"
        fields = cast("dict[str, object]", raw) if isinstance(raw, dict) else {"uri": raw}
        uri, name = fields.get("uri"), fields.get("name")
        if not isinstance(uri, str) or not (name is None or isinstance(name, str)) or not fields.keys() <= {"uri", "name"}:
            raise EntryBroken(f"{where} must be a file URI or an object of uri and name, not {raw!r}.", field="roots")
        filled = self._filled(uri, where)
        if not filled.startswith("file:///") or any(mark.isspace() for mark in filled):
            raise EntryBroken(f"{where} must be a file URI such as file:///srv/files, not {uri!r}.", field="roots")
        return Root(uri=filled, name=name)

    def _forward_headers(self) -> tuple[str, ...]:
        names = self._texts("forward_headers")
        for name in names:
            reason = why_not(name)
            if reason is not None:
                raise EntryBroken(f"forward_headers: {reason}", field="forward_headers")
        return names

    def _auth(self) -> OAuth | None:
        """Return how to log in: "oauth", or an object with what was agreed by hand."""
        raw = self._fields.get("auth")
        if raw is None or raw == "oauth":
            return None if raw is None else OAuth()
        if not isinstance(raw, dict):
            raise EntryBroken(f'auth must be "oauth" or an object of type, client_id, client_secret, scope, not {raw!r}.', field="auth")
        fields = cast("dict[str, object]", raw)
        for name in fields:
            if name not in _OURS_OF_AUTH:
                raise EntryBroken(f"unknown field auth.{name}; it takes {', '.join(_OURS_OF_AUTH)}.", field="auth")
        reading = Entry(fields, self._environment, within="auth.")
        if fields.get("type", "oauth") != "oauth":
            raise EntryBroken(f'auth.type must be "oauth", not {fields["type"]!r}.', field="auth")
        client_id, client_secret = reading._text("client_id"), reading._text("client_secret")
        if client_secret is not None and client_id is None:
            raise EntryBroken("auth has a client_secret without its client_id.", field="auth")
        return OAuth(
            client_id=None if client_id is None else self._filled(client_id, "auth.client_id"),
            client_secret=None if client_secret is None else self._filled(client_secret, "auth.client_secret"),
            scope=reading._text("scope"),
        )

    def _idle(self, default: float | None) -> float | None:
        """Return after how long a session is closed; null means never."""
        if "idle_s" in self._fields and self._fields["idle_s"] is None:
            return None
        return self._number("idle_s", default or 0, least=0.1, most=86400 * 365)

    def _target(self) -> Target:
        command, url = self._text("command"), self._text("url")
        if command and url:
            raise EntryBroken("The entry has both a command and a url; which is it?", field="url")
        if command:
            cwd = self._text("cwd")
            return Command(
                command=self._filled(command, "command"),
                args=tuple(self._filled(text, "args") for text in self._texts("args")),
                env={name: self._filled(text, f"env.{name}") for name, text in self._mapping("env").items()},
                cwd=None if cwd is None else self._filled(cwd, "cwd"),
                secrets=frozenset(self._filled_in),
            )
        if not url:
            raise EntryBroken("The entry has neither a command nor a url.", field="url")
        address = self._filled(url, "url")
        if not _is_of_the_web(address):
            raise EntryBroken("url must be an http or https address.", field="url")
        kind = (self._text("type") or self._text("transport") or "http").lower()
        headers = {name: self._header(name, text) for name, text in self._mapping("headers").items()}
        return Address(url=address, headers=headers, kind="sse" if kind == "sse" else "http", secrets=frozenset(self._filled_in))

    def _header(self, name: str, text: str) -> str:
        value = self._filled(text, f"headers.{name}")
        if not _HEADER.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise self._broken(f"headers.{name}", "is no header: its name is letters, digits and dashes, its value one line of ASCII.")
        return value

    def _rules(self) -> ToolRules:
        raw = self._fields.get("tools")
        if raw is None:
            return ToolRules(deny=self._texts("disabledTools"))
        if isinstance(raw, list):
            # Another client's form: the tools that may be used.
            return ToolRules(allow=self._texts("tools"), deny=self._texts("disabledTools"))
        if not isinstance(raw, dict):
            raise EntryBroken("tools must be an object of allow, deny, timeouts, cache_s.", field="tools")
        rules = Entry(cast("dict[str, object]", raw), self._environment, within="tools.")
        for name in cast("dict[str, object]", raw):
            if name not in _OURS_OF_TOOLS:
                near = nearest(name, _OURS_OF_TOOLS)
                raise EntryBroken(f"unknown field tools.{name}" + (f"; did you mean tools.{near}?" if near else "."), field="tools")
        allowed = rules._list("allow")
        return ToolRules(
            allow=None if allowed is None else rules._texts("allow"),
            deny=rules._texts("deny") + self._texts("disabledTools"),
            timeouts_s=rules._seconds("timeouts"),
            cache_s=rules._seconds("cache_s"),
        )

    def _filled(self, text: str, field: str) -> str:
        """Return *text* with each `${NAME}` replaced by the variable; it is an error if there is none."""

        def value(found: re.Match[str]) -> str:
            name = found.group(1)
            if name not in self._environment:
                raise EntryBroken(self._missing.format(name=name), field=field)
            self._filled_in.add(self._environment[name])
            return self._environment[name]

        if self._has_defaults:
            text = _WITH_DEFAULT.sub(lambda found: f"${{{found[1]}}}" if self._environment.get(found[1]) else found[2], text)
        return VARIABLE.sub(value, text)

    def _broken(self, name: str, words: str) -> EntryBroken:
        return EntryBroken(f"{self._within}{name} {words}", field=f"{self._within}{name}")

    def _typed(self, name: str, kind: type[T], words: str) -> T | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._broken(name, f"must be {words}.")
        return value

    def _text(self, name: str) -> str | None:
        return self._typed(name, str, "a text")

    def _claim(self, name: str, *, default: bool = False) -> bool:
        value = self._typed(name, bool, "true or false")
        return default if value is None else value

    def _list(self, name: str) -> list[object] | None:
        return cast("list[object] | None", self._typed(name, list, "a list"))

    def _texts(self, name: str) -> tuple[str, ...]:
        values = self._list(name) or []
        if not all(isinstance(value, str) for value in values):
            raise self._broken(name, "must be a list of texts.")
        return tuple(cast("list[str]", values))

    def _mapping(self, name: str) -> dict[str, str]:
        values = cast("dict[str, object]", self._typed(name, dict, "an object") or {})
        if not all(isinstance(value, str) for value in values.values()):
            raise self._broken(name, "must be an object of texts.")
        return cast("dict[str, str]", values)

    def _seconds(self, name: str) -> dict[str, float]:
        values = cast("dict[str, object]", self._typed(name, dict, "an object") or {})
        reading = Entry(values, self._environment, within=f"{self._within}{name}.")
        return {key: reading._number(key, 0, least=0, most=_MAX_S) for key in values}

    def _number(self, name: str, default: float, *, least: float, most: float, whole: bool = False) -> float:
        value = self._fields.get(name)
        if value is None:
            return default
        kinds = (int,) if whole else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not least <= value <= most:
            raise self._broken(name, f"must be a {'whole ' if whole else ''}number from {least:g} to {most:g}.")
        return float(value)

    def _one_of(self, name: str, kind: Callable[[str], T]) -> T:
        value = self._text(name) or ""
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(cast("type[Status]", kind))
            raise self._broken(name, f"must be one of {known}, not {value!r}.") from None

    def _workspaces(self, values: list[object]) -> frozenset[int]:
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            raise self._broken("workspaces", "must be a list of workspace ids.")
        return frozenset(cast("list[int]", values))


def _is_of_the_web(address: str) -> bool:
    try:
        parts = urlsplit(address)
        _ = parts.port  # read, so that one that cannot be is told here
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and not any(mark.isspace() or mark < "!" for mark in address)
