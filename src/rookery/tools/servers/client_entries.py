"""
Conversion of server entries in other MCP clients' files.

Supported are Claude Desktop and Code, Cursor, VS Code, Windsurf, Gemini CLI, Codex, opencode, Zed, Continue, and clients that use
the same formats. An entry that would lose information, a token for example, is rejected with the reason.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from datetime import date, time
from pathlib import PurePath
from typing import cast

import yaml

from rookery.tools.models import JsonObject

_SECTIONS = ("mcpServers", "servers", "mcp_servers", "context_servers")
"""The sections with servers: of most clients, of VS Code, of Codex and of Zed."""

_ENTRY_FIELDS = ("command", "url", "serverUrl", "httpUrl")
"""Fields of which every entry has at least one."""

_IGNORED_FIELDS = frozenset("source dev gallery version trust autoApprove alwaysAllow watchPaths oauth_resource".split())
"""Fields that only their own client uses."""

_VARIABLE_PATTERNS = re.compile(r"\$\{\{\s*(?:secrets|inputs)\.([^}\s]+)\s*\}\}|\$\{env:([^}]+)\}|(?<!\$)\{env:([^}]+)\}")
"""Secrets of Continue; variables of Cursor, VS Code and Windsurf; variables of opencode."""

_VSCODE_INPUT = re.compile(r"\$\{input:([^}]+)\}")
"""Values for which VS Code prompts its user."""

_BARE_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
"""Variables of Gemini CLI."""

_FILE_CONTENT = re.compile(r"\{file:([^}]*)\}")
_EDITOR_VARIABLE = re.compile(r"\$\{(workspaceFolder\w*|pathSeparator|/)\}")
_OUR_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")


class UnsupportedConfig(Exception):
    """No entry can be made from the source. The message states the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientEntry:
    """
    An entry of a client's file.

    Attributes:
        entry: The entry in Rookery's form; None: it is rejected.
        reason: The reason of the rejection.
        required_variables: Names of variables that must be set.
    """

    key: str
    entry: JsonObject | None = None
    reason: str = ""
    required_variables: tuple[str, ...] = ()


def parse_document(text: str, name: str) -> JsonObject:
    """
    Parse a file called *name*: TOML, YAML or JSON. JSON may have comments and trailing commas.

    Raises:
        UnsupportedConfig: The file is in none of these formats.
    """
    try:
        if name.endswith(".toml"):
            document: object = tomllib.loads(text)
        elif name.endswith((".yaml", ".yml")):
            document = _read_yaml(text)
        else:
            document = _read_json(text)
    except ValueError as error:
        raise UnsupportedConfig(f"{name} cannot be read: {error}") from None
    except RecursionError:
        raise UnsupportedConfig(f"{name} cannot be read: it is nested too deeply.") from None
    if not isinstance(document, dict):
        raise UnsupportedConfig(f"{name} is not an object.")
    return cast("JsonObject", document)


def convert_client_entries(document: JsonObject, *, name: str, folder: PurePath | None = None) -> list[ClientEntry] | None:
    """
    Return the servers of a client's file called *name*. None: it has no section of servers.

    Args:
        folder: The project whose servers are read too, from a file with servers by project (Claude Code's `~/.claude.json`).
    """
    section = _find_section(document)
    if projects := _projects(document):
        project_section = next((projects[path] for path in _and_parents(folder) if path in projects), JsonObject())
        section = list({**dict(section or []), **project_section}.items())
    if section is None:
        return None
    has_bare = name == "settings.json" or any("httpUrl" in value for _, value in section if isinstance(value, dict))
    return [_convert_entry(key, value, has_bare_variables=has_bare) for key, value in section]


def other_projects(document: JsonObject, *, folder: PurePath | None = None) -> list[str]:
    """Return the projects of a client's file whose servers `convert_client_entries` does not read."""
    projects = list(_projects(document))
    own_path = next((path for path in _and_parents(folder) if path in projects), None)
    return [path for path in projects if path != own_path]


def _projects(document: JsonObject) -> dict[str, JsonObject]:
    """Return the servers of each project that has some, by the project's folder."""
    projects = _to_object(document.get("projects"))
    return {path: servers for path, project in projects.items() if (servers := _to_object(_to_object(project).get("mcpServers")))}


def _and_parents(folder: PurePath | None) -> list[str]:
    return [] if folder is None else [str(path) for path in (folder, *folder.parents)]


def is_entry(document: JsonObject) -> bool:
    """Return whether *document* is a single entry without a section around it."""
    return any(field in document for field in _ENTRY_FIELDS)


def _find_section(document: JsonObject) -> list[tuple[str, object]] | None:
    mcp_section = document.get("mcp")
    places = [document, *([cast("JsonObject", mcp_section)] if isinstance(mcp_section, dict) else [])]
    for section in _SECTIONS:
        for place in places:
            entries = place.get(section)
            if isinstance(entries, dict):
                return list(cast("JsonObject", entries).items())
            if isinstance(entries, list):
                return _name_list_items(cast("list[object]", entries))
    server_list = _to_object(document.get("experimental")).get("modelContextProtocolServers")
    if isinstance(server_list, list):  # Continue's config.json
        return _name_list_items([_to_object(item).get("transport") for item in cast("list[object]", server_list)])
    if len(places) > 1 and all(isinstance(item, dict) for item in places[1].values()):  # opencode
        return list(places[1].items())
    return None


