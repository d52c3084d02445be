/** The page: shows the operation that the address names, and filters the list. */

import { findOperation, operationDocument } from "./operation_document.js";
import { filterOperations, markCurrent } from "./operation_list.js";
import { loadSwaggerUi, prefetchSwaggerUi, showOperations } from "./swagger_ui.js";

const element = (id) => document.getElementById(id);
const list = element("operations");
filterOperations(list, element("filter"), element("found"));

const dark = matchMedia("(prefers-color-scheme: dark)");
const followColorScheme = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", followColorScheme);
followColorScheme();

// The list is there already; let it be painted first.
const specification = new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))).then(async () => {
  prefetchSwaggerUi();
  return (await fetch("openapi.json")).json();
});
/** @type {Promise<(part: object) => void> | null} */
let renderer = null;
/** The operationId that the address names, or null. */
let chosen = null;

async function showChosen() {
  // #/tag/operationId. Any other fragment, such as the skip link's, leaves the page as it is.
  const [, operationId] = location.hash.match(/^#\/(?:[^/]*\/)?([^/]+)$/) ?? [];
  if (location.hash && !operationId) return;
  chosen = operationId ?? null;
  markCurrent(list, chosen);
  element("introduction").hidden = Boolean(operationId);
  element("operation").hidden = !operationId;
  element("loading").hidden = !operationId || renderer !== null;
  if (!operationId) return;
  const whole = await specification;
  if (chosen !== operationId) return;
  const place = findOperation(whole, operationId);
  if (place) {
    document.title = `${place.operation.summary} · Requant API reference`;
    element("main").scrollTop = 0;
    const part = operationDocument(whole, place);
    if (renderer) {
      (await renderer)(part);
    } else {
      renderer = loadSwaggerUi().then((bundle) => showOperations(bundle, element("operation"), part));
      await renderer;
    }
    if (chosen !== operationId) return;
  }
  element("introduction").hidden = Boolean(place);
  element("operation").hidden = !place;
  element("loading").hidden = true;
}

addEventListener("hashchange", showChosen);
await showChosen();
