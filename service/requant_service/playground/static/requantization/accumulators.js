/** The integers to requantize, as people type and paste them. */
import { itemsOf } from "../numbers/items.js";
import { jsonInteger } from "../numbers/number_list.js";

/**
 * Read integers with white space, commas or semicolons between them and any brackets around them.
 * @returns {{text: string, json: *}[]} the text without a plus sign or leading zeros, and what JSON.stringify writes as that integer
 * @throws {Error} that says which item is not an integer, or that there are too many or none
 */
export function readIntegers(text, most) {
  return itemsOf(text, most, "integer").map((item, index) => {
    if (!/^[-+]?\d{1,19}$/.test(item)) throw new Error(`Item ${index + 1} is not an integer.`);
    const plain = String(BigInt(item.replace("+", "")));
    return { text: plain, json: jsonInteger(plain) };
  });
}
