// One thread per attach that carries out each iteration's exchanges in one compiled order.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "iteration.h"
#include "schedule.h"
#include "transport.h"

namespace relaxc {

struct Failure {
  uint64_t iteration;
  int bucket;
  int peer;  // -1: not one peer's doing
  std::string what;
};

struct Residual {
  at::Tensor worker;  // whole parameter, or undefined
  at::Tensor owner;   // the range that this worker owns, or undefined
  int64_t owner_first = 0;
};

struct Counters {
  std::atomic<uint64_t> bytes{0};        // handed to c10d by this worker
  std::atomic<uint64_t> busy_ns{0};      // exchange under way
  std::atomic<uint64_t> kernel_ns{0};    // encoding, summing, decoding
  std::atomic<uint64_t> iterations{0};   // exchanges completed
};

class Queue {
 public:
  Queue(std::unique_ptr<Transport> transport, int rank, int workers, uint64_t seed);
  ~Queue();

  // Before start()
  std::vector<Bucket> buckets;
  std::vector<Piece> pieces;                      // in order of their buckets
  std::vector<std::vector<at::Tensor>> flat;      // per dense bucket: one buffer for each iteration that can be under way
  std::vector<Residual> residuals;                // per parameter
  std::vector<at::Tensor> zeros;                  // per parameter: stands for an absent gradient's residual, kept at zero
  void start();

  void push(std::shared_ptr<Iteration> iteration);
  void ready(Iteration& iteration, int bucket);   // all its gradients are there
  // Cancel the newest iteration; false where one of its buckets has left already. Waits for no other worker.
  bool cancel(const std::shared_ptr<Iteration>& iteration);
  bool done(int bucket, uint64_t iteration) const;   // its exchange of that iteration is complete
  // Wait at most `ms`; true when done. Rethrows nothing: see failure().
  bool wait(int bucket, uint64_t iteration, int ms);
  bool wait_idle(int ms);
  void set_completed(uint64_t iterations);  // of a checkpoint
  std::optional<Failure> failure() const;
  void stop();  // ends the thread, aborting what is under way
  // Whether this is a forked child's copy: it has no thread, and nothing of it may be waited for or destroyed.
  bool forked() const;

  Counters counters;

 private:
  struct Running;
  void loop();
  void run(Iteration& iteration);
  void step(Running& running, size_t piece);
  void post(Running& running, size_t piece);
  void act(Running& running, const Piece& piece, const Action& action);
  void run_kernel(Running& running, const Piece& piece, const Action& action);
  bool wait_ready(Iteration& iteration, int bucket);
  bool is_ready(Iteration& iteration, int bucket);
  bool is_census(int bucket) const;
  void finish_sends(Running& running);
  void take_census(Iteration& iteration);
  void give_back(Iteration& iteration, int parameter);
  void await(Running& running, Transfer& transfer, int bucket, int peer);
  void mark_done(int bucket, uint64_t iteration);
  void fail(const Running& running, const std::string& what);

  std::unique_ptr<Transport> transport_;
  const int rank_;
  const int workers_;
  const uint64_t seed_;
  const int pid_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;   // the thread waits here
  mutable std::condition_variable completed_;  // callers wait here
  std::deque<std::shared_ptr<Iteration>> waiting_;
  std::shared_ptr<Iteration> current_;
  bool left_ = false;                 // something of the current iteration has left
  int next_bucket_ = -1;              // the one that the thread waits for
  std::vector<uint64_t> completed_iterations_;  // per bucket: iterations completed
  std::optional<Failure> failure_;
  Transfer* under_way_ = nullptr;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace relaxc
