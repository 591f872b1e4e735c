// A field `top`, as top.h has it, by all threads of a block: counts of leading bits, then of more bits, say which magnitude
// is the smallest that is kept; then the kept ones are written in the order of their places.
#pragma once
#include "cuda_reduce.h"
#include "cuda_runs.h"
#include "magnitude.h"

namespace relaxrt {

// `DIGIT` bits are counted at once: few for small blocks, which the bins would outweigh.
template <int DIGIT>
struct top_room {
  static constexpr int32_t count = 1 << DIGIT;
  uint32_t bins[count];
  int32_t above[LANES], equal[LANES];  // of each warp
  int32_t bin, left;
};

// The sum over lanes before this one.
RELAXRT_INLINE int32_t sum_before(int32_t v) {
  int32_t sum = v;
#pragma unroll
  for (int32_t step = 1; step < LANES; step *= 2) {
    const int32_t other = __shfl_up_sync(WHOLE_WARP, sum, step);
    if (lane() >= step) sum += other;
  }
  return sum - v;
}

// One warp: the bin, from the last on, in which item number `left` is, and its number within the bin.
template <int DIGIT>
RELAXRT_INLINE void find_bin(top_room<DIGIT>& room, int32_t left) {
  constexpr int32_t each = top_room<DIGIT>::count / LANES;
  const int32_t last = top_room<DIGIT>::count - 1 - lane() * each;
  int32_t own = 0;
  for (int32_t b = 0; b < each; ++b) own += int32_t(room.bins[last - (b + lane()) % each]);
  const int32_t before = sum_before(own);
  if (before >= left || before + own < left) return;
  int32_t bin = last;
  left -= before;
  while (int32_t(room.bins[bin]) < left) left -= int32_t(room.bins[bin--]);
  room.bin = bin;
  room.left = left;
}

// The k-th largest magnitude; `left` is how many equal ones are kept.
template <int THREADS, int DIGIT, class Real>
RELAXRT_INLINE typename magnitude<Real>::type smallest_kept(const Real* v, int32_t n, top_room<DIGIT>& room, int32_t& left) {
  typedef typename magnitude<Real>::type Size;
  Size prefix = 0;
  for (int32_t shift = magnitude<Real>::bits; shift > 0;) {
    const int32_t narrower = shift > DIGIT ? shift - DIGIT : 0, width = shift - narrower;
    for (int32_t b = int32_t(threadIdx.x); b < room.count; b += THREADS) room.bins[b] = 0;
    __syncthreads();
    for (int32_t i = int32_t(threadIdx.x); i < n; i += THREADS) {
      const Size size = size_of(v[i]);
      if (size >> shift == prefix) atomicAdd(&room.bins[(size >> narrower) & ((Size(1) << width) - 1)], 1u);
    }
    __syncthreads();
    if (warp() == 0) find_bin(room, left);
    __syncthreads();
    left = room.left;
    prefix = prefix << width | Size(room.bin);
    shift = narrower;
  }
  return prefix;
}

// The k elements of v that are largest to `out`: k places, then k values. Each warp has a run of the elements.
template <int THREADS, int DIGIT, class Real>
RELAXRT_INLINE void top(const Real* v, int32_t n, int32_t k, top_room<DIGIT>& room, uint8_t* out) {
  typedef typename magnitude<Real>::type Size;
  int32_t left = k;
  const Size least = smallest_kept<THREADS>(v, n, room, left);
  const int32_t piece = (n + THREADS - 1) / THREADS * LANES, first = warp() * piece;
  const int32_t end = first + piece < n ? first + piece : n;
  int32_t above = 0, equal = 0;
  for (int32_t start = first; start < end; start += LANES) {
    const int32_t i = start + lane();
    const Size size = i < end ? size_of(v[i]) : Size(0);
    above += __popc(__ballot_sync(WHOLE_WARP, i < end && size > least));
    equal += __popc(__ballot_sync(WHOLE_WARP, i < end && size == least));
  }
  if (lane() == 0) room.above[warp()] = above, room.equal[warp()] = equal;
  __syncthreads();
  above = equal = 0;
  for (int32_t w = 0; w < warp(); ++w) above += room.above[w], equal += room.equal[w];
  const uint32_t lower = (1u << lane()) - 1;
  uint8_t* const values = out + int64_t(PLACE_BYTES) * k;
  for (int32_t start = first; start < end; start += LANES) {
    const int32_t i = start + lane();
    const Real value = i < end ? v[i] : Real(0);
    const Size size = size_of(value);
    const bool is_above = i < end && size > least, is_equal = i < end && size == least;
    const uint32_t all_above = __ballot_sync(WHOLE_WARP, is_above), all_equal = __ballot_sync(WHOLE_WARP, is_equal);
    const int32_t equals = equal + __popc(all_equal & lower);
    const int32_t place = above + __popc(all_above & lower) + (equals < left ? equals : left);
    if (is_above || (is_equal && equals < left)) {
      write<uint32_t>(out + int64_t(PLACE_BYTES) * place, uint32_t(i));
      write<Real>(values + int64_t(sizeof(Real)) * place, one_nan(value));
    }
    above += __popc(all_above);
    equal += __popc(all_equal);
  }
  __syncthreads();
}

// What a receiver of the k elements has: them at their places, 0 elsewhere.
template <int THREADS, class Real>
RELAXRT_INLINE void spread(const uint8_t* field, int32_t k, int32_t n, Real* out) {
  const uint8_t* const values = field + int64_t(PLACE_BYTES) * k;
  for (int32_t i = int32_t(threadIdx.x); i < n; i += THREADS) out[i] = 0;
  __syncthreads();
  for (int32_t j = int32_t(threadIdx.x); j < k; j += THREADS) {
    const uint32_t place = read<uint32_t>(field + int64_t(PLACE_BYTES) * j);
    if (place < uint32_t(n)) out[place] = read<Real>(values + int64_t(sizeof(Real)) * j);
  }
  __syncthreads();
}

}  // namespace relaxrt
