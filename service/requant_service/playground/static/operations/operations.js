/**
 * The operations whose outputs can be asked about: of each its title, its arguments and its outputs, by the names that
 * the service has for them. What chooses the arithmetic, such as a profile, is asked for and thus no argument.
 *
 * An argument is `{name, label, kind, hint, optional, initial}`, of the kinds
 * - `tensor`: elements, their type and shape;
 * - `type`, `text`: a text;
 * - `numbers`: a list of numbers;
 * - `flag`, and `choice` of `choices`.
 * An optional one is folded away; one that may be `blank` is not.
 */
const tensor = (name, label, initial, hint) => ({ name, label, kind: "tensor", initial, hint });
const type = (name, label, initial, hint) => ({ name, label, kind: "type", initial, hint });
const text = (name, label, initial, hint) => ({ name, label, kind: "text", initial, hint });
const numbers = (name, label, hint) => ({ name, label, kind: "numbers", hint });
const number = (name, label, hint) => ({ name, label, kind: "number", hint });
const flag = (name, label) => ({ name, label, kind: "flag", optional: true });
const choice = (name, label, ...choices) => ({ name, label, kind: "choice", choices, optional: true });
const optional = (argument) => ({ ...argument, optional: true });

const ANY = "With !quant.any<i8:f32> scale and zero point are looked for.";
const I8 = "!quant.uniform<i8:f32, 0.5:3>";
const SUMS = "!quant.uniform<i32:f32, 0.001>";
const OUTPUT = type("output_type", "Output type", "!quant.uniform<i8:f32, 0.25:-1>", ANY);
const BIAS = optional(tensor("bias", "Bias", "i32"));
const ACCUMULATOR = choice("accumulator", "Accumulator", "i32", "i64");
const STORAGE = text("storage", "Storage type", "i8", "Such as i8, u8 or i8<-127:127>.");
const RANGES = [flag("symmetric", "Symmetric"), flag("narrow", "Narrow range"), flag("reduced", "Reduced range"), flag("power_of_two", "Scales are powers of two")];

const VECTOR_OPERATIONS =
  "quantize dequantize requantize tosa.RESCALE onnx.QuantizeLinear onnx.DequantizeLinear onednn.Quantize onednn.Dequantize stablehlo.uniform_quantize stablehlo.uniform_dequantize mlir.quant.qcast mlir.quant.dcast litert.QUANTIZE litert.DEQUANTIZE torch.quantize_per_tensor torch.dequantize torch.quantized_decomposed.quantize_per_tensor torch.quantized_decomposed.dequantize_per_tensor".split(" ");

