// Some pieces on their way, once.
#pragma once
#include <ATen/Parallel.h>
#include <ATen/ThreadLocalState.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "schedule.h"
#include "streams.h"

namespace relaxc {

struct Failure {
  uint64_t iteration;
  int bucket;
  int peer;  // -1: not one peer's doing
  std::string what;
};

class Launch : public Native {
 public:
  Launch(std::shared_ptr<const Pieces> pieces, uint64_t iteration)
      : pieces(std::move(pieces)),
        iteration(iteration),
        tag(iteration),
        ready(this->pieces->buckets),
        landed(this->pieces->buckets),
        ready_at(this->pieces->buckets),
        landed_at(this->pieces->buckets) {}

  const std::shared_ptr<const Pieces> pieces;
  const uint64_t iteration;
  uint64_t tag;                 // what its messages name, which is the iteration where nothing else is said
  std::vector<double> weights;  // of the inputs that are summed; empty for none
  at::ThreadLocalState state;   // so that a profiler of the caller sees the queue's ranges
  const int threads = at::get_num_threads();  // the caller's, which the queue's kernels keep to

  Mark begins;                  // behind all that was computed for it before it was pushed

  // Under the queue's mutex.
  std::vector<char> ready;   // per bucket: it may leave
  std::vector<char> landed;  // per bucket: its results are there
  bool finished = false;     // all has left too: its messages may be written again
  std::vector<Mark> ready_at, landed_at;  // on a device: in whose streams that is true
  Mark finished_at;
  bool cancelled = false;
  bool given_up = false;            // its transfers are aborted
  std::optional<Failure> failure;   // of a queue that survives

  // What the queue's thread asks of the kind of launch.
  char* find(Operand::Source, const Segment&) override { throw std::invalid_argument("no native exchange"); }
  virtual void starts(const Piece&) {}
  virtual void ran(const Call&) {}
  virtual void arrived() {}  // all results are there
  virtual bool lands_early(int) const { return true; }  // a bucket need not wait for all others
};

}  // namespace relaxc
