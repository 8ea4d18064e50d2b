// A program with the client of hey-api: one secret for every scheme, and every field of the key.
import { strict as assert } from "node:assert";

import { run, start } from "./calls";
import { client } from "./hey/client.gen";
import { archiveMemory, callTool, getCurrentKey, listMemories, readResource, recall, remember, updateMemory } from "./hey/sdk.gen";

start(async () => {
  client.setConfig({ baseUrl: process.argv[2]!, auth: process.env.ROOKERY_KEY! });
  await run({
    remember: async (content, metadata) => (await remember({ body: { content, metadata, tags: ["build"], wait_ms: 5000 } })).data?.id,
    recall: async (query) => (await recall({ body: { query } })).data?.memories.map((memory) => memory.id),
    list: async (metadata) => (await listMemories({ query: { metadata } })).data?.data.map((memory) => memory.id),
    read: async (uri) => (await readResource({ path: { uri } })).data?.content,
    update: async (memory_id, content) => {
      const changed = (await updateMemory({ path: { memory_id }, body: { content } })).data;
      return changed && { content: changed.content, tags: changed.tags };
    },
    archive: async (memory_id) => (await archiveMemory({ path: { memory_id } })).data?.state,
    call: async (server, tool, args) => {
      const answer = (await callTool({ body: { server, tool, arguments: args } })).data;
      return typeof answer === "object" ? answer.success : undefined;
    },
  });
  assert.equal((await getCurrentKey()).data?.workspace_id, 1);
});
