// A typed client of Rookery. Paths, bodies and answers are checked against rookery.d.ts, which `npm run generate` writes.
import createClient, { type Client } from "openapi-fetch";
import type { paths } from "./rookery.d.ts";

export type Rookery = Client<paths, "application/json">;

/** Return a client of the server at `url` that sends `key` with each request. */
export function connect(url: string, key: string): Rookery {
  return createClient<paths, "application/json">({ baseUrl: url, headers: { Authorization: `Bearer ${key}` } });
}

/** An answer that is an error. `code` is part of the API; the message is for people. */
export class RookeryError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | null;
  readonly body: unknown;

  constructor(response: Response, body: unknown) {
    const fields = typeof body === "object" && body !== null ? (body as Record<string, unknown>) : {};
    const code = String(fields["code"] ?? fields["error"] ?? "unknown");
    super(`${response.status} ${code}: ${String(fields["message"] ?? fields["error"] ?? response.statusText)}`);
    this.name = "RookeryError";
    this.status = response.status;
    this.code = code;
    this.requestId = response.headers.get("X-Request-ID");
    this.body = body;
  }
}

/** Return the data of an answer, undefined for one without a body; throw a RookeryError if the answer is an error. */
export async function take<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call;
  if (!response.ok) {
    throw new RookeryError(response, error);
  }
  return data as T;
}

export interface WebhookEvent {
  id: string;
  type: string;
  created_at: string;
  workspace_id: number;
  data: Record<string, unknown>;
}

/** A delivery that must not be trusted: answer 401. */
export class WebhookRejected extends Error {}

/**
 * Verify a delivery by the headers of Standard Webhooks, and return its event.
 *
 * `body` is the body exactly as received: parsed and serialised JSON has other bytes and fails. `secret` is the secret of the endpoint.
 * A delivery that was sent more than `toleranceS` seconds ago, or in the future, is rejected.
 */
export async function verifyWebhook(body: string, headers: Headers, secret: string, toleranceS = 300): Promise<WebhookEvent> {
  const [id, sentAt, signatures] = ["webhook-id", "webhook-timestamp", "webhook-signature"].map((name) => headers.get(name) ?? "");
  if (!id || !sentAt || !signatures || !/^\d{1,12}$/.test(sentAt)) {
    throw new WebhookRejected("The headers webhook-id, webhook-timestamp and webhook-signature are not complete.");
  }
  const key = await crypto.subtle.importKey("raw", secretBytes(secret), { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  const signed = new TextEncoder().encode(`${id}.${sentAt}.${body}`);
  const candidates = signatures.split(" ").filter((value) => value.startsWith("v1,")).slice(0, 16);
  const matches = await Promise.all(
    candidates.map((value) => crypto.subtle.verify("HMAC", key, Buffer.from(value.slice(3), "base64"), signed)),
  );
  if (!matches.includes(true)) {
    throw new WebhookRejected("No signature matches: pass the body as received, and the secret of this endpoint.");
  }
  if (Math.abs(Date.now() / 1000 - Number(sentAt)) > toleranceS) {
    throw new WebhookRejected(`The delivery was not sent within ${toleranceS} s: it was replayed, or a clock is wrong.`);
  }
  return JSON.parse(body) as WebhookEvent;
}

/** Return the key of a secret: the decoded base64 after `whsec_`, or the bytes of a secret that you chose yourself. */
function secretBytes(secret: string): Uint8Array<ArrayBuffer> {
  const encoded = secret.startsWith("whsec_") ? secret.slice(6) : "";
  const isBase64 = encoded !== "" && encoded.length % 4 === 0 && /^[A-Za-z0-9+/]+={0,2}$/.test(encoded);
  return new Uint8Array(isBase64 ? Buffer.from(encoded, "base64") : new TextEncoder().encode(secret));
}
