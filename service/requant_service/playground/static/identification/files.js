/** Tensors as files to feed to a device. */
import { jsonText } from "../service/api.js";
import { bitsOf, isUnsigned, storageOf, tensorType } from "../type/tensor_text.js";

const FLOATS = { f32: ["f", 32, "float"], f64: ["f", 64, "double"] };

/** The forms in which tensors are written: a title, the ending of the name, and what writes one. */
export const FORMS = [
  { title: ".npy", ending: "npy", write: npy },
  { title: "C array", ending: "h", write: cArray },
  { title: "$readmemh", ending: "hex", write: readmemh },
  { title: "JSON", ending: "json", write: (tensor) => `${jsonText(tensor)}\n` },
];

/** Whether a tensor can be written in a form: floats of other widths than C's, and numbers without a type, are JSON only. */
export function canWrite({ ending }, { type }) {
  return ending === "json" || (type !== undefined && stored(type) !== null);
}

export function download(name, content) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content]));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

/** How elements are stored: sort, bits of one in memory, bits of it that count, C type; and the shape. */
function stored(type) {
  const { dimensions, element } = tensorType(type);
  const storage = storageOf(element);
  if (Object.hasOwn(FLOATS, storage)) {
    const [sort, bits, c] = FLOATS[storage];
    return { sort, bits, used: bits, c, shape: dimensions };
  }
  const used = bitsOf(storage);
  const bits = [8, 16, 32, 64].find((each) => used <= each);
  if (!bits) return null;
  const unsigned = isUnsigned(storage);
  return { sort: unsigned ? "u" : "i", bits, used, c: `${unsigned ? "u" : ""}int${bits}_t`, shape: dimensions };
}

function bytesOf({ sort, bits }, values) {
  const view = new DataView(new ArrayBuffer((values.length * bits) / 8));
  values.forEach((value, index) => {
    const at = (index * bits) / 8;
    if (sort === "f") view[`setFloat${bits}`](at, Number(value), true);
    else if (bits === 64) view.setBigInt64(at, BigInt.asIntN(64, BigInt(String(value))), true);
    else view[`setInt${bits}`](at, Number(value), true);
  });
  return view;
}

function npy({ type, values }) {
  const form = stored(type);
  const shape = form.shape ?? [values.length];
  const tuple = `(${shape.join(", ")}${shape.length === 1 ? "," : ""})`;
  const descr = `${form.bits === 8 ? "|" : "<"}${form.sort}${form.bits / 8}`;
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': ${tuple}, }`;
  // The magic string, the version and the length take 10 bytes; all of it is a multiple of 64, and ends in a newline.
  const length = Math.ceil((10 + text.length + 1) / 64) * 64 - 10;
  const head = `\u0093NUMPY\u0001\u0000${String.fromCharCode(length & 0xff, length >> 8)}${text.padEnd(length - 1)}\n`;
  return new Blob([Uint8Array.from(head, (each) => each.charCodeAt(0)), bytesOf(form, values)]);
}

function cArray({ name, type, values }) {
  const { c, sort, bits } = stored(type);
  const suffix = sort === "f" ? (bits === 32 ? "f" : "") : bits === 64 ? (sort === "u" ? "ULL" : "LL") : bits === 32 && sort === "u" ? "U" : "";
  const listed = values.map((value) => cLiteral(value, sort, bits, suffix));
  return `/* ${type} */\n#include <math.h>\n#include <stdint.h>\n\nstatic const ${c} ${name}[${values.length}] = {${listed.join(", ")}};\n`;
}

/** A number of a sort and width as C writes it. */
export function cLiteral(value, sort, bits, suffix) {
  if (sort !== "f") {
    // C has no negative literals: -2147483648 is a minus before a number that an int may not hold.
    const least = bits >= 32 && sort === "i" && BigInt(String(value)) === -(2n ** BigInt(bits - 1));
    return least ? `(${BigInt(String(value)) + 1n}${suffix} - 1)` : `${value}${suffix}`;
  }
  const number = Number(value);
  if (Number.isNaN(number)) return "NAN";
  if (!Number.isFinite(number)) return number > 0 ? "INFINITY" : "-INFINITY";
  const text = Object.is(number, -0) ? "-0" : String(number);
  return `${/[.e]/.test(text) ? text : `${text}.0`}${suffix}`;
}

/** A word for each element: as many hexadecimal digits as it has bits for. */
function readmemh({ type, values }) {
  const form = stored(type);
  const view = bytesOf(form, values);
  const digits = Math.ceil(form.used / 4);
  const words = values.map((_, index) => {
    const at = (index * form.bits) / 8;
    const bits = form.bits === 64 ? view.getBigUint64(at, true) : BigInt(view[`getUint${form.bits}`](at, true));
    return BigInt.asUintN(form.used, bits).toString(16).padStart(digits, "0");
  });
  return `// ${type}\n${words.join("\n")}\n`;
}
