// Reductions over a block, in the order of relaxc/wire/sums.py.
#pragma once
#include "bits.h"

namespace relaxrt {

constexpr int32_t LANES = 32;

template <class Real>
RELAXRT_INLINE Real fold(Real* lanes) {
#pragma GCC unroll 1
  for (int32_t half = LANES / 2; half > 0; half /= 2)
#pragma omp simd
    for (int32_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  return lanes[0];
}

// A minimum or maximum: NaN where an element was, and +0 for a zero, so that the order of the elements is nothing.
template <class Real>
RELAXRT_INLINE Real guard(bool unordered, Real v) {
  return unordered ? nan<Real>() : v + Real(0);
}

}  // namespace relaxrt
