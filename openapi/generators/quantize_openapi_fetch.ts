// Calls quantize twice through openapi-fetch, with the types that openapi-typescript generated. Standard input: {url,
// valid, invalid}, two bodies. Standard output: {quantized, failed}, the reply to the first and the problem that the
// second is.
import { readFileSync } from "node:fs";
import createClient from "openapi-fetch";
import type { components, paths } from "./openapi-typescript/schema";

type Body = components["schemas"]["QuantizeRequest"];

const { url, valid, invalid }: { url: string; valid: Body; invalid: Body } = JSON.parse(readFileSync(0, "utf8"));
const client = createClient<paths>({ baseUrl: url });
const { data, error } = await client.POST("/v1/quantize", { body: valid });
if (data === undefined) throw new Error(error.detail);
const refused = await client.POST("/v1/quantize", { body: invalid });
if (refused.error === undefined) throw new Error("the invalid request succeeded");
const saturated: number = data.report.saturated_low + data.report.saturated_high;
if (Number.isNaN(saturated)) throw new Error("the report has no counts");
console.log(JSON.stringify({ quantized: data, failed: refused.error }));
