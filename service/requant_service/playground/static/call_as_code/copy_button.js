import { button, element } from "../dom.js";

const SHOWN_MILLISECONDS = 1500;

/**
 * A button that copies a text.
 * @param {string} label what it copies, for screen readers
 * @param {function(): string} text
 * @param {function(string): void} announce
 * @param {string} shown what stands on it
 */
export function copyButton(label, text, announce, shown = "Copy") {
  const made = button(
    shown,
    async () => {
      const done = await copy(text());
      made.textContent = done ? "Copied" : "Not copied";
      announce(done ? "Copied" : "The browser did not allow copying");
      setTimeout(() => {
        made.textContent = shown;
      }, SHOWN_MILLISECONDS);
    },
    { class: "copy", "aria-label": `Copy ${label}` },
  );
  return made;
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copySelected(text);
  }
}

// Without TLS the clipboard API exists only on localhost; this older way works everywhere.
function copySelected(text) {
  const area = element("textarea", { value: text, class: "unseen", "aria-hidden": "true" });
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return done;
}
