// The verification of webhooks, with a delivery that is signed here: `npm test`.
import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import test from "node:test";
import { verifyWebhook, WebhookRejected } from "./client.ts";

const body = JSON.stringify({ id: "evt_1", type: "memory.stored", created_at: "2026-11-23T00:00:00Z", workspace_id: 1, data: {} });
const secret = `whsec_${Buffer.alloc(24, 7).toString("base64")}`;

function sign(text: string, key: Buffer | string, sentAt = Math.floor(Date.now() / 1000)): Headers {
  const signature = createHmac("sha256", key).update(`evt_1.${sentAt}.${text}`).digest("base64");
  return new Headers({ "webhook-id": "evt_1", "webhook-timestamp": String(sentAt), "webhook-signature": `v1,AAAA v1,${signature}` });
}

test("a signed delivery is accepted, with a generated and with an own secret", async () => {
  assert.equal((await verifyWebhook(body, sign(body, Buffer.alloc(24, 7)), secret)).type, "memory.stored");
  assert.equal((await verifyWebhook(body, sign(body, "my own secret, long"), "my own secret, long")).id, "evt_1");
});

test("a changed body, another secret, an old delivery and missing headers are rejected", async () => {
  const headers = sign(body, Buffer.alloc(24, 7));
  await assert.rejects(verifyWebhook(`${body} `, headers, secret), WebhookRejected);
  await assert.rejects(verifyWebhook(body, headers, `whsec_${Buffer.alloc(24, 8).toString("base64")}`), WebhookRejected);
  await assert.rejects(verifyWebhook(body, sign(body, Buffer.alloc(24, 7), 1_000_000_000), secret), WebhookRejected);
  await assert.rejects(verifyWebhook(body, new Headers(), secret), WebhookRejected);
});
