"""
Run real servers of language models, record what they answer, and write docs/reference/text-generation-servers.md.

`make text-generation-servers`; some servers by `ARGS="llama-cpp litellm"`, whose records replace earlier ones; `ARGS=--outcomes` plays the
records to Rookery again and writes the page, after a change of Rookery. `ARGS="--into FOLDER"` installs into another folder. A server that
cannot be installed keeps its record.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

from tests.chat_service import run_chat_service
from tests.pinned_packages import describe_failure
from tests.text_generation_servers.exchanges import Exchange, ServerExchanges, load_servers, save_servers
from tests.text_generation_servers.page import PAGE, render
from tests.text_generation_servers.replay import play
from tests.text_generation_servers.servers import INSTALLED, SERVERS, Case, RunningServer, Server, build_body
from tests.text_generation_servers.upstream import SCRIPTS, run_upstream

_LIMIT_S = 120
_HEADERS = re.compile(r"content-type$|retry-after|rate-?limit", re.IGNORECASE)
"""The headers that say something about an answer."""

_VARYING = (
    (re.compile(r'"id": ?"[^"]+"'), '"id":"chatcmpl-1"'),
    (re.compile(r'"created": ?\d+'), '"created":1764000000'),
    (re.compile(r"127\.0\.0\.1:\d+"), "127.0.0.1:8000"),
    (re.compile(r'"timings": ?\{[^}]*\}'), '"timings":{}'),
    (re.compile(r'"system_fingerprint": ?"[^"]+"'), '"system_fingerprint":"b1"'),
)
"""Parts that differ in each run and say nothing."""


def main() -> int:
    """Record the servers that the arguments name, or all; return 1 if a name is unknown or a server does not run."""
    arguments = sys.argv[1:]
    servers = {server.id: server for server in load_servers()}
    is_complete, installed = True, INSTALLED
    if "--into" in arguments:
        position = arguments.index("--into")
        installed = Path(arguments[position + 1])
        arguments = [*arguments[:position], *arguments[position + 2 :]]
    if arguments != ["--outcomes"]:
        unknown = set(arguments) - {server.id for server in SERVERS}
        if unknown:
            print(f"unknown servers: {', '.join(sorted(unknown))}", file=sys.stderr)
            return 1
        for server in SERVERS:
            if arguments and server.id not in arguments:
                continue
            try:
                server.install(installed)
                servers[server.id] = _record(server, installed)
                print(f"{server.id}: {len(servers[server.id].exchanges)} exchanges", flush=True)
            except (subprocess.SubprocessError, OSError, RuntimeError) as error:
                reason = describe_failure(error) if isinstance(error, subprocess.SubprocessError | OSError) else str(error)
                print(f"{server.id}: {reason}", file=sys.stderr)
                is_complete = False
    asyncio.run(_play(list(servers.values())))
    save_servers(servers.values())
    PAGE.write_text(render(load_servers()), encoding="utf-8")
    return 0 if is_complete else 1


def _record(server: Server, installed: Path) -> ServerExchanges:
    record = ServerExchanges(
        id=server.id,
        title=server.title,
        version=f"{server.package} {server.version}",
        source="recorded",
        made_on=datetime.now(UTC).date().isoformat(),
        behind="a scripted service" if server.is_proxy else "",
    )
    with (
        tempfile.TemporaryDirectory(prefix="text-generation-servers-") as folder,
        run_upstream() as upstream_port,
        server.run(installed, Path(folder), upstream_port) as running,
    ):
        record.exchanges = [_exchange(server, case, running) for case in server.cases]
    return record


def _exchange(server: Server, case: Case, running: RunningServer) -> Exchange:
    headers = {"content-type": "application/json", "authorization": f"Bearer {case.key}", **running.headers}
    data = json.dumps(build_body(server, case)).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{running.port}/v1/chat/completions", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=_LIMIT_S) as response:  # noqa: S310 - the address is on this host
            status, fields, body = response.status, list(response.headers.items()), response.read()
    except urllib.error.HTTPError as error:
        status, fields, body = error.code, list(error.headers.items()), error.read()
    text = body.decode(errors="replace")
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    script = SCRIPTS.get(case.model or "")
    billed = (script.usage or {}).get("total_tokens") if script is not None else _find_total(text)
    return Exchange(
        name=case.name,
        request=case.request,
        status=status,
        headers={name.lower(): value for name, value in fields if _HEADERS.search(name)},
        body=text,
        billed_tokens=billed,
        comment=case.comment,
    )


def _find_total(body: str) -> int | None:
    """Return the last total that a server reports."""
    totals: list[str] = re.findall(r'"total_tokens": ?(\d+)', body)
    return int(totals[-1]) if totals else None


async def _play(servers: list[ServerExchanges]) -> None:
    with run_chat_service() as service:
        for server in servers:
            for exchange in server.exchanges:
                exchange.outcome = await play(service, exchange)


if __name__ == "__main__":
    sys.exit(main())
