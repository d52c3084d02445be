import { button, element, field, fill } from "../dom.js";
import { takesFile } from "../fields/file_drop.js";
import { textOf } from "../type/mlir_text.js";
import { ENDINGS, readModelFile } from "./formats.js";

const MAX_ROWS = 100;
const STORAGE = /^(u?i?\d+|f8E4M3FN|f8E5M2)$/;
const WORDS = { label: "A model file", accept: ENDINGS, text: "Choose a model file…" };

/**
 * The tensors of a model file, of which one gives its scale, zero point and axis to a type. The file is read in the browser.
 */
export class ModelFilePane {
  #onType;
  #message = element("div", { role: "status" });
  #list = element("div", { class: "group" });
  node;

  /** @param {function(string): void} onType called with the MLIR text of the type of the tensor that is chosen */
  constructor(onType) {
    this.#onType = onType;
    this.node = element("details", { class: "more model-file" }, element("summary", {}, "From a model file"));
    const choose = takesFile(this.node, WORDS, (file) => this.#read(file));
    const hint = element("p", { class: "hint" }, "A .tflite, .onnx, .gguf or .safetensors file: choose it, or drop it here. It is read in this browser and sent nowhere.");
    this.node.append(element("div", { class: "group" }, choose, hint, this.#message, this.#list));
  }

  async #read(blob) {
    this.node.open = true;
    fill(this.#list);
    fill(this.#message, "Reading…");
    try {
      const { title, tensors } = await readModelFile(blob);
      const quantized = tensors.filter(({ read }) => read).length;
      fill(this.#message, element("p", {}, `${blob.name}: ${title}, ${tensors.length} tensors, ${quantized} with scales.`));
      if (title === "GGUF") this.#message.append(element("p", { class: "hint" }, "GGUF keeps scales within its blocks, so no type has them: see Block formats."));
      this.#showList(tensors);
    } catch (error) {
      fill(this.#message, element("p", { class: "error" }, `${blob.name}: ${error.message}`));
    }
  }

  #showList(tensors) {
    const table = element("div");
    // Those that can be taken come first.
    const sorted = [...tensors].sort((a, b) => Boolean(b.read) - Boolean(a.read));
    const filter = element("input", { type: "search", autocomplete: "off", spellcheck: "false", oninput: () => show() });
    const show = () => {
      const text = filter.value.trim().toLowerCase();
      const found = sorted.filter(({ name }) => name.toLowerCase().includes(text));
      fill(table, this.#table(found.slice(0, MAX_ROWS)), found.length > MAX_ROWS && element("p", { class: "hint" }, `The first ${MAX_ROWS} of ${found.length} are shown.`));
    };
    show();
    fill(this.#list, field("Tensor", filter), table);
  }

  #table(tensors) {
    const heads = ["Tensor", "Type", "Shape", "Scales"];
    return element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tensors of the file" },
      element(
        "table",
        {},
        element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))),
        element("tbody", {}, tensors.map((tensor) => this.#row(tensor))),
      ),
    );
  }

  #row(tensor) {
    const { name, type, shape, scaleCount, read } = tensor;
    const shown = read ? button(name || "(no name)", () => this.#take(tensor), { class: "element", "aria-label": `Take the type of ${name}` }) : name;
    return element(
      "tr",
      {},
      element("th", { scope: "row" }, shown),
      element("td", {}, type),
      element("td", {}, shape ? shape.join("×") : "?"),
      element("td", {}, read ? String(scaleCount) : "–"),
    );
  }

  async #take({ name, type, read }) {
    try {
      if (!STORAGE.test(type)) throw new Error(`it is stored as ${type}, which no quantized type has.`);
      const text = typeText(type, await read());
      fill(this.#message, element("p", {}, `The type is that of ${name}.`));
      this.#onType(text);
    } catch (error) {
      fill(this.#message, element("p", { class: "error" }, `${name}: ${error.message}`));
    }
  }
}

/** All digits of each scale: the type's scale is f64, and the file's an f32 as it is. */
function typeText(storage, { scales, zeroPoints, axis }) {
  const zeros = scales.map((_, index) => zeroPoints[zeroPoints.length === 1 ? 0 : index] ?? 0);
  const parts = { storage, lowest: "", highest: "", expressed: "f32", blocks: "", matrix: false, around: "@" };
  return textOf({ ...parts, granularity: axis === null ? "tensor" : "axis", axis: String(axis ?? 0), scales: scales.map(String).join(" "), zeroPoints: zeros.join(" ") });
}
