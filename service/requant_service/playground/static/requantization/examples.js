/** Requantizations worth a look: a title, and what they change of the view's initial state. */
export const EXAMPLES = [
  { title: "Double against single rounding", state: { profiles: "litert,litert_single_rounding" } },
  {
    title: "LiteRT’s reference kernels against its Arm kernels",
    state: { profiles: "litert,scheme arm_vector", accumulators: "-1403 -893 -637 637 893 1403" },
  },
  {
    title: "A multiplier of 32 bits against one of 16",
    state: { profiles: "litert,scheme litert_int64", accumulators: "-22576 -13392 -4464 127 4464 13392" },
  },
  {
    title: "A tie in four ways",
    state: {
      input: "!quant.uniform<i32:f32, 0.001953125>",
      profiles: "onnx,tosa,litert,scheme xnnpack_rndna",
      accumulators: "-192 -64 64 192 30000",
    },
  },
];
