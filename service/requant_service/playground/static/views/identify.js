import { button, controlGroup, element, field, fill, summaryValue } from "../dom.js";
import { consistentGroups, excludedTable, leftOut, summaryOf, unexplained } from "../identification/answer.js";
import { CallEditor } from "../identification/call_editor.js";
import { callsOf, nextCall, requestOf, textOfCalls } from "../identification/calls.js";
import { DEFAULT, EXAMPLES } from "../identification/examples.js";
import { emptyCall } from "../operations/operations.js";
import { tryNext } from "../identification/try_next.js";
import { exampleLinks } from "./example_links.js";

export const identify = {
  id: "identify",
  title: "Identify",
  reference: ["/v1/identify"],
  initialState: { calls: DEFAULT, suspects: "" },
  patterns: { suspects: /^[\w\s,.-]{0,4000}$/ },
  render(root, state, context) {
    return new IdentifyView(root, state, context).ask();
  },
};

class IdentifyView {
  #state;
  #context;
  #calls;
  #editors = element("div", { class: "inputs" });
  #refusal = element("div", { role: "alert" });
  #summary = element("h2", { class: "summary", id: "summary" }, "…");
  #answer = element("div", { class: "answer" });
  #others = element("div", { class: "results" });
  #results;
  #asking = new AbortController();
  #asked = []; // the calls that the answer is about

  constructor(root, state, context) {
    this.#state = state;
    this.#context = context;
    this.#calls = callsOf(state.calls);
    if (this.#calls.length === 0) this.#calls = callsOf(DEFAULT);
    this.#results = element("div", { class: "results empty" }, element("section", { class: "card", "aria-labelledby": "summary" }, this.#summary, this.#answer), this.#others);
    root.append(this.#drawnHead(), element("div", { class: "workbench" }, this.#drawnInputs(), this.#results));
    this.#drawCalls();
  }

  #drawnHead() {
    return element(
      "div",
      { class: "intro" },
      element("h1", {}, "I have these outputs: whose arithmetic is it?"),
      element(
        "p",
        {},
        "Enter what went in and what came out. Every profile, scheme and option that gives these bits is named, the others are excluded, and you see which inputs tell the rest apart.",
      ),
      exampleLinks(identify.id, EXAMPLES),
    );
  }

  #drawnInputs() {
    const suspects = element("input", {
      value: this.#state.suspects,
      autocomplete: "off",
      autocapitalize: "off",
      spellcheck: "false",
      oninput: () => {
        entered.textContent = suspects.value;
        this.#context.set({ suspects: suspects.value });
        this.#stale();
      },
    });
    const entered = summaryValue();
    entered.textContent = this.#state.suspects;
    return element(
      "div",
      { class: "inputs" },
      this.#editors,
      controlGroup("Suspects", entered, this.#state.suspects !== "", field("Names", suspects, "Of profiles, schemes, methods or formats: only those are tried. All if empty.")),
      element("div", { class: "chips" }, button("Identify", () => this.ask(), { class: "primary" }), button("Add a call", () => this.#add())),
      this.#refusal,
    );
  }

  #drawCalls() {
    const several = this.#calls.length > 1;
    const wide = matchMedia("(min-width: 64em)").matches;
    fill(
      this.#editors,
      this.#calls.map((call, index) => {
        const remove = () => this.#setCalls(this.#calls.filter((each) => each !== call));
        return new CallEditor(call, several ? `Call ${index + 1}` : "Call", wide && index === 0, () => this.#changed(), several ? remove : null).node;
      }),
    );
  }

  #add() {
    this.#setCalls([...this.#calls, emptyCallOf(this.#calls.at(-1))]);
    const added = this.#editors.lastElementChild;
    added.open = true;
    added.querySelector("select").focus();
  }

  #setCalls(calls) {
    this.#calls = calls;
    this.#drawCalls();
    this.#changed();
  }

  #changed() {
    this.#context.set({ calls: textOfCalls(this.#calls) });
    this.#stale();
  }

  /** What is shown no longer belongs to what is entered. */
  #stale() {
    this.#asking.abort();
    this.#results.classList.add("stale");
    this.#results.removeAttribute("aria-busy");
  }

  async ask() {
    this.#asking.abort();
    this.#asking = new AbortController();
    const signal = AbortSignal.any([this.#context.signal, this.#asking.signal]);
    fill(this.#refusal);
    try {
      const body = this.#request();
      this.#results.setAttribute("aria-busy", "true");
      const reply = await this.#context.api.post("/v1/identify", body, { signal });
      if (signal.aborted) return;
      this.#asked = [...this.#calls];
      this.#show(reply);
      this.#context.lastCall = { path: "/v1/identify", body };
    } catch (problem) {
      if (!signal.aborted) this.#fail(problem);
    }
  }

  #request() {
    const several = this.#calls.length > 1;
    const calls = this.#calls.map((call, index) => {
      try {
        return requestOf(call);
      } catch (error) {
        throw new Error(several ? `Call ${index + 1}: ${error.message}` : error.message);
      }
    });
    const suspects = this.#state.suspects.split(/[\s,]+/).filter(Boolean);
    return { calls, ...(suspects.length && { suspects }) };
  }

  #show(reply) {
    const several = this.#calls.length > 1;
    const summary = summaryOf(reply);
    this.#results.removeAttribute("aria-busy");
    this.#results.classList.remove("stale", "empty");
    this.#context.announce(summary);
    fill(this.#summary, summary);
    fill(this.#answer, reply.warnings.map((each) => element("p", { class: "note" }, `${each[0].toUpperCase()}${each.slice(1)}.`)), consistentGroups(reply, several));
    fill(this.#others, tryNext(reply, this.#asked, (given) => this.#addAnswers(given)), unexplained(reply, several), excludedTable(reply, several), leftOut(reply));
  }

  /** A round: what the device gave for the inputs that were proposed. */
  #addAnswers(given) {
    if (given.length === 0) {
      this.#fail(new Error("Enter what the device gave."));
      return;
    }
    this.#setCalls([...this.#calls, ...given.map(({ tried, answers }) => nextCall(this.#asked[tried.call], tried, answers))]);
    this.ask();
  }

  #fail(problem) {
    this.#stale();
    if (this.#results.classList.contains("empty")) this.#summary.textContent = "No result yet";
    const caret = problem.caret && element("pre", { class: "caret", tabindex: "0", "aria-label": "Where the error is" }, problem.caret);
    fill(this.#refusal, element("p", { class: "error" }, problem.message), caret, problem.hint && element("p", { class: "hint" }, problem.hint));
  }
}

/** Another call like one, without its numbers. */
function emptyCallOf(call) {
  return { ...emptyCall(call.operation), files: {} };
}
