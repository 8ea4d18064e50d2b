// Store a memory, recall it, call a tool, and verify a webhook: `ROOKERY_KEY=sk_… npm start`. README.md says what it needs.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { connect, RookeryError, take, verifyWebhook, type WebhookEvent } from "./client.ts";

const url = process.env["ROOKERY_URL"] ?? "http://127.0.0.1:8400";
const key = process.env["ROOKERY_KEY"];
if (!key) {
  console.error("Set ROOKERY_KEY to an API key.");
  process.exit(2);
}
const rookery = connect(url, key);

const stored = await take(
  rookery.POST("/v1/brain/remember", {
    body: { content: "The build runs on Tuesdays.", type: "fact", project: "typescript-example", wait_ms: 5000 },
  }),
);
console.log(`stored ${stored.type}: indexed ${stored.indexed}`);

const recalled = await take(
  rookery.POST("/v1/brain/recall", { body: { query: "When does the build run?", project: "typescript-example", top_k: 1 } }),
);
console.log(`recalled: ${recalled.memories[0]?.content}`);

const called = await take(
  rookery.POST("/api/v1/mcp/tools/call", {
    body: { server: "brain", tool: "search", arguments: { query: "build", project: "typescript-example" } },
  }),
);
console.log(`called brain/search: success ${called.success}`);

try {
  await take(rookery.POST("/api/v1/mcp/tools/call", { body: { server: "brain", tool: "no-such-tool" } }));
} catch (error) {
  if (!(error instanceof RookeryError)) throw error;
  console.log(`an error has a code: ${error.code}`);
}

const event = await receiveOne();
console.log(`received ${event.type}, signature valid`);

await take(rookery.DELETE("/v1/brain/memories/{memory_id}", { params: { path: { memory_id: stored.id } } }));

/** Create an endpoint for a receiver of this program, let the server send a test event, and return it once it is verified. */
async function receiveOne(): Promise<WebhookEvent> {
  let resolve: (event: WebhookEvent) => void, reject: (error: unknown) => void;
  const received = new Promise<WebhookEvent>((...settle) => ([resolve, reject] = settle));
  let secret = "";
  const receiver = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const headers = new Headers(request.headers as Record<string, string>);
      verifyWebhook(Buffer.concat(chunks).toString("utf8"), headers, secret).then(
        (event) => (response.writeHead(204).end(), resolve(event)),
        (error) => (response.writeHead(401).end(), reject(error)),
      );
    });
  });
  await new Promise<void>((listening) => receiver.listen(0, "127.0.0.1", listening));
  const address = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}/`;
  const endpoint = await take(rookery.POST("/api/v1/webhooks", { body: { url: address, events: ["memory.stored"] } }));
  const path = { webhook_id: endpoint.id };
  try {
    secret = endpoint.secret ?? "";
    await take(rookery.POST("/api/v1/webhooks/{webhook_id}/test", { params: { path } }));
    return await received;
  } finally {
    await rookery.DELETE("/api/v1/webhooks/{webhook_id}", { params: { path } });
    receiver.close();
  }
}
