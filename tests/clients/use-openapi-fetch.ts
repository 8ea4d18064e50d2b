// A program with the types of openapi-typescript, and openapi-fetch.
import createClient from "openapi-fetch";

import { run, start } from "./calls";
import type { paths } from "./rookery";

const client = createClient<paths, "application/json">({
  baseUrl: process.argv[2]!,
  headers: { Authorization: `Bearer ${process.env.ROOKERY_KEY!}` },
});

start(() =>
  run({
    remember: async (content, metadata) =>
      (await client.POST("/v1/brain/remember", { body: { content, metadata, tags: ["build"], wait_ms: 5000 } })).data?.id,
    recall: async (query) => (await client.POST("/v1/brain/recall", { body: { query } })).data?.memories.map((memory) => memory.id),
    list: async (metadata) =>
      (await client.GET("/v1/brain/memories", { params: { query: { metadata } } })).data?.data.map((memory) => memory.id),
    read: async (uri) => (await client.GET("/api/v1/mcp/resources/{uri}", { params: { path: { uri } } })).data?.content,
    update: async (memory_id, content) => {
      const changed = (await client.PATCH("/v1/brain/memories/{memory_id}", { params: { path: { memory_id } }, body: { content } })).data;
      return changed && { content: changed.content, tags: changed.tags };
    },
    archive: async (memory_id) =>
      (await client.POST("/v1/brain/memories/{memory_id}/archive", { params: { path: { memory_id } } })).data?.state,
    call: async (server, tool, args) =>
      (await client.POST("/api/v1/mcp/tools/call", { body: { server, tool, arguments: args } })).data?.success,
  }),
);
