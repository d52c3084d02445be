import { ComparisonTable } from "../comparison/comparison_table.js";
import { answered, differenceSummary, differing } from "../comparison/differences.js";
import { MAX_EXPLAINED } from "../comparison/explanation.js";
import { problemNotes } from "../comparison/problem_note.js";
import { ProfilePicker } from "../comparison/profile_picker.js";
import { Reason } from "../comparison/reason.js";
import { shapeFor } from "../conversion/shape.js";
import { controlGroup, element, field, fill, summaryValue } from "../dom.js";
import { jsonInteger } from "../numbers/number_list.js";
import { readIntegers } from "../requantization/accumulators.js";
import { EXAMPLES } from "../requantization/examples.js";
import { latest } from "../service/latest.js";
import { multipliersTable } from "../requantization/multipliers_table.js";
import { isScheme, nameOf, requantizeAll, schemeLabel } from "../requantization/requantize.js";
import { INDEX, NAMES, namesIn, ONLY_OR_ALL } from "../state.js";
import { tensorType } from "../type/tensor_text.js";
import { TypeEditor } from "../type/type_editor.js";
import { exampleLinks } from "./example_links.js";

export const requantize = {
  id: "requantize",
  title: "Requantize",
  reference: ["/v1/requantize", "/v1/explain/requantize", "/v1/profiles", "/v1/schemes"],
  initialState: {
    input: "!quant.uniform<i32:f32, 0.00098>",
    output: "!quant.uniform<i8:f32, 0.25:-1>",
    accumulators: "-1000 127 382 500 892 30000",
    multiplier: "",
    shift: "",
    profiles: "litert,litert_single_rounding",
    element: "",
    call: "",
    differing: "",
  },
  patterns: { profiles: NAMES, element: INDEX, differing: ONLY_OR_ALL },
  render(root, state, context) {
    return new RequantizeView(root, state, context).start();
  },
};

class RequantizeView {
  #state;
  #context;
  #input;
  #output;
  #types = { input: null, output: null };
  #accumulators;
  #multiplier;
  #shift;
  #profiles;
  #schemes;
  #chosen;
  #refusal = element("div", { role: "status" });
  #summary = element("h2", { class: "summary", id: "summary" }, "…");
  #problems = element("div");
  #table;
  #reason = new Reason();
  #multipliers = element("section", { class: "card" });
  #results;
  #entered = []; // what is entered in each group, shown beside the title of one that is closed
  #shown = null;
  #compute;

