"""
The file of servers (D-31): the form that every MCP client uses, with our optional fields beside.

Reading it is pure but for the file itself: names of other clients' fields are noted and passed over, `${NAME}` is filled in from
the environment that is passed in, and what is wrong with one entry costs that entry alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, TypeVar, cast
from urllib.parse import urlsplit

import orjson

from rookery.tools.models import BUILTIN_IDS, Address, Command, Isolation, Lifecycle, Server, Status, Target, ToolRules

ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
"""D-30."""

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NOT_OF_A_SLUG = re.compile(r"[^A-Za-z0-9]+")
_MAX_BYTES = 4 * 1024 * 1024
_MAX_S = 600.0
"""The longest call (D-34)."""

_OURS = (
    "command args env cwd url headers type name tagline description icon status use_when related_servers enabled private sandbox "
    "workspaces isolation replicas lifecycle idle_s timeout_s tools max_concurrency forward_headers auth"
).split()
_OURS_OF_TOOLS = ["allow", "deny", "timeouts", "cache_s"]
_OTHERS = frozenset("disabled disabledTools autoApprove alwaysAllow transport timeout note notes trust envFile inputs gallery".split())
"""Fields of other clients' files; they say nothing to us. `disabled` and `transport` we understand."""

T = TypeVar("T")


class FileBroken(Exception):
    """The file as a whole cannot be used; the text says why."""


class _EntryBroken(Exception):
    """One entry cannot be used."""


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


def read_file(path: Path, environment: Mapping[str, str]) -> ServersFile:
    """
    Return what the file at *path* says; nothing if there is none.

    Raises:
        FileBroken: It cannot be read, or is no JSON of the right form.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        return ServersFile()
    except OSError as error:
        raise FileBroken(f"{path.name} cannot be read: {error.strerror}") from error
    if len(raw) > _MAX_BYTES:
        raise FileBroken(f"{path.name} is larger than 4 MiB.")
    return parse(raw, environment, name=path.name)


def parse(raw: bytes, environment: Mapping[str, str], *, name: str = "servers.json") -> ServersFile:
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
        raise FileBroken(f"{name} is not valid JSON: {error.msg.split(':')[0]} (line {error.lineno}, column {error.colno}).") from error
    if not isinstance(document, dict):
        raise FileBroken(f'{name} must be an object {{"mcpServers": {{…}}}}.')
    content = cast("dict[str, object]", document)
    entries = content.get("mcpServers", content.get("servers", {}))
    if not isinstance(entries, dict):
        raise FileBroken(f'"mcpServers" of {name} must be an object of servers by id.')
    servers: dict[str, Server] = {}
    warnings: list[str] = []
    for key, entry in cast("dict[str, object]", entries).items():
        server_id = _id_of(key, servers)
        server, passed_over = _server(server_id, key, entry, environment)
        servers[server_id] = server
        warnings += [f"{key}: {text}" for text in passed_over]
        if server.fault is not None:
            warnings.append(f"{key}: {server.fault}")
    return ServersFile(servers=servers, warnings=tuple(warnings))


def _id_of(key: str, taken: Mapping[str, Server]) -> str:
    """Return the id of a file's *key*: itself if it has the form of one, else its slug; one that is taken or ours gets a suffix."""
    if ID.fullmatch(key) and key not in BUILTIN_IDS and key not in taken:
        return key
    slug = _NOT_OF_A_SLUG.sub("-", key).strip("-")[:57].rstrip("-") or "server"
    if slug in BUILTIN_IDS or slug in taken:
        return f"{slug}-{hashlib.sha256(key.encode()).hexdigest()[:6]}"
    return slug


def _server(server_id: str, key: str, entry: object, environment: Mapping[str, str]) -> tuple[Server, list[str]]:
    if not isinstance(entry, dict):
        return Server(id=server_id, name=key, target=Command(command=""), fault="The entry must be an object."), []
    reading = _Entry(cast("dict[str, object]", entry), environment)
    warnings = reading.unknown()
    if key in BUILTIN_IDS:
        warnings.append(f"the id is reserved for a built-in server; it is served as {server_id!r}")
    try:
        return reading.server(server_id, key), warnings
    except _EntryBroken as error:
        return Server(id=server_id, name=key, target=Command(command=""), fault=str(error)), warnings


