#include "queue.h"

#include <ATen/record_function.h>
#include <c10/util/thread_name.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "keys.h"

namespace relaxc {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int collective_slice_ms = 500;

uint64_t since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

char* bytes_at(const at::Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.mutable_data_ptr()) + element * tensor.element_size();
}

}  // namespace

// One iteration as it is carried out.
struct Queue::Running {
  Iteration& iteration;
  std::vector<size_t> next;                                    // per piece: the phase to come
  std::vector<char> posted;                                    // per piece: its receives are posted
  std::vector<std::vector<std::unique_ptr<Transfer>>> arriving;  // per piece and buffer
  std::vector<std::unique_ptr<Transfer>> sums;                 // per piece: its all-reduce
  struct Sent {
    std::unique_ptr<Transfer> transfer;
    int bucket;
    int peer;
  };
  std::vector<Sent> sends;
  int bucket = -1;  // for the message of a failure
  int peer = -1;
};

Queue::Queue(std::unique_ptr<Transport> transport, int rank, int workers, uint64_t seed)
    : transport_(std::move(transport)), rank_(rank), workers_(workers), seed_(seed), pid_(getpid()) {}

Queue::~Queue() { stop(); }

void Queue::start() {
  completed_iterations_.assign(buckets.size(), 0);
  thread_ = std::thread([this] { loop(); });
}

void Queue::stop() {
  if (!thread_.joinable()) return;
  if (forked()) {
    // A forked child has the object but not the thread: joining would wait for ever.
    thread_.detach();
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    if (!waiting_.empty() && !failure_) failure_ = Failure{waiting_.front()->number, -1, -1, "stopped"};
    if (under_way_ != nullptr) under_way_->abort();
  }
  arrived_.notify_all();
  completed_.notify_all();
  thread_.join();
}

bool Queue::forked() const { return getpid() != pid_; }

void Queue::push(std::shared_ptr<Iteration> iteration) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(iteration));
  }
  arrived_.notify_one();
}

void Queue::ready(Iteration& iteration, int bucket) {
  bool wake;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    iteration.ready[bucket] = 1;
    wake = next_bucket_ == bucket;
  }
  if (wake) arrived_.notify_one();
}

bool Queue::cancel(const std::shared_ptr<Iteration>& iteration) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto place = std::find(waiting_.begin(), waiting_.end(), iteration);
  if (place != waiting_.end()) {
    waiting_.erase(place);
    return true;
  }
  if (current_ != iteration || left_) return false;
  iteration->cancelled = true;
  arrived_.notify_all();
  completed_.wait(lock, [&] { return current_ != iteration; });  // it waits for a bucket, so it ends at once
  return true;
}

bool Queue::done(int bucket, uint64_t iteration) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return completed_iterations_[bucket] > iteration;
}

bool Queue::wait(int bucket, uint64_t iteration, int ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  completed_.wait_for(lock, std::chrono::milliseconds(ms),
                      [&] { return failure_ || stopping_ || completed_iterations_[bucket] > iteration; });
  return completed_iterations_[bucket] > iteration;
}

bool Queue::wait_idle(int ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto idle = [&] { return waiting_.empty() && !current_; };
  completed_.wait_for(lock, std::chrono::milliseconds(ms), [&] { return failure_ || stopping_ || idle(); });
  return idle();
}

void Queue::set_completed(uint64_t iterations) {
  std::lock_guard<std::mutex> lock(mutex_);
  completed_iterations_.assign(buckets.size(), iterations);
}

std::optional<Failure> Queue::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void Queue::loop() {
  c10::setThreadName("relaxc");
  for (;;) {
    std::shared_ptr<Iteration> iteration;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      arrived_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      iteration = waiting_.front();
      waiting_.pop_front();
      current_ = iteration;
      left_ = false;
    }
    try {
      at::ThreadLocalStateGuard guard(iteration->state);
      run(*iteration);
    } catch (const std::exception& error) {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_) failure_ = Failure{iteration->number, -1, -1, error.what()};
    }
    {
      std::lock_guard<std::mutex> lock(mutex_);
      current_.reset();
      if (failure_) stopping_ = true;
    }
    completed_.notify_all();
  }
}

