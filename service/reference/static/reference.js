/** The page: the operation that the address names is shown, and the list is filtered. */

import { findOperation, operationDocument } from "./operation_document.js";
import { filterOperations, markCurrent } from "./operation_list.js";
import { loadSwaggerUi, showOperations } from "./swagger_ui.js";

const element = (id) => document.getElementById(id);
const list = element("operations");
filterOperations(list, element("filter"), element("found"));

const dark = matchMedia("(prefers-color-scheme: dark)");
const followColorScheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", followColorScheme);
followColorScheme();

// The list is there already; let it be painted before the renderer, which is large, is parsed.
const ready = new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))).then(() =>
  Promise.all([fetch("openapi.json").then((reply) => reply.json()), loadSwaggerUi()]),
);
let show = null;

async function showChosen() {
  // #/tag/operationId. Another fragment, such as that of the skip link, leaves the page as it is.
  const [, operationId] = location.hash.match(/^#\/(?:[^/]*\/)?([^/]+)$/) ?? [];
  if (location.hash && !operationId) return;
  element("introduction").hidden = Boolean(operationId);
  element("operation").hidden = !operationId;
  markCurrent(list, operationId ?? null);
  if (!operationId) return;
  element("loading").hidden = show !== null;
  const [whole, SwaggerUIBundle] = await ready;
  element("loading").hidden = true;
  const place = findOperation(whole, operationId);
  if (!place) {
    element("introduction").hidden = false;
    element("operation").hidden = true;
    return;
  }
  document.title = `${place.operation.summary} · Requant API reference`;
  const part = operationDocument(whole, place);
  if (show) show(part);
  else show = showOperations(SwaggerUIBundle, element("operation"), part);
}

addEventListener("hashchange", showChosen);
await showChosen();
