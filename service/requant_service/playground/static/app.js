/** The page: the view that the address names, what all views share, and the panels below them. */
import { Api } from "./service/api.js";
import { element, fill } from "./dom.js";
import { explainFocused } from "./fields/explanation_line.js";
import { ServiceStatus } from "./service/status.js";
import { readFragment, statesOf, writeFragment } from "./state.js";
import { TokenForm } from "./service/token_form.js";
import { PANELS, VIEWS } from "./views/index.js";
import { referenceLinks } from "./views/reference_links.js";

const main = document.getElementById("main");
const navigation = document.getElementById("views");
const announcements = document.getElementById("announcements");
const panels = document.getElementById("call");
const reference = document.getElementById("reference");

const tokens = new TokenForm(document.getElementById("token"));
const api = new Api(
  (refused) => tokens.ask(refused),
  (slow) => status.requestsAreSlow(slow),
);
const status = new ServiceStatus(document.getElementById("waiting"), api, announce);

function announce(text) {
  announcements.textContent = text;
}

let shown = null; // {view, state, leave}
const left = new Map(); // the states of views that were left, by view

function show() {
  const { view: id, values } = readFragment(location.hash);
  const view = VIEWS.find((each) => each.id === id) ?? VIEWS[0];
  const given = statesOf(view, values);
  const before = Object.keys(given).length ? {} : { ...left.get(view), ...carried(view) };
  const state = { ...view.initialState, ...before, ...given };
  if (shown) left.set(shown.view, shown.state);
  shown?.leave.abort();
  shown = { view, state, leave: new AbortController() };
  document.title = `${view.title} · Requant playground`;
  fill(main);
  fill(panels);
  fill(reference, referenceLinks(view.reference));
  showNavigation();
  render(shown);
}

/** Show a view. What it could not do is said, unless it was left meanwhile. */
async function render(current) {
  const { view, state, leave } = current;
  try {
    await view.render(main, state, contextOf(current));
  } catch (problem) {
    if (!leave.signal.aborted) main.append(element("p", { class: "error", role: "alert" }, problem.message));
  }
}

function carried(view) {
  if (!shown || shown.view === view) return {};
  const names = (view.carries ?? []).filter((name) => shown.view.carries?.includes(name));
  return Object.fromEntries(names.map((name) => [name, shown.state[name]]));
}

function showNavigation() {
  fill(
    navigation,
    VIEWS.map((view) =>
      // Not a bare fragment: accessibility checkers take an off-screen link to a fragment for a skip link.
      element("a", { href: `./#${view.id}`, "aria-current": view === shown.view && "page" }, view.title),
    ),
  );
}

function contextOf(current) {
  let call = null;
  return {
    api,
    signal: current.leave.signal,
    announce,
    set(changes) {
      Object.assign(current.state, changes);
      if (current === shown) history.replaceState(null, "", writeFragment(current.view.id, current.state));
    },
    get lastCall() {
      return call;
    },
    set lastCall(given) {
      call = given;
      if (current === shown) for (const panel of PANELS) panel.render(panels, call, this);
    },
  };
}

// A button, as the part of the address after its # holds the state.
document.getElementById("skip").addEventListener("click", () => main.focus());
document.getElementById("copy-link").addEventListener("click", copyLink);

async function copyLink(event) {
  const url = new URL(location.href);
  url.hash = writeFragment(shown.view.id, shown.state);
  let said = "Link copied";
  try {
    await navigator.clipboard.writeText(url.href);
  } catch {
    // No clipboard without HTTPS, other than on this machine: the address bar has the link.
    history.replaceState(null, "", url);
    said = "The link is in the address bar";
  }
  announce(said);
  event.target.textContent = said;
  setTimeout(() => (event.target.textContent = "Copy link"), 2000);
}

explainFocused(document.getElementById("field-explanation"));
window.addEventListener("hashchange", show);
show();
