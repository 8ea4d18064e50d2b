"""The clients that `rookery connect` writes to: where their files are, and from where they read the key. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

from rookery.tools.discovery.client_guides import ClientId

Scope: TypeAlias = Literal["project", "user"]
"""The reach of a file: one project, or all projects of a user."""

KeySource: TypeAlias = Literal["variable", "input", "file", "key_file"]
"""
The place from which a client reads its key: an environment variable, its own secret store, only its own file, or a key file.

A key file (`key_files`) serves a client whose variables are not those of the shell that starts it.
"""

Folder: TypeAlias = Literal[
    "project", "home", "config", "app_data", "claude", "claude-settings", "codex", "copilot", "gemini", "qwen", "zed"
]
"""A folder of `Places.locate`."""

FilePlace: TypeAlias = tuple[Folder, str]
"""A folder, and the path of a file in it."""

_MOVABLE_FOLDERS: Mapping[Folder, tuple[str, str, str]] = MappingProxyType(
    {
        "config": ("XDG_CONFIG_HOME", ".config", ""),
        "claude": ("CLAUDE_CONFIG_DIR", "", ""),
        "claude-settings": ("CLAUDE_CONFIG_DIR", ".claude", ""),
        "codex": ("CODEX_HOME", ".codex", ""),
        "copilot": ("COPILOT_HOME", ".copilot", ""),
        "gemini": ("GEMINI_CLI_HOME", "", ".gemini"),
        "qwen": ("QWEN_HOME", ".qwen", ""),
    }
)
"""Folders that a variable moves: the variable, the default in the home folder, and the path below it."""


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

    def locate(self, place: FilePlace) -> Path:
        folder, path = place
        if folder in _MOVABLE_FOLDERS:
            variable, default, below = _MOVABLE_FOLDERS[folder]
            return self.get_folder(variable, self.home / default) / below / path
        match folder:
            case "project":
                return self.project / path
            case "app_data":
                return self.app_data / path
            case "zed":  # on macOS too it uses ~/.config
                return (self.home / ".config" if self.platform == "darwin" else self.app_data) / "zed" / path
            case _:
                return self.home / path

    @property
    def app_data(self) -> Path:
        """The folder of the settings of desktop programs."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        if self.platform == "win32":
            return self.get_folder("APPDATA", self.home / "AppData" / "Roaming")
        return self.get_folder("XDG_CONFIG_HOME", self.home / ".config")


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderTrust:
    """
    The file in which a client stores the folders that its user trusts. In others, it switches MCP servers and hooks off.

    Attributes:
        is_default: The client asks for trust without a setting `security.folderTrust.enabled`.
        variable: A variable that with the value `true` trusts the present folder.
    """

    file: FilePlace
    is_default: bool
    variable: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """
    The configuration of a client.

    Attributes:
        section: The member of its JSON file that has the servers; for Codex, the table of its TOML file.
        files: Its files of MCP servers by scope, the most specific first. The first file that has a server wins.
        default_scope: The scope without `--user` and `--project`.
        hook_files: Its files of hooks by scope.
        hooks: The client of `HOOKS` whose hooks it runs, if they are not its own: both read the same files.
        folder_trust: Where it stores trusted folders, in the form of Gemini CLI.
        settings_file: The file of its user that can disable a server.
        defers_tools: It gives its model only the names of tools, and a search. The search mode of Rookery would be a second search.
    """

    id: ClientId
    name: str
    section: str
    files: Mapping[Scope, FilePlace]
    default_scope: Scope
    key_source: KeySource = "variable"
    hook_files: Mapping[Scope, FilePlace] = field(default_factory=dict[Scope, FilePlace])
    hooks: str = ""
    folder_trust: FolderTrust | None = None
    settings_file: FilePlace | None = None
    defers_tools: bool = False

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that it has, the most specific first."""
        return tuple(self.files)

    @property
    def hook_client(self) -> str:
        """The client of `HOOKS` whose hooks it runs."""
        return self.hooks or self.id


CONFIGS: Mapping[str, ClientConfig] = MappingProxyType(
    {
        config.id: config
        for config in (
            ClientConfig(
                id="claude-code",
                name="Claude Code",
                section="mcpServers",
                files={"project": ("project", ".mcp.json"), "user": ("claude", ".claude.json")},
                default_scope="project",
                # Claude Code itself lets git ignore the file of a project, but only once it has written to it.
                hook_files={"project": ("project", ".claude/settings.local.json"), "user": ("claude-settings", "settings.json")},
                defers_tools=True,
            ),
            ClientConfig(
                id="cursor",
                name="Cursor",
                section="mcpServers",
                files={"project": ("project", ".cursor/mcp.json"), "user": ("home", ".cursor/mcp.json")},
                default_scope="project",
                hook_files={"project": ("project", ".cursor/hooks.json"), "user": ("home", ".cursor/hooks.json")},
            ),
            ClientConfig(
                id="vscode",
                name="VS Code",
                section="servers",
                files={"project": ("project", ".vscode/mcp.json"), "user": ("app_data", "Code/User/mcp.json")},
                default_scope="project",
                key_source="input",
                hook_files={"project": ("project", ".github/hooks/rookery.json"), "user": ("copilot", "hooks/rookery.json")},
            ),
            ClientConfig(
                id="codex",
                name="Codex",
                section="mcp_servers",
                files={"project": ("project", ".codex/config.toml"), "user": ("codex", "config.toml")},
                default_scope="user",
                key_source="key_file",
                hook_files={"project": ("project", ".codex/hooks.json"), "user": ("codex", "hooks.json")},
            ),
            ClientConfig(
                id="claude-desktop",
                name="Claude Desktop",
                section="mcpServers",
                files={"user": ("app_data", "Claude/claude_desktop_config.json")},
                default_scope="user",
                key_source="file",
            ),
            ClientConfig(
                id="windsurf",
                name="Windsurf",
                section="mcpServers",
                files={"user": ("home", ".codeium/windsurf/mcp_config.json")},
                default_scope="user",
            ),
            ClientConfig(
                id="gemini",
                name="Gemini CLI",
                section="mcpServers",
                files={"project": ("project", ".gemini/settings.json"), "user": ("gemini", "settings.json")},
                default_scope="user",
                hook_files={"project": ("project", ".gemini/settings.json"), "user": ("gemini", "settings.json")},
                folder_trust=FolderTrust(file=("gemini", "trustedFolders.json"), is_default=True, variable="GEMINI_CLI_TRUST_WORKSPACE"),
                settings_file=("gemini", "settings.json"),
            ),
            ClientConfig(
                id="zed",
                name="Zed",
                section="context_servers",
                files={"user": ("zed", "settings.json")},
                default_scope="user",
                key_source="file",
            ),
            ClientConfig(
                id="opencode",
                name="opencode",
                section="mcp",
                files={"project": ("project", "opencode.json"), "user": ("config", "opencode/opencode.json")},
                default_scope="user",
            ),
            ClientConfig(
                id="qwen-code",
                name="Qwen Code",
                section="mcpServers",
                files={"project": ("project", ".qwen/settings.json"), "user": ("qwen", "settings.json")},
                default_scope="user",
                hook_files={"project": ("project", ".qwen/settings.json"), "user": ("qwen", "settings.json")},
                folder_trust=FolderTrust(file=("qwen", "trustedFolders.json"), is_default=False),
                settings_file=("qwen", "settings.json"),
                defers_tools=True,
            ),
            ClientConfig(
                id="copilot",
                name="Copilot CLI",
                section="mcpServers",
                files={"project": ("project", ".github/mcp.json"), "user": ("copilot", "mcp-config.json")},
                default_scope="user",
                hook_files={"project": ("project", ".github/hooks/rookery.json"), "user": ("copilot", "hooks/rookery.json")},
                hooks="vscode",
                settings_file=("copilot", "settings.json"),
            ),
            ClientConfig(
                id="cline",
                name="Cline",
                section="mcpServers",
                files={"user": ("home", ".cline/data/settings/cline_mcp_settings.json")},
                default_scope="user",
                key_source="file",
            ),
        )
    }
)
"""The clients with a file, by id."""


def locate_file(client: ClientId, scope: Scope, places: Places) -> Path:
    """
    Return the file with the MCP servers of *client*.

    Raises:
        KeyError: The client has no file of this scope.
    """
    return places.locate(CONFIGS[client].files[scope])


def locate_hooks(client: ClientId, scope: Scope, places: Places) -> Path | None:
    """Return the file for the hooks of *client*, or None if Rookery has no hooks for it."""
    place = CONFIGS[client].hook_files.get(scope)
    return None if place is None else places.locate(place)


def locate_rule(client: ClientId, scope: Scope, places: Places) -> Path | None:
    """Return the file for the rule that tells the agent when to use its memory, or None. Only projects of Cursor have one."""
    return places.project / ".cursor" / "rules" / "rookery.mdc" if client == "cursor" and scope == "project" else None
