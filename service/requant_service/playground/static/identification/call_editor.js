import { button, controlGroup, element, field, fill, select, summaryValue } from "../dom.js";
import { ArrayField } from "../numbers/array_field.js";
import { argumentFields, keepFile } from "../operations/argument_fields.js";
import { emptyCall, OPERATIONS } from "../operations/operations.js";

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
    fill(
      this.#fields,
      argumentFields(parts, this.#call, () => this.#changed()),
      element("fieldset", { class: "part" }, element("legend", {}, "Observed"), outputs.map((name) => this.#output(name))),
    );
    this.#showEntered();
  }

  #changed() {
    this.#showEntered();
    this.#onChange();
  }

  #showEntered() {
    this.#entered.textContent = OPERATIONS[this.#call.operation].title;
  }

  #output(name) {
    const { observed, files } = this.#call;
    const label = name[0].toUpperCase() + name.slice(1).replaceAll("_", " ");
    const place = `observed.${name}`;
    return new ArrayField(label, { text: observed[name], file: files[place] }, (text, file) => {
      observed[name] = text;
      keepFile(files, place, text, file);
      this.#changed();
    }).node;
  }
}
