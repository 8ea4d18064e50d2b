#!/bin/sh
# smolagents 1.26.0 with mcpadapt 0.1.19 and mcp 1.30.0 (PyPI): one MCP tool without `properties` in its input schema takes all tools of its server away.
#
# `{"type": "object"}` is the schema of a tool without arguments, and valid: `properties` is optional in MCP and in JSON Schema. A client would
# be expected to list the tool without arguments, or to leave it out. `ToolCollection.from_mcp` raises `KeyError: 'properties'` in its adapter,
# so no tool of the server can be used, also not those with arguments.
#
# Seen: `KeyError: 'properties'` with both tools, `['add']` with the second tool alone; exit code 0 of this script.
# Needs: python3 (3.10 or newer) with venv, and the registry of Python packages.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check 'smolagents[mcp]==1.26.0' 'mcp==1.30.0' 'mcpadapt==0.1.19'
cat >"$folder/server.py" <<'PYTHON'
import asyncio, sys
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

server = Server("two")
number = {"type": "integer", "description": "A number."}
ADD = types.Tool(name="add", description="Add.", inputSchema={"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]})
NOW = types.Tool(name="now", description="Return the time.", inputSchema={"type": "object"})

@server.list_tools()
async def list_tools() -> list[types.Tool]:
    return [NOW, ADD] if sys.argv[1] == "both" else [ADD]

async def main() -> None:
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

asyncio.run(main())
PYTHON
cat >"$folder/client.py" <<'PYTHON'
import sys
from mcp import StdioServerParameters
from smolagents import ToolCollection

def list_names(which):
    parameters = StdioServerParameters(command=sys.executable, args=[sys.argv[1], which])
    with ToolCollection.from_mcp(parameters, trust_remote_code=True, structured_output=False) as collection:
        return [tool.name for tool in collection.tools]

print(list_names("one"))
assert list_names("one") == ["add"]
try:
    print(list_names("both"))
except KeyError as error:
    print(repr(error))
    assert error.args == ("properties",)
else:
    sys.exit("the tools are listed now")
PYTHON
timeout 120 "$folder/env/bin/python" "$folder/client.py" "$folder/server.py"
