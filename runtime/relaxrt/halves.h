// A run of f16 to or from a scratch of the arithmetic's type, for a CPU: eight at a time where the processor can.
#pragma once
#include "narrow.h"

namespace relaxrt {

#if defined(__F16C__) && defined(__GNUC__)
typedef float float8 __attribute__((vector_size(32)));
typedef short short8 __attribute__((vector_size(16)));

RELAXRT_INLINE int32_t write_f16_eights(const float* in, int32_t n, uint8_t* out) {
  int32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    float8 v;
    __builtin_memcpy(&v, in + i, sizeof v);
    v = v == v ? v : float8{} + nan<float>();
    const short8 h = __builtin_ia32_vcvtps2ph256(v, 0);
    __builtin_memcpy(out + 2 * i, &h, sizeof h);
  }
  return i;
}

RELAXRT_INLINE int32_t read_f16_eights(const uint8_t* in, int32_t n, float* out) {
  int32_t i = 0;
  for (; i + 8 <= n; i += 8) {
    short8 h;
    __builtin_memcpy(&h, in + 2 * i, sizeof h);
    const float8 v = __builtin_ia32_vcvtph2ps256(h);
    __builtin_memcpy(out + i, &v, sizeof v);
  }
  return i;
}
#else
RELAXRT_INLINE int32_t write_f16_eights(const float*, int32_t, uint8_t*) { return 0; }
RELAXRT_INLINE int32_t read_f16_eights(const uint8_t*, int32_t, float*) { return 0; }
#endif
RELAXRT_INLINE int32_t write_f16_eights(const double*, int32_t, uint8_t*) { return 0; }
RELAXRT_INLINE int32_t read_f16_eights(const uint8_t*, int32_t, double*) { return 0; }

// Addresses need no alignment.
template <class Real>
RELAXRT_SHARED void write_f16(const Real* in, int32_t n, uint8_t* out) {
  uint16_anywhere* const items = reinterpret_cast<uint16_anywhere*>(out);
  const int32_t done = write_f16_eights(in, n, out);
#pragma omp simd
  for (int32_t i = done; i < n; ++i) items[i] = f16_bits(in[i]);
}

template <class Real>
RELAXRT_SHARED void read_f16(const uint8_t* in, int32_t n, Real* out) {
  const uint16_anywhere* const items = reinterpret_cast<const uint16_anywhere*>(in);
  const int32_t done = read_f16_eights(in, n, out);
#pragma omp simd
  for (int32_t i = done; i < n; ++i) out[i] = Real(f16_value(items[i]));
}

}  // namespace relaxrt
