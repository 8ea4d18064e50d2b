// A program with the client of hey-api: one secret for every scheme, a filter by an object, and every field of the key.
import { strict as assert } from "node:assert";

import { client } from "./hey/client.gen";
import { getCurrentKey, listMemories, recall, remember } from "./hey/sdk.gen";

async function main(): Promise<void> {
  client.setConfig({ baseUrl: process.argv[2]!, auth: process.env.ROOKERY_KEY! });
  const stored = await remember({ body: { content: "The build runs on Tuesdays.", metadata: { user_id: "u_17" }, wait_ms: 5000 } });
  assert.equal(stored.error, undefined);
  const recalled = await recall({ body: { query: "When does the build run?" } });
  assert.deepEqual(recalled.data?.memories.map((memory) => memory.id), [stored.data?.id]);
  const listed = await listMemories({ query: { metadata: { user_id: "u_17" } } });
  assert.equal(listed.error, undefined, JSON.stringify(listed.error));
  assert.deepEqual(listed.data?.data.map((memory) => memory.id), [stored.data?.id]);
  assert.equal((await listMemories({ query: { metadata: { user_id: "u_18" } } })).data?.data.length, 0);
  assert.equal((await getCurrentKey()).data?.workspace_id, 1);
}

main().catch((reason: unknown) => {
  console.error(reason);
  process.exit(1);
});