// Software pipeline in rounds: round r starts piece r, then does phase 1 of piece r - 1, phase 2 of r - 2 and so on, so that
// one piece is encoded while another is on the wire and a third is decoded.
//
// A phase waits for messages of the phase before it on other workers, so for the round before: workers that keep to the
// rounds can't wait for each other in a circle. While the next bucket isn't ready, what has started goes on, by two rounds at
// most. A third could wait for a worker that waits for the piece which is held back here: with pieces 0 and 1, phase 3 of 0
// needs phase 2 of 0 elsewhere, which comes behind phase 1 of 1, which needs phase 0 of 1.
void Queue::run(Iteration& iteration) {
  Running running{iteration};
  running.next.assign(pieces.size(), 0);
  running.posted.assign(pieces.size(), 0);
  running.arriving.resize(pieces.size());
  running.sums.resize(pieces.size());
  std::vector<int> unfinished(buckets.size(), 0);
  for (const Piece& piece : pieces) ++unfinished[piece.bucket];
  std::deque<size_t> coded, dense;  // started and not finished, oldest first
  std::optional<Clock::time_point> began;
  auto finish = [&](size_t piece) {
    int bucket = pieces[piece].bucket;
    if (--unfinished[bucket] == 0 && !is_census(bucket)) mark_done(bucket, iteration.number);
  };
  auto advance = [&](std::deque<size_t>& started, size_t position) {
    size_t piece = started[position];
    step(running, piece);
    if (running.next[piece] < pieces[piece].steps()) return;
    started.erase(started.begin() + position);
    finish(piece);
  };
  size_t head = 0, rounds = 0;  // pieces started, rounds done
  auto due = [&](size_t piece, size_t round) { return piece + running.next[piece] <= round; };
  auto start = [&](size_t piece) {
    auto& started = pieces[piece].dense() ? dense : coded;
    started.push_back(piece);
    advance(started, started.size() - 1);
    // The phases of rounds that were done ahead of it.
    while (!coded.empty() && coded.back() == piece && rounds > 0 && due(piece, rounds - 1)) advance(coded, coded.size() - 1);
  };
  auto do_round = [&] {
    for (size_t older = coded.size(); older-- > 0;)
      if (due(coded[older], rounds)) advance(coded, older);
    ++rounds;
  };
  try {
    while (head < pieces.size() || !coded.empty() || !dense.empty()) {
      bool ahead = !coded.empty() && rounds < head + 2;
      if (head < pieces.size() && (!ahead || is_ready(iteration, pieces[head].bucket))) {
        if (!wait_ready(iteration, pieces[head].bucket)) return;  // cancelled
        if (!began) began = Clock::now();
        start(head++);
        if (rounds < head) do_round();
      } else if (!coded.empty()) {
        do_round();
      } else {
        advance(dense, 0);
      }
    }
    take_census(iteration);
    for (size_t bucket = 0; bucket < buckets.size(); ++bucket) mark_done(static_cast<int>(bucket), iteration.number);
    finish_sends(running);
  } catch (const std::exception& error) {
    fail(running, error.what());
  }
  if (began) counters.busy_ns += since(*began);
  ++counters.iterations;
}

bool Queue::is_census(int bucket) const { return buckets[bucket].parameters.empty(); }

bool Queue::is_ready(Iteration& iteration, int bucket) {
  std::lock_guard<std::mutex> lock(mutex_);
  return iteration.ready[bucket] != 0;
}

bool Queue::wait_ready(Iteration& iteration, int bucket) {
  std::unique_lock<std::mutex> lock(mutex_);
  next_bucket_ = bucket;
  arrived_.wait(lock, [&] { return stopping_ || iteration.cancelled || iteration.ready[bucket]; });
  next_bucket_ = -1;
  if (stopping_) throw std::runtime_error("stopped");
  if (iteration.cancelled) return false;
  left_ = true;
  return true;
}

void Queue::step(Running& running, size_t index) {
  const Piece& piece = pieces[index];
  size_t phase = running.next[index]++;
  running.bucket = piece.bucket;
  if (piece.dense()) {
    const auto& slots = flat[piece.bucket];
    const at::Tensor& values = slots[running.iteration.number % slots.size()];
    if (phase == 0) {
      counters.bytes += values.nbytes();
      running.sums[index] = transport_->all_reduce(values);
    } else {
      await(running, *running.sums[index], piece.bucket, -1);
    }
    return;
  }
  if (phase == 0) {
    // All receives first, one piece ahead: a message that finds its receive posted needs no round trip.
    post(running, index);
    if (index + 1 < pieces.size()) post(running, index + 1);
  }
  if (phase == 0 && is_census(piece.bucket)) piece.buffers[rank_].copy_(running.iteration.census);
  for (const Action& action : piece.phases[phase]) act(running, piece, action);
}

void Queue::post(Running& running, size_t index) {
  if (running.posted[index]) return;
  running.posted[index] = 1;
  const Piece& piece = pieces[index];
  running.arriving[index].resize(piece.buffers.size());
  for (const Phase& phase : piece.phases)
    for (const Action& action : phase)
      if (action.kind == Kind::receive)
        running.arriving[index][action.buffer] =
            transport_->receive(piece.buffers[action.buffer], action.peer, action.tag);
}

