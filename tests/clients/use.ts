// What a program writes first: only the required fields of each body.
import createClient from "openapi-fetch";
import type { components, paths } from "./rookery";

const client = createClient<paths, "application/json">({ baseUrl: "http://127.0.0.1:8400" });

export async function use(): Promise<string[]> {
  const stored = await client.POST("/v1/brain/remember", { body: { content: "The build runs on Tuesdays.", type: "fact" } });
  const recalled = await client.POST("/v1/brain/recall", { body: { query: "When does the build run?" } });
  const called = await client.POST("/api/v1/mcp/tools/call", { body: { server: "time", tool: "get_current_time" } });
  const plan = await client.POST("/api/agent/plans", { body: { title: "Move" } });
  const claimed = await client.POST("/api/agent/tasks/claim-next", { body: {} });
  const refusal: components["schemas"]["Error"] | undefined = recalled.error;
  return [
    stored.data?.id ?? "",
    recalled.data?.memories.map((memory) => memory.content).join() ?? refusal?.message ?? "",
    String(called.data?.success),
    plan.data?.slug ?? "",
    claimed.data?.claim_token ?? "",
  ];
}