def _name_list_items(entries: list[object]) -> list[tuple[str, object]]:
    """Return the servers of a list, as in Continue's files, with their names."""
    named_entries = list[tuple[str, object]]()
    for number, entry in enumerate(entries, 1):
        name = _to_object(entry).get("name")
        named_entries.append((name if isinstance(name, str) and name else f"server-{number}", entry))
    return named_entries


def _convert_entry(key: str, entry: object, *, has_bare_variables: bool) -> ClientEntry:
    if not isinstance(entry, dict):
        return ClientEntry(key=key, reason="The entry must be an object.")
    try:
        text = _to_json(cast("JsonObject", entry))
        _require_self_contained(text, cast("JsonObject", entry))
        converted = _EntryConversion(
            cast("JsonObject", json.loads(_convert_variables(text, has_bare_variables=has_bare_variables)))
        ).convert()
    except UnsupportedConfig as error:
        return ClientEntry(key=key, reason=str(error))
    variables = [match[1] for match in _OUR_VARIABLE.finditer(json.dumps(converted)) if not match[2]]
    return ClientEntry(key=key, entry=converted, required_variables=tuple(dict.fromkeys(variables)))


def _to_json(entry: JsonObject) -> str:
    """
    Return an entry as JSON, with the dates of YAML and TOML as strings.

    Raises:
        UnsupportedConfig: It contains a value that JSON cannot represent, or a reference to itself.
    """
    try:
        return json.dumps(entry, default=_date_as_text)
    except (ValueError, RecursionError):
        raise UnsupportedConfig("The entry refers to itself, or is nested too deeply.") from None


def _date_as_text(value: object) -> str:
    if isinstance(value, date | time):  # a datetime is a date
        return value.isoformat()
    raise UnsupportedConfig(f"A value of the type {type(value).__name__} cannot be read. Write it as a string.")


def _require_self_contained(text: str, entry: JsonObject) -> None:
    """
    Raise an error unless the entry is complete in itself.

    Raises:
        UnsupportedConfig: A part of it is in another file, or known only to an editor.
    """
    if "envFile" in entry:
        raise UnsupportedConfig(
            "Its variables are in an envFile, which would be lost. Write them as env; ${NAME} is read from the environment."
        )
    if (match := _FILE_CONTENT.search(text)) is not None:
        raise UnsupportedConfig(f"A value is read from the file {match[1]!r}. Set it as an environment variable and write ${{NAME}}.")
    if (match := _EDITOR_VARIABLE.search(text)) is not None:
        raise UnsupportedConfig(f"${{{match[1]}}} is known only to the editor. Write the path itself.")
    if not is_entry(entry):
        hint = " An extension of its client starts it." if entry.get("source") == "extension" or "settings" in entry else ""
        raise UnsupportedConfig(f"The entry has neither a command nor a url.{hint}")


def _convert_variables(text: str, *, has_bare_variables: bool) -> str:
    def to_our_variable(match: re.Match[str]) -> str:
        return f"${{{to_variable_name(next(group for group in match.groups() if group))}}}"

    text = _VARIABLE_PATTERNS.sub(to_our_variable, text).replace("${userHome}", "${HOME}")
    text = _VSCODE_INPUT.sub(lambda match: f"${{{to_variable_name(match[1]).upper()}}}", text)
    return _BARE_VARIABLE.sub(r"${\1}", text) if has_bare_variables else text


def to_variable_name(name: str) -> str:
    """Return *name* as the name of an environment variable."""
    cleaned = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_") or "VALUE"
    cleaned = cleaned if name == cleaned else cleaned.upper()
    return cleaned if not cleaned[0].isdigit() else f"V_{cleaned}"


