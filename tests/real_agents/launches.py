"""The set-up and start of each coding agent without a terminal: its files, variables and command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rookery.tools.discovery.client_guides import SetupTarget, build_client_entry, build_codex_table

PROMPT = "Use the tools of Rookery as you need them, then say that you are done."
MODEL_KEY = "made-up"
HOOK_LOG = "hooks.jsonl"

_SERVER = "rookery"


@dataclass(frozen=True, kw_only=True)
class Scene:
    """
    The surroundings of a run.

    Attributes:
        installed: The folder with what is installed.
        home: The home folder, which is empty.
        project: The folder in which the agent starts, a Git repository.
        mcp: The address of `/mcp`, behind the recorder.
        model: The address of the scripted model, without a path.
        key: The key. Agents get it in the variable ROOKERY_KEY, and only those that read no variable in their file.
    """

    installed: Path
    home: Path
    project: Path
    mcp: str
    model: str
    key: str

    @property
    def target(self) -> SetupTarget:
        """The endpoint, as `rookery connect` writes it."""
        return SetupTarget(name=_SERVER, url=self.mcp, api=self.mcp.removesuffix("/mcp") + "/api/v1/mcp")

    @property
    def hook_command(self) -> str:
        """A command that appends its input to a file, a line each."""
        log = shlex.quote(str(self.home / HOOK_LOG))
        return f"tr -d '\\n' >> {log}; echo >> {log}"


@dataclass(frozen=True, kw_only=True)
class Launch:
    """
    A start.

    Attributes:
        variables: More environment variables.
        files: Files by their path, in the home folder or below `project/`.
        copies: Files that are copied: Node.js looks for packages where a script is.
    """

    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    copies: Mapping[Path, Path] = field(default_factory=dict[Path, Path])


def _npm(scene: Scene, path: str) -> str:
    return str(scene.installed / "npm" / "node_modules" / path)


def _build_groups(scene: Scene, events: Sequence[str]) -> dict[str, object]:
    """Return hooks of these events, in the form of Claude Code that others have taken over."""
    return {event: [{"hooks": [{"type": "command", "command": scene.hook_command}]}] for event in events}


def launch_claude_code(scene: Scene) -> Launch:
    """Claude Code, with the file of the project that `rookery connect` writes."""
    events = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd")
    entry = {"mcpServers": {_SERVER: build_client_entry("claude-code", scene.target)}}
    return Launch(
        command=[_npm(scene, "@anthropic-ai/claude-code-linux-x64/claude"), "-p", PROMPT, "--dangerously-skip-permissions"],
        variables={
            "ANTHROPIC_BASE_URL": scene.model,
            "ANTHROPIC_API_KEY": MODEL_KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",
        },
        files={
            "project/.mcp.json": json.dumps(entry),
            "project/.claude/settings.json": json.dumps({"hooks": _build_groups(scene, events)}),
        },
    )


def launch_codex(scene: Scene) -> Launch:
    """Codex, by `codex exec`, which uses no background server."""
    events = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")
    config = (
        'model = "scripted"\nmodel_provider = "scripted"\n'
        f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{scene.model}/v1"\nwire_api = "responses"\n'
        f"{build_codex_table(scene.target)}"
    )
    flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--dangerously-bypass-hook-trust"]
    return Launch(
        command=[_npm(scene, "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"), "exec", *flags, PROMPT],
        files={".codex/config.toml": config, ".codex/hooks.json": json.dumps({"hooks": _build_groups(scene, events)})},
    )


def launch_gemini_cli(scene: Scene) -> Launch:
    """Gemini CLI, in a folder that it trusts."""
    events = ("SessionStart", "BeforeAgent", "BeforeTool", "AfterTool", "AfterAgent", "SessionEnd")
    settings = {
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "mcpServers": {_SERVER: build_client_entry("gemini", scene.target)},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
        "hooks": _build_groups(scene, events),
    }
    return Launch(
        command=[
            "node",
            _npm(scene, "@google/gemini-cli/bundle/gemini.js"),
            "--yolo",
            "--skip-trust",
            "-m",
            "gemini-2.5-pro",
            "-p",
            PROMPT,
        ],
        variables={"GEMINI_API_KEY": MODEL_KEY, "GOOGLE_GEMINI_BASE_URL": scene.model, "GEMINI_CLI_NO_RELAUNCH": "true"},
        files={".gemini/settings.json": json.dumps(settings)},
    )


def launch_opencode(scene: Scene) -> Launch:
    """opencode, with a provider of its own."""
    config = {
        "model": "scripted/scripted",
        "small_model": "scripted/scripted",
        "autoupdate": False,
        "share": "disabled",
        "provider": {
            "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "options": {"baseURL": f"{scene.model}/v1", "apiKey": MODEL_KEY},
                "models": {"scripted": {"name": "scripted", "tool_call": True}},
            }
        },
        "mcp": {_SERVER: {"type": "remote", "url": scene.mcp, "headers": {"Authorization": "Bearer {env:ROOKERY_KEY}"}, "oauth": False}},
    }
    return Launch(
        command=[_npm(scene, "opencode-linux-x64/bin/opencode"), "run", "--auto", "--pure", PROMPT],
        variables={"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"},
        files={".config/opencode/opencode.json": json.dumps(config)},
    )


def launch_qwen_code(scene: Scene) -> Launch:
    """Qwen Code, with a provider that speaks OpenAI's protocol."""
    events = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")
    settings = {
        "mcpServers": {_SERVER: {"httpUrl": scene.mcp, "headers": {"Authorization": "Bearer ${ROOKERY_KEY}"}}},
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "hooks": _build_groups(scene, events),
    }
    flags = ["--yolo", "--openai-api-key", MODEL_KEY, "--openai-base-url", f"{scene.model}/v1", "--model", "scripted"]
    return Launch(
        command=["node", _npm(scene, "@qwen-code/qwen-code/cli-entry.js"), *flags, PROMPT],
        variables={"OPENAI_API_KEY": MODEL_KEY, "OPENAI_BASE_URL": f"{scene.model}/v1", "OPENAI_MODEL": "scripted"},
        files={".qwen/settings.json": json.dumps(settings)},
    )


