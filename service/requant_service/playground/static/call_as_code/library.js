/** The views' calls with the library, in the caller's own process. */
import { tensorType } from "../type/tensor_text.js";
import { pythonLiteral } from "./literals.js";
import { datatypeOf, scaleSides } from "./model_call.js";
import { arrayOf } from "./numpy_arrays.js";

/**
 * By the path of a call, the function of the library, and its own names for members of the body.
 * `reports`: whether it returns a report beside the array, if it is asked to.
 */
const FUNCTIONS = {
  "/v1/quantize": { name: "quantize", tensors: { input: { name: "x" } }, reports: true },
  "/v1/requantize": { name: "requantize", tensors: { input: { name: "q", type: "input_type" } }, reports: true },
  "/v1/identify": { name: "identify" },
  "/v1/parameters/multiplier": { name: "derive_multiplier" },
  "/v1/parameters/tensor": { name: "derive_from_tensor", untyped: true },
  "/v1/types/translate": { name: "translate_type" },
  "/v1/matmul": { name: "matmul", reports: true },
  "/v1/conv2d": { name: "conv2d", reports: true },
  "/v1/add": { name: "add", reports: true },
  "/v1/blocks/quantize": { name: "quantize_blocks", untyped: true },
  "/v1/blocks/dequantize": { name: "dequantize_blocks", untyped: true },
  "/v1/vectors": { name: "vectors" },
};

export function hasFunction({ path }) {
  return Object.hasOwn(FUNCTIONS, path);
}

/** @returns {string} the call as a program that uses the library, and no service */
export function libraryProgram({ path, body }) {
  const { name, reports, ...names } = FUNCTIONS[path];
  const members = Object.entries(body).flatMap(([member, value]) => argumentsOf(member, value, names));
  const given = [...members, ...(reports ? ["return_report=True"] : [])].map((each) => `    ${each},\n`).join("");
  const call = `requant.${name}(\n${given})`;
  const result = reports ? `array, report = ${call}\nprint(array)\nprint(report)` : `print(${call})`;
  const imports = ["base64", "ml_dtypes", "np"].filter((each) => call.includes(`${each}.`)).map((each) => (each === "np" ? "import numpy as np" : `import ${each}`));
  // The standard library stands apart.
  const [own, others] = [imports.filter((each) => each.endsWith("base64")), imports.filter((each) => !each.endsWith("base64"))];
  return [...own, ...(own.length ? [""] : []), ...others, "import requant", "", result].join("\n");
}

/** A member of the body as arguments: a tensor is an array, and a type unless the array tells it. */
function argumentsOf(member, value, { tensors = {}, untyped }) {
  if (isTensor(value)) {
    const { name, type } = tensors[member] ?? { name: member, type: untyped ? undefined : `${member}_type` };
    const { array, element } = arrayAndType(value);
    // A float tells its type; requantize has no default for it.
    const typed = type && (element.startsWith("!") || tensors[member]);
    return [`${name}=${array}`, ...(typed ? [`${type}=${pythonLiteral(element)}`] : [])];
  }
  if (member === "calls") return [`calls=[\n${value.map(callText).join("")}    ]`];
  if (member === "scales") return scaleSides(value).map(([side, scales]) => `${side}_scales=${pythonLiteral(scales)}`);
  if (member === "multipliers") return [`multipliers=[${value.map(({ multiplier, shift }) => `(${pythonLiteral(multiplier)}, ${pythonLiteral(shift)})`).join(", ")}]`];
  return [`${member}=${pythonLiteral(value, "    ")}`];
}

function isTensor(value) {
  return typeof value?.type === "string" && ("values" in value || "data" in value);
}

function arrayAndType({ type, values, data }) {
  const { dimensions, element } = tensorType(type);
  const datatype = datatypeOf(element) ?? "UINT8"; // codes of small floats
  const shape = dimensions ?? [values.length];
  if (values) return { array: arrayOf({ datatype, shape, values: values.flat(Infinity) }), element };
  const empty = arrayOf({ datatype, shape: [0], values: [] });
  return { array: `np.frombuffer(base64.b64decode(${pythonLiteral(data)}), ${/, ([\w.]+)\)/.exec(empty)[1]}).reshape(${pythonLiteral(shape)})`, element };
}

/** One of the calls that are identified, as a dictionary. */
function callText({ operation, arguments: given, observed }) {
  const pairs = Object.entries(given).flatMap(([name, value]) => {
    if (!isTensor(value)) return [`${pythonLiteral(name)}: ${pythonLiteral(value)}`];
    const { array, element } = arrayAndType(value);
    return [`${pythonLiteral(name)}: ${array}`, ...(element.startsWith("!") ? [`${pythonLiteral(`${name}_type`)}: ${pythonLiteral(element)}`] : [])];
  });
  const outputs = Object.entries(observed).map(([name, value]) => `${pythonLiteral(name)}: ${isTensor(value) ? arrayAndType(value).array : pythonLiteral(value)}`);
  const lines = (each) => each.map((line) => `                ${line},\n`).join("");
  return `        {
            "operation": ${pythonLiteral(operation)},
            "arguments": {\n${lines(pairs)}            },
            "observed": {\n${lines(outputs)}            },
        },\n`;
}
