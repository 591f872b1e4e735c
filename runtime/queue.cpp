#include <ATen/record_function.h>
#include <c10/util/thread_name.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

#include "running.h"

namespace relaxc {
namespace {

using Clock = std::chrono::steady_clock;

uint64_t since(Clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
}

// What torch.set_num_threads says is each thread's own. at::set_num_threads would say it to all that begin later.
void take_threads([[maybe_unused]] int threads) {
#if defined(_OPENMP) && AT_PARALLEL_OPENMP
  if (at::get_num_threads() != threads) omp_set_num_threads(threads);
#endif
}

}  // namespace

Queue::Queue(std::unique_ptr<Transport> transport, c10::Device device)
    : transport_(std::move(transport)), pid_(getpid()), device_(device) {
  transport_->lost = [this](uint64_t iteration, int bucket, const std::string& what) { lose(iteration, bucket, what); };
}

Queue::~Queue() {
  stop();
  if (!forked()) transport_.reset();  // what it is still told of a device's work, it tells this queue
}

void Queue::start() {
  thread_ = std::thread([this] { loop(); });
}

void Queue::stop() {
  if (!thread_.joinable()) return;
  if (forked()) {
    // A forked child has the object but not the thread: joining would wait for ever.
    thread_.detach();
    return;
  }
  bool broken;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    broken = failure_ || current_ || !waiting_.empty();
    if (!waiting_.empty() && !failure_) failure_ = Failure{waiting_.front()->iteration, -1, -1, "stopped"};
    if (under_way_ != nullptr) under_way_->abort();
  }
  if (broken) transport_->abort();
  arrived_.notify_all();
  completed_.notify_all();
  thread_.join();
}

// Of what had been handed to a device, and did not end there.
void Queue::lose(uint64_t iteration, int bucket, const std::string& what) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_ = Failure{iteration, bucket, -1, what};
    stopping_ = true;
  }
  arrived_.notify_all();
  completed_.notify_all();
}

bool Queue::forked() const { return getpid() != pid_; }

void Queue::push(std::shared_ptr<Launch> launch) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) throw std::runtime_error("the exchange has ended");
    waiting_.push_back(std::move(launch));
  }
  arrived_.notify_one();
}

void Queue::ready(Launch& launch, int bucket) {
  bool wake;
  Mark place = mark(device_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    launch.ready_at[bucket] = std::move(place);
    launch.ready[bucket] = 1;
    wake = next_bucket_ == bucket;
  }
  if (wake) arrived_.notify_one();
}

bool Queue::cancel(const std::shared_ptr<Launch>& launch) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto place = std::find(waiting_.begin(), waiting_.end(), launch);
  if (place != waiting_.end()) {
    waiting_.erase(place);
    return true;
  }
  if (current_ != launch || left_) return false;
  launch->cancelled = true;
  arrived_.notify_all();
  completed_.wait(lock, [&] { return current_ != launch; });  // it waits for a bucket, so it ends at once
  return true;
}

void Queue::give_up(const std::shared_ptr<Launch>& launch) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (launch->finished || launch->failure) return;
    launch->given_up = true;
    auto place = std::find(waiting_.begin(), waiting_.end(), launch);
    if (place != waiting_.end()) {
      waiting_.erase(place);
      launch->failure = Failure{launch->iteration, -1, -1, "given up"};
    }
    if (current_ == launch && under_way_ != nullptr) under_way_->abort();
  }
  completed_.notify_all();
}

std::optional<Failure> Queue::failure_of(const Launch& launch) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return launch.failure;
}

bool Queue::finished(const Launch& launch) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return launch.finished;
}

bool Queue::landed(const Launch& launch, int bucket) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return launch.landed[bucket] != 0;
}

template <typename Until>
bool Queue::wait_until(int ms, Until until) const {
  std::unique_lock<std::mutex> lock(mutex_);
  completed_.wait_for(lock, std::chrono::milliseconds(ms), [&] { return failure_ || stopping_ || until(); });
  return until();
}

bool Queue::wait(const Launch& launch, int bucket, int ms) const {
  return wait_until(ms, [&] { return launch.landed[bucket] != 0; });
}

bool Queue::wait_finished(const Launch& launch, int ms) const {
  return wait_until(ms, [&] { return launch.finished || launch.failure; });
}

bool Queue::wait_idle(int ms) const {
  const auto end = Clock::now() + std::chrono::milliseconds(ms);
  if (!wait_until(ms, [&] { return waiting_.empty() && !current_; })) return false;
  while (!transport_->settled()) {  // on a device, which tells nobody when it is
    if (Clock::now() > end || failure()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return !(transport_->ordered() && failure());
}

void Queue::follow(const Launch& launch, int bucket) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const Mark place = launch.landed_at[bucket];
  lock.unlock();
  relaxc::follow(device_, place);
}

void Queue::follow_finished(const Launch& launch) const {
  std::unique_lock<std::mutex> lock(mutex_);
  const Mark place = launch.finished_at;
  lock.unlock();
  relaxc::follow(device_, place);
}

void Queue::follow_all() const {
  std::unique_lock<std::mutex> lock(mutex_);
  const Mark place = newest_;
  lock.unlock();
  relaxc::follow(device_, place);
}

std::optional<Failure> Queue::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

// Nothing may leave this thread as an exception, which would end the process: once a device has failed, all that it is
// asked fails.
void Queue::loop() {
  c10::setThreadName("relaxc");
  try {
    OwnStream stream(device_);
    serve();
  } catch (const std::exception& error) {
    lose(0, -1, error.what());
  }
}

void Queue::serve() {
  for (;;) {
    std::shared_ptr<Launch> launch;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      arrived_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
      if (stopping_) return;
      launch = waiting_.front();
      waiting_.pop_front();
      current_ = launch;
      left_ = false;
    }
    try {
      at::ThreadLocalStateGuard guard(launch->state);
      take_threads(launch->threads);
      relaxc::follow(device_, launch->begins);
      run(*launch);
    } catch (const std::exception& error) {
      record(*launch, {launch->iteration, -1, -1, error.what()});
    }
    end(launch);
  }
}

