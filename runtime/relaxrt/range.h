// Which blocks of a segment a run does: abi.h, relaxrt_kernel.
#pragma once
#include <cstdint>

#include "inline.h"

namespace relaxrt {

// The first border between blocks from `element` on; it may lie before the segment.
template <int32_t BLOCK>
RELAXRT_INLINE int64_t border(int64_t element) {
  return element <= 0 ? 0 : (element - 1) / BLOCK * BLOCK + BLOCK;
}

}  // namespace relaxrt
