/** The line at the edge of the window that explains the field which has the focus. */

/**
 * Screen readers read the same sentence as the field's description, so the line is for the eye. It lies over the page:
 * a line beside the field would move what a click is about to hit.
 * @param {HTMLElement} line
 */
export function explainFocused(line) {
  document.addEventListener("focusin", ({ target }) => {
    const described = target.getAttribute("aria-describedby")?.split(" ") ?? [];
    const sentence = described.map((id) => document.getElementById(id)).find((each) => each?.classList.contains("explained"));
    line.textContent = sentence?.textContent ?? "";
    line.hidden = !sentence;
  });
  document.addEventListener("focusout", () => {
    line.hidden = true;
  });
}
