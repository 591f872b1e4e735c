// Items of 1..8 bits in messages, as pack.h has them: read by a thread where its elements are, four bytes at a time where
// planes and addresses allow; written by all threads of a block from a scratch of a byte for each.
#pragma once
#include "cuda_runs.h"
#include "packed.h"

namespace relaxrt {

template <int part>
RELAXRT_INLINE int32_t plane_bytes(int32_t n) {
  return int32_t((int64_t(n) * part + 7) / 8);
}

// In each byte of a word.
template <int part>
RELAXRT_INLINE uint32_t part_mask() {
  return 0x01010101u * ((1u << part) - 1);
}

// The plane of element i.
template <int part>
RELAXRT_INLINE int32_t plane_of(int32_t i, int32_t stride) {
  int32_t plane = 0;
#pragma unroll
  for (int32_t k = 1; k < 8 / part; ++k) plane += i >= k * stride;
  return plane;
}

template <int part>
RELAXRT_INLINE uint32_t part_of(const uint8_t* in, int32_t stride, int32_t i) {
  const int32_t plane = plane_of<part>(i, stride);
  return uint32_t(in[i - plane * stride]) >> plane * part & ((1u << part) - 1);
}

template <int part, int COUNT>
RELAXRT_INLINE void receive_part(const uint8_t* in, int32_t n, int32_t base, int shift, uint8_t (&items)[COUNT]) {
  const int32_t stride = plane_bytes<part>(n), plane = plane_of<part>(base, stride), at = base - plane * stride;
  if (base + COUNT <= n && at + COUNT <= stride && aligned(in + at, 4)) {
#pragma unroll
    for (int w = 0; w < COUNT / 4; ++w) {
      const uint32_t word = reinterpret_cast<const uint32_t*>(in + at)[w] >> plane * part & part_mask<part>();
#pragma unroll
      for (int b = 0; b < 4; ++b) items[4 * w + b] = uint8_t(items[4 * w + b] | (word >> 8 * b & 0xFFu) << shift);
    }
    return;
  }
#pragma unroll
  for (int j = 0; j < COUNT; ++j)
    if (base + j < n) items[j] = uint8_t(items[j] | part_of<part>(in, stride, base + j) << shift);
}

// Items [base, base + COUNT) of n; those behind the end are 0.
template <int bits, int COUNT>
RELAXRT_INLINE void receive_levels(const uint8_t* in, int32_t n, int32_t base, uint8_t (&items)[COUNT]) {
#pragma unroll
  for (int j = 0; j < COUNT; ++j) items[j] = 0;
  int shift = 0;
  if constexpr (bits & 1) receive_part<1>(in, n, base, shift, items), in += packed_bytes<1>(n), shift += 1;
  if constexpr (bits & 2) receive_part<2>(in, n, base, shift, items), in += packed_bytes<2>(n), shift += 2;
  if constexpr (bits & 4) receive_part<4>(in, n, base, shift, items);
  if constexpr (bits & 8) receive_part<8>(in, n, base, shift, items);
}

// The one item of a field per block.
template <int bits>
RELAXRT_INLINE uint8_t receive_level(const uint8_t* in) {
  unsigned item = 0;
  int shift = 0;
  if constexpr (bits & 1) item |= (*in++ & 1u) << shift, shift += 1;
  if constexpr (bits & 2) item |= (*in++ & 3u) << shift, shift += 2;
  if constexpr (bits & 4) item |= (*in++ & 15u) << shift;
  if constexpr (bits & 8) item = *in;
  return uint8_t(item);
}

template <int bits>
RELAXRT_INLINE void send_level(uint8_t* out, uint8_t level) {
  const unsigned item = level;
  int shift = 0;
  if constexpr (bits & 1) *out++ = uint8_t(item >> shift & 1u), shift += 1;
  if constexpr (bits & 2) *out++ = uint8_t(item >> shift & 3u), shift += 2;
  if constexpr (bits & 4) *out++ = uint8_t(item >> shift & 15u);
  if constexpr (bits & 8) *out = level;
}

template <int part>
RELAXRT_INLINE uint8_t packed_byte(const uint8_t* items, int32_t n, int32_t stride, int shift, int32_t i) {
  unsigned byte = 0;
#pragma unroll
  for (int32_t k = 0; k < 8 / part; ++k)
    if (i + k * stride < n) byte |= (unsigned(items[i + k * stride]) >> shift & ((1u << part) - 1)) << k * part;
  return uint8_t(byte);
}

template <int THREADS, int part>
RELAXRT_INLINE void send_part(const uint8_t* items, int32_t n, int shift, uint8_t* out) {
  constexpr int32_t planes = 8 / part;
  const int32_t stride = plane_bytes<part>(n);
  for (int32_t i = int32_t(threadIdx.x) * 4; i < stride; i += THREADS * 4) {
    uint8_t bytes[4];
    if (stride % 4 == 0 && i + (planes - 1) * stride + 4 <= n) {
      uint32_t word = 0;
#pragma unroll
      for (int32_t k = 0; k < planes; ++k)
        word |= (*reinterpret_cast<const uint32_t*>(items + i + k * stride) >> shift & part_mask<part>()) << k * part;
#pragma unroll
      for (int b = 0; b < 4; ++b) bytes[b] = uint8_t(word >> 8 * b);
    } else {
#pragma unroll
      for (int b = 0; b < 4; ++b) bytes[b] = i + b < stride ? packed_byte<part>(items, n, stride, shift, i + b) : uint8_t(0);
    }
    send_run(out + i, stride - i, bytes);
  }
}

// All n items, which stand in scratch.
template <int THREADS, int bits>
RELAXRT_INLINE void send_levels(const uint8_t* items, int32_t n, uint8_t* out) {
  int shift = 0;
  if constexpr (bits & 1) send_part<THREADS, 1>(items, n, shift, out), out += packed_bytes<1>(n), shift += 1;
  if constexpr (bits & 2) send_part<THREADS, 2>(items, n, shift, out), out += packed_bytes<2>(n), shift += 2;
  if constexpr (bits & 4) send_part<THREADS, 4>(items, n, shift, out);
}

}  // namespace relaxrt
