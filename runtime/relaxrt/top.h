// A field `top`: the largest elements of a block by magnitude, as relaxc/wire/layout.py lays them out and
// relaxc/program/selection.py chooses them.
//
// No sort. Of many elements some are taken, and where the k-th largest would lie is read off them; what is that large or larger
// is listed, and the k-th largest of the list is found by histograms of ever more leading bits. Where the sample promised too
// much, and where there are not so many, a histogram of all says what to list. Of few elements the k-th largest is found bit by
// bit, which costs less than to empty the bins. What is chosen is the same every way.
#pragma once
#include "magnitude.h"

namespace relaxrt {

constexpr int32_t TOP_GROUP = 64;   // elements that are compared at once
constexpr int32_t TOP_STRIDE = 61;  // of so many elements one is taken: no power of two, in which rows of a matrix repeat
constexpr int32_t TOP_FEW = 256, TOP_MANY = 1 << 14, TOP_SPARE = 16;
typedef uint32_t __attribute__((aligned(1), may_alias)) uint32_anywhere;

// The bin, from the last on, in which item number `left` is; `left` becomes its number within the bin.
RELAXRT_SHARED int32_t bin_of(const uint32_t* bins, int32_t last, int32_t& left) {
  int32_t bin = last;
  while (bin > 0 && int64_t(bins[bin]) < left) left -= int32_t(bins[bin--]);
  return bin;
}

// The bin of leading bits in which item number `left` is, and `left` as bin_of's.
template <class Real>
RELAXRT_SHARED int32_t leading_bin(const Real* v, int32_t n, int32_t& left) {
  constexpr int32_t shift = magnitude<Real>::bits - magnitude<Real>::leading, count = 1 << magnitude<Real>::leading;
  uint32_t even[count] = {}, odd[count] = {};  // two, so that equal neighbours don't wait for each other
  int32_t i = 0;
  for (; i + 1 < n; i += 2) {
    ++even[size_of(v[i]) >> shift];
    ++odd[size_of(v[i + 1]) >> shift];
  }
  if (i < n) ++even[size_of(v[i]) >> shift];
  for (int32_t b = 0; b < count; ++b) even[b] += odd[b];
  return bin_of(even, count - 1, left);
}

// The magnitude of item number `left`, which becomes how many of those that are equal to it are among the first `left`.
template <class Real>
RELAXRT_SHARED typename magnitude<Real>::type kth_largest(const Real* v, int32_t n, int32_t& left) {
  typedef typename magnitude<Real>::type Size;
  constexpr int32_t step = 11;
  int32_t shift = magnitude<Real>::bits - magnitude<Real>::leading;
  Size prefix = Size(leading_bin(v, n, left));
  while (shift > 0) {
    const int32_t narrower = shift > step ? shift - step : 0;
    uint32_t bins[1 << step] = {};
    for (int32_t i = 0; i < n; ++i) {
      const Size size = size_of(v[i]);
      if (size >> shift == prefix) ++bins[(size >> narrower) & ((Size(1) << (shift - narrower)) - 1)];
    }
    const int32_t bin = bin_of(bins, (1 << (shift - narrower)) - 1, left);
    prefix = prefix << (shift - narrower) | Size(bin);
    shift = narrower;
  }
  return prefix;
}

// As kth_largest. A bit is set where `left` elements or more are as large with it.
template <class Real>
RELAXRT_SHARED typename magnitude<Real>::type kth_largest_of_few(const Real* v, int32_t n, int32_t& left) {
  typedef typename magnitude<Real>::type Size;
  Size found = 0;
  for (int32_t bit = magnitude<Real>::bits - 1; bit >= 0; --bit) {
    const Size tried = found | Size(1) << bit;
    int32_t as_large = 0;
#pragma omp simd reduction(+ : as_large)
    for (int32_t i = 0; i < n; ++i) as_large += size_of(v[i]) >= tried;
    if (as_large >= left) found = tried;
  }
  int32_t larger = 0;
#pragma omp simd reduction(+ : larger)
  for (int32_t i = 0; i < n; ++i) larger += size_of(v[i]) > found;
  left -= larger;
  return found;
}

// The elements whose magnitude is `least` or more: their places, ascending, and themselves.
template <class Real>
RELAXRT_SHARED int32_t list_from(const Real* v, int32_t n, typename magnitude<Real>::type least, uint32_t* places, Real* values) {
  int32_t found = 0, start = 0;
  const auto list = [&](int32_t place) {
    places[found] = uint32_t(place);
    values[found++] = v[place];
  };
  for (; start <= n - TOP_GROUP; start += TOP_GROUP) {
    alignas(64) uint8_t large[TOP_GROUP];
#pragma omp simd
    for (int32_t j = 0; j < TOP_GROUP; ++j) large[j] = size_of(v[start + j]) >= least;
    for (int32_t part = 0; part < TOP_GROUP; part += 8) {
      uint64_t eight;
      RELAXRT_C(memcpy)(&eight, large + part, 8);
      for (; eight; eight &= eight - 1) list(start + part + RELAXRT_C(ctzll)(eight) / 8);
    }
  }
  for (; start < n; ++start)
    if (size_of(v[start]) >= least) list(start);
  return found;
}

// Some more than the k largest are that large or larger, if a sample can be trusted.
template <class Real>
RELAXRT_SHARED typename magnitude<Real>::type promised(const Real* v, int32_t n, int32_t k, Real* room) {
  int32_t taken = 0;
  for (int64_t i = 0; i < n; i += TOP_STRIDE) room[taken++] = v[i];
  int32_t left = k / TOP_STRIDE + k / (4 * TOP_STRIDE) + TOP_SPARE;
  return left < taken ? kth_largest(room, taken, left) : 0;
}

// The k elements of v that are largest to `out`: k places, then k values. `places` and `values` have room for n.
template <class Real>
RELAXRT_SHARED void top(const Real* v, int32_t n, int32_t k, uint32_t* places, Real* values, uint8_t* out) {
  typedef typename magnitude<Real>::type Size;
  constexpr int32_t shift = magnitude<Real>::bits - magnitude<Real>::leading;
  int32_t found = 0, left = k;
  Size least = 0;
  if (n <= TOP_FEW) {
    least = kth_largest_of_few(v, n, left);
    found = list_from(v, n, least, places, values);
  } else {
    if (n >= TOP_MANY) found = list_from(v, n, promised(v, n, k, values), places, values);
    if (found < k) found = list_from(v, n, Size(leading_bin(v, n, left)) << shift, places, values);
    left = k;
    least = kth_largest(values, found, left);
  }
  uint32_anywhere* const where = reinterpret_cast<uint32_anywhere*>(out);
  auto* const kept = reinterpret_cast<typename anywhere<Real>::type*>(out + int64_t(PLACE_BYTES) * k);
  int32_t made = 0;
  for (int32_t c = 0; c < found && made < k; ++c) {
    const Size size = size_of(values[c]);
    const bool equal = size == least;
    if (size < least || (equal && left == 0)) continue;
    left -= equal;
    where[made] = places[c];
    kept[made++] = one_nan(values[c]);
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
