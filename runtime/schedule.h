// The schedule of one worker as plain data: made by relaxc/schedule, executed by the queue.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "relaxrt/abi.h"

namespace relaxc {

// Elements [first, first + elements) of a parameter; starts at a block border.
struct Range {
  int parameter;
  int64_t first;
  int64_t elements;
};

enum class Kind { run, send, receive };

struct Action {
  Kind kind;
  // run
  relaxrt_kernel kernel = nullptr;
  std::string name;
  std::vector<Range> ranges;
  std::vector<int> inputs;  // buffers
  bool tensor = false;      // the kernel reads or writes the gradient
  bool residual = false;
  bool owner = false;       // the owner's residual, and a dither key without the worker
  // send, receive; for run the output buffer, or -1
  int buffer = -1;
  int peer = -1;
  int tag = 0;
};

using Phase = std::vector<Action>;

// What is exchanged as one unit of the pipeline: a cut of a coded bucket, or a whole dense one.
struct Piece {
  int bucket;
  uint64_t place = 0;
  std::vector<at::Tensor> buffers;  // messages, bytes
  std::vector<Phase> phases;        // empty: an all-reduce of the bucket's flat buffer

  bool dense() const { return phases.empty(); }
  size_t steps() const { return dense() ? 2 : phases.size(); }  // start and wait, or the phases
};

// Parameters whose gradients are ready together. `delay` counts iterations. The last bucket, without parameters, is the
// census; buffer w of its piece is worker w's.
struct Bucket {
  std::vector<int> parameters;
  bool coded = false;
  int delay = 0;
};

}  // namespace relaxc
