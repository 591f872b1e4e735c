// The schedule of one worker as plain data: made by relaxc/schedule, executed by the queue.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "call.h"

namespace relaxc {

// The last four are of a codec with a guard: `check` runs a kernel that tells in `buffer`, a byte for each block, which
// blocks of a message have tripped, and expects their values from `peer`; `resend` sends `peer` the values of those that
// `buffer` tells of; `values` waits for those that `buffer` tells of.
// `settle` puts into `settled` what each input of a kernel that runs elsewhere is decoded near to.
enum class Kind { run, send, receive, check, resend, values, settle };

struct Action {
  Kind kind;
  std::shared_ptr<const Call> call;  // run, check, resend, settle: what tripped is of its first operand
  int buffer = -1;                   // of the piece's
  int peer = -1;
  int tag = 0;
  std::vector<int> near;             // run, settle: for each input the buffer that tells what of it tripped, or -1
  int64_t block = 0;                 // in elements; 0: a segment is a block
  std::shared_ptr<Near> settled;
};

using Phase = std::vector<Action>;

// What is exchanged as one unit of the pipeline: a cut of a coded bucket, or a whole dense one.
struct Piece {
  int bucket = 0;
  std::vector<at::Tensor> buffers;  // messages, bytes
  std::vector<Phase> phases;        // empty: an all-reduce
  std::vector<at::Tensor> sums;     // what is all-reduced: one for each iteration that can be under way
  bool lent = false;                // a message is memory that is written once it has landed: it has left by then

  bool dense() const { return phases.empty(); }
  size_t steps() const { return dense() ? 2 : phases.size(); }  // start and wait, or the phases
};

// What the queue carries out as one, in order of their buckets.
struct Pieces {
  std::vector<Piece> pieces;
  size_t buckets = 0;
};

}  // namespace relaxc
