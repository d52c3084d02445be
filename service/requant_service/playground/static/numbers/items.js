/**
 * The items of a list with white space, commas or semicolons between them and any brackets or quotes around them.
 * @param {string} text
 * @param {number} most how many items are accepted
 * @param {string} what one item is
 * @returns {string[]}
 * @throws {Error} for an empty list, or one that is too long
 */
export function itemsOf(text, most, what) {
  const items = text.split(/[\s,;"[\](){}]+/).filter(Boolean);
  if (items.length === 0) throw new Error(`Enter at least one ${what}.`);
  if (items.length > most) throw new Error(`The list has ${items.length} ${what}s; at most ${most} are accepted.`);
  return items;
}
