import { checkbox, element, fill } from "../dom.js";
import { convertAll } from "../conversion/convert.js";
import { colour, lookOf } from "./palette.js";
import { axis, Plot } from "./plot.js";

const SAMPLES = 901;
const MARKER_SIZE = 4;
const MARKER_GROWTH = 8;
const MANY_POINTS = 48;
const MANY_STEPS = 40;
const STEPS_AROUND = 6;

/** The dequantized value against x, a staircase for each profile, with the numbers on it. */
export class Staircase {
  #api;
  #signal;
  #plot;
  #legend = element("ul", { class: "legend" });
  #caption = element("figcaption");
  #chosen = null;
  #around;
  #onAround;
  #zoom = element("div");
  #drawing = null;
  node;

  /**
   * @param {boolean} around whether only the surroundings of the chosen number are shown, if there are many steps
   * @param {function(boolean): void} onAround called when that changes
   */
  constructor(context, around, onAround) {
    this.#around = around;
    this.#onAround = onAround;
    this.#api = context.api;
    this.#signal = context.signal;
    this.#plot = new Plot("The staircase from x to the dequantized value", 300, context.signal);
    this.node = element("figure", {}, this.#zoom, this.#caption, this.#plot.node, this.#legend);
  }

  /**
   * @param {Array<{profile: string, points: Array<[number, number]>}>} series the numbers and what they become, by profile
   * @param {string} typeText of one scale and zero point
   * @param {Object} parsed that type
   */
  async show(series, typeText, parsed, signal) {
    this.#drawing = [series, typeText, parsed, signal];
    const whole = rangeOf(series, parsed);
    const range = this.#rangeShown(whole, Number(parsed.scales[0]));
    const xs = Array.from({ length: SAMPLES }, (_, index) => range[0] + ((range[1] - range[0]) * index) / (SAMPLES - 1));
    const names = series.map(({ profile }) => profile);
    const stairs = await convertAll(this.#api, names, { numbers: xs, shape: [SAMPLES], typeText, parsed, ascending: true }, signal);
    if (signal.aborted) return;
    // A gap where there is no number: NaN would have no place on the axes.
    const data = [xs, ...stairs.map(({ reals }) => xs.map((_, index) => (Number.isFinite(reals?.[index]) ? reals[index] : null)))];
    fill(this.#caption, "The dequantized value against x. The markers are the numbers; the grey line is x itself.");
    // Drawn again whenever the plot is: its colours are those of the theme.
    this.#plot.show(() => {
      this.#showLegend(series);
      return { options: this.#options(series, range), data: [...data, xs] };
    });
  }

  /** The whole range, or the surroundings of the chosen number, with the choice between them where it makes sense. */
  #rangeShown(whole, step) {
    const x = this.#chosen;
    const offered = whole[1] - whole[0] > MANY_STEPS * step && x >= whole[0] && x <= whole[1];
    if (!offered) {
      fill(this.#zoom);
      return whole;
    }
    if (!this.#zoom.firstChild) {
      fill(this.#zoom, checkbox("Only around the chosen element", this.#around, (around) => this.#zoomed(around)));
    }
    return this.#around ? [x - STEPS_AROUND * step, x + STEPS_AROUND * step] : whole;
  }

  #zoomed(around) {
    this.#around = around;
    this.#onAround(around);
    this.show(...this.#drawing).catch((problem) => {
      if (!this.#drawing[3].aborted) throw problem;
    });
  }

  #showLegend(series) {
    fill(
      this.#legend,
      series.map(({ profile }, place) => element("li", {}, sample(place), profile)),
    );
  }

  /** Mark a number by a vertical line. */
  choose(x) {
    this.#chosen = x;
    this.#plot.redraw();
  }

  #options(series, range) {
    const looks = series.map((_, place) => lookOf(place));
    return {
      scales: { x: { time: false, range } },
      axes: [axis("x"), axis("dequantized", { size: 58 })],
      series: [
        {},
        ...looks.map(({ colour: stroke, dash }) => ({ stroke, dash, width: 2, points: { show: false } })),
        { stroke: colour("--line-strong"), width: 1, points: { show: false } },
      ],
      hooks: {
        draw: [
          (plot) => this.#drawChosen(plot),
          // The lower ones are larger, so that all show where markers coincide.
          (plot) =>
            series.forEach(({ points }, place) =>
              drawPoints(plot, points, looks[place], radiusOf(points, range, series.length - 1 - place, series.length)),
            ),
        ],
      },
    };
  }

  #drawChosen(plot) {
    if (this.#chosen === null || !Number.isFinite(this.#chosen)) return;
    const { ctx, bbox } = plot;
    const x = plot.valToPos(this.#chosen, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) return;
    ctx.save();
    ctx.strokeStyle = colour("--soft");
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    ctx.restore();
  }
}

function radiusOf(points, [low, high], above, count) {
  if (points.filter(([x]) => x >= low && x <= high).length > MANY_POINTS) return MARKER_SIZE / 2;
  return MARKER_SIZE + (MARKER_GROWTH * above) / Math.max(count, 5);
}

function drawPoints(plot, points, look, radius) {
  const { ctx, bbox } = plot;
  const size = radius * devicePixelRatio;
  ctx.save();
  ctx.fillStyle = look.colour;
  ctx.strokeStyle = colour("--card");
  ctx.lineWidth = Math.min(size / 3, 1.5 * devicePixelRatio);
  for (const [x, y] of points) {
    if (!Number.isFinite(x) || !Number.isFinite(y)) continue;
    const left = plot.valToPos(x, "x", true);
    const top = plot.valToPos(y, "y", true);
    if (left < bbox.left || left > bbox.left + bbox.width) continue;
    ctx.beginPath();
    look.marker(ctx, left, top, size);
    ctx.stroke();
    ctx.fill();
  }
  ctx.restore();
}

/** A piece of a profile's line with its marker, for the legend. */
function sample(place) {
  const ratio = Math.max(devicePixelRatio, 2);
  const canvas = element("canvas", { width: 36 * ratio, height: 14 * ratio, "aria-hidden": "true", class: "sample" });
  const ctx = canvas.getContext("2d");
  const { colour: stroke, dash, marker } = lookOf(place);
  ctx.scale(ratio, ratio);
  ctx.strokeStyle = ctx.fillStyle = stroke;
  ctx.lineWidth = 2;
  ctx.setLineDash(dash);
  ctx.beginPath();
  ctx.moveTo(0, 7);
  ctx.lineTo(36, 7);
  ctx.stroke();
  ctx.beginPath();
  marker(ctx, 18, 7, MARKER_SIZE);
  ctx.fill();
  return canvas;
}

/** From the least to the greatest number, with a margin, and not far beyond what the type can hold. */
function rangeOf(series, parsed) {
  const scale = Number(parsed.scales[0]);
  const held = [parsed.storage_min, parsed.storage_max].map((bound) => (bound - parsed.zero_points[0]) * scale);
  const beyond = (held[1] - held[0]) / 10;
  const xs = series.flatMap(({ points }) => points.map(([x]) => x)).filter(Number.isFinite);
  const clipped = xs.map((x) => Math.min(Math.max(x, held[0] - beyond), held[1] + beyond));
  if (clipped.length === 0) return [held[0] - beyond, held[1] + beyond];
  const low = Math.min(...clipped);
  const high = Math.max(...clipped);
  const margin = Math.max((high - low) * 0.12, scale * 0.75);
  return [low - margin, high + margin];
}
