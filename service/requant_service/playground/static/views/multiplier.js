import { copyButton } from "../call_as_code/copy_button.js";
import { element, field, fill, select } from "../dom.js";
import { derivedBySchemes } from "../requantization/derived_multipliers.js";
import { latest } from "../service/latest.js";

const PATH = "/v1/parameters/multiplier";
const SCALES = [
  ["input", "Input scale"],
  ["weight", "Weight scale"],
  ["output", "Output scale"],
];
const COLUMNS = ["Scheme", "Multiplier", "Shift", "Represented value", "Relative error"];

export const multiplier = {
  id: "multiplier",
  title: "Multiplier and shift",
  reference: ["/v1/parameters/multiplier", "/v1/schemes"],
  initialState: { factor: "0.0123", scheme: "litert", from: "", input: "0.0235", weight: "0.0047", output: "0.0611" },
  patterns: { scheme: /^\w{1,100}$/, from: /^(|scales)$/ },

  async render(root, state, context) {
    const number = (name) => {
      const input = element("input", {
        type: "text",
        value: state[name],
        spellcheck: "false",
        autocomplete: "off",
        autocapitalize: "off",
        oninput: () => {
          context.set({ [name]: input.value });
          update();
        },
      });
      return input;
    };
    const factor = number("factor");
    const scales = SCALES.map(([name]) => number(name));
    const numbers = element("div", { class: "group" });
    const showNumbers = () =>
      fill(
        numbers,
        state.from === "scales"
          ? [SCALES.map(([, label], place) => field(label, scales[place])), element("p", { class: "hint" }, "The factor is input × weight / output, which each scheme computes in its own precision. Without a weight scale it is input / output.")]
          : field("Real factor", factor, "Decimal or C99 hexadecimal, such as 0.0123, 1e-3 or 0x1.8p-5. Read as binary64."),
      );
    const from = select(
      [["", "the factor"], ["scales", "the scales"]],
      state.from,
      (chosen) => {
        context.set({ from: chosen });
        showNumbers();
        update.now();
      },
    );
    const given = () => {
      if (state.from !== "scales") return { factors: [factor.value.trim()] };
      const named = SCALES.map(([name], place) => [name, scales[place].value.trim()]);
      return { scales: [Object.fromEntries(named.filter(([name, value]) => value !== "" || name !== "weight"))] };
    };
    showNumbers();
    const problem = element("p", { class: "error", role: "alert" });
    const results = element("section", { class: "card" });
    fill(
      root,
      element(
        "div",
        { class: "intro" },
        element("h1", {}, "One factor, every scheme"),
        element(
          "p",
          {},
          "Integer kernels scale by a multiplier and a shift. Each scheme derives them from the real factor in its own way, and has its own convention for the shift.",
        ),
      ),
      element(
        "div",
        { class: "workbench" },
        element(
          "div",
          { class: "inputs" },
          element(
            "section",
            { class: "card" },
            element("h2", {}, "Factor"),
            field("Given", from),
            numbers,
            problem,
          ),
        ),
        element("div", { class: "results" }, results),
      ),
    );

    let rows = [];
    const showCall = () => {
      const choose = (scheme) => {
        context.set({ scheme });
        showCall();
      };
      context.lastCall = {
        path: PATH,
        body: { ...given(), scheme: state.scheme },
        fixed: fixedOf(rows.find(({ scheme }) => scheme.name === state.scheme)),
        choice: { label: "Scheme", names: schemes.map(({ name }) => name), name: state.scheme, choose },
      };
    };
    const update = latest(context.signal, async (signal) => {
      rows = [];
      showCall();
      rows = await derivedBySchemes(context.api, schemes, given(), signal);
      showCall();
      const refusals = new Set(rows.map((row) => row.refusal));
      const [refusal] = refusals.size === 1 ? refusals : [];
      problem.textContent = refusal ?? "";
      for (const input of [factor, ...scales]) input.setAttribute("aria-invalid", refusal !== undefined);
      context.announce(summary(rows));
      fill(results, refusal === undefined && resultsOf(rows, state.from === "scales", context.announce));
    });

    const { schemes } = await context.api.get("/v1/schemes", { signal: context.signal });
    update.now();
  },
};

