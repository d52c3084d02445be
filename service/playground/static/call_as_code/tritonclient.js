import { pythonText } from "./literals.js";
import { modelCall } from "./model_call.js";

const DTYPES = { FP16: "np.float16", BF16: "np.float32", FP32: "np.float32", FP64: "np.float64" };

/** @returns {string} the call as a program that uses NVIDIA's client, or why there is none */
export function tritonclientProgram(call, base) {
  const found = modelCall(call);
  if (!found) return "# This call has no form for tritonclient here. docs/open_inference_protocol.md lists the models.";
  const { model, inputs, parameters } = found;
  const imports = [
    inputs.some((input) => input.data !== undefined) && "import base64",
    inputs.some(rounded) && "import ml_dtypes",
    inputs.length && "import numpy as np",
    "import tritonclient.http as triton",
  ];
  return [
    ...imports.filter(Boolean),
    "",
    ...inputs.map((input) => `${input.name} = ${arrayOf(input)}`),
    `client = ${client(base)}`,
    inputs.length ? `inputs = [\n${inputs.map((input) => `    ${inferInput(input)},\n`).join("")}]` : "inputs = []",
    `parameters = ${pythonText(parameters)}`,
    `reply = client.infer(${JSON.stringify(model)}, inputs, parameters=parameters)`,
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

function arrayOf({ datatype, shape, element, values, data }) {
  const dtype = DTYPES[datatype] ?? `np.${datatype.toLowerCase()}`;
  const reshaped = shape.length === 1 ? "" : `.reshape(${pythonText(shape)})`;
  if (data !== undefined && datatype === "BF16") {
    return `np.frombuffer(base64.b64decode("${data}"), ml_dtypes.bfloat16).astype(np.float32)${reshaped}`;
  }
  if (data !== undefined) return `np.frombuffer(base64.b64decode("${data}"), ${dtype})${reshaped}`;
  const list = `[${values.map(number).join(", ")}]`;
  if (datatype === "BF16") return `np.array(${list}, ml_dtypes.bfloat16).astype(np.float32)${reshaped}`;
  const small = smallFloat(element, datatype);
  if (small) return `np.array(${list}, ml_dtypes.${small}).view(np.uint8)${reshaped}`;
  return `np.array(${list}, ${dtype})${reshaped}`;
}

/** The name in ml_dtypes: f8E4M3FN is float8_e4m3fn. */
function smallFloat(element, datatype) {
  const [, bits, rest] = (datatype === "UINT8" && /^(?:!quant\.\w+<\s*)?f([468])(E\w+)/.exec(element)) || [];
  return rest && `float${bits}_${rest.toLowerCase()}`;
}

function rounded({ datatype, element }) {
  return datatype === "BF16" || smallFloat(element, datatype);
}

// Numbers that JSON has no signs for travel as texts, and so do factors.
function number(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  const text = JSON.stringify(value.trim());
  if (/^[-+]?0x/i.test(value.trim())) return `float.fromhex(${text})`;
  return /^[-+]?\d+(\.\d*)?(e[-+]?\d+)?$/i.test(value.trim()) ? value.trim() : `float(${text})`;
}
