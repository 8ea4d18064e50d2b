"""The tool servers that `make tool-servers` tries: real ones of others, pinned, each optional."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FOLDER = "{folder}"
"""In arguments and variables: the scratch folder of the run, which is a Git repository and has `note.txt`."""

_KUBERNETES_CONFIG = f"{FOLDER}/kubeconfig.yaml"


@dataclass(frozen=True, kw_only=True)
class ToolServer:
    """
    A server of others.

    Attributes:
        id: Its id in servers.json.
        package: The package, as its registry names it.
        kind: The way in which it is installed; see installation.py.
        program: The file to run, below the folder of its kind.
        language: The language in which it is written.
        credential: Arguments that the run without a credential leaves out.
        secrets: Environment variables that the run without a credential leaves out. The values are made up.
        call: A tool that works without the internet, called with `arguments`.
        unavailable: The reason why it is not tried at all.
    """

    id: str
    package: str
    version: str
    kind: str
    language: str
    program: str = ""
    args: tuple[str, ...] = ()
    credential: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    secrets: Mapping[str, str] = field(default_factory=dict[str, str])
    call: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict[str, object])
    unavailable: str = ""

    @property
    def needs_credential(self) -> bool:
        """Return whether a run without its credential differs."""
        return bool(self.credential or self.secrets)


def _npm(id: str, package: str, version: str, script: str, **fields: object) -> ToolServer:
    """Return a server from npm whose script runs on Node.js."""
    program = f"node_modules/{package}/{script}"
    return ToolServer(id=id, package=package, version=version, kind="npm", program=program, **{"language": "TypeScript", **fields})  # pyright: ignore[reportArgumentType] - fields by name


def _python(id: str, kind: str, version: str, **fields: object) -> ToolServer:
    """Return a server from PyPI whose program has the name of its package."""
    return ToolServer(**{"id": id, "package": id, "version": version, "kind": kind, "program": f"bin/{id}", "language": "Python", **fields})  # pyright: ignore[reportArgumentType] - fields by name


SERVERS = (
    _npm(
        "everything",
        "@modelcontextprotocol/server-everything",
        "2026.8.31",
        "dist/index.js",
        call="get-annotated-message",
        arguments={"messageType": "error", "includeImage": True},
    ),
    _npm(
        "filesystem",
        "@modelcontextprotocol/server-filesystem",
        "2026.8.31",
        "dist/index.js",
        credential=(FOLDER,),
        call="read_text_file",
        arguments={"path": f"{FOLDER}/note.txt"},
    ),
    _npm(
        "memory",
        "@modelcontextprotocol/server-memory",
        "2026.8.31",
        "dist/index.js",
        env={"MEMORY_FILE_PATH": f"{FOLDER}/graph.json"},
        call="read_graph",
    ),
    _npm(
        "sequential-thinking",
        "@modelcontextprotocol/server-sequential-thinking",
        "2026.8.31",
        "dist/index.js",
        call="sequentialthinking",
        arguments={"thought": "a", "nextThoughtNeeded": False, "thoughtNumber": 1, "totalThoughts": 1},
    ),
    _npm(
        "playwright",
        "@playwright/mcp",
        "0.0.83",
        "cli.js",
        args=("--headless", "--isolated", "--no-sandbox", "--executable-path", "/usr/bin/chromium"),
        call="browser_tabs",
        arguments={"action": "list"},
    ),
    _npm(
        "chrome-devtools",
        "chrome-devtools-mcp",
        "1.11.0",
        "build/src/bin/chrome-devtools-mcp.js",
        args=("--headless", "--isolated", "--executablePath", "/usr/bin/chromium", "--chromeArg=--no-sandbox"),
        call="list_pages",
    ),
    _npm("context7", "@upstash/context7-mcp", "4.1.1", "dist/index.js", secrets={"CONTEXT7_API_KEY": "ctx7sk-made-up"}),
    _npm("notion", "@notionhq/notion-mcp-server", "2.5.2", "bin/cli.mjs", secrets={"NOTION_TOKEN": "ntn_made_up"}),
    _npm("supabase", "@supabase/mcp-server-supabase", "0.13.0", "dist/cli.js", secrets={"SUPABASE_ACCESS_TOKEN": "sbp_" + "0" * 40}),
    _npm("sentry", "@sentry/mcp-server", "0.39.0", "dist/index.js", secrets={"SENTRY_ACCESS_TOKEN": "sntryu_made_up"}),
    _npm("desktop-commander", "@wonderwhy-er/desktop-commander", "0.2.52", "dist/index.js", call="list_sessions"),
    _npm("firecrawl", "firecrawl-mcp", "3.26.0", "dist/index.js", secrets={"FIRECRAWL_API_KEY": "fc-made-up"}),
    _npm("tavily", "tavily-mcp", "0.2.22", "build/index.js", secrets={"TAVILY_API_KEY": "tvly-made-up"}),
    _npm("exa", "exa-mcp-server", "3.4.1", "dist/stdio.cjs", secrets={"EXA_API_KEY": "made-up"}),
    _npm("stripe", "@stripe/mcp", "0.3.3", "dist/index.js", secrets={"STRIPE_SECRET_KEY": "sk_test_made_up"}),
    _npm("brave-search", "@brave/brave-search-mcp-server", "2.1.4", "dist/index.js", secrets={"BRAVE_API_KEY": "made-up"}),
    _npm("drawio", "@drawio/mcp", "1.6.1", "src/index.js", language="JavaScript"),
    _npm("pdf", "@modelcontextprotocol/server-pdf", "2.0.4", "dist/index.js", args=("--stdio",), call="list_pdfs"),
    _npm(
        "budget-allocator",
        "@modelcontextprotocol/server-budget-allocator",
        "2.0.3",
        "dist/index.js",
        args=("--stdio",),
        call="get-budget-data",
    ),
    _npm(
        "map",
        "@modelcontextprotocol/server-map",
        "2.0.3",
        "dist/index.js",
        args=("--stdio",),
        call="show-map",
        arguments={"west": 0, "south": 51, "east": 1, "north": 52},
    ),
    _npm(
        "system-monitor",
        "@modelcontextprotocol/server-system-monitor",
        "2.0.3",
        "dist/index.js",
        args=("--stdio",),
        call="get-system-info",
    ),
    _npm("video-resource", "@modelcontextprotocol/server-video-resource", "2.0.3", "dist/index.js", args=("--stdio",)),
    ToolServer(
        id="azure",
        package="@azure/mcp-linux-x64",
        version="2.0.5",
        kind="npm",
        language="C#",
        program="node_modules/@azure/mcp-linux-x64/dist/azmcp",
        args=("server", "start"),
    ),
    ToolServer(
        id="kubernetes",
        package="kubernetes-mcp-server-linux-amd64",
        version="0.0.67",
        kind="npm",
        language="Go",
        program="node_modules/kubernetes-mcp-server-linux-amd64/bin/kubernetes-mcp-server-linux-amd64",
        credential=("--kubeconfig", _KUBERNETES_CONFIG),
    ),
    ToolServer(
        id="slack",
        package="slack-mcp-server-linux-amd64",
        version="1.3.0",
        kind="npm",
        language="Go",
        program="node_modules/slack-mcp-server-linux-amd64/bin/slack-mcp-server-linux-amd64",
        args=("--transport", "stdio"),
        secrets={"SLACK_MCP_XOXP_TOKEN": "xoxp-made-up"},
    ),
    _python(
        "mcp-server-time",
        "sdk-2",
        "2026.10.19",
        args=("--local-timezone", "UTC"),
        call="convert_time",
        arguments={"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"},
    ),
    _python("mcp-server-git", "sdk-2", "2026.10.19", args=("--repository", FOLDER), call="git_status", arguments={"repo_path": FOLDER}),
    _python("mcp-server-fetch", "sdk-2", "2026.10.24"),
    _python(
        "excel-mcp-server",
        "sdk-2",
        "2.2.2",
        args=("stdio",),
        call="create_workbook",
        arguments={"path": f"{FOLDER}/book.xlsx", "overwrite": True},
    ),
    _python("mcp-server-sqlite", "sdk-1", "2025.4.25", args=("--db-path", f"{FOLDER}/shop.db"), call="list_tables"),
    _python(
        "mcp-server-duckdb",
        "sdk-1",
        "1.1.0",
        args=("--db-path", f"{FOLDER}/shop.duckdb"),
        call="query",
        arguments={"query": "SELECT 1 AS one"},
    ),
    _python("mcp-server-calculator", "sdk-1", "0.2.1", call="calculate", arguments={"expression": "6*7"}),
    _python(
        "mcp-atlassian",
        "sdk-1",
        "0.23.1",
        secrets={"JIRA_URL": "http://127.0.0.1:9", "JIRA_USERNAME": "ada@example.org", "JIRA_API_TOKEN": "made-up"},
    ),
    _python("mcp-memory-service", "sdk-1", "12.4.0", package="mcp-memory-service-lite", program="bin/memory", args=("server",)),
    _python("mcp-server-docker", "python-3-12", "0.3.0"),
    _python(
        "basic-memory",
        "python-3-12",
        "0.24.1",
        args=("mcp",),
        env={"BASIC_MEMORY_HOME": f"{FOLDER}/notes"},
        call="list_memory_projects",
    ),
    ToolServer(
        id="mcp-go-everything",
        package="github.com/mark3labs/mcp-go/examples/everything",
        version="v1.2.1",
        kind="go",
        language="Go",
        program="mcp-go/everything",
        call="echo",
        arguments={"message": "hello"},
    ),
    ToolServer(
        id="go-sdk-everything",
        package="github.com/modelcontextprotocol/go-sdk/examples/server/everything",
        version="v1.8.0",
        kind="go",
        language="Go",
        program="go-sdk/everything",
        call="greet",
        arguments={"name": "Ada"},
    ),
    ToolServer(
        id="cargo-mcp",
        package="cargo-mcp",
        version="0.2.0",
        kind="cargo",
        language="Rust",
        program="bin/cargo-mcp",
        args=("serve",),
        call="set_working_directory",
        arguments={"path": FOLDER},
    ),
    ToolServer(
        id="rust-fs-mcp",
        package="rust-fs-mcp",
        version="0.3.4",
        kind="cargo",
        language="Rust",
        program="bin/rust-fs-mcp",
    ),
    ToolServer(
        id="camel",
        package="org.apache.camel:camel-jbang-mcp",
        version="4.18.0",
        kind="maven",
        language="Java",
        unavailable="the Maven repository does not have it; mcp-server-jdbc of Quarkus neither",
    ),
    ToolServer(
        id="github",
        package="github.com/github/github-mcp-server",
        version="–",
        kind="go",
        language="Go",
        unavailable="the Go module proxy refuses the module",
    ),
)
"""All servers, in the order of the page."""
