// Scratch of a size that is known only when a kernel runs: one piece of memory for each thread, as large as any block that
// the thread has worked on needed.
#pragma once
#include <cstdint>

#include "inline.h"

namespace relaxrt {

constexpr int64_t CACHE_LINE = 64;

struct scratch {
  void* memory = nullptr;
  int64_t bytes = 0;
  ~scratch() { ::operator delete(memory); }
};

RELAXRT_SHARED scratch& this_threads() {
  static thread_local scratch one;
  return one;
}

template <class Real>
RELAXRT_INLINE int64_t array_bytes(int32_t items) {
  return (int64_t(items) * int64_t(sizeof(Real)) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

// Room for that many arrays of `items` numbers; what was there before is lost. Throws std::bad_alloc.
template <class Real>
RELAXRT_SHARED scratch& opened(int32_t arrays, int32_t items) {
  scratch& mine = this_threads();
  const int64_t wanted = arrays * array_bytes<Real>(items) + CACHE_LINE;
  if (mine.bytes < wanted) {
    ::operator delete(mine.memory);
    mine.memory = nullptr;
    mine.bytes = 0;
    mine.memory = ::operator new(uint64_t(wanted));
    mine.bytes = wanted;
  }
  return mine;
}

// Array number `place`; an Item is no larger than a Real.
template <class Item, class Real>
RELAXRT_INLINE Item* array(const scratch& room, int32_t place, int32_t items) {
  const uintptr_t first = (uintptr_t(room.memory) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
  return reinterpret_cast<Item*>(first + uintptr_t(place * array_bytes<Real>(items)));
}

}  // namespace relaxrt
