/** The fields of an operation's arguments. */
import { checkbox, element, field, select } from "../dom.js";
import { ArrayField } from "../numbers/array_field.js";

const TYPED = { spellcheck: "false", autocomplete: "off", autocapitalize: "off" };

/**
 * @param {Object[]} parts the arguments, as operations.js describes them
 * @param {{arguments: Object<string, string>, files: Object<string, Object>}} call changed in place, and `onChange` called
 * @returns {HTMLElement[]} a field for each; those that few calls need are folded
 */
export function argumentFields(parts, call, onChange) {
  const fields = new ArgumentFields(call, onChange);
  const shown = parts.filter((part) => part.kind === "tensor" || !part.optional);
  const optional = parts.filter((part) => !shown.includes(part));
  const filled = optional.some(({ name }) => call.arguments[name]);
  const more =
    optional.length > 0 &&
    element("details", { class: "more", open: filled }, element("summary", {}, "Other arguments"), element("div", { class: "group" }, optional.map((part) => fields.of(part))));
  return [...shown.map((part) => fields.of(part)), more];
}

/** Keep an array in the place of a text, or none. */
export function keepFile(files, name, text, file) {
  if (text === "" && file) files[name] = file;
  else delete files[name];
}

class ArgumentFields {
  #call;
  #onChange;

  constructor(call, onChange) {
    this.#call = call;
    this.#onChange = onChange;
  }

  of(part) {
    const { name, label, kind, hint, choices, optional } = part;
    const value = this.#call.arguments[name] ?? "";
    switch (kind) {
      case "tensor":
        return this.#tensor(part);
      case "flag":
        return checkbox(label, value !== "", (checked) => this.#set(name, checked ? "true" : ""));
      case "choice":
        return field(label, select([...(optional ? [["", "default"]] : []), ...choices], value, (chosen) => this.#set(name, chosen)), hint);
      default:
        return this.#text(name, label, hint);
    }
  }

  #set(name, value) {
    this.#call.arguments[name] = value;
    this.#onChange();
  }

  #text(name, label, hint, attributes = {}) {
    const input = element("input", { ...TYPED, ...attributes, value: this.#call.arguments[name] ?? "", oninput: () => this.#set(name, input.value) });
    return field(label, input, hint);
  }

  #tensor({ name, label, hint }) {
    const { arguments: given, files } = this.#call;
    const type = this.#text(`${name}.type`, "Type");
    const shape = this.#text(`${name}.shape`, "Shape", undefined, { placeholder: "flat" });
    const values = new ArrayField("Values", { text: given[name], file: files[name] }, (text, file) => {
      if (file) {
        fit(type.querySelector("input"), file);
        shape.querySelector("input").value = given[`${name}.shape`] = file.shape.join("x");
        given[`${name}.type`] = type.querySelector("input").value;
      }
      keepFile(files, name, text, file);
      this.#set(name, text);
    });
    return element("fieldset", { class: "part" }, element("legend", {}, label), values.node, element("div", { class: "type-and-shape" }, type, shape), hint && element("p", { class: "hint" }, hint));
  }
}

/** A file of floats says which floats an input has. */
function fit(input, { dtype }) {
  if (/^(f16|f32|f64|bf16)$/.test(input.value.trim()) && dtype.startsWith("f")) input.value = `f${8 * Number(dtype.slice(1))}`;
}
