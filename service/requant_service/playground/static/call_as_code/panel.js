/** The panel below each view: the call that the view made, to copy and run elsewhere. */
import { button, element, field, fill, select } from "../dom.js";
import { copyButton } from "./copy_button.js";
import { curlText } from "./curl.js";
import { jsonLiteral } from "./literals.js";
import { pythonProgram } from "./python.js";
import { tritonclientProgram } from "./tritonclient.js";

const FORMS = [
  { id: "curl", title: "curl", text: curlText },
  { id: "python", title: "Python", text: pythonProgram },
  { id: "tritonclient", title: "tritonclient", text: tritonclientProgram },
  { id: "json", title: "JSON", text: ({ body }) => jsonLiteral(body) },
];

let chosen = FORMS[0];

export const callAsCode = {
  render(root, call, context) {
    if (!call) {
      fill(root);
      return;
    }
    const code = element("code");
    const text = () => chosen.text(call, { base: document.baseURI, token: context.api.usesToken });
    const tabs = FORMS.map((form) =>
      button(form.title, () => choose(form), { role: "tab", id: `call-${form.id}`, "aria-controls": "call-text" }),
    );
    const shown = element("div", { role: "tabpanel", id: "call-text", tabindex: "0" }, element("pre", {}, code));

    function choose(form) {
      chosen = form;
      for (const [index, tab] of tabs.entries()) {
        const selected = FORMS[index] === form;
        tab.setAttribute("aria-selected", selected);
        tab.tabIndex = selected ? 0 : -1;
      }
      shown.setAttribute("aria-labelledby", `call-${form.id}`);
      code.textContent = text();
    }

    const list = element("div", { role: "tablist", "aria-label": "Form of the call", onkeydown: move }, tabs);

    function move(event) {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = (FORMS.indexOf(chosen) + step + FORMS.length) % FORMS.length;
      choose(FORMS[next]);
      tabs[next].focus();
    }

    choose(chosen);
    const focused = root.contains(document.activeElement) ? document.activeElement.id : "";
    fill(
      root,
      element(
        "div",
        { class: "card call-as-code" },
        element("h2", {}, "The same call as code"),
        element(
          "div",
          { class: "call-bar" },
          list,
          choiceOf(call),
          element("code", { class: "call-path" }, `POST ${call.path}`),
          copyButton("the call", text, context.announce),
        ),
        shown,
      ),
    );
    if (focused) document.getElementById(focused)?.focus();
  },
};

/** Where the view made several calls at once, the choice of the one that is shown. */
function choiceOf({ choice }) {
  if (!choice || choice.names.length < 2) return null;
  const list = select(choice.names, choice.name, choice.choose);
  list.id = "call-choice";
  return field(choice.label, list);
}
