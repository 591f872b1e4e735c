// The cosines that a transform's coefficients are made of; relaxc/wire/cosines.py has the same operations.
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

}  // namespace relaxrt
