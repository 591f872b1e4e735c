// Floats as their bits, and loads and stores at any address. No C header: <cmath> alone would take a third of a second.
#pragma once
#include "inline.h"
#include "integers.h"

namespace relaxrt {

#ifndef __CUDACC__
typedef float __attribute__((aligned(1), may_alias)) float_anywhere;
typedef double __attribute__((aligned(1), may_alias)) double_anywhere;
typedef uint16_t __attribute__((aligned(1), may_alias)) uint16_anywhere;

template <class Real>
struct anywhere;
template <>
struct anywhere<float> {
  typedef float_anywhere type;
};
template <>
struct anywhere<double> {
  typedef double_anywhere type;
};

RELAXRT_INLINE int32_t bits_of(float v) {
  int32_t b;
  __builtin_memcpy(&b, &v, sizeof b);
  return b;
}

RELAXRT_INLINE int64_t bits_of(double v) {
  int64_t b;
  __builtin_memcpy(&b, &v, sizeof b);
  return b;
}

RELAXRT_INLINE float from_bits(int32_t b) {
  float v;
  __builtin_memcpy(&v, &b, sizeof v);
  return v;
}

RELAXRT_INLINE double from_bits(int64_t b) {
  double v;
  __builtin_memcpy(&v, &b, sizeof v);
  return v;
}

template <class Real>
RELAXRT_INLINE Real infinity() {
  return Real(__builtin_inf());
}

// The one NaN that messages carry: quiet, no sign, no payload, whatever the processor's own is.
template <class Real>
RELAXRT_INLINE Real nan() {
  return Real(__builtin_nan(""));
}
#else
RELAXRT_INLINE int32_t bits_of(float v) { return __float_as_int(v); }
RELAXRT_INLINE int64_t bits_of(double v) { return __double_as_longlong(v); }
RELAXRT_INLINE float from_bits(int32_t b) { return __int_as_float(b); }
RELAXRT_INLINE double from_bits(int64_t b) { return __longlong_as_double(b); }

// By their bits: a GPU's conversions and arithmetic have a NaN of their own.
template <class Real>
RELAXRT_INLINE Real infinity();
template <>
__device__ __forceinline__ float infinity<float>() {
  return from_bits(int32_t(0x7F800000));
}
template <>
__device__ __forceinline__ double infinity<double>() {
  return from_bits(int64_t(0x7FF0000000000000));
}

template <class Real>
RELAXRT_INLINE Real nan();
template <>
__device__ __forceinline__ float nan<float>() {
  return from_bits(int32_t(0x7FC00000));
}
template <>
__device__ __forceinline__ double nan<double>() {
  return from_bits(int64_t(0x7FF8000000000000));
}
#endif

template <class Real>
RELAXRT_INLINE Real one_nan(Real v) {
  return v == v ? v : nan<Real>();
}

}  // namespace relaxrt
