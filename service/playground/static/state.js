/**
 * The state of the page stands in the address, after the #: `#quantize?type=!quant.uniform...&profiles=onnx,mlir`.
 * It is never sent to the service, and nothing else is stored.
 */

/**
 * @param {string} fragment with or without the #
 * @returns {{view: string, values: Object<string, string>}}
 */
export function readFragment(fragment) {
  const [view, query = ""] = split(fragment.replace(/^#/, ""), "?");
  const values = {};
  for (const pair of query.split("&")) {
    const [name, value = ""] = split(pair, "=");
    if (name) values[decode(name)] = decode(value);
  }
  return { view, values };
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
