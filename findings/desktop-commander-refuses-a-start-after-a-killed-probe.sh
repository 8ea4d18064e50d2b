#!/bin/sh
# @wonderwhy-er/desktop-commander 0.2.52 (npm): a process that is killed right after the era probe makes the next start fail.
#
# While it starts it locks a file in its home folder. It answers `server/discover` (-32601) before that is done. A client that then kills this
# process and starts another one, as for a probe in a process of its own, meets the lock: `initialize` is answered with -32603 "Lock file is
# already being held", on a program that works. 15 s later the same start is accepted. So keep the process, or end it gently.
#
# Seen: -32603 with that text, then 2025-11-25 after 15 s; exit code 0 of this script.
# Needs: node and npm with its registry, and python3.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" '@wonderwhy-er/desktop-commander@0.2.52' >/dev/null
mkdir "$folder/home"
cat >"$folder/restart.py" <<'PYTHON'
import json, os, subprocess, sys, time

script = os.path.join(sys.argv[1], "node_modules/@wonderwhy-er/desktop-commander/dist/index.js")
environment = {"PATH": os.environ["PATH"], "HOME": os.path.join(sys.argv[1], "home")}

def start(method):
    process = subprocess.Popen(["node", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    try:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + "\n")
        process.stdin.flush()
        while True:
            answer = json.loads(process.stdout.readline())
            if answer.get("id") == 1:
                return answer.get("error") or answer["result"]["protocolVersion"]
    finally:
        process.kill()
        process.wait()

first = start(sys.argv[2])
second = start("initialize")
time.sleep(15)
third = start("initialize")
print(first, second, third, sep="\n")
assert first["code"] == -32601
assert second == {"code": -32603, "message": "Lock file is already being held"}
assert third == "2025-11-25"
PYTHON
timeout 120 python3 "$folder/restart.py" "$folder" server/discover
