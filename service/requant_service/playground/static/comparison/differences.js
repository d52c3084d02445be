/** Where conversions of the same numbers differ. */

/** Those that have results, if not all of them yet. */
export function answered(conversions) {
  return conversions.filter((each) => each.stored !== undefined);
}

/** The first conversion, of those that do not fail; undefined while its results are still to come. */
export function referenceOf(conversions) {
  const first = conversions.find((each) => !each.problem);
  return first?.stored && first;
}

/** @returns {boolean[]} for each element, whether two of the conversions store different things */
export function differing(conversions) {
  const [reference, ...others] = answered(conversions);
  if (!reference) return [];
  return reference.stored.map((stored, index) => others.some((other) => other.stored[index] !== stored));
}

/** A sentence about how many elements differ, or about what is still to come. */
export function differenceSummary(conversions, marks) {
  const names = answered(conversions).map((each) => each.profile);
  const awaited = conversions.filter((each) => each.pending && !each.stored).map((each) => each.profile);
  const count = marks.filter(Boolean).length;
  const all = marks.length;
  if (awaited.length) return `${names.length ? `${stated(names, "answered")}; ` : ""}${enumerated(awaited)} ${awaited.length === 1 ? "is" : "are"} being computed…`;
  if (names.length === 0) return "No result.";
  if (names.length === 1) return `${names[0]} converted ${counted(all)}. Choose another profile to compare it with.`;
  if (count === 0) return `${enumerated(names)} agree on ${all === 1 ? "the element" : `all ${counted(all)}`}.`;
  if (count === all) return all === 1 ? "The element differs." : `All ${counted(all)} differ.`;
  return `${count} of ${counted(all)} ${count === 1 ? "differs" : "differ"}.`;
}

function stated(names, done) {
  return `${enumerated(names)} ${names.length === 1 ? "has" : "have"} ${done}`;
}

/** "a, b and c" */
export function enumerated(names) {
  return names.length < 2 ? names.join("") : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
}

function counted(count) {
  return `${count} ${count === 1 ? "element" : "elements"}`;
}
