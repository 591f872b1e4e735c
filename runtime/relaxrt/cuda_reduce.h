// Reductions by the threads of a block. Each warp puts its part into on-chip memory; behind a barrier all threads read them.
#pragma once
#include "guard.h"

namespace relaxrt {

constexpr uint32_t WHOLE_WARP = 0xFFFFFFFFu;

RELAXRT_INLINE int32_t lane() { return int32_t(threadIdx.x) % LANES; }
RELAXRT_INLINE int32_t warp() { return int32_t(threadIdx.x) / LANES; }

template <bool LARGEST, class Real>
RELAXRT_INLINE Real extreme(Real a, Real b) {
  return (LARGEST ? b > a : b < a) ? b : a;
}

template <bool LARGEST, class Real>
RELAXRT_INLINE void put_extreme(Real v, Real* parts) {
#pragma unroll
  for (int32_t half = LANES / 2; half > 0; half /= 2) v = extreme<LARGEST>(v, __shfl_xor_sync(WHOLE_WARP, v, half));
  if (lane() == 0) parts[warp()] = v;
}

template <int WARPS, bool LARGEST, class Real>
RELAXRT_INLINE Real extreme_of(const Real* parts) {
  Real v = parts[0];
#pragma unroll
  for (int w = 1; w < WARPS; ++w) v = extreme<LARGEST>(v, parts[w]);
  return v;
}

RELAXRT_INLINE void put_any(bool v, int32_t* parts) {
  const int32_t any = __any_sync(WHOLE_WARP, v);
  if (lane() == 0) parts[warp()] = any;
}

template <int WARPS>
RELAXRT_INLINE bool any_of(const int32_t* parts) {
  int32_t any = parts[0];
#pragma unroll
  for (int w = 1; w < WARPS; ++w) any |= parts[w];
  return any != 0;
}

// A sum has one order, which is that of the lanes of one warp: it does it alone.
template <class Real>
RELAXRT_INLINE void put_folded(Real v, Real* sum) {
#pragma unroll
  for (int32_t half = LANES / 2; half > 0; half /= 2) v += __shfl_down_sync(WHOLE_WARP, v, half);
  if (lane() == 0) *sum = v;
}

template <class Real>
RELAXRT_INLINE void put_sum(const Real* elements, int32_t n, Real* sum) {
  Real v = 0;
#pragma unroll 8
  for (int32_t i = lane(); i < n; i += LANES) v += elements[i];
  put_folded(v, sum);
}

// Of n equal elements.
template <class Real>
RELAXRT_INLINE void put_sum(Real element, int32_t n, Real* sum) {
  Real v = 0;
  for (int32_t i = lane(); i < n; i += LANES) v += element;
  put_folded(v, sum);
}

}  // namespace relaxrt
