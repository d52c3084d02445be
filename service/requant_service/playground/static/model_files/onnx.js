/** Quantized tensors of an ONNX model: those that QuantizeLinear gives, and those that DequantizeLinear takes. */
import { limited, MAX_NAME, MAX_TENSORS, numbersAt } from "./bounded_file.js";

// TensorProto.DataType.
const TYPES = { 1: "f32", 2: "u8", 3: "i8", 4: "u16", 5: "i16", 6: "i32", 7: "i64", 10: "f16", 11: "f64", 12: "u32", 16: "bf16", 17: "f8E4M3FN", 19: "f8E5M2", 21: "u4", 22: "i4" };
// Fields of the messages that are read, by their numbers.
const MODEL = { graph: 7 };
const GRAPH = { node: 1, initializer: 5 };
const NODE = { input: 1, output: 2, operator: 4, attribute: 5 };
const ATTRIBUTE = { name: 1, integer: 3 };
const TENSOR = { dims: 1, type: 2, floats: 4, integers: 5, name: 8, raw: 9, doubles: 10 };
const MAX_FIELDS = 1_000_000;
const MAX_DIMENSIONS = 64;
const VARINT = 0;
const BYTES = 2;
const WIDTHS = { 1: 8, 5: 4 };

/** ONNX has no magic number: a model is what begins as one, with its version or its graph. */
export async function isOnnx(file) {
  return file.size > 4 && [0x08, 0x12, 0x3a].includes(await file.u8(0));
}

/** @returns {Promise<FileTensor[]>} */
export async function tensorsOfOnnx(file) {
  const initializers = new Map();
  const nodes = [];
  for await (const model of fields(file, 0, file.size)) {
    if (model.number !== MODEL.graph || model.wire !== BYTES) continue;
    for await (const part of fields(file, model.at, model.end)) {
      if (part.wire !== BYTES) continue;
      if (part.number === GRAPH.initializer) {
        const tensor = await initializerOf(file, part);
        initializers.set(tensor.name, tensor);
        limited(initializers.size, MAX_TENSORS, "initializers");
      } else if (part.number === GRAPH.node) {
        const node = await nodeOf(file, part);
        if (node.operator === "QuantizeLinear" || node.operator === "DequantizeLinear") nodes.push(node);
        limited(nodes.length, MAX_TENSORS, "operators");
      }
    }
  }
  const found = new Map();
  for (const node of nodes) {
    const tensor = quantizedOf(node, initializers);
    if (tensor && !found.has(tensor.name)) found.set(tensor.name, tensor);
  }
  return [...found.values()].map(({ scale, zero, axis, ...tensor }) => ({ ...tensor, scaleCount: sizeOf(scale), read: () => quantizationOf(file, scale, zero, axis < 0 && tensor.shape ? axis + tensor.shape.length : axis) }));
}

/** The tensor that a node quantizes or dequantizes; undefined if its scale is computed. */
function quantizedOf({ operator, inputs, outputs, axis }, initializers) {
  const scale = initializers.get(inputs[1]);
  if (!scale) return undefined;
  const zero = initializers.get(inputs[2]);
  const name = operator === "QuantizeLinear" ? outputs[0] : inputs[0];
  const own = initializers.get(name);
  return { name: name ?? "", type: TYPES[zero?.type ?? own?.type ?? 2] ?? "unknown", shape: own?.dims ?? null, scale, zero, axis };
}

async function quantizationOf(file, scale, zero, axis) {
  if (scale.dims.length > 1) throw new Error(`Its scales are of shape ${scale.dims.join("×")}: neither one, nor one for each index of a dimension.`);
  const scales = await numbersOf(file, scale);
  // The last dimension is -1; without the rank it cannot be counted from 0.
  if (scales.length > 1 && axis < 0) throw new Error(`Its axis is ${axis}, counted from the last dimension.`);
  return { scales, zeroPoints: zero ? await numbersOf(file, zero) : [], axis: scales.length > 1 ? axis : null };
}

function sizeOf({ dims }) {
  return dims.reduce((product, size) => product * size, 1);
}

async function numbersOf(file, { dims, type, raw, floats, integers, doubles }) {
  const count = sizeOf({ dims });
  const [part, stored] = raw ? [raw, TYPES[type]] : floats ? [floats, "f32"] : doubles ? [doubles, "f64"] : [integers, "varint"];
  if (!part) {
    // Packed fields of zeros only may be left out.
    if (stored === "varint" && count === 1) return [0];
    throw new Error("Its scale or zero point is in another file.");
  }
  if (stored !== "varint") {
    if (part.end - part.at < 1) throw new Error("Its scale or zero point is empty.");
    return numbersAt(file, part.at, count, stored);
  }
  const numbers = [];
  for (let at = part.at; at < part.end && numbers.length < count; ) {
    const { value, next } = await varint(file, at);
    numbers.push(Number(BigInt.asIntN(32, value)));
    at = next;
  }
  if (numbers.length < count) throw new Error("Its scale or zero point is not complete.");
  return numbers;
}