class _Entry:
    """One entry, field by field; every reader raises `_EntryBroken` with the field's name."""

    def __init__(self, fields: dict[str, object], environment: Mapping[str, str]) -> None:
        self._fields = fields
        self._environment = environment
        self._filled_in: set[str] = set()

    def unknown(self) -> list[str]:
        """Return what is passed over, naming the nearest field of ours: a slip of the pen should not go unnoticed."""
        found: list[str] = []
        for name in self._fields:
            if name in _OURS or name in _OTHERS:
                continue
            near = get_close_matches(name, _OURS, n=1, cutoff=0.7)
            found.append(f"unknown field {name!r} is passed over" + (f"; did you mean {near[0]!r}?" if near else ""))
        return found

    def server(self, server_id: str, key: str) -> Server:
        """Return the server of this entry."""
        default = Server(id=server_id, name=key, target=Command(command=""))
        status = self._text("status")
        workspaces = self._list("workspaces")
        auth = self._text("auth")
        if auth not in {None, "oauth"}:
            raise _EntryBroken(f'auth must be "oauth", not {auth!r}.')
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
            isolation=default.isolation if self._text("isolation") is None else self._one_of("isolation", Isolation),
            replicas=int(self._number("replicas", default.replicas, least=1, most=64, whole=True)),
            lifecycle=default.lifecycle if self._text("lifecycle") is None else self._one_of("lifecycle", Lifecycle),
            idle_s=self._idle(default.idle_s),
            timeout_s=self._number("timeout_s", default.timeout_s, least=0.1, most=_MAX_S),
            rules=self._rules(),
            max_concurrency=int(self._number("max_concurrency", default.max_concurrency, least=1, most=10_000, whole=True)),
            forward_headers=self._texts("forward_headers"),
            auth=cast('Literal["oauth"] | None', auth),
        )

    def _idle(self, default: float | None) -> float | None:
        """Return after how long a session is closed; null means never."""
        if "idle_s" in self._fields and self._fields["idle_s"] is None:
            return None
        return self._number("idle_s", default or 0, least=0.1, most=86400 * 365)

    def _target(self) -> Target:
        command, url = self._text("command"), self._text("url")
        if command and url:
            raise _EntryBroken("The entry has both a command and a url; which is it?")
        if command:
            cwd = self._text("cwd")
            return Command(
                command=self._filled(command),
                args=tuple(self._filled(text) for text in self._texts("args")),
                env={name: self._filled(text) for name, text in self._mapping("env").items()},
                cwd=None if cwd is None else self._filled(cwd),
                secrets=frozenset(self._filled_in),
            )
        if not url:
            raise _EntryBroken("The entry has neither a command nor a url.")
        address = self._filled(url)
        if urlsplit(address).scheme not in {"http", "https"} or not urlsplit(address).hostname:
            raise _EntryBroken("url must be an http or https address.")
        kind = (self._text("type") or self._text("transport") or "http").lower()
        return Address(
            url=address,
            headers={name: self._filled(text) for name, text in self._mapping("headers").items()},
            kind="sse" if kind == "sse" else "http",
        )

    def _rules(self) -> ToolRules:
        raw = self._fields.get("tools")
        if raw is None:
            return ToolRules(deny=self._texts("disabledTools"))
        if isinstance(raw, list):
            # Another client's form: the tools that may be used.
            return ToolRules(allow=self._texts("tools"), deny=self._texts("disabledTools"))
        if not isinstance(raw, dict):
            raise _EntryBroken("tools must be an object of allow, deny, timeouts, cache_s.")
        rules = _Entry(cast("dict[str, object]", raw), self._environment)
        for name in cast("dict[str, object]", raw):
            if name not in _OURS_OF_TOOLS:
                near = get_close_matches(name, _OURS_OF_TOOLS, n=1, cutoff=0.5)
                raise _EntryBroken(f"unknown field tools.{name}" + (f"; did you mean tools.{near[0]}?" if near else "."))
        allowed = rules._list("allow")
        return ToolRules(
            allow=None if allowed is None else rules._texts("allow"),
            deny=rules._texts("deny") + self._texts("disabledTools"),
            timeouts_s=rules._seconds("timeouts"),
            cache_s=rules._seconds("cache_s"),
        )

    def _filled(self, text: str) -> str:
        """Return *text* with each `${NAME}` replaced by the variable; it is an error if there is none."""

        def value(found: re.Match[str]) -> str:
            name = found.group(1)
            if name not in self._environment:
                raise _EntryBroken(f"The environment variable {name} is not set.")
            self._filled_in.add(self._environment[name])
            return self._environment[name]

        return _VARIABLE.sub(value, text)

    def _typed(self, name: str, kind: type[T], words: str) -> T | None:
        value = self._fields.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise _EntryBroken(f"{name} must be {words}.")
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
            raise _EntryBroken(f"{name} must be a list of texts.")
        return tuple(cast("list[str]", values))

    def _mapping(self, name: str) -> dict[str, str]:
        values = cast("dict[str, object]", self._typed(name, dict, "an object") or {})
        if not all(isinstance(value, str) for value in values.values()):
            raise _EntryBroken(f"{name} must be an object of texts.")
        return cast("dict[str, str]", values)

    def _seconds(self, name: str) -> dict[str, float]:
        values = cast("dict[str, object]", self._typed(name, dict, "an object") or {})
        reading = _Entry(values, self._environment)
        return {key: reading._number(key, 0, least=0, most=_MAX_S) for key in values}

    def _number(self, name: str, default: float, *, least: float, most: float, whole: bool = False) -> float:
        value = self._fields.get(name)
        if value is None:
            return default
        kinds = (int,) if whole else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not least <= value <= most:
            raise _EntryBroken(f"{name} must be a {'whole ' if whole else ''}number from {least:g} to {most:g}.")
        return float(value)

    def _one_of(self, name: str, kind: Callable[[str], T]) -> T:
        value = self._text(name) or ""
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(cast("type[Status]", kind))
            raise _EntryBroken(f"{name} must be one of {known}, not {value!r}.") from None

    def _workspaces(self, values: list[object]) -> frozenset[int]:
        if not all(isinstance(value, int) and not isinstance(value, bool) for value in values):
            raise _EntryBroken("workspaces must be a list of workspace ids.")
        return frozenset(cast("list[int]", values))
