"""
`rookery hook EVENT --client CLIENT`: sends an event of a coding agent to the server and prints its answer.

It always exits with 0 and never writes to standard error, because clients show both to their users or stop for them. It ends after a second
in any case. It imports nothing of the server and of the command line, since a client starts it for each event.
"""

from __future__ import annotations

import http.client
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, cast
from urllib.parse import urlencode, urlsplit

from rookery.coding_agents.hook_declarations import (
    CLIENTS,
    EVENTS,
    HOOKS,
    MAX_PROJECT_CHARS,
    SWITCH_VARIABLE,
    HookEvent,
    hook_path,
    is_switched_off,
)
from rookery.coding_agents.projects import LocalProject, find_project
from rookery.coding_agents.terminals import is_switched_off_in_terminal

DEADLINE_S = 1.0
DEFAULT_URL = "http://127.0.0.1:8400"
URL_VARIABLE, KEY_VARIABLE = "ROOKERY_URL", "ROOKERY_KEY"

_MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
_MAX_SENT_BYTES = 1024 * 1024
"""Length from which the texts of a payload lose their middle. What counts of a long prompt is its end, and then its beginning."""

_HEAD_CHARS, _TAIL_CHARS = 20_000, 100_000
"""Characters of a text that are kept. A character has at most 6 bytes as JSON, or 12 as two escapes."""
_MAX_ANSWER_BYTES = 64 * 1024
_OPTIONS = {"--client": "client", "--url": "url", "--key-variable": "key_variable", "--key-file": "key_file"}


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """
    The options of the command.

    Attributes:
        url: The server; by default that of `ROOKERY_URL`, or the default port of this host.
        key_variable: The variable with the key.
        key_file: A file with the key, for a client that passes on no variables. Without it, the variable counts.
    """

    event: HookEvent
    client: str
    url: str = ""
    key_variable: str = KEY_VARIABLE
    key_file: str = ""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command with the arguments after `rookery hook`, by default those of this process, and exit with 0."""
    timer = threading.Timer(DEADLINE_S, os._exit, (0,))  # also ends a read of standard input or a look-up of a name that hangs
    timer.daemon = True
    timer.start()
    with suppress(Exception):
        answer = run(sys.argv[2:] if arguments is None else arguments, sys.stdin.buffer.read(_MAX_PAYLOAD_BYTES + 1), os.environ)
        if answer:
            sys.stdout.buffer.write(answer.encode())  # clients read UTF-8, whatever the terminal has
            sys.stdout.buffer.flush()
    os._exit(0)  # nothing is left to close, and the end of the interpreter would take 10 ms


def run(arguments: Sequence[str], payload: bytes, environment: Mapping[str, str]) -> str:
    """
    Return the answer of the server as JSON, or an empty text if there is nothing to print.

    Raises:
        Exception: The event cannot be sent. `main` ignores it.
    """
    options = parse_options(arguments)
    if options is None or is_switched_off(environment.get(SWITCH_VARIABLE)) or len(payload) > _MAX_PAYLOAD_BYTES:
        return ""
    hook = next((hook for hook in HOOKS[options.client] if hook.event == options.event), None)
    if hook is not None and hook.needs_variable and not environment.get(hook.needs_variable):
        return ""
    fields = cast("object", json.loads(payload))
    if not isinstance(fields, dict):
        return ""
    folder = find_folder(cast("Mapping[str, object]", fields), environment)
    project = find_project(folder)
    if project is None or not project.is_recorded:
        return ""
    if options.client == "codex" and is_switched_off_in_terminal("codex", folder):
        return ""
    key = _read_key(options, environment)
    if len(payload) > _MAX_SENT_BYTES:
        payload = shorten_payload(cast("Mapping[str, object]", fields))
    return send(options, payload, project, url=options.url or environment.get(URL_VARIABLE) or DEFAULT_URL, key=key) if key else ""


def parse_options(arguments: Sequence[str]) -> HookOptions | None:
    """Return the options, or None if the arguments are invalid. Options may be written as `--client=codex` too."""
    words = [word for argument in arguments for word in (argument.split("=", 1) if argument.startswith("--") else (argument,))]
    if len(words) % 2 == 0 or words[0] not in EVENTS:
        return None
    names = [_OPTIONS.get(word) for word in words[1::2]]
    values = {name: value for name, value in zip(names, words[2::2], strict=True) if name is not None}
    if len(values) != len(names) or values.get("client") not in CLIENTS:
        return None
    return HookOptions(
        event=words[0],
        client=values["client"],
        url=values.get("url", ""),
        key_variable=values.get("key_variable") or KEY_VARIABLE,
        key_file=values.get("key_file", ""),
    )


def find_folder(payload: Mapping[str, object], environment: Mapping[str, str]) -> Path:
    """Return the folder in which the agent works: as the client sends it, else as its variables name it, else the present one."""
    roots = payload.get("workspace_roots")
    first_root = cast("list[object]", roots)[0] if isinstance(roots, list) and roots else None
    candidates = (payload.get("cwd"), first_root, environment.get("CLAUDE_PROJECT_DIR"), environment.get("CURSOR_PROJECT_DIR"))
    return next((Path(name) for name in candidates if isinstance(name, str) and name), Path.cwd())


def shorten_payload(fields: Mapping[str, object]) -> bytes:
    """Return the texts of a payload as JSON, long ones without their middle. Other long fields are left out: the server reads none."""
    short_fields = dict[str, object]()
    for name, value in fields.items():
        if isinstance(value, str):
            is_long = len(value) > _HEAD_CHARS + _TAIL_CHARS
            short_fields[name] = f"{value[:_HEAD_CHARS]}\n\n{value[-_TAIL_CHARS:]}" if is_long else value
    return json.dumps(short_fields, ensure_ascii=False).encode(errors="replace")


def send(options: HookOptions, payload: bytes, project: LocalProject, *, url: str, key: str) -> str:
    """
    Send the event and return the answer, or an empty text if it is no 200, or an empty object.

    Raises:
        OSError, HTTPException, ValueError: The server cannot be reached, or its answer is invalid.
    """
    parts = urlsplit(url)
    connection_type = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = connection_type(parts.hostname or "", parts.port, timeout=DEADLINE_S)
    values = ((name, cast("str | None", getattr(project, name)), limit) for name, limit in MAX_PROJECT_CHARS.items())
    names = {name: value[:limit].rstrip() for name, value, limit in values if value}
    query = urlencode({**names, **({"is_named": "true"} if project.is_named else {})})
    path = f"{parts.path.rstrip('/')}{hook_path(options.client, options.event)}?{query}"
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Connection": "close"}
    try:
        connection.request("POST", path, body=payload, headers=headers)
        response = connection.getresponse()
        text = response.read(_MAX_ANSWER_BYTES + 1).decode()
    finally:
        connection.close()
    if response.status != http.client.OK or len(text) > _MAX_ANSWER_BYTES:
        return ""
    return text if isinstance(json.loads(text), dict) and text.strip() != "{}" else ""


def _read_key(options: HookOptions, environment: Mapping[str, str]) -> str:
    file = Path(options.key_file).expanduser() if options.key_file else None
    if file is not None and file.exists():
        return file.read_text(encoding="utf-8").strip()
    return environment.get(options.key_variable, "").strip()
