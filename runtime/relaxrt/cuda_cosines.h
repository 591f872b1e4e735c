// The orthonormal cosine transform of a block by all threads; cosines.h says the same for one.
#pragma once
#include "cosine.h"

namespace relaxrt {

// Coefficient (k, j) of a length depends on (2 j + 1) k modulo 4 * length alone, but for k = 0.
template <class Real, int32_t SIDE>
struct turns {
  Real others[4 * SIDE];
  Real first;
  int32_t length;
};

// `across` is for columns, `along` for rows.
template <class Real, int32_t SIDE>
struct transform_room {
  turns<Real, SIDE> across, along;
};

// Called, not inlined: it is long, and a table is short.
RELAXRT_SHARED double cosine_of(int32_t turn, int32_t length) { return cosine(turn, length); }

template <int THREADS, class Real, int32_t SIDE>
RELAXRT_INLINE void fill(turns<Real, SIDE>& table, int32_t length) {
  const double first = sqrt(1.0 / double(length)), other = sqrt(2.0 / double(length));
  for (int32_t t = int32_t(threadIdx.x); t < 4 * length; t += THREADS) table.others[t] = Real(other * cosine_of(t, length));
  if (threadIdx.x == 0) table.first = Real(first * cosine_of(0, length)), table.length = length;
}

template <class Real, int32_t SIDE>
RELAXRT_INLINE Real coefficient(const turns<Real, SIDE>& table, int32_t k, int32_t j) {
  return k ? table.others[(2 * j + 1) * k % (4 * table.length)] : table.first;
}

// Each result is a sum in ascending order that starts from +0. INVERSE: columns first.
template <int THREADS, bool INVERSE, class Real, int32_t SIDE>
RELAXRT_INLINE void transform_matrix(const Real* in, const transform_room<Real, SIDE>& tables, Real* room, Real* out) {
  const int32_t height = tables.across.length, width = tables.along.length;
  for (int32_t e = int32_t(threadIdx.x); e < height * width; e += THREADS) {
    const int32_t r = e / width, c = e % width;
    Real sum = 0;
    for (int32_t j = 0; j < (INVERSE ? height : width); ++j)
      sum += INVERSE ? in[j * width + c] * coefficient(tables.across, j, r) : in[r * width + j] * coefficient(tables.along, c, j);
    room[e] = sum;
  }
  __syncthreads();
  for (int32_t e = int32_t(threadIdx.x); e < height * width; e += THREADS) {
    const int32_t r = e / width, c = e % width;
    Real sum = 0;
    for (int32_t j = 0; j < (INVERSE ? width : height); ++j)
      sum += INVERSE ? room[r * width + j] * coefficient(tables.along, j, c) : room[j * width + c] * coefficient(tables.across, r, j);
    out[e] = sum;
  }
  __syncthreads();
}

template <int THREADS, bool INVERSE, class Real, int32_t SIDE>
RELAXRT_INLINE void transform(const Real* in, int32_t n, transform_room<Real, SIDE>& tables, Real* room, Real* out) {
  const int32_t height = n / SIDE, done = height * SIDE;
  for (int32_t part = height ? 0 : 1; part < (done < n ? 2 : 1); ++part) {
    fill<THREADS>(tables.across, part ? 1 : height);
    fill<THREADS>(tables.along, part ? n - done : SIDE);
    __syncthreads();
    const int32_t first = part ? done : 0;
    transform_matrix<THREADS, INVERSE>(in + first, tables, room, out + first);
  }
}

template <int THREADS, class Real, int32_t SIDE>
RELAXRT_INLINE void dct(const Real* in, int32_t n, transform_room<Real, SIDE>& tables, Real* room, Real* out) {
  transform<THREADS, false>(in, n, tables, room, out);
}

template <int THREADS, class Real, int32_t SIDE>
RELAXRT_INLINE void idct(const Real* in, int32_t n, transform_room<Real, SIDE>& tables, Real* room, Real* out) {
  transform<THREADS, true>(in, n, tables, room, out);
}

}  // namespace relaxrt