def launch_cline(scene: Scene) -> Launch:
    """Cline, which reads no variable: the key stands in its file."""
    entry = {"transport": {"type": "streamableHttp", "url": scene.mcp, "headers": {"Authorization": f"Bearer {scene.key}"}}}
    provider = {
        "provider": "openai-compatible",
        "apiKey": MODEL_KEY,
        "model": "scripted",
        "baseUrl": f"{scene.model}/v1",
    }
    providers = {
        "version": 1,
        "lastUsedProvider": "openai-compatible",
        "providers": {
            "openai-compatible": {"settings": provider, "updatedAt": "2026-11-28T00:00:00.000Z", "tokenSource": "manual"},
        },
    }
    return Launch(
        command=[_npm(scene, "@cline/cli-linux-x64/bin/cline"), "--provider", "openai-compatible", "--model", "scripted", PROMPT],
        variables={"CLINE_NO_AUTO_UPDATE": "1", "CLINE_TELEMETRY_DISABLED": "1"},
        files={
            ".cline/data/settings/cline_mcp_settings.json": json.dumps({"mcpServers": {_SERVER: entry}}),
            ".cline/data/settings/providers.json": json.dumps(providers),
        },
    )


def launch_copilot(scene: Scene) -> Launch:
    """Copilot CLI, with a model provider of its own."""
    events = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")
    hooks = {event: [{"type": "command", "bash": scene.hook_command, "command": scene.hook_command}] for event in events}
    entry = {"type": "http", "url": scene.mcp, "headers": {"Authorization": "Bearer ${ROOKERY_KEY}"}, "tools": ["*"]}
    return Launch(
        command=[_npm(scene, "@github/copilot-linux-x64/copilot"), "-p", PROMPT, "--allow-all-tools", "--trust-folder"],
        variables={
            "COPILOT_PROVIDER_BASE_URL": f"{scene.model}/v1",
            "COPILOT_PROVIDER_API_KEY": MODEL_KEY,
            "COPILOT_MODEL": "scripted",
            "COPILOT_AUTO_UPDATE": "false",
            "COPILOT_OFFLINE": "true",
        },
        files={
            ".copilot/mcp-config.json": json.dumps({"mcpServers": {_SERVER: entry}}),
            "project/.github/hooks/probe.json": json.dumps({"version": 1, "hooks": hooks}),
        },
    )


AGENT_LAUNCHES: Mapping[str, Callable[[Scene], Launch]] = {
    "claude-code": launch_claude_code,
    "codex": launch_codex,
    "gemini-cli": launch_gemini_cli,
    "opencode": launch_opencode,
    "qwen-code": launch_qwen_code,
    "cline": launch_cline,
    "copilot": launch_copilot,
}
"""By the id of the agent."""


def launch_driver(scene: Scene, kind: str, script: str, bridge: str = "") -> Launch:
    """Return the start of a script of `drivers/` in the environment of a kind; *bridge* is the program of npm that it starts."""
    driver = Path(__file__).parent / "drivers" / script
    variables = {
        "MCP_URL": scene.mcp,
        "MODEL_URL": scene.model,
        "PROMPT": PROMPT,
        "BRIDGE": _npm(scene, bridge),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if driver.suffix == ".mjs":
        copy = Path(_npm(scene, "..")) / script
        return Launch(command=["node", str(copy)], variables=variables, copies={driver: copy})
    return Launch(command=[str(scene.installed / kind / "bin" / "python"), str(driver)], variables=variables)
