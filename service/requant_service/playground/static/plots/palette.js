/** What profiles look like in plots: a colour, a marker and a dash each, so that nothing depends on colour alone. */

const COUNT = 6;
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3], [4, 4], [14, 4]];

/** The look of the profile in a place among those that are shown. */
export function lookOf(place) {
  const at = place % COUNT;
  return { colour: colour(`--series-${at + 1}`), dash: DASHES[at], marker: MARKERS[at] };
}

/** A colour of the style sheet, in the theme that is in use. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const polygon = (...points) => (path, x, y, size) => {
  points.forEach(([dx, dy], index) => path[index ? "lineTo" : "moveTo"](x + dx * size, y + dy * size));
  path.closePath();
};

/** Each adds its outline around a point to a path. */
const MARKERS = [
  (path, x, y, size) => path.arc(x, y, size, 0, 2 * Math.PI),
  polygon([-0.9, -0.9], [0.9, -0.9], [0.9, 0.9], [-0.9, 0.9]),
  polygon([0, -1.3], [1.3, 0], [0, 1.3], [-1.3, 0]),
  polygon([0, -1.2], [1.1, 0.9], [-1.1, 0.9]),
  polygon([0, 1.2], [1.1, -0.9], [-1.1, -0.9]),
  polygon([-1.3, -0.4], [1.3, -0.4], [1.3, 0.4], [-1.3, 0.4]),
];
