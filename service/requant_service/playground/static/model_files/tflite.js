/** Tensors of a LiteRT model: a FlatBuffer of the schema of tensorflow/lite/schema/schema.fbs. */
import { limited, MAX_NAME, MAX_TENSORS, numbersAt } from "./bounded_file.js";

// TensorType.
const TYPES = "f32 f16 i32 u8 i64 string bool i16 complex64 i8 f64 complex128 u64 resource variant u32 u16 i4 bf16 i2".split(" ");
// Fields of the tables, by their place in the schema.
const MODEL = { subgraphs: 2 };
const SUBGRAPH = { tensors: 0 };
const TENSOR = { shape: 0, type: 1, name: 3, quantization: 4 };
const QUANTIZATION = { scale: 2, zeroPoint: 3, dimension: 6 };
const MAX_SUBGRAPHS = 256;
const MAX_DIMENSIONS = 64;

export async function isTflite(file) {
  return file.size >= 8 && (await file.text(4, 4)) === "TFL3";
}

/** @returns {Promise<FileTensor[]>} */
export async function tensorsOfTflite(file) {
  const model = await file.u32(0);
  const tensors = [];
  for (const subgraph of await tables(file, model, MODEL.subgraphs, MAX_SUBGRAPHS, "subgraphs")) {
    for (const tensor of await tables(file, subgraph, SUBGRAPH.tensors, MAX_TENSORS, "tensors")) {
      tensors.push(await tensorOf(file, tensor));
      limited(tensors.length, MAX_TENSORS, "tensors");
    }
  }
  return tensors;
}

async function tensorOf(file, table) {
  const shape = await vector(file, table, TENSOR.shape);
  const name = await vector(file, table, TENSOR.name);
  const typeAt = await field(file, table, TENSOR.type);
  const type = TYPES[typeAt ? await file.u8(typeAt) : 0] ?? "unknown";
  const quantizationAt = await field(file, table, TENSOR.quantization);
  const quantization = quantizationAt && (await follow(file, quantizationAt));
  const scales = quantization ? await vector(file, quantization, QUANTIZATION.scale) : NONE;
  return {
    name: await file.text(name.at, limited(name.length, MAX_NAME, "characters in a name")),
    type,
    shape: await numbersAt(file, shape.at, limited(shape.length, MAX_DIMENSIONS, "dimensions"), "i32"),
    scaleCount: scales.length,
    read: scales.length ? () => quantizationOf(file, quantization, scales) : null,
  };
}

async function quantizationOf(file, table, scales) {
  const zeros = await vector(file, table, QUANTIZATION.zeroPoint);
  const dimensionAt = await field(file, table, QUANTIZATION.dimension);
  return {
    scales: await numbersAt(file, scales.at, scales.length, "f32"),
    zeroPoints: await numbersAt(file, zeros.at, zeros.length, "i64"),
    axis: scales.length > 1 ? (dimensionAt ? await file.i32(dimensionAt) : 0) : null,
  };
}

const NONE = { at: 0, length: 0 };

/** The place of a table's field; 0 for one that it has not. */
async function field(file, table, place) {
  const vtable = table - (await file.i32(table));
  const size = await file.u16(vtable);
  const at = 4 + 2 * place;
  if (at + 2 > size) return 0;
  const offset = await file.u16(vtable + at);
  return offset ? table + offset : 0;
}

async function follow(file, at) {
  return at + (await file.u32(at));
}

/** Where the elements of a vector begin, and how many there are. */
async function vector(file, table, place) {
  const at = await field(file, table, place);
  if (!at) return NONE;
  const start = await follow(file, at);
  return { at: start + 4, length: await file.u32(start) };
}

async function tables(file, table, place, most, what) {
  const { at, length } = await vector(file, table, place);
  file.check(at, 4 * limited(length, most, what));
  return Promise.all(Array.from({ length }, (_, index) => follow(file, at + 4 * index)));
}
