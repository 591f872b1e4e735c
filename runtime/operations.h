// Kernels and exchanges that Python starts and waits for, beside those of gradients.
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
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
  // Starts the queue. `survives`: a job that fails ends by itself.
  explicit Operations(std::shared_ptr<Queue> queue, bool survives = false);

  Watch watch;

  // Throws std::invalid_argument for a piece of buckets out of order.
  std::shared_ptr<Job> job(std::vector<Piece> pieces) const;
  // Waits until the job's former run is over, then gives it to the queue. `held`: each bucket until it is ready().
  // Its messages name `tag` where that is given, else the iteration.
  void start(Job& job, uint64_t iteration, std::vector<double> weights, bool held, std::optional<uint64_t> tag = {});
  void ready(Job& job, int bucket);
  void free(const Job& job);              // waits until its messages may be written again
  // Waits for the results of the newest start; -1: of all buckets. Throws std::logic_error where a bucket is still held: an
  // earlier one need not land before it leaves.
  void wait(const Job& job, int bucket);
  bool done(const Job& job, int bucket) const;
  // Of operations that survive. Whether all has come and gone; the newest start's failure; and an end to its waiting.
  bool over(const Job& job) const;
  std::optional<Failure> failure(const Job& job) const;
  void give_up(const Job& job);
  void drain();  // waits until nothing is under way
  double exposed_seconds() const { return exposed_seconds_; }
  void computed();  // what this thread has computed so far comes before whatever is started from here on

 private:
  template <typename Until>
  void wait_until(Until until);
  void wait_bucket(const Launch& launch, int bucket);

  std::shared_ptr<Queue> queue_;
  std::mutex mutex_;
  Mark computed_;
  double exposed_seconds_ = 0;
};

}  // namespace relaxc
