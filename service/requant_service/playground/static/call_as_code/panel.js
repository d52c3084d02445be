/** The panel below each view: the call that the view made, to copy and run elsewhere. */
import { button, element, field, fill, select } from "../dom.js";
import { cProgram, hasC } from "./c.js";
import { copyButton } from "./copy_button.js";
import { curlText } from "./curl.js";
import { hasFunction, libraryProgram } from "./library.js";
import { jsonLiteral } from "./literals.js";
import { pythonProgram } from "./python.js";
import { tritonclientProgram } from "./tritonclient.js";

/** The forms of a call. `offered`: whether a call has it; all have those without. */
const FORMS = [
  { id: "curl", title: "curl", text: curlText },
  { id: "python", title: "Python", text: pythonProgram },
  { id: "library", title: "Python in process", text: libraryProgram, offered: hasFunction },
  { id: "tritonclient", title: "tritonclient", text: tritonclientProgram },
  { id: "c", title: "C", text: cProgram, offered: hasC },
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
    const text = () => current.text(call, { base: document.baseURI, token: context.api.usesToken });
    const forms = FORMS.filter(({ offered }) => !offered || offered(call));
    const tabs = forms.map((form) =>
      button(form.title, () => choose(form), { role: "tab", id: `call-${form.id}`, "aria-controls": "call-text" }),
    );
    const shown = element("div", { role: "tabpanel", id: "call-text", tabindex: "0" }, element("pre", {}, code));

    // Of a call that has it not another form is shown; the next call that has it shows it again.
    let current = forms.includes(chosen) ? chosen : forms[0];

    function show(form) {
      current = form;
      for (const [index, tab] of tabs.entries()) {
        const selected = forms[index] === form;
        tab.setAttribute("aria-selected", selected);
        tab.tabIndex = selected ? 0 : -1;
      }
      shown.setAttribute("aria-labelledby", `call-${form.id}`);
      code.textContent = text();
    }

    function choose(form) {
      chosen = form;
      show(form);
    }

    const list = element("div", { role: "tablist", "aria-label": "Form of the call", onkeydown: move }, tabs);

    function move(event) {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      const next = (forms.indexOf(current) + step + forms.length) % forms.length;
      choose(forms[next]);
      tabs[next].focus();
    }

    show(current);
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
