// What reductions have in common on all targets.
#pragma once
#include "bits.h"

namespace relaxrt {

constexpr int32_t LANES = 32;  // of relaxc/wire/sums.py

// A minimum or maximum: NaN where an element was, and +0 for a zero, so that the order of the elements is nothing.
template <class Real>
RELAXRT_INLINE Real guard(bool unordered, Real v) {
  return unordered ? nan<Real>() : v + Real(0);
}

}  // namespace relaxrt
