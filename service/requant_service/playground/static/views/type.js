import { element, fill } from "../dom.js";
import { translations } from "../type/translations.js";
import { typeFacts } from "../type/type_facts.js";
import { TypeEditor } from "../type/type_editor.js";

export const type = {
  id: "type",
  title: "Type in each system",
  reference: ["/v1/types/parse", "/v1/types/translate"],
  initialState: { type: "!quant.uniform<i8:f32, 0.5:3>" },
  patterns: {},
  carries: ["type"],
  render(root, state, context) {
    const facts = element("section", { class: "card" });
    const systems = element("section", { "aria-label": "The type in each system" });
    const results = element("div", { class: "results" }, facts, systems);
    let latest = "";

    async function show(text, parsed) {
      context.set({ type: text });
      latest = text;
      results.classList.toggle("stale", !parsed);
      if (!parsed) return;
      fill(facts, typeFacts(parsed));
      const body = { type: text };
      try {
        const reply = await context.api.post("/v1/types/translate", body, { signal: context.signal });
        if (latest !== text) return;
        fill(systems, translations(reply));
        context.lastCall = { path: "/v1/types/translate", body };
        context.announce("Translated.");
      } catch (problem) {
        if (!context.signal.aborted && latest === text) fill(systems, element("p", { class: "note" }, problem.message));
      }
    }

    const editor = new TypeEditor(state.type, context, show);
    root.append(
      element(
        "div",
        { class: "intro" },
        element("h1", {}, "One type, seven systems"),
        element("p", {}, "A quantized type as ONNX, oneDNN, LiteRT, PyTorch, TOSA, StableHLO and MLIR hold it, and what is lost."),
      ),
      element("div", { class: "workbench" }, element("div", { class: "inputs" }, element("section", { class: "card" }, element("h2", {}, "Type"), editor.node)), results),
    );
    editor.parse();
  },
};
