// The AI SDK of Vercel with its MCP client.
import { createMCPClient } from "@ai-sdk/mcp";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, stepCountIs } from "ai";

const { MCP_URL, MODEL_URL, ROOKERY_KEY, PROMPT } = process.env;
const headers = { Authorization: `Bearer ${ROOKERY_KEY ?? ""}` };
const client = await createMCPClient({ transport: { type: "http", url: MCP_URL, headers } });
const provider = createOpenAICompatible({ name: "scripted", baseURL: `${MODEL_URL}/v1`, apiKey: "made-up" });
const result = await generateText({
  model: provider("scripted"),
  tools: await client.tools(),
  prompt: PROMPT,
  stopWhen: stepCountIs(40),
  maxRetries: 0,
});
console.log(result.text);
await client.close();
