/** The integers to requantize, as people type and paste them. */

/**
 * Read integers with white space, commas or semicolons between them and any brackets around them.
 * @returns {{text: string, json: *}[]} the text without needless signs, and what JSON.stringify writes the same integer for
 * @throws {Error} that says which item is no integer, or that there are too many or none
 */
export function readIntegers(text, most) {
  const items = text.split(/[\s,;[\](){}]+/).filter(Boolean);
  if (items.length === 0) throw new Error("Enter one integer or more.");
  if (items.length > most) throw new Error(`These are ${items.length} integers; at most ${most} are taken.`);
  return items.map((item, index) => {
    if (!/^[-+]?\d{1,19}$/.test(item)) throw new Error(`Item ${index + 1} is not an integer.`);
    const plain = String(BigInt(item.replace("+", "")));
    return { text: plain, json: jsonInteger(plain) };
  });
}

/** A double holds integers of up to 53 bits. */
export function jsonInteger(text) {
  if (Number.isSafeInteger(Number(text))) return Number(text);
  if (!JSON.rawJSON) throw new Error("This browser can send integers of up to 53 bits only.");
  return JSON.rawJSON(text);
}
