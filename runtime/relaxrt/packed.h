// What items of 1..8 bits take in a message; relaxc/wire/layout.py.
#pragma once
#include "inline.h"
#include "integers.h"

namespace relaxrt {

template <int bits>
RELAXRT_INLINE int64_t packed_bytes(int32_t items) {
  int64_t total = 0;
  for (int part = 1; part <= 8; part *= 2)
    if (bits & part) total += (int64_t(items) * part + 7) / 8;
  return total;
}

}  // namespace relaxrt
