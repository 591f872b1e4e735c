// The ABI between the runtime and a plan's CUDA kernels; g++, nvcc and NVRTC read it. What relaxrt_cuda_call points to is
// device memory.
#pragma once
#include "integers.h"

extern "C" {

// A run of whole blocks of one parameter (the last block may be short). A segment has ceil(elements / block) codec blocks;
// where each segment is a block, it has one, or none where it is empty and the kernel leaves empty ones out.
struct relaxrt_cuda_segment {
  void* const* operands;  // as relaxrt_segment's
  int64_t elements;
  uint64_t first;         // as relaxrt_segment's
  uint32_t parameter;
  int64_t block;          // number of the first of its codec blocks in this call
  int64_t at;             // bytes of each message before it
  int64_t before;         // elements of this call before it, for `near`
};

struct relaxrt_cuda_call {
  const relaxrt_cuda_segment* segments;  // in the order of `block`
  int64_t number_of_segments;
  int64_t blocks;                // codec blocks of all segments
  const uint8_t* const* inputs;  // from here on as relaxrt_call has it
  const double* weights;
  int64_t number_of_inputs;
  uint8_t* output;
  const double* numbers;
  int64_t workers;
  uint64_t key;
  const void* const* near;
  uint64_t shared;
  uint8_t* scratch;              // aligned to 16 bytes, `scratch_bytes` for each thread block of the grid; null where the
  int64_t scratch_bytes;         // kernel needs none. A multiple of 16: emit/cuda.py says how many a block needs
};

}

// Every generated kernel is `extern "C" __global__ void SYMBOL(relaxrt_cuda_call call)`. A thread block works on codec
// blocks number blockIdx.x, + gridDim.x, and so on: any grid of one dimension is right.
