// A program with the client of swagger-typescript-api, which has no objects in queries.
import { run, start } from "./calls";
import { Api } from "./client";

const api = new Api<string>({
  baseUrl: process.argv[2]!,
  securityWorker: (key) => ({ headers: { Authorization: `Bearer ${key ?? ""}` } }),
});
api.setSecurityData(process.env.ROOKERY_KEY!);

start(() =>
  run({
    remember: async (content, metadata) => (await api.v1.remember({ content, metadata, tags: ["build"], wait_ms: 5000 })).data.id,
    recall: async (query) => (await api.v1.recall({ query })).data.memories.map((memory) => memory.id),
    read: async (uri) => (await api.api.readResource(uri)).data.content,
    update: async (id, content) => {
      const changed = (await api.v1.updateMemory(id, { content })).data;
      return { content: changed.content, tags: changed.tags };
    },
    archive: async (id) => (await api.v1.archiveMemory(id)).data.state,
    call: async (server, tool, args) => (await api.api.callTool({ server, tool, arguments: args })).data.success,
  }),
);
