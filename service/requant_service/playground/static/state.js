/**
 * The state of the page stands in the address, after the #: `#quantize?type=!quant.uniform...&profiles=onnx,mlir`.
 * It is never sent to the service, and nothing else is stored.
 *
 * An address is untrusted text. `statesOf` checks it: a view gets only states that it has, and only texts
 * that these can have.
 */
const MAX_CHARACTERS = 65536;

/**
 * @param {string} fragment with or without the #
 * @returns {{view: string, values: Object<string, string>}}
 */
export function readFragment(fragment) {
  const [view, query = ""] = split(fragment.replace(/^#/, ""), "?");
  const values = Object.create(null);
  for (const pair of query.split("&")) {
    const [name, value = ""] = split(pair, "=");
    if (name) values[decode(name)] = decode(value);
  }
  return { view, values };
}

/**
 * The states of a view among the values of a fragment; others are left out.
 * @param {{initialState: Object<string, string>, patterns: Object<string, RegExp>}} view
 * @param {Object<string, string>} values
 * @returns {Object<string, string>}
 */
export function statesOf({ initialState, patterns }, values) {
  return Object.fromEntries(
    Object.entries(values).filter(
      ([name, value]) => Object.hasOwn(initialState, name) && value.length <= MAX_CHARACTERS && (patterns[name]?.test(value) ?? true),
    ),
  );
}

/** The patterns of states that several views have. */
export const INDEX = /^\d{0,9}$/;
export const NAMES = /^[^,]{0,100}(,[^,]{0,100}){0,31}$/;
export const ONLY_OR_ALL = /^(|only|all)$/;

/** The names of a state that lists some, each once. */
export function namesIn(text) {
  return [...new Set(text.split(",").filter(Boolean))];
}

/** @returns {string} with the # */
export function writeFragment(view, values) {
  const pairs = Object.entries(values).map(([name, value]) => `${encode(name)}=${encode(value)}`);
  return `#${view}${pairs.length ? "?" : ""}${pairs.join("&")}`;
}

function split(text, separator) {
  const at = text.indexOf(separator);
  return at < 0 ? [text] : [text.slice(0, at), text.slice(at + 1)];
}

// Characters that are allowed there and easier to read as they are.
function encode(text) {
  return encodeURIComponent(text).replaceAll("%20", "+").replaceAll("%2C", ",").replaceAll("%3A", ":");
}

function decode(text) {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return text;
  }
}
