/**
 * The views of the page, in the order of its navigation, and the panels below every view.
 *
 * A view is an object of
 * - `id`: its name in the address; `title`: its name in the navigation;
 * - `reference`: paths of the operations behind it, which the API reference describes;
 * - `initialState`: texts by name, all of them in the address;
 * - `patterns`: by the name of a state, what its text in the address has to match, unless any text will do;
 * - `carries` (optional): names of states that are kept when the view changes, if both views carry them;
 * - `render(root, state, context)`: build the view in `root`, which is empty; it may return a promise.
 *
 * `context`:
 * - `set(changes)`: change states and with them the address; the view is not rendered again;
 * - `api`: `get(path)` and `post(path, body)`, see service/api.js;
 * - `lastCall`: set it to `{path, body}` of the call behind the view; the panels show it. If that is one of
 *   several calls, `choice` is `{label, names, name, choose(name)}`: what they differ in, and which one this is;
 * - `announce(text)`: say it to screen readers;
 * - `signal`: an AbortSignal that fires when the view is left or rendered again.
 *
 * A panel has `render(root, call, context)`, called whenever `lastCall` changes.
 */
import { callAsCode } from "../call_as_code/panel.js";
import { blocks } from "./blocks.js";
import { calibration } from "./calibration.js";
import { identify } from "./identify.js";
import { integer } from "./integer.js";
import { multiplier } from "./multiplier.js";
import { quantize } from "./quantize.js";
import { requantize } from "./requantize.js";
import { type } from "./type.js";
import { vectors } from "./vectors.js";

export const VIEWS = [quantize, requantize, integer, blocks, calibration, multiplier, vectors, identify, type];
export const PANELS = [callAsCode];
