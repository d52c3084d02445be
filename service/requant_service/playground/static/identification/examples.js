/** Outputs worth asking about: a title, and what they change of the view's initial state. */

/** Two accumulators near a tie, and one that is not. */
const REQUANTIZED = {
  operation: "requantize",
  arguments: { input: "585 7984 -12", "input.type": "!quant.uniform<i32:f32, 0.001>", output_type: "!quant.uniform<i8:f32, 0.25:-1>" },
  observed: { output: "1 31 -1" },
};

const CONVOLUTION = {
  operation: "conv2d",
  arguments: {
    input: "28 -64 121 114 -112 -80 -77 -83 20 -39 -5 -69 115 43 42 -99 -88 101 -48 91 73 -128 -7 10 -9 -101 56 -62 -39 -22 -52 -12 86 -9 61 109 -73 -62 14 -80 48 43 45 114 -20 108 121 97 -51 -112",
    "input.type": "!quant.uniform<i8:f32, 0.0353:-4>",
    "input.shape": "1x5x5x2",
    weights: "92 111 -43 38 -84 95 89 -23 73 -72 120 75 81 41 -115 71 54 -76 91 -93 -26 67 70 -122 -63 114 16 -93 -40 26 -127 -21 -63 -45 34 -84 106 71 38 106 -106 58 99 26 11 54 57 9 9 15 58 104 81 -55",
    "weights.type": "!quant.uniform<i8<-127:127>:f32:0, {0.0083, 0.0046, 0.0058}>",
    "weights.shape": "3x3x3x2",
    bias: "677 -501 279",
    "bias.type": "i32",
    output_type: "!quant.uniform<i8:f32, 0.0913:7>",
  },
  observed: { output: "47 8 80 127 56 41 -128 -28 -67 -128 -9 11 127 -49 84 127 19 22 21 23 19 0 -44 28 -37 20 49" },
};

const QUANTIZED = {
  operation: "quantize",
  arguments: { input: "-1.2 -0.37 0.05 0.4 0.93 1.31 2.6 -0.105 0.735", "input.type": "f32", output_type: "!quant.any<i8:f32>" },
  observed: { output: "-47 -19 -5 6 24 37 80 -11 18" },
};

const state = (call, others) => ({ calls: JSON.stringify([call]), ...others });

export const EXAMPLES = [
  { title: "Three requantized accumulators", state: state(REQUANTIZED) },
  { title: "A convolution that is off by one", state: state(CONVOLUTION, { suspects: "litert,litert_xnnpack,litert_single_rounding,tosa,cmsis_nn,xnnpack_rndnu" }) },
  { title: "Scale and zero point not known", state: state(QUANTIZED, { suspects: "onnx,litert,litert_xnnpack,stablehlo,torch" }) },
  { title: "An element that no rule gives", state: state({ ...REQUANTIZED, observed: { output: "1 31 -2" } }) },
];

export const DEFAULT = EXAMPLES[0].state.calls;
