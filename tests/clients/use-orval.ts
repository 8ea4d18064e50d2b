// A program with the client of orval, whose address is in its configuration. It does not encode parameters of the path.
import { run, start } from "./calls";
import { archiveMemory, callTool, listMemories, readResource, recall, remember, updateMemory } from "./client";

const options = { headers: { Authorization: `Bearer ${process.env.ROOKERY_KEY!}` } };

start(() =>
  run({
    remember: async (content, metadata) => {
      const answer = await remember({ content, metadata, tags: ["build"], wait_ms: 5000 }, options);
      return answer.status === 201 ? answer.data.id : undefined;
    },
    recall: async (query) => {
      const answer = await recall({ query }, options);
      return answer.status === 200 ? answer.data.memories.map((memory) => memory.id) : undefined;
    },
    list: async (metadata) => {
      const answer = await listMemories({ metadata }, options);
      return answer.status === 200 ? answer.data.data.map((memory) => memory.id) : undefined;
    },
    read: async (uri) => (await readResource(uri, options)).data,
    update: async (id, content) => {
      const answer = await updateMemory(id, { content }, options);
      return answer.status === 200 ? { content: answer.data.content, tags: answer.data.tags } : undefined;
    },
    archive: async (id) => {
      const answer = await archiveMemory(id, options);
      return answer.status === 200 ? answer.data.state : undefined;
    },
    call: async (server, tool, args) => {
      const answer = await callTool({ server, tool, arguments: args }, options);
      return answer.status === 200 && typeof answer.data === "object" && "success" in answer.data ? answer.data.success : undefined;
    },
  }),
);
