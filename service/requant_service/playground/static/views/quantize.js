import { ComparisonTable } from "../comparison/comparison_table.js";
import { countsTable } from "../comparison/counts_table.js";
import { answered, differenceSummary, differing } from "../comparison/differences.js";
import { EXAMPLES } from "../comparison/examples.js";
import { Explanations } from "../comparison/explanation.js";
import { problemNotes } from "../comparison/problem_note.js";
import { ProfilePicker } from "../comparison/profile_picker.js";
import { Reason } from "../comparison/reason.js";
import { ValuesTable } from "../comparison/values_table.js";
import { storedText } from "../conversion/bits.js";
import { channelOf } from "../conversion/channels.js";
import { convertAll } from "../conversion/convert.js";
import { errorsInSteps, realText } from "../conversion/errors.js";
import { shapeFor } from "../conversion/shape.js";
import { controlGroup, element, field, fill, select, summaryValue } from "../dom.js";
import { KINDS } from "../numbers/generate.js";
import { NumbersEditor } from "../numbers/numbers_editor.js";
import { ErrorHistograms } from "../plots/error_histograms.js";
import { Staircase } from "../plots/staircase.js";
import { INDEX, NAMES, namesIn, ONLY_OR_ALL } from "../state.js";
import { typeOfChannel } from "../type/mlir_text.js";
import { TypeEditor } from "../type/type_editor.js";
import { exampleLinks } from "./example_links.js";

const MAX_NUMBERS = 4096;

export const quantize = {
  id: "quantize",
  title: "Compare profiles",
  reference: ["/v1/quantize", "/v1/dequantize", "/v1/compare", "/v1/explain/quantize", "/v1/profiles"],
  initialState: {
    type: "!quant.uniform<i8:f32, 0.5:3>",
    numbers: "-0.25 0.25 0.75 1.25",
    generate: "",
    count: "64",
    seed: "1",
    shape: "",
    profiles: "onnx,stablehlo,litert,mlir",
    element: "",
    detail: "",
    differing: "",
    staircase: "",
  },
  patterns: {
    generate: new RegExp(`^(|${KINDS.map(([kind]) => kind).join("|")})$`),
    count: /^\d{1,4}$/,
    seed: /^\d{1,10}$/,
    profiles: NAMES,
    element: INDEX,
    differing: ONLY_OR_ALL,
    staircase: /^(|whole)$/,
  },
  carries: ["type"],
  render(root, state, context) {
    return new QuantizeView(root, state, context).start();
  },
};

class QuantizeView {
  #state;
  #context;
  #type;
  #numbers;
  #profiles;
  #summary = element("h2", { class: "summary", id: "summary" }, "Converting…");
  #problems = element("div");
  #table;
  #reason = new Reason();
  #counts = element("div");
  #staircase;
  #histograms;
  #detail = element("section", { class: "card" });
  #values = new ValuesTable();
  #results;
  #entered = { type: summaryValue(), numbers: summaryValue(), profiles: summaryValue() };
  #parsed = null;
  #shown = null;
  #computing = null;
  #explaining = null;
  #drawing = null;

  constructor(root, state, context) {
    this.#state = state;
    this.#context = context;
    this.#type = new TypeEditor(state.type, context, (text, parsed) => this.#typeChanged(text, parsed));
    this.#numbers = new NumbersEditor(state, MAX_NUMBERS, (changes) => this.#change(changes));
    this.#profiles = new ProfilePicker(namesIn(state.profiles), (chosen) => this.#change({ profiles: chosen.join(",") }));
    this.#table = new ComparisonTable(
      state.differing,
      (index) => this.#choose(index),
      (only) => context.set({ differing: only ? "only" : "all" }),
    );
    this.#staircase = new Staircase(context, state.staircase !== "whole", (around) => context.set({ staircase: around ? "" : "whole" }));
    this.#histograms = new ErrorHistograms(context);
    this.#results = this.#drawnResults();
    root.append(this.#drawnHead(), element("div", { class: "workbench" }, this.#drawnInputs(), this.#results));
  }

