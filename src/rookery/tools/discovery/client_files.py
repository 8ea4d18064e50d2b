"""Edits of clients' configuration files: add Rookery and keep everything else (D-35). Only two functions do I/O."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Literal, TypeAlias, cast

from rookery.tools.discovery.client_guides import VSCODE_INPUT, SetupTarget, build_client_entry, build_codex_table
from rookery.tools.models import JsonObject

Client: TypeAlias = Literal["claude-code", "cursor", "vscode", "codex", "windsurf", "gemini"]

CLIENT_FILES: dict[Client, str] = {
    "claude-code": ".mcp.json",
    "cursor": ".cursor/mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": "~/.codex/config.toml",
    "windsurf": "~/.codeium/windsurf/mcp_config.json",
    "gemini": "~/.gemini/settings.json",
}
"""Files that can be written, by client: in the project's folder or in the home folder. None of them contains the key itself."""


class ClientFileBroken(Exception):
    """A client's file cannot be edited and is left unchanged. The message states the reason."""


def add_entry(client: Client, text: str, target: SetupTarget) -> str:
    """
    Return a client's file with *target* added. An entry of the same name is replaced; everything else stays.

    Args:
        text: The current content; empty if the file does not exist.

    Raises:
        ClientFileBroken: The content is not in the form that this client reads.
    """
    return _add_to_toml(text, target) if client == "codex" else _add_to_json(client, text, target)


def write_client_file(path: Path, text: str) -> None:
    """
    Replace the file at *path* by *text* atomically, so that the client never reads half of it.

    Raises:
        ClientFileBroken: The file cannot be written.
    """
    real = Path(os.path.realpath(path))  # keep a symbolic link
    new = real.with_name(f".{real.name}.{os.getpid()}")
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        try:
            new.write_text(text, encoding="utf-8")
            if real.exists():
                new.chmod(real.stat().st_mode & 0o777)
            new.replace(real)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        raise ClientFileBroken(f"{path} cannot be written: {error.strerror}") from error


def read_client_file(path: Path) -> str:
    """
    Return the content of the file at *path*; empty if it does not exist.

    Raises:
        ClientFileBroken: The file cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ClientFileBroken(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ClientFileBroken(f"{path} is not UTF-8.") from error


def _add_to_json(client: Client, text: str, target: SetupTarget) -> str:
    try:
        document: object = json.loads(text) if text.strip() else {}
    except ValueError as error:
        # VS Code accepts comments, which would be lost.
        raise ClientFileBroken(f"It is not plain JSON ({error}), so add the entry by hand.") from error
    if not isinstance(document, dict):
        raise ClientFileBroken("It is not a JSON object, so add the entry by hand.")
    content = cast("JsonObject", document)
    key = "servers" if client == "vscode" else "mcpServers"
    _get_section(content, key)[target.name] = build_client_entry(client, target)
    if client == "vscode":
        inputs = content.setdefault("inputs", [])
        if not isinstance(inputs, list):
            raise ClientFileBroken('Its "inputs" is not a list, so add the entry by hand.')
        input_items = cast("list[object]", inputs)
        if not any(isinstance(item, dict) and cast("JsonObject", item).get("id") == VSCODE_INPUT["id"] for item in input_items):
            input_items.append(VSCODE_INPUT)
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _get_section(document: JsonObject, key: str) -> JsonObject:
    fields = document.setdefault(key, {})
    if not isinstance(fields, dict):
        raise ClientFileBroken(f'Its "{key}" is not an object, so add the entry by hand.')
    return cast("JsonObject", fields)


def _add_to_toml(text: str, target: SetupTarget) -> str:
    """Return the file with our table at its end. Tables are found by their header lines, so that comments and order stay."""
    _require_toml(text)
    output_lines: list[str] = []
    is_ours = False
    for line in text.splitlines():
        header = line.strip()
        if header.startswith("["):
            is_ours = header.partition("#")[0].strip() == f"[mcp_servers.{target.name}]"
        if not is_ours:
            output_lines.append(line)
    before = "\n".join(output_lines).rstrip()
    new_text = (f"{before}\n\n" if before else "") + build_codex_table(target)
    # If the entry already exists in another notation (dotted keys, quotes), it would now be defined twice.
    _require_toml(new_text)
    return new_text


def _require_toml(text: str) -> None:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ClientFileBroken(f"The entry cannot be added to this TOML file ({error}), so add it by hand.") from error
