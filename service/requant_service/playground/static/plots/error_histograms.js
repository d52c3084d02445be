import uPlot from "../uplot/uPlot.esm.js";
import { element, fill } from "../dom.js";
import { lookOf } from "./palette.js";
import { axis, Plot } from "./plot.js";

const BINS_IN_A_STEP = 8;
const REACH = 1;

/** The histogram of the errors, in steps, of each profile. Errors of a step or more are in the outermost bars. */
export class ErrorHistograms {
  #signal;
  #leave = null;
  #grid = element("div", { class: "histograms" });
  node = element(
    "figure",
    {},
    element("figcaption", {}, "Errors in steps: dequantized minus x. The outermost bars count errors of a step or more."),
    this.#grid,
  );

  constructor(context) {
    this.#signal = context.signal;
  }

  /** @param {Array<{profile: string, errors: number[]}>} series errors in steps, NaN for none */
  show(series) {
    this.#leave?.abort();
    this.#leave = new AbortController();
    const signal = AbortSignal.any([this.#signal, this.#leave.signal]);
    const counts = series.map(({ errors }) => counted(errors));
    const most = Math.max(1, ...counts.flat());
    const made = series.map(({ profile, errors }, place) => this.#one(profile, errors, counts[place], most, place, signal));
    fill(this.#grid, made.map(({ node }) => node));
    for (const { draw } of made) draw();
  }

  #one(profile, errors, counts, most, place, signal) {
    const plot = new Plot(described(profile, errors), 130, signal);
    const node = element("div", { class: "histogram" }, element("p", { class: "histogram-name" }, profile), plot.node);
    const centres = counts.map((_, index) => index / BINS_IN_A_STEP - REACH);
    const draw = () =>
      plot.show(() => ({
        options: {
          scales: { x: { time: false, range: [-REACH - 0.1, REACH + 0.1] }, y: { range: [0, most] } },
          axes: [
            axis(undefined, { labelSize: 0, splits: () => [-1, -0.5, 0, 0.5, 1], grid: { show: false }, size: 26 }),
            axis(undefined, { labelSize: 0, size: 40, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000], space: 30 }),
          ],
          series: [
            {},
            { stroke: lookOf(place).colour, fill: lookOf(place).colour, paths: uPlot.paths.bars({ size: [0.8, 24] }), points: { show: false } },
          ],
          padding: [8, 8, 0, 0],
        },
        data: [centres, counts],
      }));
    return { node, draw };
  }
}

function counted(errors) {
  const counts = new Array(2 * REACH * BINS_IN_A_STEP + 1).fill(0);
  for (const error of errors) {
    if (Number.isNaN(error)) continue;
    const bounded = Math.min(Math.max(error, -REACH), REACH);
    counts[Math.round((bounded + REACH) * BINS_IN_A_STEP)] += 1;
  }
  return counts;
}

function described(profile, errors) {
  const finite = errors.filter((error) => !Number.isNaN(error));
  const within = finite.filter((error) => Math.abs(error) <= 0.5).length;
  const off = finite.filter((error) => Math.abs(error) >= 1).length;
  return `Errors of ${profile}: ${within} of ${finite.length} are within half a step, ${off} are a step or more off.`;
}
