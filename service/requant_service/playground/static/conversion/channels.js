/** Which scale of a type an element has. */

/**
 * @param {Object} parsed what /v1/types/parse says of the type
 * @param {number[]} shape of the tensor
 * @returns {function(number): number} from the element's index in row-major order to the index of its scale
 */
export function channelOf(parsed, shape) {
  const kind = parsed.element_kind ?? parsed.kind;
  if (kind === "uniform_per_axis") return (index) => positionOf(index, shape)[parsed.axis];
  if (kind !== "uniform_sub_channel") return () => 0;
  const sizes = shape.map((size, axis) => size / parsed.scale_shape[axis]);
  return (index) =>
    positionOf(index, shape).reduce(
      (channel, place, axis) => channel * parsed.scale_shape[axis] + Math.floor(place / sizes[axis]),
      0,
    );
}

/** The indices of an element along each dimension. */
export function positionOf(index, shape) {
  const places = [];
  for (let axis = shape.length - 1; axis >= 0; axis -= 1) {
    places.unshift(index % shape[axis]);
    index = Math.floor(index / shape[axis]);
  }
  return places;
}
