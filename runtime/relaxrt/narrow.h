// Floats of 16 and 32 bits in tensors and messages: round to nearest even, overflow to infinity, one NaN.
#pragma once
#include "arithmetic.h"

namespace relaxrt {

// To f32, inexact results to an odd last bit: a second rounding, to 22 bits or fewer, then rounds as one would.
RELAXRT_INLINE float odd_f32(double v) {
  const float near = float(v);
  const int32_t b = bits_of(near);
  const int32_t odd = b + (abs(double(near)) < abs(v) ? 1 : -1);
  return (double(near) == v) | (v != v) | ((b & 1) != 0) ? near : from_bits(odd);
}
RELAXRT_INLINE float odd_f32(float v) { return v; }

RELAXRT_INLINE float narrow_f32(float v) { return v; }
RELAXRT_INLINE double narrow_f32(double v) { return double(float(v)); }

RELAXRT_INLINE uint16_t bf16_bits(float v) {
  const uint32_t b = uint32_t(bits_of(v));
  return v == v ? uint16_t((b + 0x7FFFu + (b >> 16 & 1u)) >> 16) : uint16_t(0x7FC0u);
}
RELAXRT_INLINE uint16_t bf16_bits(double v) { return bf16_bits(odd_f32(v)); }
RELAXRT_INLINE float bf16_value(uint16_t h) { return from_bits(int32_t(uint32_t(h) << 16)); }

template <class Real>
RELAXRT_INLINE Real narrow_bf16(Real v) {
  return Real(bf16_value(bf16_bits(v)));
}

// Below 2^-14 an f16 is a multiple of 2^-24, which is what a float next to 0.5 rounds to.
RELAXRT_INLINE float narrow_f16(float v) {
  const float size = abs(v);
  const int32_t b = bits_of(size);
  const float normal = from_bits((b + 0xFFF + (b >> 13 & 1)) & ~0x1FFF);
  const float small = (size + 0.5f) - 0.5f;
  float rounded = size < 0x1p-14f ? small : normal;
  rounded = rounded > 65504.0f ? infinity<float>() : rounded;
  rounded = v == v ? rounded : v;
  return RELAXRT_C(copysignf)(rounded, v);
}
RELAXRT_INLINE double narrow_f16(double v) { return double(narrow_f16(odd_f32(v))); }

RELAXRT_INLINE uint16_t f16_bits_of_rounded(float v) {
  const float size = abs(v);
  const int32_t b = bits_of(size);
  const int32_t small = int32_t(size * 0x1p24f), normal = (b >> 13) - (112 << 10);
  int32_t h = size < 0x1p-14f ? small : normal;
  h = size < infinity<float>() ? h : 0x7C00;
  h |= bits_of(v) >> 16 & 0x8000;
  return uint16_t(v == v ? h : 0x7E00);
}

RELAXRT_INLINE uint16_t f16_bits(float v) { return f16_bits_of_rounded(narrow_f16(v)); }
RELAXRT_INLINE uint16_t f16_bits(double v) { return f16_bits_of_rounded(narrow_f16(odd_f32(v))); }

RELAXRT_INLINE float f16_value(uint16_t h) {
  const int32_t size = h & 0x7FFF;
  const float small = float(size) * 0x1p-24f;
  const float normal = from_bits((size << 13) + (size < 0x7C00 ? 112 << 23 : 224 << 23));
  const float v = size < 0x400 ? small : normal;
  return from_bits(bits_of(v) | int32_t(uint32_t(h & 0x8000) << 16));
}

}  // namespace relaxrt
