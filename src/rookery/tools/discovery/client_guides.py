"""
Set-up instructions for each client, ready to paste, and the size of a list of tools, which decides if it gets search mode. No I/O.

The instructions name the key's variable and never contain a key.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast, get_args

from rookery.kernel.money import CHARS_PER_TOKEN
from rookery.tools.models import JsonObject

KEY_VARIABLE = "ROOKERY_KEY"
"""The environment variable from which every set-up reads the key."""

KEY_PLACEHOLDER = "YOUR_KEY"
"""Placeholder for the key, for clients that read it only from their own file."""

KEY_COMMANDS = (
    "# an agent's key: tools, memory, plans and sessions\n"
    "rookery agent-keys create --name my-agent --preset agent\n\n"
    "# or an API key that calls tools and uses memory\n"
    "rookery keys create --name my-client --scope=mcp:read,mcp:write,brain:read,brain:write\n\n"
    "# in the shell that starts your client: paste the key; it is not shown\n"
    f"read -rs {KEY_VARIABLE} && export {KEY_VARIABLE}\n"
)
"""Commands that create a key and read it into the variable without a trace in the shell's history."""

ClientId: TypeAlias = Literal[
    "claude-code",
    "cursor",
    "vscode",
    "codex",
    "claude-desktop",
    "windsurf",
    "gemini",
    "zed",
    "opencode",
    "qwen-code",
    "copilot",
    "cline",
    "curl",
    "python",
    "javascript",
]

CLIENTS: tuple[ClientId, ...] = get_args(ClientId)
"""All clients with a set-up, in display order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupGuide:
    """
    The set-up of one client.

    Attributes:
        file: The file to add it to, relative to the project's folder or in the home folder (`~/`). None: it is run, not stored.
        note: Instructions in one or two sentences.
        command: A command of the client that does the same, or None.
    """

    client: ClientId
    name: str
    file: str | None
    language: Literal["json", "toml", "sh", "python", "javascript"]
    text: str
    note: str
    command: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupTarget:
    """
    The endpoint that a client is set up for.

    Attributes:
        name: The name under which the client lists it.
        url: The URL of the MCP endpoint.
        api: The base URL of the HTTP API, with its prefix.
        server: The only server to use. None: all servers.
    """

    name: str
    url: str
    api: str
    server: str | None = None


_BEARER = f"Bearer ${{{KEY_VARIABLE}}}"
_BEARER_OF_ENV = f"Bearer ${{env:{KEY_VARIABLE}}}"

_HTTP_ENTRIES: Mapping[ClientId, tuple[str, str, JsonObject]] = {
    "claude-code": ("url", _BEARER, {"type": "http"}),
    "cursor": ("url", _BEARER_OF_ENV, {}),
    "vscode": ("url", "Bearer ${input:rookery-key}", {"type": "http"}),
    "windsurf": ("serverUrl", _BEARER_OF_ENV, {}),
    "gemini": ("httpUrl", _BEARER, {}),
    "zed": ("url", f"Bearer {KEY_PLACEHOLDER}", {}),
    # Without it, opencode answers a refused key by a login with OAuth, which Rookery does not offer for keys.
    "opencode": ("url", f"Bearer {{env:{KEY_VARIABLE}}}", {"type": "remote", "oauth": False}),
    "qwen-code": ("httpUrl", _BEARER, {}),
    "copilot": ("url", _BEARER, {"type": "http", "tools": ["*"]}),
    "cline": ("url", f"Bearer {KEY_PLACEHOLDER}", {"type": "streamableHttp"}),
}
"""By client: the field of the URL, the authorization header in the client's variable syntax, and the preceding fields."""


def build_client_entry(client: ClientId, target: SetupTarget) -> JsonObject:
    """Return the entry for *target* in the client's JSON file."""
    if client == "claude-desktop":
        # Its file supports only commands. Windows loses a space in an argument, so the word Bearer is in the variable.
        arguments = ["-y", "mcp-remote", target.url, "--header", "Authorization:${ROOKERY_AUTH}"]
        http_flag = ["--allow-http"] if target.url.startswith("http://") else []
        return {"command": "npx", "args": [*arguments, *http_flag], "env": {"ROOKERY_AUTH": f"Bearer {KEY_PLACEHOLDER}"}}
    if client not in _HTTP_ENTRIES:
        msg = f"{client} has no JSON file"
        raise ValueError(msg)
    field, authorization, before = _HTTP_ENTRIES[client]
    entry: JsonObject = {**before, field: target.url, "headers": {"Authorization": authorization}}
    return {"transport": entry} if client == "cline" else entry


VSCODE_INPUT: JsonObject = {"type": "promptString", "id": "rookery-key", "description": "A key of Rookery", "password": True}
"""VS Code prompts for the key once and stores it in the system's secret store."""


