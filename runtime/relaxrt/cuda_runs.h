// Elements in memory as a thread sees them: single ones at any address, and runs of a few neighbours, read and written in
// as few accesses as their address allows.
#pragma once
#include "inline.h"
#include "integers.h"

namespace relaxrt {

struct alignas(8) two_words {
  uint32_t words[2];
};
struct alignas(16) four_words {
  uint32_t words[4];
};

template <int bytes>
struct unit;
template <>
struct unit<4> {
  typedef uint32_t type;
};
template <>
struct unit<8> {
  typedef two_words type;
};
template <>
struct unit<16> {
  typedef four_words type;
};

// COUNT items as the accesses that they take, of 16 bytes at most.
template <class Item, int COUNT>
union run {
  static constexpr int bytes = COUNT * int(sizeof(Item)), each = bytes < 16 ? bytes : 16;
  typedef typename unit<each>::type Unit;
  Item items[COUNT];
  Unit units[bytes / each];
};

RELAXRT_INLINE bool aligned(const void* address, int bytes) { return uintptr_t(address) % unsigned(bytes) == 0; }

template <class Item>
RELAXRT_INLINE Item read(const uint8_t* from) {
  if (aligned(from, sizeof(Item))) return *reinterpret_cast<const Item*>(from);
  union {
    Item item;
    uint8_t bytes[sizeof(Item)];
  } made;
#pragma unroll
  for (int b = 0; b < int(sizeof(Item)); ++b) made.bytes[b] = from[b];
  return made.item;
}

template <class Item>
RELAXRT_INLINE void write(uint8_t* to, Item item) {
  if (aligned(to, sizeof(Item))) {
    *reinterpret_cast<Item*>(to) = item;
    return;
  }
  union {
    Item item;
    uint8_t bytes[sizeof(Item)];
  } made;
  made.item = item;
#pragma unroll
  for (int b = 0; b < int(sizeof(Item)); ++b) to[b] = made.bytes[b];
}

// A whole run, aligned as scratch is.
template <class Item, int COUNT>
RELAXRT_INLINE void read_whole(const void* from, Item (&into)[COUNT]) {
  typedef run<Item, COUNT> Run;
  Run made;
#pragma unroll
  for (int u = 0; u < Run::bytes / Run::each; ++u) made.units[u] = static_cast<const typename Run::Unit*>(from)[u];
#pragma unroll
  for (int j = 0; j < COUNT; ++j) into[j] = made.items[j];
}

template <class Item, int COUNT>
RELAXRT_INLINE void write_whole(void* to, const Item (&from)[COUNT]) {
  typedef run<Item, COUNT> Run;
  Run made;
#pragma unroll
  for (int j = 0; j < COUNT; ++j) made.items[j] = from[j];
#pragma unroll
  for (int u = 0; u < Run::bytes / Run::each; ++u) static_cast<typename Run::Unit*>(to)[u] = made.units[u];
}

// The first `left` of a run; the others are 0. Addresses are those of an operand, aligned to its items, ...
template <class Item, int COUNT>
RELAXRT_INLINE void read_run(const Item* from, int32_t left, Item (&into)[COUNT]) {
  if (left >= COUNT && aligned(from, run<Item, COUNT>::each)) return read_whole(from, into);
#pragma unroll
  for (int j = 0; j < COUNT; ++j) into[j] = j < left ? from[j] : Item(0);
}

template <class Item, int COUNT>
RELAXRT_INLINE void write_run(Item* to, int32_t left, const Item (&from)[COUNT]) {
  if (left >= COUNT && aligned(to, run<Item, COUNT>::each)) return write_whole(to, from);
#pragma unroll
  for (int j = 0; j < COUNT; ++j)
    if (j < left) to[j] = from[j];
}

// ... or in a message, any.
template <class Item, int COUNT>
RELAXRT_INLINE void receive_run(const uint8_t* from, int32_t left, Item (&into)[COUNT]) {
  if (left >= COUNT && aligned(from, run<Item, COUNT>::each)) return read_whole(from, into);
#pragma unroll
  for (int j = 0; j < COUNT; ++j) into[j] = j < left ? read<Item>(from + j * int(sizeof(Item))) : Item(0);
}

template <class Item, int COUNT>
RELAXRT_INLINE void send_run(uint8_t* to, int32_t left, const Item (&from)[COUNT]) {
  if (left >= COUNT && aligned(to, run<Item, COUNT>::each)) return write_whole(to, from);
#pragma unroll
  for (int j = 0; j < COUNT; ++j)
    if (j < left) write<Item>(to + j * int(sizeof(Item)), from[j]);
}

}  // namespace relaxrt
