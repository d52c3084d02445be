import { copyButton } from "../call_as_code/copy_button.js";
import { element, field, fill, select } from "../dom.js";
import { derivedBySchemes } from "../requantization/derived_multipliers.js";
import { latest } from "../requantization/latest.js";

const PATH = "/v1/parameters/multiplier";
const COLUMNS = ["Scheme", "Multiplier", "Shift", "Represented value", "Relative error"];

export const multiplier = {
  id: "multiplier",
  title: "Multiplier and shift",
  initialState: { factor: "0.0123", scheme: "litert" },

  async render(root, state, context) {
    const factor = element("input", {
      type: "text",
      value: state.factor,
      spellcheck: "false",
      autocomplete: "off",
      autocapitalize: "off",
      oninput: () => {
        context.set({ factor: factor.value });
        update();
      },
    });
    const chosen = select([state.scheme], state.scheme, (scheme) => {
      context.set({ scheme });
      showCall();
    });
    const problem = element("p", { class: "problem", role: "alert" });
    const results = element("div");
    fill(
      root,
      element("h1", {}, "Multiplier and shift"),
      element(
        "p",
        { class: "lead" },
        "Integer hardware scales by a multiplier and a shift. Each scheme derives them from a real factor in its own way.",
      ),
      element(
        "div",
        { class: "fields" },
        field("Real factor", factor, "Decimal or C99 hexadecimal, such as 0.0123, 1e-3 or 0x1.8p-5."),
        field("Scheme of the call below", chosen),
      ),
      problem,
      results,
    );

    const call = () => ({ factors: [factor.value.trim()], scheme: chosen.value });
    const showCall = () => {
      context.lastCall = { path: PATH, body: call() };
    };
    const update = latest(context.signal, async (signal) => {
      showCall();
      const rows = await derivedBySchemes(context.api, schemes, factor.value.trim(), signal);
      const refusals = new Set(rows.map((row) => row.refusal));
      const [refusal] = refusals.size === 1 ? refusals : [];
      problem.textContent = refusal ?? "";
      factor.setAttribute("aria-invalid", refusal !== undefined);
      fill(results, refusal === undefined && table(rows, context.announce));
    });

    const { schemes } = await context.api.get("/v1/schemes", { signal: context.signal });
    fill(
      chosen,
      schemes.map(({ name }) => element("option", { value: name, selected: name === state.scheme }, name)),
    );
    update.now();
  },
};

function table(rows, announce) {
  const refused = rows.filter((row) => row.refusal !== undefined).length;
  announce(refused ? `${refused} of ${rows.length} schemes refuse this factor` : `${rows.length} schemes`);
  return element(
    "div",
    { class: "scroll", role: "region", tabindex: "0", "aria-label": "Multiplier and shift in each scheme" },
    element(
      "table",
      { class: "multipliers" },
      element(
        "thead",
        {},
        element(
          "tr",
          {},
          COLUMNS.map((title) => element("th", { scope: "col" }, title)),
          element("th", { scope: "col" }, copyButton("the table", () => tabSeparated(rows), announce)),
        ),
      ),
      element("tbody", {}, rows.map((row) => tableRow(row, announce))),
    ),
  );
}

function tableRow({ scheme, derived, refusal }, announce) {
  const name = element(
    "th",
    { scope: "row" },
    element("span", { title: scheme.summary }, scheme.name),
    element("span", { class: "convention" }, scheme.convention),
  );
  if (refusal !== undefined) {
    return element("tr", { class: "refused" }, name, element("td", { colspan: COLUMNS.length }, `Refused: ${refusal}`));
  }
  const copied = () => `${derived.multiplier}, ${derived.shift}`;
  return element(
    "tr",
    {},
    name,
    element("td", { class: "number" }, derived.multiplier),
    element("td", { class: "number" }, derived.shift),
    element("td", { class: "decimal" }, derived.represented),
    element("td", { class: "number", title: derived.relative_error }, errorText(derived.relative_error)),
    element("td", {}, copyButton(`multiplier and shift of ${scheme.name}`, copied, announce)),
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
