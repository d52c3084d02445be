/** The bits of a stored element, in groups of four: two's complement, or those of a float. */
export function bitsText(stored, width) {
  const bits = BigInt.asUintN(width, BigInt(stored)).toString(2).padStart(width, "0");
  return bits.replace(/(?=(.{4})+$)/g, " ").trim();
}

/** A stored element as people write it: a float's bits in hexadecimal, an integer in decimal. */
export function storedText(stored, parsed) {
  if (!isFloat(parsed.storage)) return String(stored);
  return `0x${stored.toString(16).toUpperCase().padStart(Math.ceil(parsed.bits / 4), "0")}`;
}

function isFloat(storage) {
  return /^(f\d|bf)/.test(storage);
}
