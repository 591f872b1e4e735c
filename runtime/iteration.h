// What one iteration's exchange works on. Hooks fill it while backward runs, the queue empties it.
#pragma once
#include <ATen/ThreadLocalState.h>
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace relaxc {

struct Iteration {
  uint64_t number = 0;
  int64_t workers = 1;
  std::vector<std::atomic<int>> missing;  // per bucket: gradients that are not there yet
  std::vector<char> ready;                // per bucket, under the queue's mutex
  std::vector<char> fired;                // per parameter: its gradient arrived in this backward
  std::vector<at::Tensor> tensors;        // per parameter of a coded bucket: what is encoded and decoded into
  std::vector<char> absent;               // per parameter: no gradient here; contributes zeros and keeps its residual
  at::Tensor census;                      // per parameter a byte: some worker has a gradient for it
  bool cancelled = false;
  at::ThreadLocalState state;             // so that a profiler of the caller sees the queue's ranges

  Iteration(uint64_t number, size_t buckets, size_t parameters)
      : number(number), missing(buckets), ready(buckets), fired(parameters), tensors(parameters), absent(parameters) {}
};

}  // namespace relaxc
