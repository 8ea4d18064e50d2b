"""The clients that `rookery connect` writes to: where their files are, and from where they read the key (field notes B1). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from rookery.tools.discovery.client_guides import ClientId

Scope: TypeAlias = Literal["project", "user"]
"""The reach of a file: one project, or all projects of a user."""

KeySource: TypeAlias = Literal["variable", "input", "file"]
"""The place from which a client reads its key: an environment variable, its own secret store, or only its own file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """
    The folders of a user and of a project.

    Attributes:
        platform: The value of `sys.platform`.
        environ: The environment variables; clients have some that move their folders.
    """

    home: Path
    project: Path
    platform: str
    environ: Mapping[str, str]

    def get_folder(self, variable: str, default: Path) -> Path:
        """Return the folder that an environment variable names, or *default*."""
        value = self.environ.get(variable)
        return Path(value).expanduser() if value else default

    @property
    def app_data(self) -> Path:
        """The folder of the settings of desktop programs."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self.get_folder("APPDATA", self.home / "AppData" / "Roaming")
        return self.get_folder("XDG_CONFIG_HOME", self.home / ".config")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """
    The configuration of a client.

    Attributes:
        section: The member of its JSON file that has the servers; for Codex, the table of its TOML file.
        scopes: The scopes that it has, the most specific first. The first file that has a server wins.
        default_scope: The scope without `--user` and `--project`.
    """

    id: ClientId
    name: str
    section: str
    scopes: tuple[Scope, ...]
    default_scope: Scope
    key_source: KeySource = "variable"


CONFIGS: Mapping[str, ClientConfig] = MappingProxyType(
    {
        config.id: config
        for config in (
            ClientConfig(id="claude-code", name="Claude Code", section="mcpServers", scopes=("project", "user"), default_scope="project"),
            ClientConfig(id="cursor", name="Cursor", section="mcpServers", scopes=("project", "user"), default_scope="project"),
            ClientConfig(
                id="vscode", name="VS Code", section="servers", scopes=("project", "user"), default_scope="project", key_source="input"
            ),
            ClientConfig(id="codex", name="Codex", section="mcp_servers", scopes=("project", "user"), default_scope="user"),
            ClientConfig(
                id="claude-desktop",
                name="Claude Desktop",
                section="mcpServers",
                scopes=("user",),
                default_scope="user",
                key_source="file",
            ),
            ClientConfig(id="windsurf", name="Windsurf", section="mcpServers", scopes=("user",), default_scope="user"),
            ClientConfig(id="gemini", name="Gemini CLI", section="mcpServers", scopes=("project", "user"), default_scope="user"),
            ClientConfig(id="zed", name="Zed", section="context_servers", scopes=("user",), default_scope="user", key_source="file"),
        )
    }
)
"""The clients with a file, by id."""


_FILES: Mapping[tuple[str, Scope], tuple[str, str]] = MappingProxyType(
    {
        ("claude-code", "project"): ("project", ".mcp.json"),
        ("claude-code", "user"): ("claude", ".claude.json"),
        ("cursor", "project"): ("project", ".cursor/mcp.json"),
        ("cursor", "user"): ("home", ".cursor/mcp.json"),
        ("vscode", "project"): ("project", ".vscode/mcp.json"),
        ("vscode", "user"): ("app_data", "Code/User/mcp.json"),
        ("codex", "project"): ("project", ".codex/config.toml"),
        ("codex", "user"): ("codex", "config.toml"),
        ("gemini", "project"): ("project", ".gemini/settings.json"),
        ("gemini", "user"): ("home", ".gemini/settings.json"),
        ("windsurf", "user"): ("home", ".codeium/windsurf/mcp_config.json"),
        ("claude-desktop", "user"): ("app_data", "Claude/claude_desktop_config.json"),
        ("zed", "user"): ("zed", "settings.json"),
    }
)
"""The files of MCP servers: a folder of `_get_folder`, and the path in it."""


def locate_file(client: ClientId, scope: Scope, places: Places) -> Path:
    """
    Return the file with the MCP servers of *client*.

    Raises:
        KeyError: The client has no file of this scope.
    """
    folder, path = _FILES[client, scope]
    return _get_folder(folder, places) / path


def locate_hooks(client: ClientId, scope: Scope, places: Places) -> Path | None:
    """
    Return the file for the hooks of *client*, or None if it has no hooks.

    The file of a project is one that git ignores if the client has one: `rookery` may be missing on another developer's machine.
    """
    root = places.project if scope == "project" else places.home
    match client, scope:
        case "claude-code", "project":
            return root / ".claude" / "settings.local.json"
        case "claude-code", "user":
            return places.get_folder("CLAUDE_CONFIG_DIR", root / ".claude") / "settings.json"
        case "codex", _:
            return locate_file(client, scope, places).with_name("hooks.json")
        case "vscode", _:
            return root / (".github" if scope == "project" else ".copilot") / "hooks" / "rookery.json"
        case "cursor", _:
            return root / ".cursor" / "hooks.json"
        case _:
            return None


def locate_rule(client: ClientId, scope: Scope, places: Places) -> Path | None:
    """Return the file for the rule that tells the agent when to use its memory, or None. Only projects of Cursor have one."""
    return places.project / ".cursor" / "rules" / "rookery.mdc" if client == "cursor" and scope == "project" else None


def _get_folder(name: str, places: Places) -> Path:
    match name:
        case "project":
            return places.project
        case "claude":
            return places.get_folder("CLAUDE_CONFIG_DIR", places.home)
        case "codex":
            return places.get_folder("CODEX_HOME", places.home / ".codex")
        case "app_data":
            return places.app_data
        case "zed":  # on macOS too it uses ~/.config
            return places.home / ".config" / "zed" if places.platform == "darwin" else places.app_data / "zed"
        case _:
            return places.home
