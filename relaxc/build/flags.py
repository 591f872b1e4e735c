"""How generated kernels are compiled. Part of what their bits mean, so part of every key."""

from __future__ import annotations

KERNEL_FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp-simd",  # `#pragma omp simd` only; no OpenMP runtime
    "-ffp-contract=off",  # a fused multiply-add rounds once where the interpreter rounds twice
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-loop-unroll-and-jam",  # g++ 12 would run two messages through one loop, and then not vectorise it
    "-fPIC",
    "-shared",
)
