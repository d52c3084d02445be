import { button, controlGroup, element, field, fill, select, summaryValue } from "../dom.js";
import { ArrayField } from "../numbers/array_field.js";
import { emptyCall, OPERATIONS } from "./operations.js";

const TYPED = { spellcheck: "false", autocomplete: "off", autocapitalize: "off" };

/** The editor of one call: the operation, its arguments, and the outputs that were observed. */
export class CallEditor {
  node;
  #call;
  #onChange;
  #entered = summaryValue();
  #fields = element("div", { class: "group" });

  /**
   * @param {Call} call changed in place, and `onChange` called
   * @param {(function(): void)|null} onRemove called if the call is to be removed, where that is possible
   */
  constructor(call, title, open, onChange, onRemove) {
    this.#call = call;
    this.#onChange = onChange;
    const operations = Object.entries(OPERATIONS).map(([name, each]) => [name, each.title]);
    this.node = controlGroup(
      title,
      this.#entered,
      open,
      field("What was computed", select(operations, call.operation, (operation) => this.#choose(operation))),
      this.#fields,
      onRemove && element("p", {}, button("Remove this call", onRemove)),
    );
    this.#draw();
  }

  #choose(operation) {
    Object.assign(this.#call, emptyCall(operation), { files: {} });
    this.#draw();
    this.#onChange();
  }

  #draw() {
    const { arguments: parts, outputs } = OPERATIONS[this.#call.operation];
    const shown = parts.filter((part) => part.kind === "tensor" || !part.optional);
    const optional = parts.filter((part) => !shown.includes(part));
    const filled = optional.some(({ name }) => this.#call.arguments[name]);
    fill(
      this.#fields,
      shown.map((part) => this.#argument(part)),
      optional.length > 0 &&
        element("details", { class: "more", open: filled }, element("summary", {}, "Other arguments"), element("div", { class: "group" }, optional.map((part) => this.#argument(part)))),
      element("fieldset", { class: "part" }, element("legend", {}, "Observed"), outputs.map((name) => this.#output(name))),
    );
    this.#showEntered();
  }

  #set(name, value) {
    this.#call.arguments[name] = value;
    this.#changed();
  }

  #changed() {
    this.#showEntered();
    this.#onChange();
  }

  #showEntered() {
    this.#entered.textContent = OPERATIONS[this.#call.operation].title;
  }

  #argument(part) {
    const { name, label, kind, hint, choices } = part;
    const value = this.#call.arguments[name] ?? "";
    switch (kind) {
      case "tensor":
        return this.#tensor(part);
      case "flag": {
        const box = element("input", { type: "checkbox", checked: value !== "", onchange: () => this.#set(name, box.checked ? "true" : "") });
        return element("label", { class: "check" }, box, ` ${label}`);
      }
      case "choice":
        return field(label, select([["", "default"], ...choices], value, (chosen) => this.#set(name, chosen)));
      default:
        return this.#text(name, label, hint);
    }
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
        this.#fit(type.querySelector("input"), file);
        shape.querySelector("input").value = given[`${name}.shape`] = file.shape.join("x");
        given[`${name}.type`] = type.querySelector("input").value;
      }
      this.#keep(name, text, file);
      this.#set(name, text);
    });
    return element("fieldset", { class: "part" }, element("legend", {}, label), values.node, element("div", { class: "type-and-shape" }, type, shape), hint && element("p", { class: "hint" }, hint));
  }

  /** A file of floats says which floats an input has. */
  #fit(input, { dtype }) {
    if (/^(f16|f32|f64|bf16)$/.test(input.value.trim()) && dtype.startsWith("f")) input.value = `f${8 * Number(dtype.slice(1))}`;
  }

  #keep(name, text, file) {
    if (text === "" && file) this.#call.files[name] = file;
    else delete this.#call.files[name];
  }

  #output(name) {
    const { observed, files } = this.#call;
    const label = name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");
    const place = `observed.${name}`;
    return new ArrayField(label, { text: observed[name], file: files[place] }, (text, file) => {
      observed[name] = text;
      this.#keep(place, text, file);
      this.#changed();
    }).node;
  }
}
