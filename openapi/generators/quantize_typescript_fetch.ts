// Calls quantize twice through the client that openapi-generator generated. Standard input: {url, valid, invalid}, two
// bodies. Standard output: {quantized, failed}, the reply to the first and the problem that the second is.
import { readFileSync } from "node:fs";
import { Configuration, OpsApi, ResponseError } from "./typescript-fetch/index";
import type { Problem, QuantizeRequest } from "./typescript-fetch/index";

type Told = { url: string; valid: QuantizeRequest; invalid: QuantizeRequest };

const { url, valid, invalid }: Told = JSON.parse(readFileSync(0, "utf8"));
const ops = new OpsApi(new Configuration({ basePath: url }));
const quantized = await ops.quantize({ quantizeRequest: valid });
const failed: Problem = await ops.quantize({ quantizeRequest: invalid }).then(
  () => Promise.reject(new Error("the invalid request succeeded")),
  (error: unknown) => (error instanceof ResponseError ? error.response.json() : Promise.reject(error)),
);
console.log(JSON.stringify({ quantized, failed }));
