/** Where conversions of the same numbers differ. */

/** The first conversion that has results. */
export function referenceOf(conversions) {
  return conversions.find((each) => !each.problem);
}

/** @returns {boolean[]} for each element, whether two of the conversions store different things */
export function differing(conversions) {
  const [reference, ...others] = conversions.filter((each) => !each.problem);
  if (!reference) return [];
  return reference.stored.map((stored, index) => others.some((other) => other.stored[index] !== stored));
}

/** A sentence about how many elements differ. */
export function differenceSummary(conversions, marks) {
  const names = conversions.filter((each) => !each.problem).map((each) => each.profile);
  const count = marks.filter(Boolean).length;
  const all = marks.length;
  if (names.length === 0) return "No result.";
  if (names.length === 1) return `${names[0]} converted ${counted(all)}. Choose another profile to compare it with.`;
  if (count === 0) return `${enumerated(names)} agree on ${all === 1 ? "the element" : `all ${counted(all)}`}.`;
  if (count === all) return all === 1 ? "The element differs." : `All ${counted(all)} differ.`;
  return `${count} of ${counted(all)} ${count === 1 ? "differs" : "differ"}.`;
}

/** "a, b and c" */
export function enumerated(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

function counted(count) {
  return `${count} ${count === 1 ? "element" : "elements"}`;
}
