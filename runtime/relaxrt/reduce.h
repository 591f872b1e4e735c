// Reductions over a block, in the order of relaxc/wire/sums.py.
#pragma once
#include "guard.h"

namespace relaxrt {

template <int32_t half = LANES / 2, class Real>
RELAXRT_INLINE Real fold(Real* lanes) {
#pragma omp simd
  for (int32_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  if constexpr (half > 1)
    return fold<half / 2>(lanes);
  else
    return lanes[0];
}

}  // namespace relaxrt
