import { explanationOf } from "./fields/explanations.js";

/**
 * An element with attributes, listeners and children.
 *
 * `on...` attributes are listeners. `true` sets an attribute without a value; `false`, null and undefined set none.
 * Children are nodes or text; null, undefined and false are left out, arrays are flattened.
 * @param {string} tag
 * @param {Object<string, *>} [attributes]
 * @param {...*} children
 * @returns {HTMLElement}
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "value") made.value = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...present(children));
  return made;
}

/** Replace what is in an element. */
export function fill(parent, ...children) {
  parent.replaceChildren(...present(children));
}

function present(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

let ids = 0;

/** An id that no other element of the page has. */
function freshId(prefix) {
  ids += 1;
  return `${prefix}-${ids}`;
}

/** A labelled control: the label above it, a hint below it, and a sentence that is shown while it has the focus. */
export function field(label, control, hint) {
  control.id ||= freshId("field");
  const hinted = hint && element("p", { class: "hint", id: `${control.id}-hint` }, hint);
  const explained = explanation(label, control);
  describeBy(control, hinted, explained);
  return element("div", { class: "field" }, element("label", { for: control.id }, label), control, hinted, explained);
}

/** A labelled checkbox. */
export function checkbox(label, checked, onchange) {
  const box = element("input", { type: "checkbox", id: freshId("field"), checked, onchange: () => onchange(box.checked) });
  const explained = explanation(label, box);
  describeBy(box, explained);
  return element("label", { class: "check" }, box, ` ${label}`, explained);
}

function explanation(label, control) {
  return element("span", { class: "explained", id: `${control.id}-explained`, hidden: true }, explanationOf(label));
}

/** Let elements that have ids describe a control, beside those that do. */
export function describeBy(control, ...elements) {
  const ids = [control.getAttribute("aria-describedby"), ...elements.map((each) => each?.id)];
  control.setAttribute("aria-describedby", ids.filter(Boolean).join(" "));
}

/** What is entered, shown beside the title of a group of controls. */
export function summaryValue() {
  return element("span", { class: "summary-value" });
}

/** A group of controls that opens and closes. `value`: a `summaryValue`. */
export function controlGroup(title, value, open, ...content) {
  return element(
    "details",
    { class: "card", open },
    element("summary", {}, element("h2", {}, title), value),
    element("div", { role: "group", "aria-label": title, class: "group" }, ...content),
  );
}

/** A drop-down list. `options`: values, or pairs of value and text. */
export function select(options, value, onchange) {
  const list = element("select", { onchange: (event) => onchange(event.target.value) });
  for (const option of options) {
    const [each, text] = Array.isArray(option) ? option : [option, option];
    list.append(element("option", { value: each, selected: each === value }, text));
  }
  return list;
}

/** A name with its words apart where a line may break: after each underscore. */
export function breakable(name) {
  return name.split("_").flatMap((word, index) => (index ? ["_", element("wbr"), word] : [word]));
}

/** A button that is no submit button. */
export function button(text, onclick, attributes = {}) {
  return element("button", { type: "button", onclick, ...attributes }, ...[text].flat());
}
