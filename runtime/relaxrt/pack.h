// Items of 1..8 bits in messages, by planes as relaxc/wire/layout.py says: a width is split into powers of two, lowest
// first, and a part of p bits puts element i + k * stride into bits k * p and up of byte i.
#pragma once
#include "packed.h"

namespace relaxrt {

template <int part>
RELAXRT_INLINE void pack_part(const uint8_t* items, int32_t n, int shift, uint8_t* out) {
  constexpr int per_byte = 8 / part, mask = (1 << part) - 1;
  const int32_t stride = int32_t((int64_t(n) * part + 7) / 8);
  const int32_t whole = n - stride * (per_byte - 1);  // bytes whose every plane has an item; negative where n is tiny
#pragma omp simd
  for (int32_t i = 0; i < whole; ++i) {
    unsigned byte = 0;
    for (int k = 0; k < per_byte; ++k) byte |= unsigned(items[i + k * stride] >> shift & mask) << k * part;
    out[i] = uint8_t(byte);
  }
  for (int32_t i = whole > 0 ? whole : 0; i < stride; ++i) {
    unsigned byte = 0;
    for (int k = 0; k < per_byte && i + k * stride < n; ++k)
      byte |= unsigned(items[i + k * stride] >> shift & mask) << k * part;
    out[i] = uint8_t(byte);
  }
}

template <int part>
RELAXRT_INLINE void unpack_part(const uint8_t* in, int32_t n, int shift, uint8_t* items) {
  constexpr int per_byte = 8 / part, mask = (1 << part) - 1;
  const int32_t stride = int32_t((int64_t(n) * part + 7) / 8);
  for (int k = 0; k < per_byte; ++k) {
    const int32_t left = n - k * stride, end = left < stride ? left : stride;
    uint8_t* const plane = items + k * stride;
#pragma omp simd
    for (int32_t i = 0; i < end; ++i) {
      const uint8_t item = uint8_t((in[i] >> k * part & mask) << shift);
      plane[i] = shift ? uint8_t(plane[i] | item) : item;
    }
  }
}

// Bits of an item above `bits` are left out.
template <int bits>
RELAXRT_SHARED void pack(const uint8_t* items, int32_t n, uint8_t* out) {
  int shift = 0;
  if constexpr (bits & 1) pack_part<1>(items, n, shift, out), out += packed_bytes<1>(n), shift += 1;
  if constexpr (bits & 2) pack_part<2>(items, n, shift, out), out += packed_bytes<2>(n), shift += 2;
  if constexpr (bits & 4) pack_part<4>(items, n, shift, out);
  if constexpr (bits & 8) pack_part<8>(items, n, shift, out);
}

template <int bits>
RELAXRT_SHARED void unpack(const uint8_t* in, int32_t n, uint8_t* items) {
  int shift = 0;
  if constexpr (bits & 1) unpack_part<1>(in, n, shift, items), in += packed_bytes<1>(n), shift += 1;
  if constexpr (bits & 2) unpack_part<2>(in, n, shift, items), in += packed_bytes<2>(n), shift += 2;
  if constexpr (bits & 4) unpack_part<4>(in, n, shift, items);
  if constexpr (bits & 8) unpack_part<8>(in, n, shift, items);
}

}  // namespace relaxrt
