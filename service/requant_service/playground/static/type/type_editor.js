import { describeBy, element, field, fill, select } from "../dom.js";
import { ModelFilePane } from "../model_files/pane.js";
import { partsOf, textOf } from "./mlir_text.js";

const STORAGES = "i8 u8 i4 u4 i2 u2 i16 u16 i32 u32 f8E4M3FN f8E5M2 f4E2M1FN".split(" ");
const EXPRESSED = ["f32", "f16", "bf16", "f64"];
const GRANULARITIES = [
  ["tensor", "per tensor"],
  ["axis", "per axis"],
  ["blocks", "sub-channel (blocks)"],
];
const PAUSE_MILLISECONDS = 250;

/**
 * The editor of a quantized type: its MLIR text and its parts. Each follows the other.
 *
 * `onType(text, parsed)` is called for each text that the service can parse, and `onType(text, null)` for others.
 */
export class TypeEditor {
  #api;
  #signal;
  #onType;
  #text;
  #message = element("div", { class: "type-message", role: "status" });
  #form = element("div", { class: "parts" });
  #parts = null;
  #timer = 0;
  #latest = null;

  constructor(text, context, onType) {
    this.#api = context.api;
    this.#signal = context.signal;
    this.#onType = onType;
    this.#text = element("textarea", {
      class: "code",
      rows: "2",
      value: text,
      spellcheck: "false",
      autocapitalize: "off",
      autocomplete: "off",
      oninput: () => this.#later(true),
    });
    this.node = element("div", { class: "type-editor" }, field("Type in MLIR syntax", this.#text), this.#message, this.#form, new ModelFilePane((taken) => this.#take(taken)).node);
    this.#message.id = `${this.#text.id}-message`;
    describeBy(this.#text, this.#message);
  }

  /** Ask the service about the text as it is. */
  async parse(fillsForm = true) {
    const text = this.#text.value;
    this.#latest = text;
    let parsed = null;
    try {
      parsed = await this.#api.post("/v1/types/parse", { text }, { signal: this.#signal });
    } catch (problem) {
      if (this.#signal.aborted || this.#latest !== text) return;
      this.#refuse(problem);
    }
    if (this.#signal.aborted || this.#latest !== text) return;
    if (parsed) this.#accept(parsed, fillsForm);
    this.#onType(text, parsed);
  }

  #take(text) {
    this.#text.value = text;
    this.parse();
  }

  #later(fillsForm) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.parse(fillsForm), PAUSE_MILLISECONDS);
  }

  #accept(parsed, fillsForm) {
    this.#text.removeAttribute("aria-invalid");
    fill(this.#message);
    if (!fillsForm) return;
    this.#parts = partsOf(parsed);
    this.#showForm();
  }

  #refuse(problem) {
    this.#text.setAttribute("aria-invalid", "true");
    fill(
      this.#message,
      element("p", { class: "error" }, problem.message),
      problem.caret && element("pre", { class: "caret", tabindex: "0", "aria-label": "Where the error is" }, problem.caret),
      problem.hint && element("p", { class: "hint" }, problem.hint),
    );
  }

  #change(changes) {
    Object.assign(this.#parts, changes);
    if (changes.granularity) {
      if (changes.granularity === "blocks" && !this.#parts.blocks) this.#parts.blocks = "0:1, 1:2";
      this.#showForm();
    }
    this.#text.value = textOf(this.#parts);
    this.#later(false);
  }

  #showForm() {
    const parts = this.#parts;
    if (!parts) {
      fill(this.#form, element("p", { class: "hint" }, "Only uniform quantized types can be edited in fields."));
      return;
    }
    const focused = this.#form.contains(document.activeElement) ? document.activeElement.dataset.part : null;
    const change = (name) => (value) => this.#change({ [name]: value });
    fill(
      this.#form,
      field("Storage", named("storage", select(withOwn(STORAGES, parts.storage), parts.storage, change("storage")))),
      field("Lowest", this.#input("lowest", { inputmode: "numeric", placeholder: "full range" })),
      field("Highest", this.#input("highest", { inputmode: "numeric", placeholder: "full range" })),
      field("Expressed", named("expressed", select(withOwn(EXPRESSED, parts.expressed), parts.expressed, change("expressed")))),
      field("Granularity", named("granularity", select(GRANULARITIES, parts.granularity, change("granularity")))),
      parts.granularity === "axis" && field("Axis", this.#input("axis", { inputmode: "numeric" })),
      parts.granularity === "blocks" && field("Blocks", this.#input("blocks"), "dimension:size, such as 0:1, 1:32"),
      ...this.#parameters(parts.granularity),
    );
    if (focused) this.#form.querySelector(`[data-part="${focused}"]`)?.focus();
  }

  #parameters(granularity) {
    if (granularity === "tensor") {
      return [
        field("Scale", this.#input("scales", { inputmode: "decimal" })),
        field("Zero point", this.#input("zeroPoints", { inputmode: "numeric" })),
      ];
    }
    const hint = granularity === "blocks" ? "one line for each row of blocks" : "";
    return [field("Scales", this.#area("scales"), hint), field("Zero points", this.#area("zeroPoints"), hint)];
  }

  #input(part, attributes = {}) {
    const oninput = (event) => this.#change({ [part]: event.target.value.trim() });
    return named(part, element("input", { value: this.#parts[part], autocomplete: "off", oninput, ...attributes }));
  }

  #area(part) {
    const oninput = (event) => this.#change({ [part]: event.target.value });
    return named(part, element("textarea", { rows: "2", value: this.#parts[part], spellcheck: "false", oninput }));
  }
}

function named(part, control) {
  control.dataset.part = part;
  return control;
}

function withOwn(options, own) {
  return options.includes(own) ? options : [own, ...options];
}