class _EntryConversion:
    """The conversion of one entry to Rookery's form."""

    def __init__(self, fields: JsonObject) -> None:
        self._fields = fields

    def convert(self) -> JsonObject:
        """Return the converted entry. Unknown fields stay, and are reported when the entry is read."""
        self._take_command()
        for name in ("serverUrl", "httpUrl"):  # Windsurf; Gemini CLI, which prefers it to its url
            self._move(name, "url", replace=True)
        self._take_environment()
        self._take_headers()
        self._take_login()
        self._take_tools()
        self._move("tool_timeout_sec", "timeout_s")  # Codex, also in seconds
        self._move("startup_timeout_sec", "start_timeout_s")
        if isinstance(self._fields.get("sandbox"), dict):  # VS Code's file system sandbox
            del self._fields["sandbox"]
        return {name: value for name, value in self._fields.items() if name not in _IGNORED_FIELDS}

    def _take_command(self) -> None:
        command = self._fields.get("command")
        if isinstance(command, dict):  # Zed's older form
            command_fields = cast("JsonObject", self._fields.pop("command"))
            self._fields |= {("command" if name == "path" else name): value for name, value in command_fields.items()}
        elif isinstance(command, list):  # opencode's
            words, args = [str(word) for word in cast("list[object]", command)], cast("object", self._fields.get("args") or [])
            if not words:
                raise UnsupportedConfig("The command is an empty list.")
            if not isinstance(args, list):
                raise UnsupportedConfig("The field args must be a list.")
            self._fields["command"] = words[0]
            self._fields["args"] = [*words[1:], *cast("list[object]", args)]
        if self._fields.get("type") in {"local", "remote", "custom"}:
            del self._fields["type"]

    def _take_environment(self) -> None:
        env = {**_to_object(self._fields.get("env")), **self._pop_object("environment")}
        for item in self._pop_list("env_vars"):  # Codex: variables to pass on
            name = cast("JsonObject", item).get("name") if isinstance(item, dict) else item
            if isinstance(name, str):
                env.setdefault(name, f"${{{name}}}")
        if env:
            self._fields["env"] = {name: _to_text(value) for name, value in env.items() if value is not None}

    def _take_headers(self) -> None:
        options = self._pop_object("requestOptions")  # Continue's
        headers = {
            **_to_object(self._fields.get("headers")),
            **self._pop_object("http_headers"),
            **_to_object(options.get("headers")),
            **{name: f"${{{source}}}" for name, source in self._pop_object("env_http_headers").items()},
        }
        token = self._fields.pop("bearer_token", None) or self._fields.pop("apiKey", None)
        source = self._fields.pop("bearer_token_env_var", None)
        if isinstance(source, str) and source:
            token = f"${{{source}}}"
        if token is not None and "authorization" not in {name.lower() for name in headers}:
            headers["Authorization"] = f"Bearer {token}"
        if headers:
            self._fields["headers"] = {name: _to_text(value) for name, value in headers.items()}

    def _take_login(self) -> None:
        """Convert OAuth settings: `oauth` of opencode, Gemini CLI and Claude Code, `auth` of Cursor, `scopes` of Codex."""
        scopes = self._fields.pop("scopes", None)
        oauth = self._fields.pop("oauth", None)
        auth = self._fields.get("auth")
        if isinstance(auth, dict) and "CLIENT_ID" in auth:
            oauth = cast("JsonObject", self._fields.pop("auth"))
        if oauth is None and scopes is None:
            return
        oauth_fields = _to_object(oauth)
        if oauth is False or oauth_fields.get("enabled") is False:
            return
        scope = next((oauth_fields[name] for name in ("scope", "scopes") if oauth_fields.get(name)), scopes)
        login: JsonObject = {
            "type": "oauth",
            "client_id": oauth_fields.get("clientId") or oauth_fields.get("CLIENT_ID"),
            "client_secret": oauth_fields.get("clientSecret") or oauth_fields.get("CLIENT_SECRET"),
            "scope": " ".join(map(str, cast("list[object]", scope))) if isinstance(scope, list) else scope,
        }
        self._fields["auth"] = {name: value for name, value in login.items() if value is not None}

    def _take_tools(self) -> None:
        rules = JsonObject()
        for rule, names in (("allow", ("includeTools", "enabled_tools")), ("deny", ("excludeTools", "disabled_tools"))):
            for name in names:
                if name in self._fields:
                    rules[rule] = self._fields.pop(name)
        if rules and not isinstance(self._fields.get("tools"), (list, dict)):
            self._fields["tools"] = rules

    def _move(self, old_name: str, new_name: str, *, replace: bool = False) -> None:
        if old_name in self._fields:
            value = self._fields.pop(old_name)
            self._fields[new_name] = value if replace else self._fields.get(new_name, value)

    def _pop_object(self, name: str) -> JsonObject:
        return _to_object(self._fields.pop(name, None))

    def _pop_list(self, name: str) -> list[object]:
        value = self._fields.pop(name, None)
        return cast("list[object]", value) if isinstance(value, list) else []


def _to_object(value: object) -> JsonObject:
    return cast("JsonObject", value) if isinstance(value, dict) else {}


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _read_yaml(text: str) -> object:
    try:
        return yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:  # the error's own text quotes the line, which may contain a token
        mark = error.problem_mark
        location = "" if mark is None else f" in line {mark.line + 1}, column {mark.column + 1}"
        raise ValueError(f"{error.problem}{location}") from None
    except yaml.YAMLError:
        raise ValueError("a character is not allowed in YAML") from None


def _read_json(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(strip_comments(text))


_COMMENT_OR_TEXT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TEXT_OR_COMMA = re.compile(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', re.DOTALL)


def strip_comments(text: str) -> str:
    """Return JSON with comments and trailing commas (JSONC) as plain JSON. Lines and columns do not change."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])

    return _TEXT_OR_COMMA.sub(blank, _COMMENT_OR_TEXT.sub(blank, text))
