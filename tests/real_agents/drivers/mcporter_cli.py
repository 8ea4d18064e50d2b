"""The command mcporter, in a loop of our own: a model gets what it prints."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

from model_loop import run_loop
from surroundings import MCP_URL

CONFIG = Path.home() / "mcporter.json"
ENTRY = {"baseUrl": MCP_URL, "headers": {"Authorization": "Bearer ${ROOKERY_KEY}"}}


def run_mcporter(*words: str) -> subprocess.CompletedProcess:
    command = ["node", os.environ["BRIDGE"], "--config", str(CONFIG), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


async def call(name: str, arguments: dict) -> str:
    result = run_mcporter("call", f"rookery.{name}", "--args", json.dumps(arguments))
    return f"{result.stdout}{result.stderr}"


CONFIG.write_text(json.dumps({"mcpServers": {"rookery": ENTRY}}), encoding="utf-8")
listed = run_mcporter("list", "rookery", "--json")
try:
    tools = json.loads(listed.stdout)["tools"]
except (ValueError, KeyError):
    sys.exit(f"{listed.stdout}{listed.stderr}")
declared = [
    {"name": tool["name"], "description": tool.get("description", ""), "parameters": tool.get("inputSchema", {"type": "object"})}
    for tool in tools
]
asyncio.run(run_loop(declared, call))
