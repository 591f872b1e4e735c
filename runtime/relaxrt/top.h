// A field `top`: the largest elements of a block by magnitude, as relaxc/wire/layout.py lays them out and
// relaxc/program/selection.py chooses them.
//
// No sort. A histogram of the leading bits of all magnitudes says in which bin the smallest that is kept lies; what lies
// there or above is listed, and the same is done with more bits of the list alone, until one magnitude is left.
#pragma once
#include "magnitude.h"

namespace relaxrt {

constexpr int32_t TOP_GROUP = 32;  // elements that are passed over at once where none is a candidate
typedef uint32_t __attribute__((aligned(1), may_alias)) uint32_anywhere;

// The bin, from the last on, in which item number `left` is; `left` becomes its number within the bin.
RELAXRT_SHARED int32_t bin_of(const uint32_t* bins, int32_t last, int32_t& left) {
  int32_t bin = last;
  while (bin > 0 && int64_t(bins[bin]) < left) left -= int32_t(bins[bin--]);
  return bin;
}

// The places of what is in the bin, or above, of the k-th largest, ascending. `left`: how many of the bin are kept.
template <class Real>
RELAXRT_SHARED int32_t top_candidates(const Real* v, int32_t n, int32_t k, uint32_t* places, int32_t& bin, int32_t& left) {
  typedef typename magnitude<Real>::type Size;
  constexpr int32_t shift = magnitude<Real>::bits - magnitude<Real>::leading, count = 1 << magnitude<Real>::leading;
  uint32_t even[count] = {}, odd[count] = {};  // two, so that equal neighbours don't wait for each other
  int32_t i = 0;
  for (; i + 1 < n; i += 2) {
    ++even[size_of(v[i]) >> shift];
    ++odd[size_of(v[i + 1]) >> shift];
  }
  if (i < n) ++even[size_of(v[i]) >> shift];
  for (int32_t b = 0; b < count; ++b) even[b] += odd[b];
  left = k;
  bin = bin_of(even, count - 1, left);
  const Size least = Size(bin) << shift;
  int32_t found = 0;
  for (int32_t start = 0; start < n; start += TOP_GROUP) {
    const int32_t end = start + TOP_GROUP < n ? start + TOP_GROUP : n;
    int32_t any = 0;
    if (end - start == TOP_GROUP) {
#pragma omp simd reduction(| : any)
      for (int32_t j = 0; j < TOP_GROUP; ++j) any |= size_of(v[start + j]) >= least;
      if (!any) continue;
    }
    for (int32_t j = start; j < end; ++j) {
      places[found] = uint32_t(j);
      found += size_of(v[j]) >= least;
    }
  }
  return found;
}

// The k elements of v that are largest to `out`: k places, then k values. `places` has room for n.
template <class Real>
RELAXRT_SHARED void top(const Real* v, int32_t n, int32_t k, uint32_t* places, uint8_t* out) {
  typedef typename magnitude<Real>::type Size;
  constexpr int32_t step = 11;
  int32_t shift = magnitude<Real>::bits - magnitude<Real>::leading, bin = 0, left = 0;
  const int32_t found = top_candidates(v, n, k, places, bin, left);
  Size prefix = Size(bin);
  while (shift > 0) {
    const int32_t narrower = shift > step ? shift - step : 0;
    uint32_t bins[1 << step] = {};
    for (int32_t c = 0; c < found; ++c) {
      const Size size = size_of(v[places[c]]);
      if (size >> shift == prefix) ++bins[(size >> narrower) & ((Size(1) << (shift - narrower)) - 1)];
    }
    bin = bin_of(bins, (1 << (shift - narrower)) - 1, left);
    prefix = prefix << (shift - narrower) | Size(bin);
    shift = narrower;
  }
  uint32_anywhere* const where = reinterpret_cast<uint32_anywhere*>(out);
  auto* const values = reinterpret_cast<typename anywhere<Real>::type*>(out + int64_t(PLACE_BYTES) * k);
  int32_t made = 0;
  for (int32_t c = 0; c < found && made < k; ++c) {
    const Real value = v[places[c]];
    const Size size = size_of(value);
    const bool equal = size == prefix;
    if (size < prefix || (equal && left == 0)) continue;
    left -= equal;
    where[made] = places[c];
    values[made++] = one_nan(value);
  }
}

// What a receiver of the k elements has: them at their places, 0 elsewhere.
template <class Real>
RELAXRT_SHARED void spread(const uint8_t* field, int32_t k, int32_t n, Real* out) {
  const uint32_anywhere* const where = reinterpret_cast<const uint32_anywhere*>(field);
  const auto* const values = reinterpret_cast<const typename anywhere<Real>::type*>(field + int64_t(PLACE_BYTES) * k);
  for (int32_t i = 0; i < n; ++i) out[i] = 0;
  for (int32_t j = 0; j < k; ++j)
    if (where[j] < uint32_t(n)) out[where[j]] = values[j];
}

}  // namespace relaxrt
