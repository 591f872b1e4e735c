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
