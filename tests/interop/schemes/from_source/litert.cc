// LiteRT's functions for ctypes. What stands here only moves arguments.

#include <cstdint>

#include "tensorflow/lite/kernels/internal/common.h"
#include "tensorflow/lite/kernels/internal/quantization_util.h"
#include "tensorflow/lite/kernels/internal/reference/requantize.h"

namespace {

template <typename T>
void Choose(const double* lows, const double* highs, int count, bool narrow, double* scales, std::int64_t* zero_points) {
  for (int i = 0; i < count; ++i) {
    const auto found = tflite::ChooseQuantizationParams<T>(lows[i], highs[i], narrow);
    scales[i] = found.scale;
    zero_points[i] = found.zero_point;
  }
}

}  // namespace

extern "C" {

#define CHOOSE(name, type)                                                                                       \
  void choose_##name(const double* lows, const double* highs, int count, int narrow, double* scales,             \
                     std::int64_t* zero_points) {                                                                \
    Choose<type>(lows, highs, count, narrow != 0, scales, zero_points);                                          \
  }
CHOOSE(i8, std::int8_t)
CHOOSE(u8, std::uint8_t)
CHOOSE(i16, std::int16_t)
CHOOSE(u16, std::uint16_t)
CHOOSE(i32, std::int32_t)

void quantize_multiplier(double factor, std::int32_t* multiplier, int* shift) {
  tflite::QuantizeMultiplier(factor, multiplier, shift);
}

#define REQUANTIZE(name, type)                                                                                   \
  void requantize_##name(const std::int32_t* source, int count, std::int32_t multiplier, std::int32_t shift,     \
                         std::int32_t from, std::int32_t to, type* target) {                                     \
    tflite::reference_ops::Requantize(source, count, multiplier, shift, from, to, target);                       \
  }
REQUANTIZE(i8, std::int8_t)
REQUANTIZE(u8, std::uint8_t)
REQUANTIZE(i16, std::int16_t)
REQUANTIZE(i32, std::int32_t)
}
