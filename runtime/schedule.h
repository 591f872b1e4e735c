// The schedule of one worker as plain data: made by relaxc/schedule, executed by the queue.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "call.h"

namespace relaxc {

enum class Kind { run, send, receive };

struct Action {
  Kind kind;
  std::shared_ptr<const Call> call;  // run
  int buffer = -1;                   // send, receive: of the piece's
  int peer = -1;
  int tag = 0;
};

using Phase = std::vector<Action>;

// What is exchanged as one unit of the pipeline: a cut of a coded bucket, or a whole dense one.
struct Piece {
  int bucket = 0;
  std::vector<at::Tensor> buffers;  // messages, bytes
  std::vector<Phase> phases;        // empty: an all-reduce
  std::vector<at::Tensor> sums;     // what is all-reduced: one for each iteration that can be under way

  bool dense() const { return phases.empty(); }
  size_t steps() const { return dense() ? 2 : phases.size(); }  // start and wait, or the phases
};

// What the queue carries out as one, in order of their buckets.
struct Pieces {
  std::vector<Piece> pieces;
  size_t buckets = 0;
};

}  // namespace relaxc