export const OPERATIONS = {
  quantize: {
    title: "Quantize",
    arguments: [tensor("input", "Input", "f32"), type("output_type", "Output type", I8, ANY)],
    outputs: ["output"],
  },
  dequantize: {
    title: "Dequantize",
    arguments: [tensor("input", "Input", I8, ANY), optional(type("output_type", "Output type", ""))],
    outputs: ["output"],
  },
  requantize: {
    title: "Requantize",
    arguments: [tensor("input", "Input", SUMS, "Accumulators, or quantized numbers."), OUTPUT],
    outputs: ["output"],
  },
  conv2d: {
    title: "Convolution",
    arguments: [
      tensor("input", "Input", "!quant.uniform<i8:f32, 0.05:-3>"),
      tensor("weights", "Weights", "!quant.uniform<i8<-127:127>:f32, 0.004>"),
      BIAS,
      OUTPUT,
      optional(numbers("strides", "Strides", "Vertical and horizontal.")),
      choice("padding", "Padding", "valid", "same_upper", "same_lower", "explicit"),
      optional(numbers("pads", "Pads", "Top, left, bottom, right, with explicit padding.")),
      optional(numbers("dilations", "Dilations", "Vertical and horizontal.")),
      optional(number("groups", "Groups")),
      choice("layout", "Layout", "NHWC", "NCHW"),
      choice("weights_layout", "Layout of the weights", "OHWI", "HWIO", "OIHW", "IHWO"),
      ACCUMULATOR,
    ],
    outputs: ["output"],
  },
  matmul: {
    title: "Matrix product",
    arguments: [tensor("lhs", "Left matrix", "!quant.uniform<i8:f32, 0.05:-3>"), tensor("rhs", "Right matrix", "!quant.uniform<i8:f32, 0.004>"), BIAS, OUTPUT, ACCUMULATOR],
    outputs: ["output"],
  },
  add: {
    title: "Add",
    arguments: [tensor("lhs", "Left operand", I8), tensor("rhs", "Right operand", I8), OUTPUT],
    outputs: ["output"],
  },
  quantize_blocks: {
    title: "Quantize to a block format",
    arguments: [tensor("input", "Input", "f32")],
    outputs: ["elements", "scales", "blocks"],
  },
  dequantize_blocks: {
    title: "Dequantize from a block format",
    arguments: [
      type("output_type", "Output type", "tensor<1x32xf32>"),
      optional(tensor("elements", "Elements", "ui8")),
      optional(tensor("scales", "Scales", "f8E8M0FNU")),
      optional(tensor("blocks", "Blocks", "ui8", "GGUF only.")),
      optional(text("global_scale", "Global scale", "", "nvfp4 only.")),
    ],
    outputs: ["output"],
  },
  fake_quantize: {
    title: "Fake-quantize",
    arguments: [tensor("input", "Input", "f32"), numbers("minimums", "Minimums"), numbers("maximums", "Maximums"), optional(number("num_bits", "Bits")), flag("narrow_range", "Narrow range")],
    outputs: ["output"],
  },
  derive_multiplier: {
    title: "Multiplier and shift of a factor",
    arguments: [numbers("factors", "Factors")],
    outputs: ["multiplier", "shift"],
  },
  derive_from_range: {
    title: "Scale and zero point of a range",
    arguments: [numbers("minimums", "Minimums"), numbers("maximums", "Maximums"), STORAGE, ...RANGES],
    outputs: ["scales", "zero_points"],
  },
  derive_from_tensor: {
    title: "Scale and zero point of data",
    arguments: [tensor("input", "Input", "f32"), STORAGE, ...RANGES, optional(number("axis", "Axis", "For a scale per channel."))],
    outputs: ["scales", "zero_points"],
  },
};

/** The arguments of an operation that is called, not asked about: nothing is looked for. */
export function argumentsToCall(operation) {
  return OPERATIONS[operation].arguments.map((part) => (part.hint === ANY ? { ...part, hint: undefined } : part));
}

/** Arguments that choose the arithmetic, for the views that do not ask which it was. */
export const CHOICES = {
  profile: (names) => ({ ...choice("profile", "Profile", ...names), optional: false }),
  format: (names) => ({ ...choice("format", "Format", ...names), optional: false }),
  rule: (names) => choice("rule", "Rule", ...names),
  scheme: (names) => choice("scheme", "Scheme", ...names),
  rangeRule: (names) => choice("scheme", "Range rule", ...names),
};

/** Test vectors: no operation whose outputs can be asked about. */
export const VECTORS = {
  title: "Test vectors",
  arguments: [
    { ...choice("operation", "Operation", ...VECTOR_OPERATIONS), optional: false },
    type("input_type", "Input type", "i32", "Plain integers leave the parameters to the service."),
    { ...type("output_type", "Output type", "i8", "None for dequantize."), blank: true },
    number("count", "Count", "8 to 2048."),
    optional(number("seed", "Seed")),
  ],
};

/** A call to begin with. */
export function emptyCall(operation) {
  const given = OPERATIONS[operation].arguments.flatMap(({ name, kind, initial }) => (initial ? [[kind === "tensor" ? `${name}.type` : name, initial]] : []));
  return { operation, arguments: Object.fromEntries(given), observed: {} };
}
