import uPlot from "../uplot/uPlot.esm.js";
import { element, fill } from "../dom.js";
import { colour } from "./palette.js";

/**
 * A plot that fills the width of its place, in the theme that is in use. Drawn on a canvas, it says nothing to a screen
 * reader but its label; what it shows stands in a table or in the caption too.
 */
export class Plot {
  node = element("div", { class: "plot", role: "img" });
  #height;
  #make = null;
  #plot = null;

  /** @param {AbortSignal} signal when the plot goes away */
  constructor(label, height, signal) {
    this.#height = height;
    this.node.setAttribute("aria-label", label);
    const resized = new ResizeObserver(() => this.#resize());
    resized.observe(this.node);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    theme.addEventListener("change", () => this.#draw(), { signal });
    signal.addEventListener("abort", () => {
      resized.disconnect();
      this.#plot?.destroy();
    });
  }

  /** @param {function(): {options: Object, data: Array}} make called for each drawing, since colours may have changed */
  show(make, label) {
    this.#make = make;
    if (label) this.node.setAttribute("aria-label", label);
    this.#draw();
  }

  redraw() {
    this.#plot?.redraw(false);
  }

  #draw() {
    if (!this.#make) return;
    this.#plot?.destroy();
    fill(this.node);
    const width = this.node.clientWidth;
    if (width === 0) return;
    const { options, data } = this.#make();
    this.#plot = new uPlot({ width, height: this.#height, ...base(), ...options }, data, this.node);
  }

  #resize() {
    const width = this.node.clientWidth;
    if (!this.#plot && width > 0) this.#draw();
    else if (this.#plot && width > 0 && Math.abs(this.#plot.width - width) > 1) this.#plot.setSize({ width, height: this.#height });
  }
}

function base() {
  return { legend: { show: false }, cursor: { show: false }, padding: [10, 14, 0, 0] };
}

/** An axis with a label, in the colours of the theme. */
export function axis(label, more = {}) {
  const line = { stroke: colour("--line"), width: 1 };
  return { label, labelSize: 22, labelFont: "12px system-ui", font: "12px system-ui", stroke: colour("--soft"), grid: line, ticks: line, ...more };
}
