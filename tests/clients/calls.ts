// One call of each kind, in the same order with the client of each generator.
import { strict as assert } from "node:assert";

export interface Calls {
  remember(content: string, metadata: Record<string, string>): Promise<string | undefined>;
  recall(query: string): Promise<string[] | undefined>;
  /** Without it, the generator writes an object in a query as `[object Object]`. */
  list?(metadata: Record<string, string>): Promise<string[] | undefined>;
  /** The path has the whole address of the resource, slashes included. */
  read(uri: string): Promise<unknown>;
  /** A PATCH, which changes nothing else. */
  update(id: string, content: string): Promise<{ content: string; tags: string[] } | undefined>;
  /** A POST without a body. */
  archive(id: string): Promise<string | undefined>;
  call(server: string, tool: string, args: Record<string, unknown>): Promise<boolean | undefined>;
}

export async function run(calls: Calls): Promise<void> {
  const id = await calls.remember("The build runs on Tuesdays.", { user_id: "u_17" });
  assert.ok(id);
  assert.deepEqual(await calls.recall("When does the build run?"), [id]);
  if (calls.list) {
    assert.deepEqual(await calls.list({ user_id: "u_17" }), [id]);
    assert.deepEqual(await calls.list({ user_id: "u_18" }), []);
  }
  assert.match(JSON.stringify(await calls.read("library://books/walden")), /Henry David Thoreau/);
  assert.deepEqual(await calls.update(id, "The build runs on Fridays."), { content: "The build runs on Fridays.", tags: ["build"] });
  assert.equal(await calls.archive(id), "archived");
  assert.equal(await calls.call("library", "find_book", { title: "walden" }), true);
}

export function start(main: () => Promise<void>): void {
  main().catch((reason: unknown) => {
    console.error(reason);
    process.exit(1);
  });
}
