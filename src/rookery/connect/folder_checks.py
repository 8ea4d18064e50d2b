"""Checks of folders that a user does not trust, and of settings that disable a server. Both keep a client from using its files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from rookery.connect.clients import FolderTrust
from rookery.connect.findings import Finding
from rookery.connect.settings_files import get_object, get_texts, read_json
from rookery.connect.setups import FoundEntry, Setup


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
