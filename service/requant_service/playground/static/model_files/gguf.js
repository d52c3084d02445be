/** Tensors of a GGUF file. */
import { limited, MAX_NAME, MAX_TENSORS } from "./bounded_file.js";

// ggml_type.
const TYPES = { 0: "f32", 1: "f16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 24: "i8", 25: "i16", 26: "i32", 27: "i64", 28: "f64", 30: "bf16", 39: "MXFP4" };
// Bytes of a value of the metadata, by its type; 8 is a text and 9 an array.
const WIDTHS = { 0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8 };
const TEXT = 8;
const ARRAY = 9;
const MAX_PAIRS = 10_000;
const MAX_TEXTS = 1_000_000;
const MAX_DIMENSIONS = 8;

export async function isGguf(file) {
  return file.size >= 24 && (await file.text(0, 4)) === "GGUF";
}

/** @returns {Promise<FileTensor[]>} none of which has scales apart from its blocks */
export async function tensorsOfGguf(file) {
  const version = await file.u32(4);
  if (version !== 2 && version !== 3) throw new Error(`GGUF of version ${version} is not read; 2 and 3 are.`);
  const count = limited(await file.u64(8), MAX_TENSORS, "tensors");
  const pairs = limited(await file.u64(16), MAX_PAIRS, "entries of metadata");
  let at = 24;
  for (let pair = 0; pair < pairs; pair += 1) {
    at = await afterText(file, at);
    at = await afterValue(file, at + 4, await file.u32(at));
  }
  const tensors = [];
  for (let index = 0; index < count; index += 1) {
    const length = limited(await file.u64(at), MAX_NAME, "characters in a name");
    const name = await file.text(at + 8, length);
    at += 8 + length;
    const rank = limited(await file.u32(at), MAX_DIMENSIONS, "dimensions");
    // The first dimension is the one along which elements lie beside each other.
    const shape = [];
    for (let axis = 0; axis < rank; axis += 1) shape.unshift(await file.u64(at + 4 + 8 * axis));
    at += 4 + 8 * rank;
    const code = await file.u32(at);
    at += 12;
    tensors.push({ name, type: TYPES[code] ?? `type ${code}`, shape, scaleCount: 0, read: null });
  }
  return tensors;
}

async function afterText(file, at) {
  const length = await file.u64(at);
  file.check(at + 8, length);
  return at + 8 + length;
}

async function afterValue(file, at, type) {
  if (type === TEXT) return afterText(file, at);
  if (type !== ARRAY) return at + widthOf(type);
  const of = await file.u32(at);
  const length = await file.u64(at + 4);
  if (of === ARRAY) throw new Error("The metadata has arrays of arrays, which are not read.");
  if (of !== TEXT) {
    file.check(at + 12, length * widthOf(of));
    return at + 12 + length * widthOf(of);
  }
  let next = at + 12;
  for (let index = 0; index < limited(length, MAX_TEXTS, "texts in an array"); index += 1) next = await afterText(file, next);
  return next;
}

function widthOf(type) {
  if (!Object.hasOwn(WIDTHS, type)) throw new Error(`The metadata has a value of type ${type}, which is not known.`);
  return WIDTHS[type];
}
