import { pythonLiteral } from "./literals.js";
import { modelCall } from "./model_call.js";
import { arrayOf } from "./numpy_arrays.js";

/** @returns {string} the call as a program that uses NVIDIA's client, or why there is none */
export function tritonclientProgram(call, { base, token }) {
  const found = modelCall(call);
  if (!found) return "# This call has no form for tritonclient here. docs/open_inference_protocol.md lists the models.";
  const { model, inputs, parameters } = found;
  const imports = [
    token && "import os",
    inputs.some(({ datatype }) => datatype === "BF16") && "import ml_dtypes",
    inputs.length && "import numpy as np",
    "import tritonclient.http as triton",
  ];
  return [
    ...imports.filter(Boolean),
    "",
    ...inputs.map((input) => `${input.name} = ${arrayOf(input)}`),
    `client = ${client(base)}`,
    inputs.length ? `inputs = [\n${inputs.map((input) => `    ${inferInput(input)},\n`).join("")}]` : "inputs = []",
    `parameters = ${pythonLiteral(parameters)}`,
    ...(token ? [`headers = {"Authorization": f"Bearer {os.environ['TOKEN']}"}`] : []),
    `reply = client.infer(${JSON.stringify(model)}, inputs, parameters=parameters${token ? ", headers=headers" : ""})`,
    `print(reply.get_response()["parameters"])`,
    `for output in reply.get_response().get("outputs", []):`,
    `    print(output["name"], reply.as_numpy(output["name"]))`,
  ].join("\n");
}

function client(base) {
  const { protocol, host, pathname } = new URL(".", base);
  const address = JSON.stringify(`${host}${pathname.replace(/\/$/, "")}`);
  return `triton.InferenceServerClient(${address}${protocol === "https:" ? ", ssl=True" : ""})`;
}

function inferInput({ name, datatype }) {
  return `triton.InferInput("${name}", ${name}.shape, "${datatype}").set_data_from_numpy(${name})`;
}
