/** Inputs that tell the consistent rules apart, to download; and what the device gave for them. */
import { button, element, field, select } from "../dom.js";
import { ArrayField } from "../numbers/array_field.js";
import { observedOutputs } from "./calls.js";
import { letter } from "./candidates.js";
import { canWrite, download, FORMS } from "./files.js";

let form = FORMS[0];

/**
 * @param {Object} reply
 * @param {Call[]} calls those that it answers
 * @param {function(Array<{tried: Object, answers: Object}>): void} onAnswers called with what the device gave, by output
 */
export function tryNext({ try_next: entries }, calls, onAnswers) {
  if (entries.length === 0) return null;
  const given = entries.map((tried) => ({ tried, answers: {} }));
  const entered = () => given.filter(({ answers }) => Object.values(answers).some(({ text, file }) => text.trim() || file));
  return element(
    "section",
    { class: "card try-next", "aria-labelledby": "try-next" },
    element("h2", { id: "try-next" }, "What to try next"),
    element("p", { class: "hint" }, "These inputs tell the rules apart. Feed them to the device, and enter what it gives."),
    given.map((each, index) => entry(each, index, calls, entries.length > 1)),
    element("p", {}, button("Add and identify again", () => onAnswers(entered()), { class: "primary" })),
  );
}

function entry({ tried, answers }, index, calls, several) {
  const call = calls[tried.call];
  const title = [calls.length > 1 && `Call ${tried.call + 1}`, (several || tried.channel > 0) && `Channel ${tried.channel}`].filter(Boolean).join(", ");
  const outputs = observedOutputs(call);
  const count = tried.outcomes[0].length;
  const hint = outputs.length === 1 ? `All ${count} elements, in order.` : "";
  const fields = outputs.map((output) => {
    const label = outputs.length === 1 ? "What the device gave" : `What the device gave: ${output}`;
    return new ArrayField(label, {}, (text, file) => (answers[output] = { text, file: text === "" ? file : undefined }), hint).node;
  });
  return element(
    "div",
    { class: "tried", role: "group", "aria-label": title || "Inputs" },
    title && element("h3", {}, title),
    call.operation === "conv2d" && element("p", { class: "hint" }, "A convolution with strides and dilations of 1, and without padding."),
    element("div", { class: "table-and-answer" }, table(tried, index), element("div", { class: "fields" }, fields)),
    downloads(tried, index),
  );
}

const MAX_ROWS = 32;

/** A row for each element of the output; a column for each tensor that has as many elements, and for each rule. */
function table({ tensors, outcomes }, index) {
  const all = outcomes[0].map((_, row) => row);
  const differing = all.filter((row) => outcomes.some((each) => each[row] !== outcomes[0][row]));
  const rows = all.length > MAX_ROWS ? differing : all;
  const columns = tensors.filter(({ values }) => values.length === all.length);
  const others = tensors.filter((each) => !columns.includes(each));
  const head = (text, label) => element("th", { scope: "col", class: "number", "aria-label": label }, text);
  return element(
    "div",
    { class: "fields" },
    others.map(({ name, type, values }) =>
      element("details", { class: "more" }, element("summary", {}, element("code", {}, name), ` ${values.length} numbers`), type && element("p", { class: "hint" }, element("code", {}, type)), element("p", { class: "values" }, values.join(" "))),
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
    rows.length < all.length && element("p", { class: "hint" }, `Of the other ${all.length - rows.length} elements all rules give the same.`),
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
  show();
  return element("div", { class: "downloads" }, field("Form of the files", forms), buttons);
}