async function initializerOf(file, { at, end }) {
  const tensor = { name: "", dims: [], type: 0 };
  for await (const part of fields(file, at, end)) {
    if (part.number === TENSOR.name && part.wire === BYTES) tensor.name = await textOf(file, part);
    else if (part.number === TENSOR.type && part.wire === VARINT) tensor.type = Number(part.value);
    else if (part.number === TENSOR.dims) await addDims(file, part, tensor.dims);
    else if (part.number === TENSOR.raw && part.wire === BYTES) tensor.raw = part;
    else if (part.number === TENSOR.floats) tensor.floats = part;
    else if (part.number === TENSOR.integers) tensor.integers = part.wire === BYTES ? part : { at: part.valueAt, end: part.end };
    else if (part.number === TENSOR.doubles) tensor.doubles = part;
  }
  return tensor;
}

/** Dimensions are packed, or fields of their own. */
async function addDims(file, { wire, value, at, end }, dims) {
  const add = (dim) => {
    if (dim > BigInt(Number.MAX_SAFE_INTEGER)) throw new Error("A dimension has more than 53 bits.");
    dims.push(Number(dim));
    limited(dims.length, MAX_DIMENSIONS, "dimensions");
  };
  if (wire === VARINT) return add(value);
  for (let place = at; place < end; ) {
    const read = await varint(file, place);
    add(read.value);
    place = read.next;
  }
  return undefined;
}

async function nodeOf(file, { at, end }) {
  // The default axis of both operators is 1.
  const node = { operator: "", inputs: [], outputs: [], axis: 1 };
  for await (const part of fields(file, at, end)) {
    if (part.wire !== BYTES) continue;
    if (part.number === NODE.operator) node.operator = await textOf(file, part);
    else if (part.number === NODE.input) node.inputs.push(await textOf(file, part));
    else if (part.number === NODE.output) node.outputs.push(await textOf(file, part));
    else if (part.number === NODE.attribute) await addAttribute(file, part, node);
  }
  return node;
}

async function addAttribute(file, { at, end }, node) {
  let name = "";
  let integer = 0n;
  for await (const part of fields(file, at, end)) {
    if (part.number === ATTRIBUTE.name && part.wire === BYTES) name = await textOf(file, part);
    else if (part.number === ATTRIBUTE.integer && part.wire === VARINT) integer = part.value;
  }
  if (name === "axis") node.axis = Number(BigInt.asIntN(64, integer));
}

function textOf(file, { at, end }) {
  return file.text(at, limited(end - at, MAX_NAME, "characters in a name"));
}

/** The fields of a message: the number, the wire type, and the value or where its bytes are. */
async function* fields(file, start, end) {
  let at = start;
  for (let count = 0; at < end; count += 1) {
    limited(count, MAX_FIELDS, "fields in a message");
    const tag = await varint(file, at);
    const number = Number(tag.value >> 3n);
    const wire = Number(tag.value & 7n);
    let next;
    if (wire === VARINT) {
      const read = await varint(file, tag.next);
      next = read.next;
      yield { number, wire, value: read.value, valueAt: tag.next, at: tag.next, end: within(next, end) };
    } else if (wire === BYTES) {
      const length = await varint(file, tag.next);
      next = within(length.next + Number(length.value), end);
      yield { number, wire, at: length.next, end: next };
    } else if (Object.hasOwn(WIDTHS, wire)) {
      next = within(tag.next + WIDTHS[wire], end);
      yield { number, wire, at: tag.next, end: next };
    } else {
      throw new Error("The file is no ONNX model.");
    }
    at = next;
  }
}

function within(at, end) {
  if (!Number.isSafeInteger(at) || at > end) throw new Error("The file is cut off, or is no ONNX model.");
  return at;
}

async function varint(file, at) {
  let value = 0n;
  for (let index = 0; index < 10; index += 1) {
    const byte = await file.u8(at + index);
    value |= BigInt(byte & 0x7f) << BigInt(7 * index);
    if (byte < 0x80) return { value: BigInt.asUintN(64, value), next: at + index + 1 };
  }
  throw new Error("The file is no ONNX model.");
}
