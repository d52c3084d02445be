/** Calls as the page has them, their text in the address, and as a request has them. */
import { tensorText } from "../conversion/convert.js";
import { MAX_TYPED } from "../numbers/array_field.js";
import { readJsonNumbers } from "../numbers/number_list.js";
import { argumentsOf, dataOf, saying, textsOf } from "../operations/arguments.js";
import { OPERATIONS } from "../operations/operations.js";
import { tensorType } from "../type/tensor_text.js";

const MAX_CALLS = 64;

/**
 * @typedef {Object} Call
 * @property {string} operation
 * @property {Object<string, string>} arguments texts by name; of a tensor its values, and `NAME.type` and `NAME.shape`
 * @property {Object<string, string>} observed texts by name
 * @property {Object<string, Object>} files arrays in the place of values, by name, and of outputs by `observed.NAME`
 */

/** @returns {Call[]} those of a text, without what is none */
export function callsOf(text) {
  let listed;
  try {
    listed = JSON.parse(text);
  } catch {
    listed = null;
  }
  if (!Array.isArray(listed)) return [];
  return listed
    .filter((each) => Object.hasOwn(OPERATIONS, each?.operation ?? ""))
    .slice(0, MAX_CALLS)
    .map((each) => ({ operation: each.operation, arguments: textsOf(each.arguments), observed: textsOf(each.observed), files: {} }));
}

/** @returns {string} the calls, without files */
export function textOfCalls(calls) {
  return JSON.stringify(calls.map(({ operation, arguments: given, observed }) => ({ operation, arguments: given, observed })));
}

/** @returns {Object} a call of a request. @throws {Error} that says which part is missing or wrong */
export function requestOf(call) {
  const { arguments: parts, outputs } = OPERATIONS[call.operation];
  const given = argumentsOf(parts, call);
  const observed = {};
  for (const name of outputs) {
    const value = saying("Observed", () => observedOf(name, call));
    if (value !== undefined) observed[name] = value;
  }
  if (Object.keys(observed).length === 0) throw new Error("Enter what was observed.");
  return { operation: call.operation, arguments: given, observed };
}

function observedOf(name, call) {
  const text = (call.observed[name] ?? "").trim();
  const file = call.files[`observed.${name}`];
  if (file) return { ...(name === "output" && { type: tensorText(file.shape, elementOf(file)) }), ...dataOf(file) };
  return text === "" ? undefined : readJsonNumbers(text, MAX_TYPED);
}

/** What a file holds need not be what the output is stored as: dumps have 8-bit numbers as int32, too. */
function elementOf({ dtype }) {
  return `${{ i: "i", u: "ui", f: "f" }[dtype[0]]}${8 * Number(dtype.slice(1))}`;
}

/** The outputs of a call that were observed. */
export function observedOutputs(call) {
  return OPERATIONS[call.operation].outputs.filter((name) => call.observed[name]?.trim() || call.files[`observed.${name}`]);
}

// What is tried next has none of these: its windows are as large as its input.
const OF_WINDOWS = ["strides", "dilations", "padding", "pads"];

/**
 * The call to try next that was made of a call, with what was observed.
 * @param {Call} call
 * @param {Object} tried an entry of `try_next`
 * @param {Object<string, {text: string, file: Object}>} answers by output
 * @returns {Call}
 */
export function nextCall(call, tried, answers) {
  const given = { ...call.arguments };
  for (const name of OF_WINDOWS) delete given[name];
  if (given.output_type) given.output_type = tensorType(given.output_type).element;
  for (const { name, type, values } of tried.tensors) {
    given[name] = values.join(" ");
    if (type) Object.assign(given, { [`${name}.type`]: type, [`${name}.shape`]: "" });
  }
  const next = { operation: call.operation, arguments: given, observed: {}, files: {} };
  for (const [output, { text, file }] of Object.entries(answers)) {
    if (file) next.files[`observed.${output}`] = file;
    else next.observed[output] = text;
  }
  return next;
}
