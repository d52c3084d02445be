import { element, field, fill, select } from "../dom.js";
import { generate, KINDS } from "./generate.js";
import { readNpy } from "./npy.js";
import { takesNpyFile } from "../fields/file_drop.js";
import { numberText, readNumbers } from "./number_list.js";

const PAUSE_MILLISECONDS = 250;

/**
 * The editor of the numbers: typed, pasted, read from an .npy file, or generated.
 *
 * Its state is `numbers` (text), or `generate`, `count` and `seed`, and `shape`. `onChange(changes)` is called with what
 * the person changed.
 */
export class NumbersEditor {
  #most;
  #onChange;
  #parsed = null;
  #timer = 0;
  #text = element("textarea", {
    class: "code",
    rows: "3",
    spellcheck: "false",
    autocomplete: "off",
    oninput: () => this.#typed(),
  });
  #shape;
  #kind;
  #count;
  #seed;
  #message = element("div", { role: "status" });

  constructor(state, most, onChange) {
    this.#most = most;
    this.#onChange = onChange;
    this.#shape = element("input", {
      value: state.shape,
      placeholder: "from the type",
      autocomplete: "off",
      oninput: () => this.#later({ shape: this.#shape.value.trim() }),
    });
    this.#kind = select([["", "as typed"], ...KINDS], state.generate, () => this.#generated());
    this.#count = element("input", { type: "number", min: "1", max: String(most), value: state.count, oninput: () => this.#generated() });
    this.#seed = element("input", { type: "number", min: "0", max: "4294967295", value: state.seed, oninput: () => this.#generated() });
    this.#text.value = state.numbers;
    this.node = this.#drawn();
  }

  /** The numbers for a type. @throws {Error} that says what is wrong with them */
  numbers(parsed) {
    this.#parsed = parsed;
    const kind = this.#kind.value;
    this.#say("");
    if (kind) {
      const numbers = generate(kind, this.#countOf(), Math.trunc(Number(this.#seed.value)) || 0, parsed);
      this.#text.value = numbers.map(numberText).join(" ");
      return numbers;
    }
    return readNumbers(this.#text.value, this.#most);
  }

  /** Say what is wrong with the numbers. */
  refuse(error) {
    this.#say(error.message);
  }

  #say(text) {
    this.#text.setAttribute("aria-invalid", String(text !== ""));
    fill(this.#message, text && element("p", { class: "error" }, text));
  }

  #countOf() {
    return Math.min(Math.max(Math.trunc(Number(this.#count.value)) || 1, 1), this.#most);
  }

  #typed() {
    this.#kind.value = "";
    this.#showOptions();
    this.#later({ numbers: this.#text.value, generate: "" });
  }

  #generated() {
    this.#showOptions();
    const kind = this.#kind.value;
    const typed = kind ? {} : { numbers: this.#text.value };
    this.#later({ generate: kind, count: String(this.#countOf()), seed: this.#seed.value, ...typed });
  }

  #later(changes) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#onChange(changes), PAUSE_MILLISECONDS);
  }

  async #readFile(file) {
    try {
      const { values, shape } = readNpy(await file.arrayBuffer(), this.#most);
      this.#kind.value = "";
      this.#showOptions();
      this.#text.value = values.map(numberText).join(" ");
      this.#shape.value = shape.length > 1 ? shape.join("x") : "";
      this.#onChange({ numbers: this.#text.value, generate: "", shape: this.#shape.value });
    } catch (error) {
      this.#say(`${file.name}: ${error.message}`);
    }
  }

  #showOptions() {
    const kind = this.#kind.value;
    this.#options.hidden = !kind || kind === "odd";
    this.#seedField.hidden = kind !== "normal";
  }

  #options = null;
  #seedField = null;

  #drawn() {
    this.#seedField = field("Seed", this.#seed);
    this.#options = element("div", { class: "parts" }, field("Count", this.#count), this.#seedField);
    const node = element(
      "div",
      { class: "numbers-editor" },
      field("Numbers", this.#text, "Type or paste them, or drop an .npy file here. NaN, inf and -inf are accepted."),
      this.#message,
      element(
        "div",
        { class: "parts" },
        field("Generate", this.#kind),
        field("Shape", this.#shape),
      ),
      this.#options,
    );
    node.append(takesNpyFile(node, "Numbers", (file) => this.#readFile(file)));
    this.#showOptions();
    return node;
  }
}
