// How functions are spelled for this target. What works on a whole block is shared by the kernels of a file, not inlined
// into each: a call costs nothing beside a block, and the compiler has a third less to do.
#pragma once
#ifdef __CUDACC__
#define RELAXRT_INLINE static __device__ __forceinline__
#define RELAXRT_SHARED static __device__ __noinline__
#define RELAXRT_C(function) ::function
#elif !defined(RELAXRT_INLINE)
#define RELAXRT_INLINE static inline __attribute__((always_inline))
#define RELAXRT_SHARED static __attribute__((noinline))
#endif
#ifndef RELAXRT_C
#define RELAXRT_C(function) __builtin_##function
#endif

// A kernel for which the widest vectors that there are pay; g++ takes half of them by itself.
#if defined(__AVX512F__) && !defined(__clang__)
#define RELAXRT_WIDE __attribute__((target("prefer-vector-width=512")))
#else
#define RELAXRT_WIDE
#endif