void Queue::act(Running& running, const Piece& piece, const Action& action) {
  size_t index = &piece - pieces.data();
  running.peer = action.kind == Kind::run ? -1 : action.peer;
  switch (action.kind) {
    case Kind::run:
      run_kernel(running, piece, action);
      break;
    case Kind::send:
      counters.bytes += piece.buffers[action.buffer].nbytes();
      running.sends.push_back(
          {transport_->send(piece.buffers[action.buffer], action.peer, action.tag), piece.bucket, action.peer});
      break;
    case Kind::receive:
      await(running, *running.arriving[index][action.buffer], piece.bucket, action.peer);
      break;
  }
}

void Queue::run_kernel(Running& running, const Piece& piece, const Action& action) {
  RECORD_FUNCTION(action.name + "/bucket" + std::to_string(piece.bucket), c10::ArrayRef<const c10::IValue>{});
  auto start = Clock::now();
  Iteration& iteration = running.iteration;
  std::vector<relaxrt_segment> segments;
  segments.reserve(action.ranges.size());
  for (const Range& range : action.ranges) {
    int p = range.parameter;
    relaxrt_segment segment{nullptr, nullptr, range.elements, static_cast<uint64_t>(range.first),
                            static_cast<uint32_t>(p)};
    if (action.tensor) segment.tensor = bytes_at(iteration.tensors[p], range.first);
    if (action.residual) {
      const Residual& residual = residuals[p];
      if (action.owner)
        segment.residual = bytes_at(residual.owner, range.first - residual.owner_first);
      else if (iteration.absent[p])
        segment.residual = bytes_at(zeros[p], range.first);
      else
        segment.residual = bytes_at(residual.worker, range.first);
    }
    segments.push_back(segment);
  }
  std::vector<const uint8_t*> inputs;
  for (int buffer : action.inputs) inputs.push_back(piece.buffers[buffer].const_data_ptr<uint8_t>());
  relaxrt_call call{};
  call.inputs = inputs.data();
  call.number_of_inputs = static_cast<int64_t>(inputs.size());
  call.output = action.buffer < 0 ? nullptr : piece.buffers[action.buffer].mutable_data_ptr<uint8_t>();
  call.workers = workers_;
  call.key = message_key(seed_, iteration.number, piece.place + (action.owner ? 1 : 0),
                         action.owner ? everyone : static_cast<uint32_t>(rank_));
  action.kernel(segments.data(), static_cast<int64_t>(segments.size()), &call);
  if (action.residual && !action.owner)
    for (const Range& range : action.ranges)
      if (iteration.absent[range.parameter]) zeros[range.parameter].zero_();
  counters.kernel_ns += since(start);
}

void Queue::finish_sends(Running& running) {
  for (auto& sent : running.sends) await(running, *sent.transfer, sent.bucket, sent.peer);
}

// All pieces are done, so it is known for which parameters no worker has a gradient.
void Queue::take_census(Iteration& iteration) {
  for (const at::Tensor& theirs : pieces.back().buffers) iteration.census.bitwise_or_(theirs);
  const auto* census = iteration.census.const_data_ptr<uint8_t>();
  for (size_t p = 0; p < residuals.size(); ++p)
    if (!census[p]) give_back(iteration, static_cast<int>(p));
}

void Queue::give_back(Iteration& iteration, int parameter) {
  const Residual& residual = residuals[parameter];
  if (!residual.owner.defined() || residual.owner.numel() == 0) return;
  const at::Tensor& sent = iteration.tensors[parameter];
  residual.owner.add_(sent.as_strided({residual.owner.numel()}, {1}, sent.storage_offset() + residual.owner_first));
}

void Queue::await(Running& running, Transfer& transfer, int bucket, int peer) {
  running.bucket = bucket;
  running.peer = peer;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) throw std::runtime_error("stopped");
    under_way_ = &transfer;
  }
  struct Clear {
    Queue& queue;
    ~Clear() {
      std::lock_guard<std::mutex> lock(queue.mutex_);
      queue.under_way_ = nullptr;
    }
  } clear{*this};
  while (!transfer.wait(collective_slice_ms)) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) throw std::runtime_error("stopped");
  }
}

void Queue::mark_done(int bucket, uint64_t iteration) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    completed_iterations_[bucket] = iteration + 1;
  }
  completed_.notify_all();
}

void Queue::fail(const Running& running, const std::string& what) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_ = Failure{running.iteration.number, running.bucket, running.peer, what};
  }
  completed_.notify_all();
}

}  // namespace relaxc