def build_codex_table(target: SetupTarget) -> str:
    """Return the table for *target* in Codex's file."""
    return f'[mcp_servers.{target.name}]\nurl = {json.dumps(target.url)}\nbearer_token_env_var = "{KEY_VARIABLE}"\n'


def _render_curl(target: SetupTarget) -> str:
    header = f"printf 'Authorization: Bearer %s' \"${KEY_VARIABLE}\" |\n  curl --silent --show-error --header @-"
    if target.server is not None:
        return f"# its tools\n{header} {target.api}/servers/{target.server}/tools\n"
    call = json.dumps({"server": "brain", "tool": "recall", "arguments": {"query": "How do we deploy?"}})
    return f"# every server\n{header} {target.api}/servers\n\n# a tool\n{header} --json '{call}' \\\n  {target.api}/tools/call\n"


def _render_python(target: SetupTarget) -> str:
    head = "import json\nimport os\nimport urllib.request\n\n"
    if target.server is not None:
        return (
            f'{head}request = urllib.request.Request(\n    "{target.api}/servers/{target.server}/tools",\n'
            f'    headers={{"Authorization": f"Bearer {{os.environ[\'{KEY_VARIABLE}\']}}"}},\n)\n'
            "with urllib.request.urlopen(request) as response:\n"
            '    for tool in json.load(response)["tools"]:\n        print(tool["name"], "-", tool.get("description", ""))\n'
        )
    return (
        f'{head}call = {{"server": "brain", "tool": "recall", "arguments": {{"query": "How do we deploy?"}}}}\n'
        f'request = urllib.request.Request(\n    "{target.api}/tools/call",\n    data=json.dumps(call).encode(),\n'
        f'    headers={{"Authorization": f"Bearer {{os.environ[\'{KEY_VARIABLE}\']}}", "Content-Type": "application/json"}},\n)\n'
        'with urllib.request.urlopen(request) as response:\n    print(json.load(response)["result"])\n'
    )


def _render_javascript(target: SetupTarget) -> str:
    authorization = f"Authorization: `Bearer ${{process.env.{KEY_VARIABLE}}}`"
    if target.server is not None:
        return (
            f'const response = await fetch("{target.api}/servers/{target.server}/tools", {{\n  headers: {{ {authorization} }},\n}});\n'
            "if (!response.ok) throw new Error(await response.text());\n"
            'for (const tool of (await response.json()).tools) console.log(tool.name, "-", tool.description ?? "");\n'
        )
    return (
        f'const response = await fetch("{target.api}/tools/call", {{\n  method: "POST",\n'
        f'  headers: {{ {authorization}, "Content-Type": "application/json" }},\n'
        '  body: JSON.stringify({ server: "brain", tool: "recall", arguments: { query: "How do we deploy?" } }),\n});\n'
        "if (!response.ok) throw new Error(await response.text());\nconsole.log((await response.json()).result);\n"
    )


def _render_file(client: ClientId, target: SetupTarget, *, section: str = "mcpServers", before: JsonObject | None = None) -> str:
    """Return the client's JSON file, with its entry in *section*, after *before*."""
    content = {**(before or {}), section: {target.name: build_client_entry(client, target)}}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


_EXPORT = f"The client reads the key from {KEY_VARIABLE}: set it in the shell that starts the client."
_PLAIN_TEXT = "the file stores it in plain text, so restrict who can read the file."
_PLAIN_HTTP = "Plain HTTP, without MCP;"


