// Asking memory for what the next blocks will read, a little at a time while a block in the cache is worked on: the
// passes after the first touch no memory, and the processor's own prefetcher rests with them.
#pragma once
#include "inline.h"

#include <cstdint>

namespace relaxrt {

constexpr int32_t PART = 128;
constexpr int32_t LINE_BYTES = 64;

// `written` is 1 where the elements will be overwritten too. Addresses beyond the end of an array are harmless.
template <int written, class Item>
RELAXRT_INLINE void ask_for(const Item* items) {
  for (int32_t i = 0; i < PART; i += LINE_BYTES / int32_t(sizeof(Item))) __builtin_prefetch(items + i, written);
}

// Of a message the block that comes `blocks` of `bytes` later.
template <int written>
RELAXRT_INLINE void ask_for_message(const uint8_t* block, int64_t blocks, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += LINE_BYTES) __builtin_prefetch(block + blocks * bytes + i, written);
}

}  // namespace relaxrt
