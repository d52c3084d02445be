/** numpy's .npy files, as its documentation of numpy.lib.format describes them. */
import { shortestFloat32 } from "./number_list.js";

const MAGIC = "\u0093NUMPY";
const FLOATS = {
  "<f2": [2, (view, at) => shortestFloat32(float16(view.getUint16(at, true)))],
  "<f4": [4, (view, at) => shortestFloat32(view.getFloat32(at, true))],
  "<f8": [8, (view, at) => view.getFloat64(at, true)],
};
const INTEGERS = {
  "|i1": [1, (view, at) => view.getInt8(at)],
  "|u1": [1, (view, at) => view.getUint8(at)],
  "<i2": [2, (view, at) => view.getInt16(at, true)],
  "<u2": [2, (view, at) => view.getUint16(at, true)],
  "<i4": [4, (view, at) => view.getInt32(at, true)],
  "<u4": [4, (view, at) => view.getUint32(at, true)],
  "<i8": [8, (view, at) => view.getBigInt64(at, true)],
  "<u8": [8, (view, at) => view.getBigUint64(at, true)],
};

/**
 * Read an array of float16, float32 or float64.
 * @param {ArrayBuffer} file
 * @param {number} most how many elements are accepted
 * @returns {{values: number[], shape: number[]}} the elements in C order
 * @throws {Error} that says what was expected, and what to do
 */
export function readNpy(file, most) {
  const { shape, count, values } = arrayOf(file, FLOATS);
  if (count > most) throw new Error(`The array has ${count} elements; at most ${most} are accepted.`);
  return { values: values(), shape };
}

/**
 * Read an array of floats or integers.
 * @param {ArrayBuffer} file
 * @returns {{dtype: string, shape: number[], count: number, bytes: Uint8Array, values: function(): Array<number|bigint>}}
 *   `bytes`: the elements in C order, little-endian
 * @throws {Error} that says what was expected, and what to do
 */
export function readAnyNpy(file) {
  return arrayOf(file, { ...FLOATS, ...INTEGERS });
}

function arrayOf(file, readers) {
  const { header, start } = headerOf(file);
  const dtype = /'descr'\s*:\s*'([^']*)'/.exec(header)?.[1];
  const shapeText = /'shape'\s*:\s*\(([^)]*)\)/.exec(header)?.[1];
  if (shapeText === undefined) throw new Error("The header of this .npy file cannot be read.");
  if (!Object.hasOwn(readers, dtype)) throw new Error(wrongType(dtype, readers));
  if (/'fortran_order'\s*:\s*True/.test(header)) {
    throw new Error("The array is in Fortran order. Save numpy.ascontiguousarray(array).");
  }
  const shape = shapeText.split(",").map((size) => size.trim()).filter(Boolean).map(Number);
  const count = shape.reduce((product, size) => product * size, 1);
  const [width, read] = readers[dtype];
  if (count === 0) throw new Error("The array is empty.");
  if (file.byteLength !== start + count * width) throw new Error("The length of the file does not match its header.");
  const view = new DataView(file, start);
  const values = () => Array.from({ length: count }, (_, index) => read(view, index * width));
  return { dtype: dtype.slice(1), shape, count, bytes: new Uint8Array(file, start), values };
}

function headerOf(file) {
  const view = new DataView(file);
  if (file.byteLength < 12 || latin1(file, 0, 6) !== MAGIC) throw new Error("This is not an .npy file.");
  const wide = view.getUint8(6) > 1;
  const length = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const from = wide ? 12 : 10;
  if (from + length > file.byteLength) throw new Error("The .npy file is cut off in its header.");
  return { header: latin1(file, from, length), start: from + length };
}

function latin1(file, start, length) {
  return String.fromCharCode(...new Uint8Array(file, start, Math.min(length, 65536)));
}

function wrongType(dtype, readers) {
  if (/^>[fiu][248]$/.test(dtype ?? "")) return `The array is big-endian. Save array.astype(array.dtype.newbyteorder("<")).`;
  if (readers !== FLOATS) return "The array is of no float or integer type. Save array.astype(numpy.float32), say.";
  return "The array is not float16, float32 or float64. Save array.astype(numpy.float32).";
}

function float16(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}
