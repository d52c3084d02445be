/** Tensors of a safetensors file: the length of a header, the header in JSON, and the data. */
import { limited, MAX_TENSORS, numbersAt } from "./bounded_file.js";

const TYPES = new Map(Object.entries({ F64: "f64", F32: "f32", F16: "f16", BF16: "bf16", I64: "i64", I32: "i32", I16: "i16", I8: "i8", U16: "u16", U32: "u32", U8: "u8", F8_E4M3: "f8E4M3FN", F8_E5M2: "f8E5M2" }));
const MAX_HEADER = 1 << 25;
/** The names of the scales of a tensor, and of its zero points, after its own: those of compressed-tensors, and of others. */
const SCALES = ["_scale", ".scale", "_scale_inv"];
const ZERO_POINTS = ["_zero_point", ".zero_point"];

export async function isSafetensors(file) {
  return file.size > 9 && (await file.text(8, 1)) === "{" && (await file.u64(0)) <= file.size - 8;
}

/** @returns {Promise<FileTensor[]>} */
export async function tensorsOfSafetensors(file) {
  const length = limited(await file.u64(0), MAX_HEADER, "bytes of header");
  const header = headerOf(await file.text(8, length));
  const start = 8 + length;
  const entries = new Map(Object.entries(header).filter(([name, entry]) => name !== "__metadata__" && isEntry(entry)));
  limited(entries.size, MAX_TENSORS, "tensors");
  const beside = (name, endings) => endings.map((ending) => name + ending).find((each) => entries.has(each));
  return [...entries].map(([name, { dtype, shape }]) => {
    const scale = beside(name, SCALES);
    const count = scale ? sizeOf(entries.get(scale)) : 0;
    return {
      name,
      type: typeOf(dtype),
      shape,
      scaleCount: count,
      read: scale ? () => quantizationOf(shape, entries.get(scale), entries.get(beside(name, ZERO_POINTS)), (each) => numbersOf(file, start, each)) : null,
    };
  });
}

function headerOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error("The header is no JSON.");
  }
}

function typeOf(dtype) {
  return TYPES.get(dtype) ?? dtype;
}

function isEntry(entry) {
  const whole = (numbers) => Array.isArray(numbers) && numbers.every((each) => Number.isSafeInteger(each) && each >= 0);
  return typeof entry?.dtype === "string" && whole(entry.shape) && whole(entry.data_offsets) && entry.data_offsets.length === 2;
}

function sizeOf({ shape }) {
  return shape.reduce((product, size) => product * size, 1);
}

async function quantizationOf(shape, scale, zero, read) {
  const scales = await read(scale);
  const channels = scale.shape.filter((size) => size !== 1);
  // Along a dimension if there is one scale for each index of it; blocks have a scale for some indices.
  const axis = scales.length === 1 ? null : scale.shape.findIndex((size) => size === scales.length);
  if (scales.length > 1 && (channels.length !== 1 || shape[axis] !== scales.length)) {
    throw new Error(`Its scales are of shape ${scale.shape.join("×")}: neither one, nor one for each index of a dimension.`);
  }
  return { scales, zeroPoints: zero ? await read(zero) : [], axis };
}

async function numbersOf(file, start, { dtype, shape, data_offsets: [from] }) {
  return numbersAt(file, start + from, sizeOf({ shape }), typeOf(dtype));
}
