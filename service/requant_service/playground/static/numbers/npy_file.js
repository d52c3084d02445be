/** An .npy file that is dropped or chosen. */
import { button, element } from "../dom.js";

/**
 * Let files be dropped on a node.
 * @param {HTMLElement} node
 * @param {string} label what the file has, for screen readers
 * @param {function(File): void} read called with the file
 * @returns {HTMLElement} a button that chooses one
 */
export function takesNpyFile(node, label, read) {
  const input = element("input", {
    type: "file",
    accept: ".npy",
    class: "unseen",
    tabindex: "-1",
    "aria-label": `${label} from an .npy file`,
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
  return element("p", {}, button("Choose an .npy file…", () => input.click()), input);
}
