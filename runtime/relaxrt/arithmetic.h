// The functions of expressions; relaxc/program/functions.py says what each means.
#pragma once
#include "bits.h"

namespace relaxrt {

RELAXRT_INLINE float sqrt(float v) { return RELAXRT_C(sqrtf)(v); }
RELAXRT_INLINE double sqrt(double v) { return RELAXRT_C(sqrt)(v); }
RELAXRT_INLINE float abs(float v) { return RELAXRT_C(fabsf)(v); }
RELAXRT_INLINE double abs(double v) { return RELAXRT_C(fabs)(v); }
RELAXRT_INLINE float floor(float v) { return RELAXRT_C(floorf)(v); }
RELAXRT_INLINE double floor(double v) { return RELAXRT_C(floor)(v); }
RELAXRT_INLINE float trunc(float v) { return RELAXRT_C(truncf)(v); }
RELAXRT_INLINE double trunc(double v) { return RELAXRT_C(trunc)(v); }

// In f64, rounded once: then C libraries hardly ever differ.
template <class Real>
RELAXRT_INLINE Real power(Real a, Real b) {
  return Real(RELAXRT_C(pow)(double(a), double(b)));
}
template <class Real>
RELAXRT_INLINE Real exp(Real v) {
  return Real(RELAXRT_C(exp)(double(v)));
}
template <class Real>
RELAXRT_INLINE Real log(Real v) {
  return Real(RELAXRT_C(log)(double(v)));
}
template <class Real>
RELAXRT_INLINE Real log2(Real v) {
  return Real(RELAXRT_C(log2)(double(v)));
}

// The exponent, by its bits; a subnormal number is made larger first. What is infinite or NaN is its own.
RELAXRT_INLINE float logb(float v) {
  const float size = abs(v);
  const bool small = size < 0x1p-126f;
  const int32_t b = bits_of(small ? size * 0x1p24f : size);
  const float exponent = float((b >> 23) - (small ? 127 + 24 : 127));
  return size == 0 ? -infinity<float>() : size < infinity<float>() ? exponent : size;
}
RELAXRT_INLINE double logb(double v) {
  const double size = abs(v);
  const bool small = size < 0x1p-1022;
  const int64_t b = bits_of(small ? size * 0x1p54 : size);
  const double exponent = double(int32_t(b >> 52) - (small ? 1023 + 54 : 1023));
  return size == 0 ? -infinity<double>() : size < infinity<double>() ? exponent : size;
}

// Two to a number that is whole or infinite, or NaN: a product of two powers that are each made of their bits, since the
// result may be subnormal. It is exact, or 0, or infinite.
RELAXRT_INLINE float power_of_two(float v) {
  const int32_t by = int32_t(v > -160 ? v < 140 ? v : 140.0f : -160.0f), half = by >> 1;
  const float made = from_bits((half + 127) << 23) * from_bits((by - half + 127) << 23);
  return v == v ? made : v;
}
RELAXRT_INLINE double power_of_two(double v) {
  const int32_t by = int32_t(v > -1100 ? v < 1040 ? v : 1040.0 : -1100.0), half = by >> 1;
  const double made = from_bits(int64_t(half + 1023) << 52) * from_bits(int64_t(by - half + 1023) << 52);
  return v == v ? made : v;
}

// Half to even, in the default rounding mode.
RELAXRT_INLINE float round(float v) { return RELAXRT_C(nearbyintf)(v); }
RELAXRT_INLINE double round(double v) { return RELAXRT_C(nearbyint)(v); }

template <class Real>
RELAXRT_INLINE Real divide(Real a, Real b) {
  return b == 0 ? Real(0) : a / b;
}

template <class Real>
RELAXRT_INLINE Real sign(Real v) {
  return v > 0 ? Real(1) : v < 0 ? Real(-1) : v + Real(0);
}

template <class Real>
RELAXRT_INLINE Real least(Real a, Real b) {
  return (a < b) | (a != a) ? a : b;
}

template <class Real>
RELAXRT_INLINE Real greatest(Real a, Real b) {
  return (a > b) | (a != a) ? a : b;
}

template <class Real>
RELAXRT_INLINE bool finite(Real v) {
  return abs(v) < infinity<Real>();
}

}  // namespace relaxrt
