// The orthonormal cosine transform of a block; relaxc/wire/cosines.py says what of what, and in which order.
#pragma once
#include "arithmetic.h"

namespace relaxrt {

constexpr double PI = 3.141592653589793;
constexpr int32_t TERMS = 9;

RELAXRT_INLINE double up_to_a_quarter(int32_t turn, int32_t length) {
  const bool beyond = 2 * turn > length;
  const double angle = PI * double(beyond ? length - turn : turn) / double(2 * length), square = angle * angle;
  double result = 1;
  for (int32_t k = 2 * TERMS; k > 0; k -= 2) result = 1 - square / double(beyond ? k * (k + 1) : (k - 1) * k) * result;
  return beyond ? angle * result : result;
}

// cos(pi * turn / (2 * length))
RELAXRT_INLINE double cosine(int32_t turn, int32_t length) {
  if (turn > 2 * length) turn = 4 * length - turn;
  return turn > length ? -up_to_a_quarter(2 * length - turn, length) : up_to_a_quarter(turn, length);
}

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

// out = left @ right, each element a sum in ascending order.
template <class Real>
RELAXRT_SHARED void product(const Real* left, const Real* right, int32_t height, int32_t inner, int32_t width, Real* out) {
  for (int32_t r = 0; r < height; ++r) {
    Real* const row = out + int64_t(r) * width;
    for (int32_t c = 0; c < width; ++c) row[c] = 0;
    for (int32_t j = 0; j < inner; ++j) {
      const Real factor = left[r * inner + j];
      const Real* const other = right + int64_t(j) * width;
#pragma omp simd
      for (int32_t c = 0; c < width; ++c) row[c] += factor * other[c];
    }
  }
}

template <class Real, int32_t SIDE>
RELAXRT_INLINE void dct_matrix(const Real* in, const cosines<Real, SIDE>& across, const cosines<Real, SIDE>& along, Real* room,
                               Real* out) {
  const int32_t height = across.length, width = along.length;
  product(in, along.columns, height, width, width, room);
  product(across.rows, room, height, height, width, out);
}

template <class Real, int32_t SIDE>
RELAXRT_INLINE void idct_matrix(const Real* in, const cosines<Real, SIDE>& across, const cosines<Real, SIDE>& along, Real* room,
                                Real* out) {
  const int32_t height = across.length, width = along.length;
  product(across.columns, in, height, height, width, room);
  product(room, along.rows, height, width, width, out);
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