  constructor(root, state, context) {
    this.#state = state;
    this.#context = context;
    this.#compute = latest(context.signal, (signal) => this.#requantize(signal));
    this.#input = this.#typeEditor("input");
    this.#output = this.#typeEditor("output");
    this.#accumulators = element("textarea", {
      class: "code",
      rows: "3",
      value: state.accumulators,
      spellcheck: "false",
      autocomplete: "off",
      oninput: () => this.#change({ accumulators: this.#accumulators.value }),
    });
    this.#multiplier = this.#integer("multiplier");
    this.#shift = this.#integer("shift");
    this.#chosen = namesIn(state.profiles);
    this.#profiles = this.#picker("Profiles");
    this.#schemes = this.#picker("Schemes");
    this.#table = new ComparisonTable(
      state.differing,
      (index) => this.#choose(index),
      (only) => context.set({ differing: only ? "only" : "all" }),
      "q",
    );
    this.#results = this.#drawnResults();
    root.append(this.#drawnHead(), element("div", { class: "workbench" }, this.#drawnInputs(), this.#results));
  }

  async start() {
    this.#input.parse();
    this.#output.parse();
    const { api, signal } = this.#context;
    try {
      const [{ profiles }, { schemes }] = await Promise.all([api.get("/v1/profiles", { signal }), api.get("/v1/schemes", { signal })]);
      this.#profiles.offer(profiles.filter((profile) => profile.operations.requantize));
      this.#schemes.offer(schemes.map(({ name, summary }) => ({ name: schemeLabel(name), label: name, title: summary })));
    } catch (problem) {
      if (!signal.aborted) this.#fail(problem);
    }
  }

  #typeEditor(side) {
    return new TypeEditor(this.#state[side], this.#context, (text, parsed) => {
      this.#types[side] = parsed;
      this.#context.set({ [side]: text });
      if (parsed) this.#compute.now();
      else this.#stale();
    });
  }

  #integer(name) {
    const input = element("input", {
      value: this.#state[name],
      inputmode: "numeric",
      autocomplete: "off",
      oninput: () => this.#change({ [name]: input.value.trim() }),
    });
    return input;
  }

  /** Profiles and schemes are chosen in two lists, and compared in the order of their choice. */
  #picker(title) {
    return new ProfilePicker(this.#chosen, (_, name, chosen) => {
      this.#chosen = this.#chosen.filter((each) => each !== name);
      if (chosen) this.#chosen.push(name);
      this.#change({ profiles: this.#chosen.join(",") });
    }, title);
  }

  #drawnHead() {
    return element(
      "div",
      { class: "intro" },
      element("h1", {}, "Same accumulators, different roundings"),
      element(
        "p",
        {},
        "Kernels scale an accumulator to the output type by an integer multiplier and a shift, and round once or twice on the way. See each integer stage, and the first one that differs.",
      ),
      exampleLinks(requantize.id, EXAMPLES),
    );
  }

  #drawnInputs() {
    const wide = matchMedia("(min-width: 64em)").matches;
    const group = (title, open, ...content) => {
      const value = summaryValue();
      this.#entered.push(value);
      return controlGroup(title, value, open, ...content);
    };
    return element(
      "div",
      { class: "inputs" },
      group("Accumulators", wide, field("Integers", this.#accumulators, `At most ${MAX_EXPLAINED}.`), this.#refusal),
      group("Profiles", wide, this.#profiles.node, element("p", { class: "hint" }, "The others are compared with the first one chosen.")),
      group("Schemes", wide && this.#chosen.some(isScheme), this.#schemes.node),
      group("Input type", false, this.#input.node),
      group("Output type", false, this.#output.node),
      group(
        "Multiplier and shift",
        this.#state.multiplier !== "",
        element("div", { class: "parts" }, field("Multiplier", this.#multiplier), field("Shift", this.#shift)),
        element("p", { class: "hint" }, "Used instead of those derived from the scales; required for plain integer types, such as i32. The sign of the shift follows the scheme’s convention."),
      ),
    );
  }

  #drawnResults() {
    return element(
      "div",
      { class: "results empty" },
      element("section", { class: "card", "aria-labelledby": "summary" }, this.#summary, this.#problems, this.#table.node),
      this.#reason.node,
      this.#multipliers,
    );
  }

  #showEntered() {
    const { accumulators, input, output, multiplier, shift } = this.#state;
    const named = (scheme) => this.#chosen.filter((label) => isScheme(label) === scheme).map(nameOf).join(", ");
    const texts = [accumulators, named(false), named(true), input, output, multiplier && `${multiplier}, ${shift}`];
    texts.forEach((text, index) => {
      this.#entered[index].textContent = text;
    });
  }

  #change(changes) {
    this.#context.set(changes);
    this.#compute();
  }

  async #requantize(signal) {
    this.#showEntered();
    const { input, output } = this.#types;
    if (!input || !output) return;
    try {
      fill(this.#refusal);
      const accumulators = readIntegers(this.#state.accumulators, MAX_EXPLAINED);
      if (this.#chosen.length === 0) throw new Error("Choose a profile or a scheme.");
      const given = {
        shape: shapeFor("", accumulators.length, input),
        values: accumulators.map(({ json }) => json),
        inputType: input.element ?? this.#state.input.trim(),
        outputType: output.element ?? this.#state.output.trim(),
        multipliers: this.#givenMultipliers(),
      };
      this.#results.setAttribute("aria-busy", "true");
      const texts = accumulators.map(({ text }) => text);
      const show = (requantizations) => this.#show(texts, requantizations, output);
      const requantizations = await requantizeAll(this.#context.api, this.#chosen, given, signal, show);
      if (signal.aborted) return;
      show(requantizations);
      this.#results.removeAttribute("aria-busy");
    } catch (problem) {
      if (!signal.aborted) this.#fail(problem);
    }
  }

  #givenMultipliers() {
    const { multiplier, shift } = this.#state;
    if (multiplier === "" && shift === "") return undefined;
    const integer = (name, text) => {
      if (!/^[-+]?\d{1,19}$/.test(text)) throw new Error(`The ${name} is not an integer.`);
      return jsonInteger(String(BigInt(text.replace("+", ""))));
    };
    return [{ multiplier: integer("multiplier", multiplier), shift: integer("shift", shift) }];
  }

  #show(texts, requantizations, output) {
    const marks = differing(requantizations);
    const summary = differenceSummary(requantizations, marks);
    if (this.#summary.textContent !== summary) this.#context.announce(summary);
    this.#shown = { texts, requantizations, output };
    this.#results.classList.remove("stale");
    this.#results.classList.toggle("empty", requantizations.every((each) => each.pending));
    fill(this.#summary, summary);
    fill(this.#problems, problemNotes(requantizations));
    this.#table.show(texts, requantizations, output);
    fill(this.#multipliers, element("h2", {}, "Multiplier, shift and saturation"), multipliersTable(requantizations));
    this.#showCall();
    const given = this.#state.element === "" ? -1 : Number(this.#state.element);
    this.#explain(given >= 0 && given < texts.length ? given : Math.max(marks.indexOf(true), 0));
  }

  /** The call of one of the profiles and schemes. */
  #showCall() {
    const done = answered(this.#shown.requantizations);
    if (done.length === 0) return;
    const shown = done.find((each) => each.profile === this.#state.call) ?? done[0];
    const { profile, call } = shown;
    const choose = (chosen) => {
      this.#context.set({ call: chosen });
      this.#showCall();
    };
    const choice = { label: "Profile or scheme", names: done.map((each) => each.profile), name: profile, choose };
    this.#context.lastCall = { path: "/v1/requantize", body: call, choice, fixed: this.#fixed(shown) };
  }

  /** What the arithmetic in C needs: of sums in int32, with one multiplier for all or for the last dimension. */
  #fixed({ call, multipliers, report }) {
    const { input } = this.#types;
    const { output } = this.#shown;
    const oneZero = new Set([...input.zero_points]).size <= 1 && new Set(output.zero_points).size <= 1;
    if (input.bits > 32 || !oneZero || (multipliers.length > 1 && !alongLast(call, multipliers))) return undefined;
    const bounds = boundsOf(output);
    if (!bounds) return undefined;
    const zeros = { inputZero: input.zero_points[0] ?? 0, outputZero: output.zero_points[0] ?? 0 };
    return { scheme: report.scheme, multipliers, conversion: { accumulators: call.input.values, ...zeros, ...bounds } };
  }

  #choose(index) {
    this.#context.set({ element: String(index) });
    this.#explain(index);
  }

  #explain(index) {
    const { texts, requantizations } = this.#shown;
    const explained = answered(requantizations).map(({ profile, elements, undefinedAt }) =>
      undefinedAt.has(index) ? { profile, problem: new Error(undefinedAt.get(index)), refused: true } : { profile, element: elements[index] },
    );
    this.#table.choose(index);
    if (explained.length) this.#reason.show(index, `q = ${texts[index]}`, explained);
    else this.#reason.clear();
  }

  #stale() {
    this.#results.classList.add("stale");
    this.#results.removeAttribute("aria-busy");
  }

  #fail(problem) {
    this.#stale();
    fill(this.#refusal, element("p", { class: "error" }, problem.message));
  }
}

/** The least and the greatest number of a type; undefined if it has none, or more than 32 bits. */
function boundsOf({ bits, signed, kind, storage_min: lowest, storage_max: highest }) {
  if (!(bits <= 32)) return undefined;
  if (lowest !== undefined) return { lowest, highest };
  if (kind !== "integer") return undefined;
  return signed ? { lowest: -(2 ** (bits - 1)), highest: 2 ** (bits - 1) - 1 } : { lowest: 0, highest: 2 ** bits - 1 };
}

/** Whether there is a multiplier for each index of the last dimension. */
function alongLast({ input }, multipliers) {
  return tensorType(input.type).dimensions?.at(-1) === multipliers.length;
}
