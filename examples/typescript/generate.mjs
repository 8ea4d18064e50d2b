// Write rookery.d.ts, the types of the API, from the OpenAPI document of a server: ROOKERY_URL and ROOKERY_KEY, a key with docs:read.
// With a file as its argument, such as dist/docs/openapi.json of `make docs`, it needs no server.
import { readFile, writeFile } from "node:fs/promises";
import openapiTS, { astToString } from "openapi-typescript";

const [file] = process.argv.slice(2);
const types = await openapiTS(file === undefined ? await download() : JSON.parse(await readFile(file, "utf8")));
await writeFile("rookery.d.ts", astToString(types));

async function download() {
  const url = new URL("/docs/openapi.json", process.env.ROOKERY_URL ?? "http://127.0.0.1:8400");
  const response = await fetch(url, { headers: { Authorization: `Bearer ${process.env.ROOKERY_KEY}` } });
  if (!response.ok) {
    throw new Error(`${url} answered ${response.status}: ${await response.text()}`);
  }
  return response.json();
}
