#!/bin/sh
# FastMCP 4.1.6 (PyPI) and Ajv 8.20.0 (npm): Ajv with its default options refuses the output schema of an ordinary FastMCP tool.
#
# A tool that returns a plain number gets an output schema with the keyword `x-fastmcp-wrap-result`. JSON Schema ignores unknown keywords, but
# Ajv's default is `strict: true`, and `compile` throws. With `strict: false`, as the TypeScript SDK of MCP sets it, it compiles.
# Met with a real server: 61 of the 63 tools of mcp-atlassian 0.23.1 cannot be compiled.
#
# Seen: `strict mode: unknown keyword: "x-fastmcp-wrap-result"`; exit code 0 of this script.
# Needs: python3 (3.10 or newer) with venv, node and npm, and both package registries.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --disable-pip-version-check 'fastmcp==4.1.6'
npm install --silent --no-audit --no-fund --prefix "$folder" 'ajv@8.20.0' >/dev/null
cat >"$folder/tool.py" <<'PYTHON'
import asyncio, json
from fastmcp import Client, FastMCP

server = FastMCP("adder")

@server.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

async def main():
    async with Client(server) as client:
        (tool,) = await client.list_tools()
        print(json.dumps(tool.model_dump(mode="json", by_alias=True, exclude_none=True)["outputSchema"]))

asyncio.run(main())
PYTHON
timeout 120 "$folder/env/bin/python" "$folder/tool.py" >"$folder/schema.json"
cat "$folder/schema.json"
cat >"$folder/compile.cjs" <<'NODE'
const assert = require("assert");
const Ajv = require("ajv/dist/2020").default;
const schema = require("./schema.json");
assert.throws(() => new Ajv().compile(schema), (error) => {
  console.log(error.message);
  return error.message === 'strict mode: unknown keyword: "x-fastmcp-wrap-result"';
});
assert.strictEqual(new Ajv({ strict: false }).compile(schema)({ result: 3 }), true);
NODE
cd "$folder" && timeout 60 node compile.cjs
