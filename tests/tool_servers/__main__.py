"""
Try real tool servers alone and behind Rookery, and write docs/reference/tool-servers.md: `make tool-servers`.

Some servers by `ARGS="sentry stripe"`; their rows replace those of earlier runs. `ARGS=--page` writes the page from the record alone.
Each server is started a few times, each wait has a limit, and what it starts is ended. A server that cannot be installed or started has a
row with the reason.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.tool_servers.gateway_run import check_server, run_behind_rookery
from tests.tool_servers.installation import INSTALLED, install, select
from tests.tool_servers.raw_run import run_alone, run_without_credential
from tests.tool_servers.server_record import ServerRecord, WithoutCredential, load_record, parse_record, save_record
from tests.tool_servers.server_table import PAGE, render
from tests.tool_servers.servers import SERVERS, ToolServer
from tests.tool_servers.stdio_driver import ServerFailed

_PARALLEL_ROWS = 2
_ROW_LIMIT_S = 360.0
_MAX_TEXT = 240
"""Characters of what a server says that are recorded: the reason, without the stack."""
_FAILURES = (Exception, pytest.fail.Exception)


def main() -> int:
    """Try the servers that the arguments name, or all; return 1 if a name is unknown."""
    arguments = sys.argv[1:]
    rows = load_record()
    if arguments != ["--page"]:
        try:
            servers = select(arguments)
        except ValueError as error:
            print(error, file=sys.stderr)
            return 1
        rows |= {row.id: row for row in asyncio.run(_try_all(servers, install(servers)))}
    ordered = [rows[server.id] for server in SERVERS if server.id in rows]
    save_record(ordered)
    PAGE.write_text(render(ordered), encoding="utf-8")
    return 0


async def _try_all(servers: Sequence[ToolServer], reasons: dict[str, str]) -> list[ServerRecord]:
    slots = asyncio.Semaphore(_PARALLEL_ROWS)

    async def try_in_turn(server: ToolServer) -> ServerRecord:
        async with slots:
            start = time.monotonic()
            row = await _try_one(server, server.unavailable or reasons.get(server.id, ""))
            print(f"{server.id}: {row.reason or 'done'}, {time.monotonic() - start:.0f} s", flush=True)
            return row

    return list(await asyncio.gather(*(try_in_turn(server) for server in servers)))


async def _try_one(server: ToolServer, reason: str) -> ServerRecord:
    row = ServerRecord(
        id=server.id,
        package=server.package,
        version=server.version,
        language=server.language,
        kind=server.kind,
        ran_on=datetime.now(UTC).date().isoformat(),
        reason=reason,
    )
    if reason:
        return row
    folder = Path(tempfile.mkdtemp(prefix="tool-servers-"))
    try:
        async with asyncio.timeout(_ROW_LIMIT_S):
            await _fill(row, server, _prepare(folder))
    except TimeoutError:
        row.reason = f"it took longer than {_ROW_LIMIT_S:.0f} s"
    except _FAILURES as error:
        row.reason = f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return _hide_paths(row, folder)


async def _fill(row: ServerRecord, server: ToolServer, folder: Path) -> None:
    if server.needs_credential:
        row.without = await _try_without_credential(server, folder)
    try:
        run = await run_alone(server, folder)
    except ServerFailed as error:
        row.without = row.without or await _try_without_credential(server, folder)
        row.reason = f"it does not start here: {error if server.needs_credential else row.without.raw}"
        return
    row.raw = run.facts
    row.gateway = await asyncio.to_thread(run_behind_rookery, server, folder, folder / "data", run)


async def _try_without_credential(server: ToolServer, folder: Path) -> WithoutCredential:
    raw, tools = await run_without_credential(server, folder)
    report = await asyncio.to_thread(check_server, server, folder, folder / "check", has_credential=False)
    return WithoutCredential(raw=raw[:_MAX_TEXT], tools=tools, shown=report.text[:_MAX_TEXT])


def _prepare(folder: Path) -> Path:
    """Make the scratch folder: a Git repository with a note, and a file of a cluster that nobody runs."""
    subprocess.run(["git", "init", "-q", str(folder)], check=True, timeout=60)
    (folder / "note.txt").write_text("caw\n", encoding="utf-8")
    (folder / "notes").mkdir()
    cluster = {"name": "none", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "none", "context": {"cluster": "none", "user": "none"}}
    config = {"apiVersion": "v1", "kind": "Config", "current-context": "none", "clusters": [cluster], "contexts": [context], "users": []}
    (folder / "kubeconfig.yaml").write_text(json.dumps(config), encoding="utf-8")
    return folder


def _hide_paths(row: ServerRecord, folder: Path) -> ServerRecord:
    """Return the row without the paths of this machine."""
    text = json.dumps(asdict(row))
    for path, name in ((folder, "FOLDER"), (INSTALLED.resolve(), "INSTALLED"), (INSTALLED, "INSTALLED"), (Path(sys.base_prefix), "PYTHON")):
        text = text.replace(str(path), name)
    return parse_record(f"[{text}]")[row.id]


if __name__ == "__main__":
    sys.exit(main())
