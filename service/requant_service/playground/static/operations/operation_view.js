/** A view of one operation out of some: its arguments on one side, what the service answers on the other. */
import { controlGroup, element, field, fill, select, summaryValue } from "../dom.js";
import { latest } from "../service/latest.js";
import { exampleLinks } from "../views/example_links.js";
import { argumentFields } from "./argument_fields.js";
import { argumentsOf, textsOf } from "./arguments.js";

/** The states of such a view: the operation, and the texts of its arguments as JSON. */
export function statesOfOperation(operation, given) {
  return { operation, arguments: JSON.stringify(given) };
}

export const PATTERNS = { operation: /^\w{1,40}$/ };

/**
 * @typedef {Object} Subject what a view is about
 * @property {string} id of the view
 * @property {string} heading
 * @property {string} lead
 * @property {Object[]} examples
 * @property {Object<string, {title: string, arguments: Object[], initial: Object<string, string>}>} operations by name; `initial`
 *   are the texts that its arguments have at first
 * @property {function(string, Object, AbortSignal, function(HTMLElement[]): void): Promise<HTMLElement[]>} answer asks about
 *   an operation with arguments, and returns what is shown of the reply; it may show some of it before
 */
export class OperationView {
  #subject;
  #state;
  #context;
  #call;
  #fields = element("div", { class: "group" });
  #refusal = element("div", { role: "alert" });
  #entered = summaryValue();
  #results = element("div", { class: "results" });
  #compute;

  /** @param {Subject} subject */
  constructor(root, state, context, subject) {
    this.#subject = subject;
    this.#state = state;
    this.#context = context;
    const { operations } = subject;
    if (!Object.hasOwn(operations, state.operation)) state.operation = Object.keys(operations)[0];
    this.#call = { arguments: textsIn(state.arguments) ?? { ...operations[state.operation].initial }, files: {} };
    this.#compute = latest(context.signal, (signal) => this.#ask(signal));
    root.append(this.#drawnHead(), element("div", { class: "workbench" }, this.#drawnInputs(), this.#results));
    this.#drawFields();
  }

  start() {
    this.#compute.now();
  }

  #drawnHead() {
    const { id, heading, lead, examples } = this.#subject;
    return element("div", { class: "intro" }, element("h1", {}, heading), element("p", {}, lead), exampleLinks(id, examples));
  }

  #drawnInputs() {
    const { operations } = this.#subject;
    const names = Object.entries(operations).map(([name, { title }]) => [name, title]);
    const wide = matchMedia("(min-width: 64em)").matches;
    const choice = names.length > 1 && field("Operation", select(names, this.#state.operation, (operation) => this.#choose(operation)));
    return element("div", { class: "inputs" }, controlGroup("What is given", this.#entered, wide, choice, this.#fields), this.#refusal);
  }

  #choose(operation) {
    this.#call = { arguments: { ...this.#subject.operations[operation].initial }, files: {} };
    this.#context.set(statesOfOperation(operation, this.#call.arguments));
    this.#drawFields();
    this.#compute.now();
  }

  #drawFields() {
    const { title, arguments: parts } = this.#subject.operations[this.#state.operation];
    this.#entered.textContent = title;
    fill(
      this.#fields,
      argumentFields(parts, this.#call, () => {
        this.#context.set({ arguments: JSON.stringify(this.#call.arguments) });
        this.#compute();
      }),
    );
  }

  async #ask(signal) {
    const { operations, answer } = this.#subject;
    const { operation } = this.#state;
    try {
      fill(this.#refusal);
      const given = argumentsOf(operations[operation].arguments, this.#call);
      this.#results.setAttribute("aria-busy", "true");
      this.#show(await answer(operation, given, signal, (nodes) => signal.aborted || this.#show(nodes)), signal);
      if (!signal.aborted) this.#results.removeAttribute("aria-busy");
    } catch (problem) {
      if (!signal.aborted) this.#fail(problem);
    }
  }

  #show(nodes, signal) {
    if (signal?.aborted) return;
    this.#results.classList.remove("stale");
    fill(this.#results, nodes);
  }

  #fail(problem) {
    this.#results.removeAttribute("aria-busy");
    this.#results.classList.add("stale");
    const caret = problem.caret && element("pre", { class: "caret", tabindex: "0", "aria-label": "Where the error is" }, problem.caret);
    fill(this.#refusal, element("p", { class: "error" }, problem.message), caret, problem.hint && element("p", { class: "hint" }, problem.hint));
  }
}

/** The texts by name of a state; null for none. */
function textsIn(json) {
  try {
    const read = JSON.parse(json);
    return read && typeof read === "object" && !Array.isArray(read) ? textsOf(read) : null;
  } catch {
    return null;
  }
}
