#!/bin/sh
# Go SDK v1.8.0 and Python SDK 2.3.0 of MCP: the same question, `server/discover`, has answers of two kinds.
#
# `supportedVersions` of a Go server names also the four older versions, which it accepts by `initialize`. A Python server names 2026-07-28
# alone, although it accepts 2025-11-25 by `initialize` too. So the list does not say which handshake a server accepts: a client that takes
# it as that would refuse Python servers that it could use.
#
# Seen: Go ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]; Python ["2026-07-28"]; both accept `initialize` with
# 2025-11-25; exit code 0 of this script.
# Needs: go 1.25 or newer with a module proxy, and python3 (3.10 or newer) with venv and a package index.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
GOBIN="$folder" go install github.com/modelcontextprotocol/go-sdk/examples/server/everything@v1.8.0
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check 'mcp==2.3.0' 'mcp-server-time==2026.10.19'
cat >"$folder/versions.py" <<'PYTHON'
import json, subprocess, sys

META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"}}

def ask(command, method, params):
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())["result"]
    finally:
        process.kill()
        process.wait()

expected = {"go": ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"], "python": ["2026-07-28"]}
hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
for name, command in (("go", [sys.argv[1]]), ("python", [sys.argv[2], "--local-timezone", "UTC"])):
    versions = ask(command, "server/discover", {"_meta": META})["supportedVersions"]
    accepted = ask(command, "initialize", hello)["protocolVersion"]
    print(name, versions, "initialize:", accepted)
    assert versions == expected[name], name
    assert accepted == "2025-11-25", name
PYTHON
timeout 120 python3 "$folder/versions.py" "$folder/everything" "$folder/env/bin/mcp-server-time"
