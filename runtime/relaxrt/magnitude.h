// How a field `top` orders elements, how many it keeps, and what it takes; relaxc/wire/layout.py.
#pragma once
#include "arithmetic.h"

namespace relaxrt {

constexpr int32_t PLACE_BYTES = 4;

// Leading bits of the first histogram: the exponent, and some of the fraction.
template <class Real>
struct magnitude;
template <>
struct magnitude<float> {
  typedef uint32_t type;
  static constexpr int32_t bits = 31, leading = 11;
  static constexpr uint32_t mask = 0x7FFFFFFFu, infinite = 0x7F800000u;
};
template <>
struct magnitude<double> {
  typedef uint64_t type;
  static constexpr int32_t bits = 63, leading = 13;
  static constexpr uint64_t mask = 0x7FFFFFFFFFFFFFFFu, infinite = 0x7FF0000000000000u;
};

// Orders by magnitude; all NaN are one, above infinity.
template <class Real>
RELAXRT_INLINE typename magnitude<Real>::type size_of(Real v) {
  typedef typename magnitude<Real>::type Size;
  const Size size = Size(bits_of(v)) & magnitude<Real>::mask;
  constexpr Size most = magnitude<Real>::infinite + 1;
  return size < most ? size : most;
}

// How many of n are kept; wire/layout.py, WireType.kept.
RELAXRT_INLINE int32_t top_count(double part, int32_t n) {
  double wanted = part;
  if (part < 1) {
    wanted = RELAXRT_C(nearbyint)(part * double(n));
    if (wanted < 1) wanted = 1;
  }
  return wanted < double(n) ? int32_t(wanted) : n;
}

template <class Real>
RELAXRT_INLINE int64_t top_bytes(double part, int32_t n) {
  return int64_t(top_count(part, n)) * (PLACE_BYTES + int64_t(sizeof(Real)));
}

}  // namespace relaxrt