  async start() {
    this.#type.parse();
    try {
      const { profiles } = await this.#context.api.get("/v1/profiles", { signal: this.#context.signal });
      this.#profiles.offer(profiles.filter((profile) => profile.operations.quantize && profile.operations.dequantize));
    } catch (problem) {
      if (!this.#context.signal.aborted) this.#fail(problem);
    }
  }

  #drawnHead() {
    return element(
      "div",
      { class: "intro" },
      element("h1", {}, "Same numbers, different systems"),
      element(
        "p",
        {},
        "All systems divide by the scale, round and add the zero point, yet they disagree. See what each one stores for the same numbers, and why.",
      ),
      exampleLinks(quantize.id, EXAMPLES),
    );
  }

  #drawnInputs() {
    const open = matchMedia("(min-width: 64em)").matches;
    return element(
      "div",
      { class: "inputs" },
      controlGroup("Type", this.#entered.type, open, this.#type.node),
      controlGroup("Numbers", this.#entered.numbers, open, this.#numbers.node),
      controlGroup("Profiles", this.#entered.profiles, open, this.#profiles.node, element("p", { class: "hint" }, "The others are compared with the first one chosen.")),
    );
  }

  #drawnResults() {
    return element(
      "div",
      { class: "results empty" },
      element("section", { class: "card", "aria-labelledby": "summary" }, this.#summary, this.#problems, this.#table.node),
      this.#reason.node,
      element("section", { class: "card" }, element("h2", {}, "Staircase"), this.#staircase.node),
      element("section", { class: "card" }, element("h2", {}, "Errors and saturation"), this.#counts, this.#histograms.node),
      this.#detail,
    );
  }

  #typeChanged(text, parsed) {
    this.#parsed = parsed;
    this.#context.set({ type: text });
    this.#entered.type.textContent = text;
    if (parsed) this.#compute();
    else this.#stale();
  }

  #change(changes) {
    this.#context.set(changes);
    this.#compute();
  }

  /** Convert the numbers, and show what came of it unless something changed meanwhile. */
  async #compute() {
    if (!this.#parsed) return;
    const parsed = this.#parsed;
    const state = this.#state;
    this.#computing?.abort();
    this.#computing = new AbortController();
    const signal = AbortSignal.any([this.#context.signal, this.#computing.signal]);
    try {
      const numbers = this.#numbers.numbers(parsed);
      if (!parsed.scales.length) throw new Error("Choose a quantized type with scales.");
      this.#entered.numbers.textContent = numbers.length > 8 ? `${numbers.length} numbers` : numbers.map(realText).join("  ");
      this.#entered.profiles.textContent = namesIn(state.profiles).join(", ");
      const shape = shapeFor(state.shape, numbers.length, parsed);
      const profiles = namesIn(state.profiles);
      if (profiles.length === 0) throw new Error("Choose a profile.");
      this.#results.setAttribute("aria-busy", "true");
      const given = { numbers, shape, typeText: state.type, parsed };
      const run = { ...given, texts: numbers.map(realText), explanations: new Explanations(this.#context.api, given, signal), drawn: {}, signal };
      const show = (conversions) => this.#show({ ...run, conversions });
      const conversions = await convertAll(this.#context.api, profiles, { ...given, measured: true }, signal, show);
      if (signal.aborted) return;
      show(conversions);
      this.#results.removeAttribute("aria-busy");
    } catch (problem) {
      if (!signal.aborted) this.#fail(problem);
    }
  }

  /** Show what there is, of a run of which more may come. */
  #show(shown) {
    this.#shown = shown;
    this.#results.classList.remove("stale");
    const { numbers, texts, shape, parsed, conversions, drawn } = shown;
    const done = answered(conversions);
    this.#results.classList.toggle("empty", done.length === 0);
    const marks = differing(conversions);
    const summary = differenceSummary(conversions, marks);
    if (this.#summary.textContent !== summary) this.#context.announce(summary);
    fill(this.#summary, summary);
    fill(this.#problems, problemNotes(conversions));
    if (done.length === 0) return;
    this.#table.show(texts, conversions, parsed);
    fill(this.#counts, countsTable(done));
    const real = dequantized(conversions);
    if (real.length && isNew(drawn, "values", real)) {
      drawn.errors = new Map(real.map(({ profile, reals }) => [profile, errorsInSteps(numbers, reals, parsed, shape)]));
      this.#histograms.show(real.map(({ profile }) => ({ profile, errors: drawn.errors.get(profile) })));
      this.#showDetail();
    }
    const given = this.#state.element === "" ? -1 : Number(this.#state.element);
    const first = Math.max(marks.indexOf(true), 0);
    this.#explain(given >= 0 && given < numbers.length ? given : first);
  }

  /** Show one profile's values, of those that have any. */
  #showDetail() {
    const { conversions, numbers, parsed, drawn } = this.#shown;
    const done = dequantized(conversions);
    const focused = this.#detail.contains(document.activeElement);
    const detail = done.find((each) => each.profile === this.#state.detail) ?? done[0];
    const profiles = done.map(({ profile }) => profile);
    const choose = (profile) => {
      this.#context.set({ detail: profile });
      this.#showDetail();
    };
    const picker = select(profiles, detail.profile, choose);
    fill(this.#detail, element("h2", {}, "Values of one profile"), field("Profile", picker), this.#values.node);
    if (focused) picker.focus();
    this.#values.show(numbers, detail, drawn.errors.get(detail.profile), parsed);
    const choice = { label: "Profile", names: profiles, name: detail.profile, choose };
    this.#context.lastCall = { path: "/v1/quantize", body: detail.call, choice };
  }

  #choose(index) {
    this.#context.set({ element: String(index) });
    this.#explain(index);
  }

  /** Show the steps of an element, and the staircase of its scale. */
  async #explain(index) {
    const shown = this.#shown;
    this.#table.choose(index);
    this.#staircase.choose(shown.numbers[index]);
    this.#explaining?.abort();
    this.#explaining = new AbortController();
    const signal = AbortSignal.any([shown.signal, this.#explaining.signal]);
    await Promise.all([this.#showReason(index, shown, signal), this.#showStaircase(index, shown)]);
  }

  async #showReason(index, shown, signal) {
    try {
      const explained = await shown.explanations.of(index, answered(shown.conversions));
      if (signal.aborted) return;
      if (explained.length) this.#reason.show(index, inputText(shown.numbers[index], explained), explained, (result) => storedText(Number(result), shown.parsed));
      else this.#reason.clear();
    } catch (problem) {
      if (!signal.aborted) this.#reason.refuse(problem);
    }
  }

  async #showStaircase(index, { numbers, shape, parsed, conversions, drawn, signal }) {
    const channel = channelOf(parsed, shape);
    const done = dequantized(conversions);
    if (done.length === 0 || !isNew(drawn, "staircase", done, index)) return;
    const series = done.map(({ profile, reals }) => ({
      profile,
      points: numbers.map((x, each) => [x, reals[each]]).filter((_, each) => channel(each) === channel(index)),
    }));
    this.#drawing?.abort();
    this.#drawing = new AbortController();
    const latest = AbortSignal.any([signal, this.#drawing.signal]);
    const one = { ...parsed, scales: [parsed.scales[channel(index)]], zero_points: [parsed.zero_points[channel(index)]] };
    try {
      await this.#staircase.show(series, typeOfChannel(parsed, channel(index)), one, latest);
    } catch (problem) {
      if (!latest.aborted) throw problem;
    }
  }

  /** What is shown no longer belongs to what is entered. */
  #stale() {
    this.#computing?.abort();
    if (!this.#shown) this.#summary.textContent = "No result yet";
    this.#results.classList.add("stale");
    this.#results.removeAttribute("aria-busy");
  }

  #fail(problem) {
    this.#stale();
    this.#numbers.refuse(problem);
  }
}

/** Those whose stored numbers are dequantized, too. */
function dequantized(conversions) {
  return conversions.filter((each) => each.reals);
}

/** Whether something was not yet drawn of these conversions: while others come, it need not be drawn again. */
function isNew(drawn, what, conversions, index = 0) {
  const key = `${index} ${conversions.map(({ profile }) => profile)}`;
  const before = drawn[what];
  drawn[what] = key;
  return key !== before;
}

/** x as it is given, and as the expressed type holds it. */
function inputText(x, explained) {
  const held = explained.find((each) => each.element)?.element.input;
  return held === undefined || Number(held) === x || Number.isNaN(x) ? `x = ${realText(x)}` : `x = ${realText(x)}, held as ${held}`;
}
