/** Types of tensors as text. */

/** @returns {{dimensions: number[]|null, element: string}} no dimensions for the type of an element */
export function tensorType(text) {
  const found = /^\s*tensor\s*<\s*((?:\d+\s*x\s*)*)(.*)>\s*$/s.exec(text);
  if (!found) return { dimensions: null, element: text.trim() };
  return { dimensions: (found[1].match(/\d+/g) ?? []).map(Number), element: found[2].trim() };
}

/** The type that elements are stored in: that of a quantized type, or the type itself. */
export function storageOf(element) {
  return /^!quant\.\w+<\s*(\w+)/.exec(element)?.[1] ?? element;
}

// Such as i8, si8, ui8, and u8 within quantized types.
const INTEGER = /^s?(u?)i?(\d+)$/;

/** The bits of an integer type; NaN for another. */
export function bitsOf(storage) {
  return Number(INTEGER.exec(storage)?.[2]);
}

export function isUnsigned(storage) {
  return INTEGER.exec(storage)?.[1] === "u";
}