/** What the scheme's arithmetic in C needs. */
function fixedOf(row) {
  return row?.derived && { scheme: row.scheme.name, multipliers: [row.derived] };
}

function summary(rows) {
  const refused = rows.filter((row) => row.refusal !== undefined).length;
  if (!refused) return `All ${rows.length} schemes take this factor.`;
  return `${refused} of ${rows.length} schemes ${refused === 1 ? "refuses" : "refuse"} this factor.`;
}

function resultsOf(rows, derived, announce) {
  return [
    element(
      "div",
      { class: "multipliers-head" },
      element("h2", { class: "summary" }, summary(rows)),
      copyButton("table", () => tabSeparated(rows), announce, "Copy table"),
    ),
    derived && factorsOf(rows),
    table(rows, announce),
  ];
}

/** The factors that schemes computed: of each the schemes that have it. */
function factorsOf(rows) {
  const schemes = Map.groupBy(rows.filter((row) => row.derived), (row) => row.derived.factor);
  return element(
    "dl",
    { class: "facts factors" },
    [...schemes].map(([factor, of]) => [element("dt", {}, element("code", {}, factor)), element("dd", {}, schemes.size === 1 ? "the factor in all schemes" : of.map((row) => row.scheme.name).join(", "))]),
  );
}

// On a phone each row is a card. A table with another display loses its semantics for screen readers unless it has roles.
function table(rows, announce) {
  const head = (title) => element("th", { role: "columnheader", scope: "col" }, title);
  return element(
    "div",
    { class: "scroll multipliers-scroll", role: "region", tabindex: "0", "aria-label": "Multiplier and shift in each scheme" },
    element(
      "table",
      { class: "multipliers", role: "table" },
      element(
        "thead",
        { role: "rowgroup" },
        element("tr", { role: "row" }, COLUMNS.map(head), head(element("span", { class: "unseen" }, "Copy"))),
      ),
      element("tbody", { role: "rowgroup" }, rows.map((row) => tableRow(row, announce))),
    ),
  );
}

function tableRow({ scheme, derived, refusal }, announce) {
  const name = element(
    "th",
    { role: "rowheader", scope: "row" },
    element("span", { title: scheme.summary }, scheme.name),
    element("code", { class: "convention" }, scheme.convention),
  );
  const cell = (title, text, attributes) => element("td", { role: "cell", "data-title": title, ...attributes }, text);
  if (refusal !== undefined) {
    return element("tr", { role: "row" }, name, cell("", `Refused: ${refusal}`, { class: "refused", colspan: COLUMNS.length }));
  }
  const [, ...titles] = COLUMNS;
  const { multiplier, shift, represented, relative_error: error } = derived;
  return element(
    "tr",
    { role: "row" },
    name,
    cell(titles[0], multiplier, { class: "number" }),
    cell(titles[1], shift, { class: "number" }),
    cell(titles[2], represented, { class: "decimal" }),
    cell(titles[3], errorText(error), { class: "number", title: error }),
    element("td", { role: "cell", class: "copied" }, copyButton(`multiplier and shift of ${scheme.name}`, () => `${multiplier}, ${shift}`, announce)),
  );
}

function errorText(error) {
  return error === 0 ? "exact" : error.toExponential(2);
}

function tabSeparated(rows) {
  const lines = rows.map(({ scheme, derived, refusal }) =>
    derived
      ? [scheme.name, derived.multiplier, derived.shift, derived.represented, derived.relative_error]
      : [scheme.name, refusal],
  );
  return [COLUMNS, ...lines].map((cells) => cells.join("\t")).join("\n");
}
