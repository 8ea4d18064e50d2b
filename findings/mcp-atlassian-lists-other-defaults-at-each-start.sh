#!/bin/sh
# mcp-atlassian 0.23.1 (PyPI): the same program, the same configuration, two starts: tools/list differs.
#
# The default of the argument `fields` of jira_get_issue is a text of eleven names that are joined in the order of a Python set, which changes
# from process to process. A client that caches or signs tool definitions, or a model API that caches the prompt by its first bytes, sees
# other tools after every restart. With PYTHONHASHSEED=0 two starts give the same list.
#
# Seen: the same eleven names in four orders at four starts; exit code 0 of this script.
# Needs: python3 (3.10 or newer) with venv, and a Python package index. It calls no service: the address is one where nobody listens.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check 'mcp-atlassian==0.23.1'
cat >"$folder/compare.py" <<'PYTHON'
import json, os, subprocess, sys

SERVER = sys.argv[1]
BASE = {"PATH": os.environ["PATH"], "HOME": os.path.dirname(sys.argv[0]), "JIRA_URL": "http://127.0.0.1:9",
        "JIRA_USERNAME": "ada@example.org", "JIRA_API_TOKEN": "made-up"}

def read_default(**variables):
    process = subprocess.Popen([SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=BASE | variables)
    try:
        def ask(message):
            process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            process.stdin.flush()
            while "id" in message:
                answer = json.loads(process.stdout.readline())
                if answer.get("id") == message["id"]:
                    return answer["result"]
        ask({"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}})
        ask({"method": "notifications/initialized"})
        tools = {tool["name"]: tool for tool in ask({"id": 2, "method": "tools/list", "params": {}})["tools"]}
        return tools["jira_get_issue"]["inputSchema"]["properties"]["fields"]["default"]
    finally:
        process.kill()
        process.wait()

defaults = [read_default() for _ in range(4)]
fixed = {read_default(PYTHONHASHSEED="0") for _ in range(2)}
print("\n".join(defaults))
names = {tuple(sorted(default.split(","))) for default in defaults}
assert len(names) == 1 and len(names.pop()) == 11, "the names differ too"
assert len(set(defaults)) > 1, "four starts gave the same order"
assert len(fixed) == 1, "the order differs with a fixed seed too"
PYTHON
timeout 300 "$folder/env/bin/python" "$folder/compare.py" "$folder/env/bin/mcp-atlassian"
