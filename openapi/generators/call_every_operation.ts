// Calls every operation through the client that hey-api generated. Standard input: {url, calls: [{operation, path, query,
// json, bytes, form}]}, bytes as base64. Standard output: one line of JSON for each call, the reply or its bytes as base64.
import { readFileSync } from "node:fs";
import { createClient } from "./hey-api/client/index";
import * as sdk from "./hey-api/index";

type Form = Record<string, string | number | { bytes: string }>;
type Call = { operation: string; path: object; query: object; json?: unknown; bytes?: string; form?: Form };
type Reply = { data?: unknown; error?: unknown; response: Response };

const { url, calls }: { url: string; calls: Call[] } = JSON.parse(readFileSync(0, "utf8"));
const client = createClient({ baseUrl: url });
// Generators have their own ideas of capitals: conv2d becomes conv2D.
const functions = new Map(
  Object.entries(sdk as unknown as Record<string, (options: object) => Promise<Reply>>).map(([name, call]) => [
    name.toLowerCase(),
    call,
  ]),
);

const blob = (bytes: string) => new Blob([Buffer.from(bytes, "base64")]);
const fields = (form: Form) =>
  Object.fromEntries(
    Object.entries(form).map(([name, value]) => [name, typeof value === "object" ? blob(value.bytes) : value]),
  );

for (const { operation, path, query, json, bytes, form } of calls) {
  const body = bytes !== undefined ? blob(bytes) : form !== undefined ? fields(form) : json;
  const call = functions.get(operation.toLowerCase());
  if (call === undefined) throw new Error(`the client has no ${operation}`);
  const { data, error, response } = await call({ client, path, query, body });
  const shown = data instanceof Blob ? Buffer.from(await data.arrayBuffer()).toString("base64") : data;
  console.log(JSON.stringify({ operation, status: response.status, data: shown, error }));
}
