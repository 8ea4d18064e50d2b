"""The check of a connected client: its files, what keeps it from reading them, its key, and the server itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from rookery.coding_agents.hook_declarations import HOOKS, SWITCH_VARIABLE, hook_path, is_switched_off
from rookery.connect import key_files
from rookery.connect.client_files import BACKUP_SUFFIX, get_object, get_texts, read_json
from rookery.connect.clients import FolderTrust, locate_file, locate_hooks
from rookery.connect.codex_checks import check_background_server, check_hook_trust, check_project_trust
from rookery.connect.errors import ClientFileBroken, Finding, Report, ServerUnusable
from rookery.connect.hook_entries import FoundHook, find_client, get_address, get_key_file, get_program
from rookery.connect.key_files import describe_exposed, list_exposed
from rookery.connect.mcp_entries import get_authorization, get_file_key, get_url, is_own_entry, needs_variable
from rookery.connect.server_client import ServerClient
from rookery.connect.setups import FoundEntry, Setup, find_entries, is_in_repository, read_hooks
from rookery.kernel.secret import Secret
from rookery.tools.discovery.client_guides import KEY_VARIABLE, CatalogueSize, needs_search_mode


def check_folder_trust(setup: Setup, own: FoundEntry) -> Iterator[Finding]:
    """Yield a finding if the client switches all MCP servers off in this folder, also those of its user."""
    trust = setup.client.folder_trust
    if trust is None or not _asks_for_trust(setup, trust) or setup.places.environ.get(trust.variable) == "true":
        return
    file = setup.places.locate(trust.file)
    if not _is_trusted(setup.places.project, read_json(file)):
        message = (
            f"{setup.client.name} does not trust {setup.places.project}, so it starts no MCP servers and no hooks of the project there. "
            "Trust the folder when it asks at its start, or with /permissions."
        )
        yield Finding("untrusted", message, file=own.file)


def check_settings(setup: Setup, own: FoundEntry) -> Iterator[Finding]:
    """Yield a finding if a setting disables the server."""
    if setup.client.settings_file is None:
        return
    name, file = setup.target.name, setup.places.locate(setup.client.settings_file)
    settings = read_json(file)
    rules = get_object(settings.get("mcp"))
    is_excluded = any(fnmatchcase(name, pattern) for pattern in get_texts(rules, "excluded"))
    is_missing = "allowed" in rules and not any(fnmatchcase(name, pattern) for pattern in get_texts(rules, "allowed"))
    if is_excluded or is_missing or name in get_texts(settings, "disabledMcpServers"):
        yield Finding("disabled", f"{file} disables the server {name} of {own.file}.", file=file)
    if get_object(settings.get("hooksConfig")).get("enabled") is False or settings.get("disableAllHooks") is True:
        yield Finding("hooks_blocked", f"{file} disables all hooks.", is_problem=setup.hooks is True, file=file)


def check_copilot_trust(setup: Setup, own: FoundEntry) -> Iterator[Finding]:
    """Yield a finding if Copilot CLI ignores the file of a project that its user does not trust."""
    if own.scope != "project":
        return
    file = setup.places.locate(("copilot", "config.json"))
    folder = setup.places.project.resolve()
    if not any(folder.is_relative_to(os.path.realpath(path)) for path in get_texts(read_json(file), "trustedFolders")):
        message = f"Copilot CLI does not trust {setup.places.project}, so it ignores {own.file}. It asks when it starts in this folder."
        yield Finding("untrusted", message, file=own.file)


def check_qwen_approval(setup: Setup, own: FoundEntry) -> Iterator[Finding]:
    """Yield a finding if Qwen Code has not approved a server of a project; it starts none before its user has."""
    if own.scope != "project":
        return
    name, approvals = setup.target.name, read_json(setup.places.locate(("qwen", "mcpApprovals.json")))
    status = get_object(get_object(approvals.get(str(setup.places.project))).get(name)).get("status")
    if status == "rejected":
        yield Finding("disabled", f"Qwen Code rejects the server {name} of this project. Run: qwen mcp approve {name}", file=own.file)
    elif status != "approved":
        message = f"Qwen Code has not approved {name} of {own.file} yet. Run in this folder: qwen mcp approve {name}"
        yield Finding("untrusted", message, file=own.file)


def _asks_for_trust(setup: Setup, trust: FolderTrust) -> bool:
    settings = {} if setup.client.settings_file is None else read_json(setup.places.locate(setup.client.settings_file))
    is_enabled = get_object(get_object(settings.get("security")).get("folderTrust")).get("enabled")
    return is_enabled if isinstance(is_enabled, bool) else trust.is_default


def _is_trusted(folder: Path, rules: Mapping[str, object]) -> bool:
    """Return what the longest path among *rules* that covers *folder* says."""
    real, longest, level = Path(os.path.realpath(folder)), -1, ""
    for path, value in rules.items():
        root = Path(os.path.realpath(Path(path).parent if value == "TRUST_PARENT" else path))
        if real.is_relative_to(root) and len(path) > longest:
            longest, level = len(path), str(value)
    return level in {"TRUST_FOLDER", "TRUST_PARENT"}


def check_approval(setup: Setup, own: FoundEntry) -> Iterator[Finding]:
    """Yield a finding if Claude Code has not approved a server of `.mcp.json`; it runs none before its user has."""
    if own.scope != "project":
        return
    name, approved, rejected = setup.target.name, False, False
    user_file = locate_file("claude-code", "user", setup.places)
    state = get_object(get_object(read_json(user_file).get("projects")).get(str(setup.places.project)))
    for settings in (state, *(read_json(file) for file in _list_settings(setup))):
        approved = approved or settings.get("enableAllProjectMcpServers") is True or name in get_texts(settings, "enabledMcpjsonServers")
        rejected = rejected or name in get_texts(settings, "disabledMcpjsonServers")
    if rejected:
        yield Finding("disabled", f"Claude Code's settings reject the server {name} of this project. Enable it with /mcp.", file=own.file)
    elif not approved:
        message = f"Claude Code has not approved {name} of {own.file} yet. It asks when it starts in this folder."
        yield Finding("untrusted", message, file=own.file)


def check_plugins(setup: Setup, _own: FoundEntry) -> Iterator[Finding]:
    """Yield a finding if a plugin of Claude Code brings Rookery too."""
    for file in _list_settings(setup):
        for plugin, state in get_object(read_json(file).get("enabledPlugins")).items():
            if plugin.partition("@")[0] == "rookery" and state is not False:
                yield Finding("plugin", f"The plugin {plugin} ({file}) brings this server too, so its tools are doubled.", file=file)


def check_hook_settings(setup: Setup) -> Iterator[Finding]:
    """Yield findings for settings of Claude Code that keep hooks from running."""
    url = f"{setup.hook_target.url}{hook_path('claude-code', 'stop')}"
    for file in _list_settings(setup):
        settings = read_json(file)
        if settings.get("disableAllHooks") is True:
            yield Finding("disabled", f"{file} disables all hooks (disableAllHooks).", file=file)
        if "allowedHttpHookUrls" in settings and not any(fnmatchcase(url, text) for text in get_texts(settings, "allowedHttpHookUrls")):
            message = f"allowedHttpHookUrls of {file} does not allow {setup.hook_target.url}. Add {setup.hook_target.url}/*."
            yield Finding("hooks_blocked", message, file=file)
        if "httpHookAllowedEnvVars" in settings and KEY_VARIABLE not in get_texts(settings, "httpHookAllowedEnvVars"):
            message = f"httpHookAllowedEnvVars of {file} does not allow {KEY_VARIABLE}, so hooks have no key."
            yield Finding("hooks_blocked", message, file=file)


def _list_settings(setup: Setup) -> list[Path]:
    """Return the settings files of Claude Code, those of the user first."""
    user = locate_hooks("claude-code", "user", setup.places)
    folder = setup.places.project / ".claude"
    return [*([] if user is None else [user]), folder / "settings.json", folder / "settings.local.json"]


_EntryCheck = Callable[[Setup, FoundEntry], Iterator[Finding]]

_ENTRY_CHECKS: Mapping[str, tuple[_EntryCheck, ...]] = {
    "claude-code": (check_approval, check_plugins),
    "codex": (check_project_trust,),
    "copilot": (check_copilot_trust,),
    "qwen-code": (check_qwen_approval,),
}
"""Checks that only one client needs. The others follow from its declaration."""


def check_setup(setup: Setup, *, any_scope: bool) -> Report:
    """
    Check a client's files and call the server as the client would. Nothing is changed.

    Args:
        any_scope: The entry may be in any scope. Otherwise it must be the one of the scope or file of *setup*, and be in use.
    """
    findings = list[Finding]()
    try:
        entry = _check_entries(setup, findings, any_scope=any_scope)
        hooks = _check_hooks(setup, findings)
        findings += _check_ignored_files(setup)
        key = _find_key(setup, entry, findings, has_hooks=bool(hooks))
        if setup.client.id == "codex":
            reads_variable = (entry is not None and needs_variable(entry.entry)) or any(not get_key_file(hook.handler) for hook in hooks)
            is_without_file = setup.key_file is None or key_files.read_key(setup.key_file) is None
            findings += check_background_server(setup, has_hooks=bool(hooks), reads_variable=reads_variable or is_without_file)
    except ClientFileBroken as error:
        return Report((*findings, Finding("unreadable", str(error))))
    tools = None if key is None else _check_server(setup, key, findings, has_hooks=bool(hooks))
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
    for check in (check_folder_trust, check_settings, *_ENTRY_CHECKS.get(setup.client.id, ())):
        findings += check(setup, own)
    return own


def _check_ignored_files(setup: Setup) -> Iterator[Finding]:
    """Yield a finding for each file of this machine that git would commit: the hooks of Claude Code, and backups."""
    local = locate_hooks("claude-code", "project", setup.places) if setup.client.id == "claude-code" else None
    files = [setup.mcp_file, *([] if setup.hooks_file is None else [setup.hooks_file])]
    backups = [file.with_name(file.name + BACKUP_SUFFIX) for file in files]
    for file in list_exposed([*([] if local is None else [local]), *dict.fromkeys(backups)]):
        yield Finding("not_ignored", describe_exposed(file), is_problem=False, file=file)


def _check_hooks(setup: Setup, findings: list[Finding]) -> list[FoundHook]:
    """Check the hooks of all scopes, and return them."""
    client = setup.client.hook_client
    files = [setup.places.locate(place) for place in setup.client.hook_files.values()]
    hooks = {file: [hook for hook in read_hooks(file) if find_client(hook.handler) == client] for file in files}
    with_hooks = [file for file in files if hooks[file]]
    if not with_hooks:
        if setup.hooks and files:
            message = f"{setup.hooks_file} has no hooks of Rookery. Add them with --hooks --write."
            findings.append(Finding("hooks_missing", message, file=setup.hooks_file))
        return []
    if is_switched_off(setup.places.environ.get(SWITCH_VARIABLE)):
        message = f"{SWITCH_VARIABLE} switches all hooks off in this shell."
        findings.append(Finding("hooks_off", message, is_problem=False))
    if len(with_hooks) > 1:
        message = f"Both {with_hooks[0]} and {with_hooks[1]} have hooks of Rookery. The server drops the second of each event. Remove one."
        findings.append(Finding("second_hooks", message, is_problem=False, file=with_hooks[1]))
    for file in with_hooks:
        findings += _check_hook_file(setup, file, hooks[file])
    if client == "claude-code":
        findings += check_hook_settings(setup)
    return [hook for file in with_hooks for hook in hooks[file]]


def _check_hook_file(setup: Setup, file: Path, hooks: list[FoundHook]) -> Iterator[Finding]:
    missing = [hook.name for hook in HOOKS[setup.client.hook_client] if hook.name not in {present.event for present in hooks}]
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
        yield from check_hook_trust(setup, file, hooks)


def _find_key(setup: Setup, entry: FoundEntry | None, findings: list[Finding], *, has_hooks: bool) -> Secret | None:
    """Return the key that the client sends, or a finding why it has none."""
    written_key = None if entry is None else get_file_key(entry.entry)
    if entry is not None and written_key is not None and setup.client.key_source != "file":
        findings.append(_describe_written_key(setup, entry))
        return Secret(written_key)
    if setup.key_file is not None and (file_key := key_files.read_key(setup.key_file)) is not None:
        return Secret(file_key)
    if setup.client.key_source == "file":
        if entry is not None and written_key is None and get_authorization(entry.entry):
            findings.append(
                Finding("key_unset", f"{entry.file} has a placeholder in place of the key. Put the key there.", file=entry.file)
            )
        return None if written_key is None else Secret(written_key)
    key = setup.places.environ.get(KEY_VARIABLE)
    if key:
        return Secret(key)
    if setup.client.key_source == "input" and not has_hooks:
        message = f"{setup.client.name} keeps the key itself. To check it too, set {KEY_VARIABLE}."
        findings.append(Finding("key_unset", message, is_problem=False))
    else:
        reader = "Its hooks read" if setup.client.key_source == "input" else f"{setup.client.name} reads"
        file = "" if setup.key_file is None else f"{setup.key_file} has no key, and "
        findings.append(Finding("key_unset", f"{file}{KEY_VARIABLE} is not set here. {reader} the key from it."))
    return None


def _describe_written_key(setup: Setup, entry: FoundEntry) -> Finding:
    """Return the finding for a key in clear, where this command writes a reference. Others may read a file of a repository."""
    is_shared = entry.scope == "project" or is_in_repository(entry.file)
    advice = "Run this command with --write to put the reference back" + (", and rotate the key." if is_shared else ".")
    message = f"{entry.file} has the key in clear. Commands of {setup.client.name} may write it there. {advice}"
    return Finding("key_in_file", message, is_problem=is_shared, file=entry.file)


def _check_server(setup: Setup, key: Secret, findings: list[Finding], *, has_hooks: bool) -> CatalogueSize | None:
    """Call the server with the key of the client. Return the size of the list of tools."""
    server = ServerClient(setup.hook_target.url, key)
    tools = None
    try:
        tools = server.measure_tools(setup.target.url)
        if tools.count == 0:
            findings.append(Finding("no_tools", "The server lists no tools to this key.", is_problem=False))
        if needs_search_mode(tools, defers_tools=setup.client.defers_tools):
            message = (
                f"The list of tools takes about {tools.tokens:,} tokens of the model's context. --write --search makes it three tools."
            )
            findings.append(Finding("large_list", message, is_problem=False))
        if has_hooks:
            path = hook_path(setup.client.hook_client, "session-start")
            answer = server.post(path, {})  # no session: nothing is recorded
            if answer.status != 200:
                findings.append(Finding("hooks_refused", f"{setup.hook_target.url}{path}: {answer.message}"))
    except ServerUnusable as error:
        findings.append(Finding(error.code, str(error)))
    return tools
