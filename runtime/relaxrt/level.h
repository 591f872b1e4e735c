// Integer fields: numbers cut off towards 0 and clamped to 1..8 bits, NaN to level 0.
//
// The clamps compare bits as integers, which order positive floats as their values: written with floats, g++ 12 turns the
// two comparisons into masks of bytes and loses half the speed.
#pragma once
#include "arithmetic.h"

namespace relaxrt {

template <class Int>
RELAXRT_INLINE Int smaller(Int a, Int b) {
  return a < b ? a : b;
}

template <bool whole, class Real>
RELAXRT_INLINE Real cut_off(Real v) {
  return whole ? v : trunc(v);
}

// `whole` is true where the number is known to have no fraction.
template <int bits, bool whole, class Real>
RELAXRT_INLINE Real unsigned_level(Real v) {
  const auto positive = bits_of(v) & -decltype(bits_of(v))(v > 0);
  return cut_off<whole>(from_bits(smaller(positive, bits_of(Real((1 << bits) - 1)))));
}

template <int bits, bool whole, class Real>
RELAXRT_INLINE Real signed_level(Real v) {
  typedef decltype(bits_of(v)) Int;
  const Int sign_bit = bits_of(Real(-0.0)), lowest = bits_of(Real(1 << (bits - 1)));
  const Int highest = bits_of(Real((1 << (bits - 1)) - 1));
  const Int number = bits_of(v) & -Int(v == v);
  const Int negative = -Int(number < 0);
  const Int size = smaller(Int(number & ~sign_bit), Int(highest + (negative & (lowest - highest))));
  return cut_off<whole>(from_bits(Int(size | (number & sign_bit)))) + Real(0);  // + 0 makes +0 of -0, as an integer would
}

template <class Real>
RELAXRT_INLINE uint8_t level_byte(Real level) {
  return uint8_t(int32_t(level));
}

template <class Real>
RELAXRT_INLINE Real unsigned_value(uint8_t item) {
  return Real(int32_t(item));
}

template <int bits, class Real>
RELAXRT_INLINE Real signed_value(uint8_t item) {
  constexpr int32_t sign = 1 << (bits - 1);
  return Real((int32_t(item) ^ sign) - sign);
}

}  // namespace relaxrt
