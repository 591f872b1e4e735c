// Items of 1..8 bits in messages, by planes as relaxc/wire/layout.py says: a width is split into powers of two, lowest
// first, and a part of p bits puts element i + k * stride into bits k * p and up of byte i.
#pragma once
#include "packed.h"

namespace relaxrt {

// Eight items or bytes at once: shifts and masks that stay within each byte. A short tensor is a few of them.
typedef uint64_t __attribute__((aligned(1), may_alias)) eight;
constexpr int32_t EIGHT = 8;

constexpr uint64_t in_each(int byte) { return uint64_t(byte) * 0x0101010101010101u; }

RELAXRT_INLINE uint64_t eight_of(const uint8_t* bytes) { return *reinterpret_cast<const eight*>(bytes); }

template <int part>
RELAXRT_INLINE void pack_part(const uint8_t* items, int32_t n, int shift, uint8_t* out) {
  constexpr int per_byte = 8 / part, mask = (1 << part) - 1;
  const int32_t stride = int32_t((int64_t(n) * part + 7) / 8);
  const int32_t whole = n - stride * (per_byte - 1);  // bytes whose every plane has an item; negative where n is tiny
  const int32_t eights = whole > 0 ? whole / EIGHT : 0;
#pragma omp simd
  for (int32_t j = 0; j < eights; ++j) {
    uint64_t bytes = 0;
    for (int k = 0; k < per_byte; ++k)
      bytes |= (eight_of(items + EIGHT * j + k * stride) >> shift & in_each(mask)) << k * part;
    reinterpret_cast<eight*>(out)[j] = bytes;
  }
  for (int32_t i = EIGHT * eights; i < stride; ++i) {
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
  const int32_t whole = n - stride * (per_byte - 1);
  const int32_t eights = whole > 0 ? whole / EIGHT : 0;
#pragma omp simd
  for (int32_t j = 0; j < eights; ++j) {
    const uint64_t bytes = eight_of(in + EIGHT * j);
    for (int k = 0; k < per_byte; ++k) {
      eight* const plane = reinterpret_cast<eight*>(items + EIGHT * j + k * stride);
      const uint64_t item = (bytes >> k * part & in_each(mask)) << shift;
      *plane = shift ? *plane | item : item;
    }
  }
  for (int32_t i = EIGHT * eights; i < stride; ++i)
    for (int k = 0; k < per_byte && i + k * stride < n; ++k) {
      const uint8_t item = uint8_t((in[i] >> k * part & mask) << shift);
      items[i + k * stride] = shift ? uint8_t(items[i + k * stride] | item) : item;
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
