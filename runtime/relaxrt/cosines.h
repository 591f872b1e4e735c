// The orthonormal cosine transform of a block; relaxc/wire/cosines.py says what of what, and in which order.
#pragma once
#include "cosine.h"

namespace relaxrt {

// Coefficients of one length, by row and by column.
template <class Real, int32_t SIDE>
struct cosines {
  Real rows[SIDE * SIDE], columns[SIDE * SIDE];
  int32_t length;
  explicit cosines(int32_t n) : length(n) {
    const double first = sqrt(1.0 / n), other = sqrt(2.0 / n);
    for (int32_t k = 0; k < n; ++k)
      for (int32_t j = 0; j < n; ++j)
        columns[j * n + k] = rows[k * n + j] = Real((k ? other : first) * cosine((2 * j + 1) * k % (4 * n), n));
  }
};

constexpr int32_t COLUMNS = 32;  // of a result that are held in registers

// Elements [0, COUNT) of one row of left @ right, each a sum in ascending order. The elements of `left` stand `step` apart.
template <int32_t COUNT, class Real>
RELAXRT_INLINE void row_of_product(const Real* left, int32_t step, const Real* right, int32_t inner, int32_t width, Real* out) {
  Real sums[COUNT] = {};
  for (int32_t j = 0; j < inner; ++j) {
    const Real factor = left[j * step];
#pragma omp simd
    for (int32_t c = 0; c < COUNT; ++c) sums[c] += factor * right[j * width + c];
  }
  for (int32_t c = 0; c < COUNT; ++c) out[c] = sums[c];
}

// out = left @ right
template <class Real>
RELAXRT_SHARED void product(const Real* left, const Real* right, int32_t height, int32_t inner, int32_t width, Real* out) {
  for (int32_t r = 0; r < height; ++r) {
    int32_t c = 0;
    for (; c + COLUMNS <= width; c += COLUMNS)
      row_of_product<COLUMNS>(left + r * inner, 1, right + c, inner, width, out + r * width + c);
    for (; c < width; ++c) row_of_product<1>(left + r * inner, 1, right + c, inner, width, out + r * width + c);
  }
}

template <class Real, int32_t SIDE>
RELAXRT_INLINE void dct_matrix(const Real* in, const cosines<Real, SIDE>& across, const cosines<Real, SIDE>& along, Real* room,
                               Real* out) {
  const int32_t height = across.length, width = along.length;
  product(in, along.columns, height, width, width, room);
  product(across.rows, room, height, height, width, out);
}

// Most coefficients are 0 where only some were kept. A coefficient's product with 0 changes no sum that started from +0, so
// those are left out; `room` holds the columns, each as a run.
template <class Real, int32_t SIDE>
RELAXRT_INLINE void idct_matrix(const Real* in, const cosines<Real, SIDE>& across, const cosines<Real, SIDE>& along, Real* room,
                                Real* out) {
  const int32_t height = across.length, width = along.length;
  for (int32_t i = 0; i < height * width; ++i) room[i] = 0;
  for (int32_t k = 0; k < height; ++k)
    for (int32_t c = 0; c < width; ++c) {
      const Real value = in[k * width + c];
      if (value == 0) continue;
#pragma omp simd
      for (int32_t r = 0; r < height; ++r) room[c * height + r] += value * across.rows[k * height + r];
    }
  int32_t used[SIDE], count = 0;
  for (int32_t c = 0; c < width; ++c) {
    int32_t any = 0;
    for (int32_t r = 0; r < height; ++r) any |= room[c * height + r] != 0;
    used[count] = c;
    count += any;
  }
  for (int32_t r = 0; r < height; ++r) {
    Real* const row = out + r * width;
    for (int32_t j = 0; j < width; ++j) row[j] = 0;
    for (int32_t u = 0; u < count; ++u) {
      const Real factor = room[used[u] * height + r];
      const Real* const other = along.rows + used[u] * width;
#pragma omp simd
      for (int32_t j = 0; j < width; ++j) row[j] += factor * other[j];
    }
  }
}

template <class Real, int32_t SIDE, class Matrix>
RELAXRT_INLINE void of_block(const Real* in, int32_t n, Real* room, Real* out, Matrix matrix) {
  static const cosines<Real, SIDE> whole(SIDE);
  if (n == SIDE * SIDE) return matrix(in, whole, whole, room, out);
  const int32_t height = n / SIDE, done = height * SIDE;
  if (height) matrix(in, cosines<Real, SIDE>(height), whole, room, out);
  if (done < n) matrix(in + done, cosines<Real, SIDE>(1), cosines<Real, SIDE>(n - done), room, out + done);
}

template <int32_t SIDE, class Real>
RELAXRT_SHARED void dct(const Real* in, int32_t n, Real* room, Real* out) {
  of_block<Real, SIDE>(in, n, room, out, [](auto&&... all) { dct_matrix(all...); });
}

template <int32_t SIDE, class Real>
RELAXRT_SHARED void idct(const Real* in, int32_t n, Real* room, Real* out) {
  of_block<Real, SIDE>(in, n, room, out, [](auto&&... all) { idct_matrix(all...); });
}

}  // namespace relaxrt
