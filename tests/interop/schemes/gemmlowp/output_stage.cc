// gemmlowp's OutputStageScaleInt32ByFixedPointAndExponent and a saturating cast, on accumulators one by one and in vectors.

#include <cstdint>
#include <tuple>

#include "public/gemmlowp.h"

namespace {

template <int Rows, typename Cast, typename Scalar>
void Run(const std::int32_t* source, Scalar* target, int count, std::int32_t multiplier, std::int32_t exponent,
         std::int32_t offset) {
  using Block = gemmlowp::RegisterBlock<std::int32_t, Rows, 1>;
  using Pipeline = std::tuple<gemmlowp::OutputStageScaleInt32ByFixedPointAndExponent, Cast>;
  gemmlowp::OutputStageScaleInt32ByFixedPointAndExponent scale;
  scale.result_fixedpoint_multiplier = multiplier;
  scale.result_exponent = exponent;
  scale.result_offset_after_shift = offset;
  // The executor keeps a reference to it.
  const Pipeline pipeline = std::make_tuple(scale, Cast());
  const gemmlowp::OutputPipelineExecutor<Pipeline, Block> executor(pipeline);
  gemmlowp::MatrixMap<Scalar, gemmlowp::MapOrder::ColMajor> matrix(target, count, 1);
  for (int row = 0; row + Rows <= count; row += Rows) {
    const gemmlowp::MatrixMap<const std::int32_t, gemmlowp::MapOrder::ColMajor> from(source + row, Rows, 1);
    executor.Execute(gemmlowp::Load<Block>(from, 0, 0), &matrix, row, 0, row, 0);
  }
}

}  // namespace

// `count` is a multiple of 8.
extern "C" void to_u8_one_by_one(const std::int32_t* source, std::uint8_t* target, int count, std::int32_t multiplier,
                                 std::int32_t exponent, std::int32_t offset) {
  Run<1, gemmlowp::OutputStageSaturatingCastToUint8>(source, target, count, multiplier, exponent, offset);
}

extern "C" void to_u8_in_vectors(const std::int32_t* source, std::uint8_t* target, int count, std::int32_t multiplier,
                                 std::int32_t exponent, std::int32_t offset) {
  Run<8, gemmlowp::OutputStageSaturatingCastToUint8>(source, target, count, multiplier, exponent, offset);
}

extern "C" void to_i16_one_by_one(const std::int32_t* source, std::int16_t* target, int count, std::int32_t multiplier,
                                  std::int32_t exponent, std::int32_t offset) {
  Run<1, gemmlowp::OutputStageSaturatingCastToInt16>(source, target, count, multiplier, exponent, offset);
}

extern "C" void to_i16_in_vectors(const std::int32_t* source, std::int16_t* target, int count, std::int32_t multiplier,
                                  std::int32_t exponent, std::int32_t offset) {
  Run<8, gemmlowp::OutputStageSaturatingCastToInt16>(source, target, count, multiplier, exponent, offset);
}
