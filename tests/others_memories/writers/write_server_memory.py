"""server-memory stores the facts by its MCP tools: one entity for each user and project, and a relation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from facts import DELETED, FACTS, NEW, OLD

folder, node, program = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
process = subprocess.Popen(
    [node, program],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
    env=os.environ | {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")},
    text=True,
)
assert process.stdin is not None
assert process.stdout is not None
count = 0


def send(method: str, **params: object) -> dict[str, object]:
    """Send a request; return the result."""
    global count  # noqa: PLW0603 - a script
    count += 1
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": count, "method": method, "params": params}) + "\n")  # pyright: ignore[reportOptionalMemberAccess]
    process.stdin.flush()  # pyright: ignore[reportOptionalMemberAccess]
    while True:
        message = json.loads(process.stdout.readline())  # pyright: ignore[reportOptionalMemberAccess]
        if message.get("id") == count:
            return message["result"]


def call(tool: str, **arguments: object) -> dict[str, object]:
    """Call a tool; return its structured result."""
    return send("tools/call", name=tool, arguments=arguments)["structuredContent"]  # pyright: ignore[reportReturnType]


send("initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "writer", "version": "1"})
process.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
for user, project, text, _ in FACTS:
    name = f"{user} {project}"
    call("create_entities", entities=[{"name": name, "entityType": "notes", "observations": []}])
    call("add_observations", observations=[{"entityName": name, "contents": [text]}])
call("add_observations", observations=[{"entityName": "kim pier", "contents": [OLD, DELETED]}])
call("delete_observations", deletions=[{"entityName": "kim pier", "observations": [OLD, DELETED]}])
call("add_observations", observations=[{"entityName": "kim pier", "contents": [NEW]}])
call("create_relations", relations=[{"from": "kim pier", "to": "ida office", "relationType": "reports to"}])
(folder / "read_graph.json").write_text(json.dumps(call("read_graph")), encoding="utf-8")
process.stdin.close()
process.wait(10)
