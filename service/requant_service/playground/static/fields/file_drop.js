/** A file that is dropped or chosen. */
import { button, element } from "../dom.js";

/**
 * Let files be dropped on a node.
 * @param {HTMLElement} node
 * @param {{label: string, accept: string, text: string}} words what the file has, for screen readers; the endings of its name;
 *   and what stands on the button
 * @param {function(File): void} read called with the file
 * @returns {HTMLElement} a button that chooses one
 */
export function takesFile(node, { label, accept, text }, read) {
  const input = element("input", {
    type: "file",
    accept,
    class: "unseen",
    tabindex: "-1",
    "aria-label": label,
    onchange: () => {
      if (input.files.length) read(input.files[0]);
      input.value = "";
    },
  });
  node.addEventListener("dragover", (event) => {
    event.preventDefault();
    node.classList.add("dropping");
  });
  node.addEventListener("dragleave", () => node.classList.remove("dropping"));
  node.addEventListener("drop", (event) => {
    event.preventDefault();
    node.classList.remove("dropping");
    if (event.dataTransfer.files.length) read(event.dataTransfer.files[0]);
  });
  return element("p", {}, button(text, () => input.click()), input);
}

/** Let .npy files be dropped on a node. `label`: what the file has. */
export function takesNpyFile(node, label, read) {
  return takesFile(node, { label: `${label} from an .npy file`, accept: ".npy", text: "Choose an .npy file…" }, read);
}