void Queue::end(const std::shared_ptr<Launch>& launch) {
  Mark place;
  try {
    place = mark(device_);
  } catch (const std::exception& error) {
    record(*launch, {launch->iteration, -1, -1, error.what()});
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    current_.reset();
    launch->finished_at = newest_ = std::move(place);
    if (failure_)
      stopping_ = true;
    else
      launch->finished = !launch->cancelled && !launch->failure;
  }
  completed_.notify_all();
}

// Software pipeline in rounds: round r starts piece r, then does phase 1 of piece r - 1, phase 2 of r - 2 and so on, so that
// one piece is encoded while another is on the wire and a third is decoded.
//
// A phase waits for messages of the phase before it on other workers, so for the round before: workers that keep to the
// rounds can't wait for each other in a circle. While the next bucket isn't ready, what has started goes on, by two rounds at
// most. A third could wait for a worker that waits for the piece which is held back here: with pieces 0 and 1, phase 3 of 0
// needs phase 2 of 0 elsewhere, which comes behind phase 1 of 1, which needs phase 0 of 1.
//
// Where messages pair up by their order, rounds are never done ahead: it would depend on when buckets get ready.
void Queue::run(Launch& launch) {
  const std::vector<Piece>& pieces = launch.pieces->pieces;
  Running running{launch};
  running.next.assign(pieces.size(), 0);
  running.arriving.resize(pieces.size());
  running.sums.resize(pieces.size());
  running.again.resize(pieces.size());
  std::vector<int> unfinished(launch.pieces->buckets, 0);
  std::vector<char> lent(launch.pieces->buckets, 0);
  for (const Piece& piece : pieces) {
    ++unfinished[piece.bucket];
    lent[piece.bucket] |= piece.lent;
  }
  std::deque<size_t> coded, dense;  // started and not finished, oldest first
  std::optional<Clock::time_point> began;
  auto finish = [&](size_t piece) {
    int bucket = pieces[piece].bucket;
    if (--unfinished[bucket] > 0) return;
    if (lent[bucket]) finish_sends(running, bucket);
    if (launch.lands_early(bucket)) mark_landed(launch, bucket);
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
      bool ahead = !transport_->ordered() && !coded.empty() && rounds < head + 2;
      if (head < pieces.size() && (!ahead || is_ready(launch, pieces[head].bucket))) {
        if (!wait_ready(launch, pieces[head].bucket)) return;  // cancelled
        if (!began) {
          began = Clock::now();
          ++counters.launches;  // before anybody can know that it has landed, and ask
        }
        start(head++);
        if (rounds < head) do_round();
      } else if (!coded.empty()) {
        do_round();
      } else {
        advance(dense, 0);
      }
    }
    launch.arrived();
    for (size_t bucket = 0; bucket < launch.landed.size(); ++bucket) mark_landed(launch, static_cast<int>(bucket));
    finish_sends(running);
  } catch (const std::exception& error) {
    fail(running, error.what());
  }
  if (began) counters.busy_ns += since(*began);
}

bool Queue::is_ready(const Launch& launch, int bucket) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return launch.ready[bucket] != 0;
}

bool Queue::wait_ready(Launch& launch, int bucket) {
  std::unique_lock<std::mutex> lock(mutex_);
  next_bucket_ = bucket;
  arrived_.wait(lock, [&] { return stopping_ || launch.cancelled || launch.ready[bucket]; });
  next_bucket_ = -1;
  if (stopping_) throw std::runtime_error("stopped");
  if (launch.cancelled) return false;
  left_ = true;
  const Mark place = launch.ready_at[bucket];
  lock.unlock();
  relaxc::follow(device_, place);
  return true;
}

void Queue::step(Running& running, size_t index) {
  const std::vector<Piece>& pieces = running.launch.pieces->pieces;
  const Piece& piece = pieces[index];
  size_t phase = running.next[index]++;
  running.bucket = piece.bucket;
  transport_->open(running.launch.iteration, piece.bucket);
  if (piece.dense()) {
    reduce(running, index, phase == 0);
  } else {
    if (phase == 0) {
      if (transport_->ordered())
        make_room(running, index);
      else
        post_ahead(running, index);
      running.launch.starts(piece);
    }
    for (const Action& action : piece.phases[phase]) act(running, index, action);
    if (transport_->ordered() && phase + 1 < piece.phases.size()) post(running, index, piece.phases[phase + 1]);
  }
  transport_->close();
}

void Queue::mark_landed(Launch& launch, int bucket) {
  Mark place = mark(device_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!launch.landed[bucket]) launch.landed_at[bucket] = std::move(place);
    launch.landed[bucket] = 1;
  }
  completed_.notify_all();
}

void Queue::fail(Running& running, const std::string& what) {
  record(running.launch, {running.launch.iteration, running.bucket, running.peer, what});
  completed_.notify_all();
  if (!survives) return;
  for (auto& piece : running.arriving)
    for (auto& transfer : piece)
      if (transfer) left_behind_.push_back(std::move(transfer));
  for (auto& sent : running.sends)
    if (sent.transfer) left_behind_.push_back(std::move(sent.transfer));
}

void Queue::record(Launch& launch, Failure failure) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (survives && !stopping_)
    launch.failure = std::move(failure);
  else if (!failure_)
    failure_ = std::move(failure);
}

}  // namespace relaxc
