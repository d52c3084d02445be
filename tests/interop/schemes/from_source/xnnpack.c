// XNNPACK's depthwise convolutions with rndnu, for ctypes, of inputs that are zero points: what is left are the biases,
// requantized.

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "xnnpack/dwconv.h"
#include "xnnpack/microparams-init.h"
#include "xnnpack/requantization.h"

#define TAPS 9

#define REQUANTIZE(name, type, ...)                                                                              \
  void requantize_##name(const int32_t* source, int count, float scale, int zero_point, int low, int high,       \
                         type* target) {                                                                         \
    union xnn_##name##_conv_minmax_params params;                                                                \
    __VA_ARGS__;                                                                                                 \
    char* weights = calloc(count, sizeof(int32_t) + TAPS);                                                       \
    type* zeros = calloc(count, sizeof(type));                                                                   \
    const type* rows[TAPS];                                                                                      \
    for (int i = 0; i < TAPS; ++i) rows[i] = zeros;                                                              \
    for (int i = 0; i < count; ++i) memcpy(weights + i * (sizeof(int32_t) + TAPS), source + i, sizeof(int32_t)); \
    xnn_##name##_dwconv_minmax_rndnu_ukernel_9p1c__scalar(count, 1, rows, weights, target, 0, 0, 0, zeros,       \
                                                          &params);                                              \
    free(zeros);                                                                                                 \
    free(weights);                                                                                               \
  }                                                                                                              \
  void one_by_one_##name(const int32_t* source, int count, float scale, int zero_point, int low, int high,       \
                         type* target) {                                                                         \
    for (int i = 0; i < count; ++i)                                                                              \
      target[i] = xnn_##name##_requantize_rndnu(source[i], scale, zero_point, low, high);                        \
  }

REQUANTIZE(qs8, int8_t, xnn_init_qs8_conv_minmax_rndnu_scalar_params(&params, scale, zero_point, low, high))
REQUANTIZE(qu8, uint8_t, xnn_init_qu8_conv_minmax_rndnu_scalar_params(&params, 0, scale, zero_point, low, high))
