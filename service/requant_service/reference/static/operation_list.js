/** The list of operations: filtered, with the current one marked. */

/**
 * Hide the operations that do not contain every word of the filter in title, path, operationId or heading.
 *
 * @param {HTMLElement} list - the element around all groups
 * @param {HTMLInputElement} input
 * @param {HTMLElement} status - says how many are left
 */
export function filterOperations(list, input, status) {
  const entries = [...list.querySelectorAll("li")].map((item) => {
    const headings = [];
    for (let section = item.closest("section"); section; section = section.parentElement.closest("section")) {
      headings.push(section.firstElementChild.textContent);
    }
    return { item, text: [item.textContent, item.firstElementChild.hash, ...headings].join(" ").toLowerCase() };
  });

  function apply() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    for (const { item, text } of entries) {
      item.hidden = !words.every((word) => text.includes(word));
      left += item.hidden ? 0 : 1;
    }
    for (const section of list.querySelectorAll("section")) {
      section.hidden = !section.querySelector("li:not([hidden])");
    }
    status.textContent = words.length ? `${left} of ${entries.length} operations` : "";
  }

  input.addEventListener("input", apply);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") list.querySelector("li:not([hidden]) a")?.click();
  });
  apply();
}

/**
 * Mark the operation that is shown.
 *
 * @param {HTMLElement} list
 * @param {string | null} operationId
 */
export function markCurrent(list, operationId) {
  for (const link of list.querySelectorAll("a[aria-current]")) link.removeAttribute("aria-current");
  if (!operationId) return;
  const link = [...list.querySelectorAll("li a")].find((each) => each.hash.endsWith(`/${operationId}`));
  link?.setAttribute("aria-current", "page");
  link?.scrollIntoView({ block: "nearest" });
}
