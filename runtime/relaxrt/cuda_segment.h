// Where a codec block lies, and a thread block's scratch in global memory.
#pragma once
#include "cuda_abi.h"
#include "inline.h"

namespace relaxrt {

constexpr int32_t ROUNDED = 16;  // elements of an array in scratch are a multiple of this

// The last segment that begins with block `number` or before; segment `from` does.
RELAXRT_INLINE int64_t segment_of(const relaxrt_cuda_call& call, int64_t number, int64_t from) {
  int64_t low = from, high = call.number_of_segments;
  if (low + 1 == high || number < call.segments[low + 1].block) return low;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    if (call.segments[middle].block <= number)
      low = middle;
    else
      high = middle;
  }
  return low;
}

// Array number `place` of scratch; an Item is no larger than a Real.
template <class Item, class Real>
RELAXRT_INLINE Item* scratch_array(const relaxrt_cuda_call& call, int32_t place, int32_t n) {
  const int64_t items = (int64_t(n) + ROUNDED - 1) / ROUNDED * ROUNDED;
  return reinterpret_cast<Item*>(call.scratch + int64_t(blockIdx.x) * call.scratch_bytes + place * items * int64_t(sizeof(Real)));
}

}  // namespace relaxrt
