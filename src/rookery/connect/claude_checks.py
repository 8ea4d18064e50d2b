"""Checks of approvals, plugins and settings, which keep Claude Code from using its files (field notes B4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from rookery.coding_agents.hook_declarations import hook_path
from rookery.connect.clients import locate_file, locate_hooks
from rookery.connect.findings import Finding
from rookery.connect.settings_files import get_object, get_texts, read_json
from rookery.connect.setups import FoundEntry, Setup
from rookery.tools.discovery.client_guides import KEY_VARIABLE


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
