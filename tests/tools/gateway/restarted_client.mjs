// A client of the TypeScript SDK whose server restarts: node restarted_client.mjs ADDRESS KEY
import { createInterface } from "node:readline/promises";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ToolListChangedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [address, key] = process.argv.slice(2);
const client = new Client({ name: "restarted", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, ({ params }) => ({ action: "accept", content: { username: params.message, email: "a@b.example" } }));
const changed = new Promise((resolve) => client.setNotificationHandler(ToolListChangedNotificationSchema, resolve));
const transport = new StreamableHTTPClientTransport(new URL(address), {
  requestInit: { headers: { Authorization: `Bearer ${key}` } },
  reconnectionOptions: { initialReconnectionDelay: 100, maxReconnectionDelay: 500, reconnectionDelayGrowFactor: 1, maxRetries: 100 },
});
const call = async (name) => (await client.callTool({ name: "test_elicitation", arguments: { message: name } })).content[0].text;

await client.connect(transport);
console.log(await call("before"));
await createInterface({ input: process.stdin }).question("");
console.log(await call("after"));
await changed;
console.log("the tools may have changed");
await transport.terminateSession();
await client.close();
process.exit(0);
