// Reductions over a block, in the order of relaxc/wire/sums.py.
#pragma once
#include "guard.h"

namespace relaxrt {

template <class Real>
RELAXRT_INLINE Real fold(Real* lanes) {
#pragma GCC unroll 1
  for (int32_t half = LANES / 2; half > 0; half /= 2)
#pragma omp simd
    for (int32_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

}  // namespace relaxrt
