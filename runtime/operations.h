// Kernels and exchanges that Python starts and waits for, beside those of gradients.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "queue.h"
#include "watch.h"

namespace relaxc {

// Pieces that are exchanged again and again.
struct Job {
  std::shared_ptr<const Pieces> pieces;
  std::shared_ptr<Launch> newest;  // null before the first start
};

class Operations {
 public:
  explicit Operations(std::shared_ptr<Queue> queue);  // starts it

  Watch watch;

  // Throws std::invalid_argument for a piece of buckets out of order.
  std::shared_ptr<Job> job(std::vector<Piece> pieces) const;
  // Waits until the job's former run is over, then gives it to the queue. `held`: each bucket until it is ready().
  void start(Job& job, uint64_t iteration, std::vector<double> weights, bool held);
  void ready(Job& job, int bucket);
  void free(const Job& job);              // waits until its messages may be written again
  // Waits for the results of the newest start; -1: of all buckets. Throws std::logic_error where a bucket is still held: an
  // earlier one need not land before it leaves.
  void wait(const Job& job, int bucket);
  bool done(const Job& job, int bucket) const;
  void drain();  // waits until nothing is under way
  double exposed_seconds() const { return exposed_seconds_; }

 private:
  template <typename Until>
  void wait_until(Until until);
  void wait_bucket(const Launch& launch, int bucket);

  std::shared_ptr<Queue> queue_;
  double exposed_seconds_ = 0;
};

}  // namespace relaxc
