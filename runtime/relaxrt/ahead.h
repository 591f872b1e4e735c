// Asking memory for what the next blocks will read, a little at a time while a block in the cache is worked on: the
// passes after the first touch no memory, and the processor's own prefetcher rests with them.
#pragma once
#include "inline.h"

#include <cstdint>

namespace relaxrt {

constexpr int32_t PART = 128;
constexpr int32_t LINE_BYTES = 64;

// Addresses beyond the end of an array are harmless.
template <class Item>
RELAXRT_INLINE void ask_for(const Item* items) {
  for (int32_t i = 0; i < PART; i += LINE_BYTES / int32_t(sizeof(Item))) __builtin_prefetch(items + i);
}

// Of a message the block that comes `blocks` of `bytes` later.
RELAXRT_INLINE void ask_for_message(const uint8_t* block, int64_t blocks, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += LINE_BYTES) __builtin_prefetch(block + blocks * bytes + i);
}

}  // namespace relaxrt
