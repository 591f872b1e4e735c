// A thread that carries out launches in the order in which they come, which is the same on all workers.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "launch.h"
#include "transport.h"

namespace relaxc {

struct Counters {
  std::atomic<uint64_t> busy_ns{0};      // exchange under way
  std::atomic<uint64_t> kernel_ns{0};    // kernels at work, fragments too
  std::atomic<uint64_t> launches{0};     // begun
  std::atomic<uint64_t> trips{0};        // blocks that were decoded near values sent in full
};

class Queue {
 public:
  explicit Queue(std::unique_ptr<Transport> transport, c10::Device device = c10::DeviceType::CPU);
  ~Queue();
  void start();

  void push(std::shared_ptr<Launch> launch);  // throws std::runtime_error where the queue has ended
  void ready(Launch& launch, int bucket);     // all that it is made of is there
  bool is_ready(const Launch& launch, int bucket) const;
  // Cancel the newest launch; false where one of its buckets has left already. Waits for no other worker.
  bool cancel(const std::shared_ptr<Launch>& launch);
  // Of a queue that survives: the launch fails, whatever it waits for.
  void give_up(const std::shared_ptr<Launch>& launch);
  std::optional<Failure> failure_of(const Launch& launch) const;
  bool finished(const Launch& launch) const;
  bool landed(const Launch& launch, int bucket) const;
  // Wait at most `ms`; true when done. Rethrows nothing: see failure().
  bool wait(const Launch& launch, int bucket, int ms) const;
  bool wait_finished(const Launch& launch, int ms) const;
  bool wait_idle(int ms) const;  // of a device: all that it was given has ended there
  // What was waited for is true on the host. On a device it is true for what the current stream is given from here on.
  void follow(const Launch& launch, int bucket) const;
  void follow_finished(const Launch& launch) const;
  void follow_all() const;
  std::optional<Failure> failure() const;
  void stop();  // ends the thread, aborting what is under way
  // Whether this is a forked child's copy: it has no thread, and nothing of it may be waited for or destroyed.
  bool forked() const;

  void link(int peer, std::shared_ptr<Transport> way, int index) { transport_->link(peer, std::move(way), index); }
  uint64_t bytes() const { return transport_->bytes; }  // handed to c10d by this worker

  Counters counters;
  // So that loops which have come apart are noticed. Gradients, in which all workers take part in each backward, go
  // without: 16 MB at 100 Mbit/s took 1/3.49 and 1/3.52 of an all-reduce's time with it, 1/3.57 and 1/3.66 without.
  bool iteration_in_tags = false;
  // A launch that fails ends by itself, and the next one begins: for exchanges that may be dropped.
  bool survives = false;
  // What a profiler calls its buckets: those of programs have numbers of their own.
  const char* bucket_word = "bucket";
  void timed(const std::function<void()>& kernels);  // runs kernels, of this thread or of a caller's
  c10::Device device() const { return device_; }

 private:
  struct Running;
  void loop();
  void serve();
  void run(Launch& launch);
  void step(Running& running, size_t piece);
  void reduce(Running& running, size_t piece, bool begin);
  void make_room(Running& running, size_t piece);
  void post(Running& running, size_t piece, const Phase& phase);
  void post_ahead(Running& running, size_t piece);
  void act(Running& running, size_t piece, const Action& action);
  void run_kernel(Running& running, const Call& call, std::vector<double> weights, std::vector<const void*> near = {});
  void check(Running& running, size_t piece, const Action& action);
  void resend(Running& running, size_t piece, const Action& action);
  void run(Running& running, size_t piece, const Action& action);
  std::vector<at::Tensor> near_of(Running& running, size_t piece, const Action& action);
  int tag_of(const Running& running, const Action& action) const;
  std::string range(const char* what, int bucket) const;
  bool wait_ready(Launch& launch, int bucket);
  void finish_sends(Running& running, int bucket = -1);  // -1: of all
  void await(Running& running, Transfer& transfer, int bucket, int peer);
  template <typename Until>
  bool wait_until(int ms, Until until) const;
  void mark_landed(Launch& launch, int bucket);
  void end(const std::shared_ptr<Launch>& launch);
  void fail(Running& running, const std::string& what);
  void record(Launch& launch, Failure failure);
  void lose(uint64_t iteration, int bucket, const std::string& what);

  std::unique_ptr<Transport> transport_;
  const int pid_;
  const c10::Device device_;

  mutable std::mutex mutex_;
  std::condition_variable arrived_;   // the thread waits here
  mutable std::condition_variable completed_;  // callers wait here
  std::deque<std::shared_ptr<Launch>> waiting_;
  std::shared_ptr<Launch> current_;
  bool left_ = false;                 // something of the current launch has left
  int next_bucket_ = -1;              // the one that the thread waits for
  std::optional<Failure> failure_;
  Mark newest_;                       // behind the newest launch that has ended
  Transfer* under_way_ = nullptr;
  // What failed launches have posted: a message that comes after all finds memory that nobody else uses.
  std::vector<std::unique_ptr<Transfer>> left_behind_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace relaxc
