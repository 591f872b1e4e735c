// Random bits as in relaxc/wire/dither.py: a function of the key and of the element's index in its parameter.
#pragma once
#include "arithmetic.h"

namespace relaxrt {

struct dither_keys {
  uint32_t key0, key1;
};

RELAXRT_INLINE uint64_t splitmix(uint64_t state) {
  state += 0x9E3779B97F4A7C15u;
  state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9u;
  state = (state ^ state >> 27) * 0x94D049BB133111EBu;
  return state ^ state >> 31;
}

RELAXRT_INLINE dither_keys parameter_keys(uint64_t message, uint32_t parameter) {
  const uint64_t key = splitmix(message ^ parameter);
  return {uint32_t(key), uint32_t(key >> 32)};
}

// Wellons' lowbias32.
RELAXRT_INLINE uint32_t mixed(uint32_t h) {
  h = (h ^ h >> 16) * 0x7FEB352Du;
  h = (h ^ h >> 15) * 0x846CA68Bu;
  return h ^ h >> 16;
}

// floor(v + u) for element first + i. The carry into the high half is found in 32 bits, so that all of it vectorises; what
// comes of the two high halves that there can be is the same for a block, and is multiplied outside of its loop.
template <class Real>
RELAXRT_INLINE Real dither(Real v, dither_keys keys, uint64_t first, int32_t i) {
  const uint32_t low = uint32_t(first) + uint32_t(i);
  const uint32_t here = keys.key1 + uint32_t(first >> 32) * 0x9E3779B9u, beyond = here + 0x9E3779B9u;
  const uint32_t h = mixed(mixed(low ^ keys.key0) + (low < uint32_t(first) ? beyond : here));
  return floor(v + Real(int32_t(h >> 8)) * Real(0x1p-24));
}

// Which element of block `number` of a parameter everyone chooses; it may lie behind the end of a short last block.
RELAXRT_INLINE int32_t chosen(dither_keys keys, uint64_t number, int32_t block) {
  const uint32_t h = mixed(mixed(uint32_t(number) ^ keys.key0) + keys.key1 + uint32_t(number >> 32) * 0x9E3779B9u);
  return int32_t(uint64_t(h) * uint64_t(block) >> 32);
}

}  // namespace relaxrt
