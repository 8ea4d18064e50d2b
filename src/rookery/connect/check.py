"""The check of a connected client: its files, what keeps it from reading them, its key, and the server itself (field notes B4.6)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import cast

from rookery.coding_agents.hook_declarations import HOOKS, SWITCH_VARIABLE, hook_path, is_switched_off
from rookery.connect.client_files import decode, read_file
from rookery.connect.clients import locate_file, locate_hooks
from rookery.connect.codex_trust import CodexTrust, read_trust
from rookery.connect.errors import ClientFileBroken, ServerUnusable, UneditableText
from rookery.connect.hook_entries import FoundHook, find_client, get_address, get_program
from rookery.connect.jsonc import parse_jsonc
from rookery.connect.mcp_entries import get_authorization, get_file_key, get_url, is_own_entry
from rookery.connect.server_client import ServerClient
from rookery.connect.setups import FoundEntry, Setup, find_entries, read_hooks
from rookery.connect.toml_edits import parse_toml
from rookery.kernel.control_characters import escape_control_characters
from rookery.kernel.secret import Secret
from rookery.tools.discovery.client_guides import KEY_VARIABLE


@dataclass(frozen=True, slots=True)
class Finding:
    """
    A result of the check.

    Attributes:
        code: Its kind, a stable name for programs.
        text: The message. Parts of it may come from a server or from a file of others; `message` is safe to print.
        is_problem: The client does not work as it should. Otherwise it is worth knowing.
    """

    code: str
    text: str
    is_problem: bool = True
    file: Path | None = None

    @property
    def message(self) -> str:
        """The text, with its control characters escaped."""
        return escape_control_characters(self.text)


@dataclass(frozen=True, slots=True)
class Report:
    """The findings of a check, and the number of tools that the server lists to the key; None if it was not asked."""

    findings: tuple[Finding, ...]
    tools: int | None = None

    @property
    def is_ok(self) -> bool:
        """True if there is no problem."""
        return not any(finding.is_problem for finding in self.findings)


def check_setup(setup: Setup, *, any_scope: bool) -> Report:
    """
    Check a client's files and call the server as the client would. Nothing is changed.

    Args:
        any_scope: The entry may be in any scope. Otherwise it must be the one of the scope or file of *setup*, and be in use.
    """
    findings = list[Finding]()
    try:
        entry = _check_entries(setup, findings, any_scope=any_scope)
        has_hooks = _check_hooks(setup, findings)
    except ClientFileBroken as error:
        return Report((*findings, Finding("unreadable", str(error))))
    key = _find_key(setup, entry, findings, has_hooks=has_hooks)
    tools = None if key is None else _check_server(setup, key, findings, has_hooks=has_hooks)
    return Report(tuple(findings), tools)


def _check_entries(setup: Setup, findings: list[Finding], *, any_scope: bool) -> FoundEntry | None:
    """Check the entry that the client uses, and return it."""
    name, target = setup.target.name, setup.target.url
    entries = find_entries(setup, name)
    used = entries[0] if entries else None
    own = used if any_scope else next((entry for entry in entries if entry.file == setup.mcp_file and entry.scope != "local"), None)
    if own is None or used is None:
        findings.append(Finding("missing", f"{setup.mcp_file} has no server {name}. Add it with --write.", file=setup.mcp_file))
        return used
    if own is not used:
        findings.append(
            Finding(
                "shadowed",
                f"{setup.client.name} uses the entry {name} of {used.file} (scope {used.scope}) and not that of {own.file}. Remove one.",
                file=used.file,
            )
        )
    findings += [
        Finding("second_entry", f"{other.file} (scope {other.scope}) has {name} too. It is not used.", is_problem=False, file=other.file)
        for other in entries
        if other is not own and other is not used
    ]
    url = get_url(own.entry)
    if url != target:
        findings.append(Finding("wrong_address", f"{own.file} has the address {url}, but the server is at {target}.", file=own.file))
    if not is_own_entry(own.entry):
        message = f"The entry {name} of {own.file} does not read the key from where `rookery connect` puts it: {setup.client.key_source}."
        findings.append(Finding("foreign_entry", message, file=own.file))
    if own.entry.get("disabled") is True or own.entry.get("enabled") is False:
        findings.append(Finding("disabled", f"The entry {name} of {own.file} is disabled.", file=own.file))
    if setup.client.id == "claude-code":
        findings += _check_approval(setup, own)
    findings += _check_plugins(setup)
    return own


def _check_approval(setup: Setup, own: FoundEntry) -> Iterator[Finding]:
    """Yield a finding if Claude Code has not approved a server of `.mcp.json`; it runs none before its user has."""
    if own.scope != "project":
        return
    name, approved, rejected = setup.target.name, False, False
    user_file = locate_file("claude-code", "user", setup.places)
    state = _get_object(_get_object(_read_json(user_file).get("projects")).get(str(setup.places.project)))
    for settings in (state, *(_read_json(file) for file in _list_claude_settings(setup))):
        approved = approved or settings.get("enableAllProjectMcpServers") is True or name in _get_texts(settings, "enabledMcpjsonServers")
        rejected = rejected or name in _get_texts(settings, "disabledMcpjsonServers")
    if rejected:
        yield Finding("disabled", f"Claude Code's settings reject the server {name} of this project. Enable it with /mcp.", file=own.file)
    elif not approved:
        message = f"Claude Code has not approved {name} of {own.file} yet. It asks when it starts in this folder."
        yield Finding("untrusted", message, file=own.file)


def _check_plugins(setup: Setup) -> Iterator[Finding]:
    """Yield a finding if a plugin of Claude Code brings Rookery too."""
    if setup.client.id != "claude-code":
        return
    for file in _list_claude_settings(setup):
        for plugin, state in _get_object(_read_json(file).get("enabledPlugins")).items():
            if plugin.partition("@")[0] == "rookery" and state is not False:
                yield Finding("plugin", f"The plugin {plugin} ({file}) brings this server too, so its tools are doubled.", file=file)


def _check_hooks(setup: Setup, findings: list[Finding]) -> bool:
    """Check the hooks of all scopes. Return True if the client has some."""
    client = setup.client.id
    if client not in HOOKS:
        return False
    files = [file for scope in setup.client.scopes if (file := locate_hooks(client, scope, setup.places)) is not None]
    hooks = {file: [hook for hook in read_hooks(file) if find_client(hook.handler) == client] for file in files}
    with_hooks = [file for file in files if hooks[file]]
    if not with_hooks:
        if setup.hooks:
            message = f"{setup.hooks_file} has no hooks of Rookery. Add them with --hooks --write."
            findings.append(Finding("hooks_missing", message, file=setup.hooks_file))
        return False
    if is_switched_off(setup.places.environ.get(SWITCH_VARIABLE)):
        message = f"{SWITCH_VARIABLE} switches all hooks off in this shell."
        findings.append(Finding("hooks_off", message, is_problem=False))
    if len(with_hooks) > 1:
        message = f"Both {with_hooks[0]} and {with_hooks[1]} have hooks of Rookery. The server drops the second of each event. Remove one."
        findings.append(Finding("second_hooks", message, is_problem=False, file=with_hooks[1]))
    for file in with_hooks:
        findings += _check_hook_file(setup, file, hooks[file])
    if client == "claude-code":
        findings += _check_hook_settings(setup)
    return True


def _check_hook_file(setup: Setup, file: Path, hooks: list[FoundHook]) -> Iterator[Finding]:
    missing = [hook.name for hook in HOOKS[setup.client.id] if hook.name not in {present.event for present in hooks}]
    if missing:
        yield Finding("hooks_incomplete", f"{file} lacks the hooks {', '.join(missing)}. Add them with --hooks --write.", file=file)
    url = setup.hook_target.url
    wrong = sorted(
        {address for hook in hooks if (address := get_address(hook.handler)) != url and not address.startswith(f"{url}/api/agent/")}
    )
    if wrong:
        yield Finding("wrong_address", f"{file} has hooks for {wrong[0] or 'no address'}, but the server is at {url}.", file=file)
    for program in sorted({program for hook in hooks if (program := get_program(hook.handler)) is not None}):
        if shutil.which(program) is None:
            yield Finding("program_missing", f"{file} starts {program!r}, which is not on PATH. Write the hooks again.", file=file)
    if setup.client.id == "codex":
        yield from _check_codex_trust(setup, file, hooks)


def _check_codex_trust(setup: Setup, file: Path, hooks: list[FoundHook]) -> Iterator[Finding]:
    """Yield a finding for hooks that Codex does not run."""
    config = locate_file("codex", "user", setup.places)
    try:
        events = read_trust(parse_toml(decode(config, read_file(config))), file, hooks)
    except UneditableText as error:
        raise ClientFileBroken(f"{config}: {error}.") from error
    for trust, text in (
        (CodexTrust.UNTRUSTED, "Codex does not trust these hooks yet"),
        (CodexTrust.CHANGED, "These hooks have changed since you trusted them"),
    ):
        if trust in events:
            names = ", ".join(events[trust])
            yield Finding("untrusted", f"{text}, so Codex does not run them: {names}. Open /hooks in Codex.", file=file)
    if CodexTrust.DISABLED in events:
        names = ", ".join(events[CodexTrust.DISABLED])
        yield Finding("disabled", f"These hooks are disabled in {config}: {names}. Open /hooks in Codex.", file=config)


def _check_hook_settings(setup: Setup) -> Iterator[Finding]:
    """Yield findings for settings of Claude Code that keep hooks from running."""
    url = f"{setup.hook_target.url}{hook_path('claude-code', 'stop')}"
    for file in _list_claude_settings(setup):
        settings = _read_json(file)
        if settings.get("disableAllHooks") is True:
            yield Finding("disabled", f"{file} disables all hooks (disableAllHooks).", file=file)
        if "allowedHttpHookUrls" in settings and not any(fnmatchcase(url, text) for text in _get_texts(settings, "allowedHttpHookUrls")):
            message = f"allowedHttpHookUrls of {file} does not allow {setup.hook_target.url}. Add {setup.hook_target.url}/*."
            yield Finding("hooks_blocked", message, file=file)
        if "httpHookAllowedEnvVars" in settings and KEY_VARIABLE not in _get_texts(settings, "httpHookAllowedEnvVars"):
            message = f"httpHookAllowedEnvVars of {file} does not allow {KEY_VARIABLE}, so hooks have no key."
            yield Finding("hooks_blocked", message, file=file)


def _find_key(setup: Setup, entry: FoundEntry | None, findings: list[Finding], *, has_hooks: bool) -> Secret | None:
    """Return the key that the client sends, or a finding why it has none."""
    if setup.client.key_source == "file":
        key = None if entry is None else get_file_key(entry.entry)
        if entry is not None and key is None and get_authorization(entry.entry):
            findings.append(
                Finding("key_unset", f"{entry.file} has a placeholder in place of the key. Put the key there.", file=entry.file)
            )
        return None if key is None else Secret(key)
    key = setup.places.environ.get(KEY_VARIABLE)
    if key:
        return Secret(key)
    if setup.client.key_source == "input" and not has_hooks:
        message = f"{setup.client.name} keeps the key itself. To check it too, set {KEY_VARIABLE}."
        findings.append(Finding("key_unset", message, is_problem=False))
    else:
        reader = "Its hooks read" if setup.client.key_source == "input" else f"{setup.client.name} reads"
        findings.append(Finding("key_unset", f"{KEY_VARIABLE} is not set here. {reader} the key from it."))
    return None


def _check_server(setup: Setup, key: Secret, findings: list[Finding], *, has_hooks: bool) -> int | None:
    """Call the server with the key of the client. Return the number of tools that it lists."""
    server = ServerClient(setup.hook_target.url, key)
    tools = None
    try:
        tools = server.count_tools(setup.target.url)
        if tools == 0:
            findings.append(Finding("no_tools", "The server lists no tools to this key.", is_problem=False))
        if has_hooks:
            path = hook_path(setup.client.id, "session-start")
            answer = server.post(path, {})  # no session: nothing is recorded
            if answer.status != 200:
                findings.append(Finding("hooks_refused", f"{setup.hook_target.url}{path}: {answer.message}"))
    except ServerUnusable as error:
        findings.append(Finding(error.code, str(error)))
    return tools


def _list_claude_settings(setup: Setup) -> list[Path]:
    """Return the settings files of Claude Code, those of the user first."""
    user = locate_hooks("claude-code", "user", setup.places)
    folder = setup.places.project / ".claude"
    return [*([] if user is None else [user]), folder / "settings.json", folder / "settings.local.json"]


def _read_json(file: Path) -> dict[str, object]:
    try:
        root = parse_jsonc(decode(file, read_file(file)))
    except UneditableText as error:
        raise ClientFileBroken(f"{file}: {error}.") from error
    return _get_object(None if root is None else root.to_value())


def _get_object(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _get_texts(settings: Mapping[str, object], name: str) -> list[str]:
    value = settings.get(name)
    return [item for item in cast("list[object]", value) if isinstance(item, str)] if isinstance(value, list) else []
