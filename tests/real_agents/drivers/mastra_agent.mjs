// An agent of Mastra.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Agent } from "@mastra/core/agent";
import { MCPClient } from "@mastra/mcp";

const { MCP_URL, MODEL_URL, ROOKERY_KEY, PROMPT } = process.env;
const headers = { Authorization: `Bearer ${ROOKERY_KEY ?? ""}` };
const client = new MCPClient({ servers: { rookery: { url: new URL(MCP_URL), requestInit: { headers } } } });
const provider = createOpenAICompatible({ name: "scripted", baseURL: `${MODEL_URL}/v1`, apiKey: "made-up" });
const agent = new Agent({
  id: "agent",
  name: "agent",
  instructions: "Use the tools.",
  model: provider("scripted"),
  tools: await client.listTools(),
});
const result = await agent.generate(PROMPT, { maxSteps: 40 });
console.log(result.text);
await client.disconnect();
