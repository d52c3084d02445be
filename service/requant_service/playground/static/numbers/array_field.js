import { button, element, field, fill } from "../dom.js";
import { readAnyNpy } from "./npy.js";
import { takesNpyFile } from "../fields/file_drop.js";
import { numberText } from "./number_list.js";

/** So many numbers may be typed; the service takes no more as JSON numbers, unless it is configured to. */
export const MAX_TYPED = 4096;

/**
 * An array of numbers: typed, pasted, or an .npy file. A small file becomes text; a large one is kept as it is.
 *
 * `onChange(text, file)` is called with the text, or with the file that was kept, and with `file` also for one that
 * became text; its members are those of `readAnyNpy` and its name.
 */
export class ArrayField {
  #label;
  #onChange;
  #text;
  #kept = element("p", { class: "hint kept" });
  #message = element("div", { role: "status" });
  node;

  /** @param {{text?: string, file?: Object}} given what the field has at first */
  constructor(label, { text = "", file }, onChange, hint) {
    this.#label = label;
    this.#onChange = onChange;
    this.#text = element("textarea", {
      class: "code",
      rows: "2",
      value: text,
      spellcheck: "false",
      autocomplete: "off",
      oninput: () => this.#change(this.#text.value),
    });
    this.node = element("div", { class: "array-field" }, field(label, this.#text, hint), this.#kept, this.#message);
    this.node.append(takesNpyFile(this.node, label, (each) => this.#read(each)));
    this.#keep(file);
  }

  async #read(file) {
    try {
      const array = { ...readAnyNpy(await file.arrayBuffer()), name: file.name };
      const small = array.count <= MAX_TYPED;
      this.#text.value = small ? array.values().map((each) => (typeof each === "bigint" ? String(each) : numberText(each))).join(" ") : "";
      this.#change(this.#text.value, array);
    } catch (error) {
      this.#say(`${file.name}: ${error.message}`);
    }
  }

  #change(text, file) {
    this.#say("");
    this.#keep(text === "" ? file : undefined);
    this.#onChange(text, file);
  }

  /** Show a file that is too large for text. */
  #keep(file) {
    this.#text.disabled = file !== undefined;
    fill(
      this.#kept,
      file && [
        `${file.name}: ${file.dtype}, ${file.shape.join("×")}. It is no part of the link. `,
        button("Remove", () => this.#change(""), { "aria-label": `Remove ${file.name}, ${this.#label}` }),
      ],
    );
  }

  #say(text) {
    this.#text.setAttribute("aria-invalid", String(text !== ""));
    fill(this.#message, text && element("p", { class: "error" }, text));
  }
}
