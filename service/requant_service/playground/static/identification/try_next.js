/** Inputs that tell the consistent rules apart, to download; and what the device gave for them. */
import { button, element, select } from "../dom.js";
import { ArrayField } from "../numbers/array_field.js";
import { letter } from "./candidates.js";
import { canWrite, download, FORMS } from "./files.js";

let form = FORMS[0];

/**
 * @param {Object} reply
 * @param {boolean} several whether there are several calls
 * @param {function(Array<{tried: Object, text: string, file: Object}>): void} onAnswers called with what the device gave
 */
export function tryNext({ try_next: entries }, several, onAnswers) {
  if (entries.length === 0) return null;
  const given = entries.map((tried) => ({ tried, text: "", file: undefined }));
  const ask = button("Add and identify again", () => onAnswers(given.filter(({ text, file }) => text.trim() || file)), { class: "primary" });
  return element(
    "section",
    { class: "card try-next", "aria-labelledby": "try-next" },
    element("h2", { id: "try-next" }, "What to try next"),
    element("p", { class: "hint" }, "These inputs tell the rules apart. Feed them to the device, and enter what it gives."),
    given.map((each, index) => entry(each, index, several || entries.length > 1)),
    element("p", {}, ask),
  );
}

function entry(given, index, several) {
  const { tried } = given;
  const title = several ? [`Call ${tried.call + 1}`, tried.channel > 0 && `channel ${tried.channel}`].filter(Boolean).join(", ") : "";
  const answer = new ArrayField("What the device gave", {}, (text, file) => Object.assign(given, { text, file: text === "" ? file : undefined }), "As many numbers as there are rows.");
  return element(
    "div",
    { class: "tried", role: "group", "aria-label": title || "Inputs" },
    title && element("h3", {}, title),
    element("div", { class: "table-and-answer" }, table(tried, index), answer.node),
    downloads(tried, index),
  );
}

/** A row for each element of the output; a column for each tensor that has as many elements, and for each rule. */
function table({ tensors, outcomes }, index) {
  const rows = outcomes[0].map((_, row) => row);
  const columns = tensors.filter(({ values }) => values.length === rows.length);
  const others = tensors.filter((each) => !columns.includes(each));
  const head = (text, label) => element("th", { scope: "col", class: "number", "aria-label": label }, text);
  return element(
    "div",
    {},
    others.map(({ name, type, values }) =>
      element("details", { class: "more" }, element("summary", {}, element("code", {}, name), ` ${values.length} numbers`), element("p", { class: "hint" }, element("code", {}, type)), element("p", { class: "values" }, values.join(" "))),
    ),
    element(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": `What each rule gives${index ? `, ${index + 1}` : ""}` },
      element(
        "table",
        {},
        element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Element"), columns.map(({ name }) => head(name)), outcomes.map((_, each) => head(letter(each), `Rule ${letter(each)}`)))),
        element(
          "tbody",
          {},
          rows.map((row) =>
            element(
              "tr",
              {},
              element("th", { scope: "row" }, String(row)),
              columns.map(({ values }) => element("td", { class: "number" }, String(values[row]))),
              outcomes.map((each) => element("td", { class: String(each[row]) === String(outcomes[0][row]) ? "number" : "number some" }, String(each[row]))),
            ),
          ),
        ),
      ),
    ),
  );
}

function downloads({ tensors }, index) {
  const buttons = element("div", { class: "chips" });
  const show = () =>
    buttons.replaceChildren(
      ...tensors.map((tensor) => {
        const name = `${tensor.name}${index ? `_${index + 1}` : ""}.${form.ending}`;
        return button(`Download ${name}`, () => download(name, form.write(tensor)), { disabled: !canWrite(form, tensor) });
      }),
    );
  const forms = select(FORMS.map(({ ending, title }) => [ending, title]), form.ending, (ending) => {
    form = FORMS.find((each) => each.ending === ending);
    show();
  });
  forms.setAttribute("aria-label", "Form of the files");
  show();
  return element("div", { class: "downloads" }, forms, buttons);
}
