/** The arguments of an operation as texts of fields, and as a request has them. */
import { tensorText } from "../conversion/convert.js";
import { readShape } from "../conversion/shape.js";
import { MAX_TYPED } from "../numbers/array_field.js";
import { readJsonNumbers } from "../numbers/number_list.js";
import { tensorType } from "../type/tensor_text.js";

/** The texts by name of an object that may be anything. */
export function textsOf(given) {
  const pairs = given && typeof given === "object" ? Object.entries(given) : [];
  return Object.fromEntries(pairs.filter(([, text]) => typeof text === "string"));
}

/**
 * @param {Object[]} parts the arguments, as operations.js describes them
 * @param {{arguments: Object<string, string>, files: Object<string, Object>}} call texts by name; of a tensor its values,
 *   and `NAME.type` and `NAME.shape`; and arrays in the place of values
 * @returns {Object} by name, as a request has them
 * @throws {Error} that says which part is missing or wrong
 */
export function argumentsOf(parts, call) {
  const given = {};
  for (const part of parts) {
    const value = saying(part.label, () => argumentOf(part, call));
    if (value !== undefined) given[part.name] = value;
  }
  return given;
}

/** Do what reads an argument; an error says which. */
export function saying(label, read) {
  try {
    return read();
  } catch (error) {
    throw new Error(`${label}: ${error.message}`);
  }
}

function argumentOf({ name, kind, optional, blank }, call) {
  const text = (call.arguments[name] ?? "").trim();
  if (text === "" && !call.files[name]) {
    if (optional || blank) return undefined;
    throw new Error(kind === "tensor" || kind === "numbers" ? "enter at least one number." : "required.");
  }
  switch (kind) {
    case "tensor":
      return tensorOf(name, call);
    case "numbers":
      return readJsonNumbers(text, MAX_TYPED);
    case "number":
      return readJsonNumbers(text, 1)[0];
    case "flag":
      return true;
    default:
      return text;
  }
}

function tensorOf(name, call) {
  const type = call.arguments[`${name}.type`] ?? "";
  if (type.trim() === "") throw new Error("enter a type.");
  const shape = (call.arguments[`${name}.shape`] ?? "").trim();
  const file = call.files[name];
  const values = file ? null : readJsonNumbers(call.arguments[name], MAX_TYPED);
  const sizes = shape ? readShape(shape) : (file?.shape ?? [values.length]);
  return { type: tensorType(type).dimensions ? type.trim() : tensorText(sizes, type.trim()), ...dataOf(file, values) };
}

/** The members of a tensor that hold its elements. */
export function dataOf(file, values) {
  return file ? { data: base64(file.bytes) } : { values };
}

const PIECE = 0x8000;

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += PIECE) text += String.fromCharCode(...bytes.subarray(at, at + PIECE));
  return btoa(text);
}