def list_setups(target: SetupTarget) -> list[SetupGuide]:
    """Return the set-up of every supported client, in display order."""
    claude_command = f"claude mcp add --transport http --scope project {target.name} '{target.url}' --header 'Authorization: {_BEARER}'\n"
    return [
        SetupGuide(client="claude-code", name="Claude Code", file=".mcp.json", language="json", text=_render_file("claude-code", target),
                   note=f"In the project's folder; rookery connect claude-code --write writes it. {_EXPORT}", command=claude_command),
        SetupGuide(client="cursor", name="Cursor", file=".cursor/mcp.json", language="json", text=_render_file("cursor", target),
                   note=f"In the project's folder, or ~/.cursor/mcp.json for all projects. {_EXPORT}"),
        SetupGuide(client="vscode", name="VS Code", file=".vscode/mcp.json", language="json",
                   text=_render_file("vscode", target, section="servers", before={"inputs": [VSCODE_INPUT]}),
                   note="In the workspace's folder. VS Code asks for the key at first use and stores it in the system's secret store."),
        SetupGuide(client="codex", name="Codex", file="~/.codex/config.toml", language="toml", text=build_codex_table(target),
                   note=f"{_EXPORT} The background server of Codex keeps the variables of its first start, so rookery connect codex "
                   "--write puts the key into a file instead."),
        SetupGuide(client="claude-desktop", name="Claude Desktop", file="claude_desktop_config.json", language="json",
                   text=_render_file("claude-desktop", target),
                   note="Settings, Developer, Edit Config opens the file. It needs Node.js, whose npx runs the bridge mcp-remote. "
                   f"Replace {KEY_PLACEHOLDER} by your key, or let rookery connect claude-desktop --write create one: {_PLAIN_TEXT} "
                   "Then restart the app."),
        SetupGuide(client="windsurf", name="Windsurf", file="~/.codeium/windsurf/mcp_config.json", language="json",
                   text=_render_file("windsurf", target), note=_EXPORT),
        SetupGuide(client="gemini", name="Gemini CLI", file="~/.gemini/settings.json", language="json",
                   text=_render_file("gemini", target), note=f"Or .gemini/settings.json in the project's folder. {_EXPORT}"),
        SetupGuide(client="zed", name="Zed", file="~/.config/zed/settings.json", language="json",
                   text=_render_file("zed", target, section="context_servers"),
                   note=f"Add it to the settings (zed: open settings). Replace {KEY_PLACEHOLDER} by your key, or let rookery connect zed "
                   f"--write create one: {_PLAIN_TEXT}"),
        SetupGuide(client="opencode", name="opencode", file="~/.config/opencode/opencode.json", language="json",
                   text=_render_file("opencode", target, section="mcp"), note=f"Or opencode.json in the project's folder. {_EXPORT}"),
        SetupGuide(client="qwen-code", name="Qwen Code", file="~/.qwen/settings.json", language="json",
                   text=_render_file("qwen-code", target), note=f"Or .qwen/settings.json in the project's folder. {_EXPORT}"),
        SetupGuide(client="copilot", name="Copilot CLI", file="~/.copilot/mcp-config.json", language="json",
                   text=_render_file("copilot", target), note=f"Or .github/mcp.json in the project's folder. {_EXPORT}"),
        SetupGuide(client="cline", name="Cline", file="~/.cline/data/settings/cline_mcp_settings.json", language="json",
                   text=_render_file("cline", target),
                   note=f"The file of Cline's terminal program. Replace {KEY_PLACEHOLDER} by your key, or let rookery connect cline "
                   f"--write create one: {_PLAIN_TEXT}"),
        SetupGuide(client="curl", name="curl", file=None, language="sh", text=_render_curl(target),
                   note=f"Plain HTTP, without MCP. The key comes from {KEY_VARIABLE} through a pipe, so that process lists do not "
                   "show it."),
        SetupGuide(client="python", name="Python", file=None, language="python", text=_render_python(target),
                   note=f"{_PLAIN_HTTP} the standard library alone. The key comes from {KEY_VARIABLE}. The typed client rookery_client "
                   "has a method for each route."),
        SetupGuide(client="javascript", name="JavaScript", file=None, language="javascript", text=_render_javascript(target),
                   note=f"{_PLAIN_HTTP} Node.js 18 or newer, in a file that ends in .mjs. The key comes from {KEY_VARIABLE}."),
    ]  # fmt: skip


MAX_CATALOGUE_TOKENS = 6_000
"""The built-in servers take less. A list that is longer costs more than a search for each tool that is needed."""

SEARCH_QUERY = "?mode=search"
"""The query that makes the address of all tools that of search mode."""

_MODEL_FIELDS = ("name", "description", "inputSchema")


@dataclass(frozen=True, slots=True)
class CatalogueSize:
    """
    The size of a list of tools.

    Attributes:
        tokens: Those of the names, descriptions and input schemas, which every client shows its model.
    """

    count: int
    tokens: int


def measure_catalogue(tools: Iterable[object]) -> CatalogueSize:
    """Return the size of *tools*, the entries of `tools/list`."""
    listed = [cast("Mapping[str, object]", tool) for tool in tools if isinstance(tool, dict)]
    definitions = [{name: tool[name] for name in _MODEL_FIELDS if name in tool} for tool in listed]
    chars = sum(len(json.dumps(tool, ensure_ascii=False, separators=(",", ":"))) for tool in definitions)
    return CatalogueSize(len(definitions), -(-chars // CHARS_PER_TOKEN))


def needs_search_mode(size: CatalogueSize, *, defers_tools: bool) -> bool:
    """
    Return whether a client should use search mode, because its list takes more than `MAX_CATALOGUE_TOKENS`.

    Args:
        defers_tools: The client shows its model the names alone, and loads a definition when it is needed.
    """
    return not defers_tools and size.tokens > MAX_CATALOGUE_TOKENS
