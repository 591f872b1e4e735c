#include "operations.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace relaxc {

Operations::Operations(std::shared_ptr<Queue> queue, bool survives) : queue_(std::move(queue)) {
  queue_->survives = survives;
  queue_->iteration_in_tags = true;
  queue_->bucket_word = "site";
  queue_->start();
}

std::shared_ptr<Job> Operations::job(std::vector<Piece> pieces) const {
  auto made = std::make_shared<Pieces>();
  for (const Piece& piece : pieces) {
    if (piece.bucket < 0 || static_cast<size_t>(piece.bucket) + 1 < made->buckets)
      throw std::invalid_argument("the pieces of a job are not in order of their buckets");
    made->buckets = piece.bucket + 1;
  }
  made->pieces = std::move(pieces);
  return std::make_shared<Job>(Job{std::move(made), nullptr});
}

void Operations::start(Job& job, uint64_t iteration, std::vector<double> weights, bool held,
                       std::optional<uint64_t> tag) {
  free(job);
  if (auto failure = queue_->failure()) watch.fail(*failure);
  auto launch = std::make_shared<Launch>(job.pieces, iteration);
  launch->weights = std::move(weights);
  launch->tag = tag.value_or(iteration);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    launch->begins = computed_;
  }
  // A bucket without pieces has nothing to be held back.
  std::fill(launch->ready.begin(), launch->ready.end(), 1);
  if (!held) std::fill(launch->ready_at.begin(), launch->ready_at.end(), mark(queue_->device()));
  if (held)
    for (const Piece& piece : job.pieces->pieces) launch->ready[piece.bucket] = 0;
  queue_->push(launch);
  job.newest = std::move(launch);
}

void Operations::ready(Job& job, int bucket) {
  if (!job.newest || bucket < 0) throw std::invalid_argument("a job that was not started, or no bucket");
  if (static_cast<size_t>(bucket) < job.pieces->buckets) queue_->ready(*job.newest, bucket);
}

template <typename Until>
void Operations::wait_until(Until until) {
  if (until(0)) return;
  exposed_seconds_ += watch.wait(*queue_, until);
}

void Operations::free(const Job& job) {
  auto launch = job.newest;
  if (!launch) return;
  wait_until([&](int ms) { return queue_->wait_finished(*launch, ms); });
  queue_->follow_finished(*launch);
}

void Operations::computed() {
  Mark place = mark(queue_->device());
  std::lock_guard<std::mutex> lock(mutex_);
  computed_ = std::move(place);
}

void Operations::wait(const Job& job, int bucket) {
  auto launch = job.newest;
  if (!launch) return;
  for (size_t b = 0; b < launch->pieces->buckets; ++b)
    if (!queue_->is_ready(*launch, static_cast<int>(b)))
      throw std::logic_error("a job is waited for while bucket " + std::to_string(b) + " is held");
  if (bucket >= 0) return wait_bucket(*launch, bucket);
  for (size_t b = 0; b < launch->pieces->buckets; ++b) wait_bucket(*launch, static_cast<int>(b));
}

void Operations::wait_bucket(const Launch& launch, int bucket) {
  if (static_cast<size_t>(bucket) >= launch.pieces->buckets) return;
  wait_until([&](int ms) { return queue_->wait(launch, bucket, ms); });
  queue_->follow(launch, bucket);
}

bool Operations::done(const Job& job, int bucket) const {
  if (!job.newest) return true;
  for (size_t b = 0; b < job.pieces->buckets; ++b) {
    if (bucket >= 0 && static_cast<size_t>(bucket) != b) continue;
    if (!queue_->landed(*job.newest, static_cast<int>(b))) return false;
    queue_->follow(*job.newest, static_cast<int>(b));
  }
  return true;
}

bool Operations::over(const Job& job) const {
  if (!job.newest) return true;
  if (!queue_->finished(*job.newest)) return false;
  queue_->follow_finished(*job.newest);
  return true;
}

std::optional<Failure> Operations::failure(const Job& job) const {
  return job.newest ? queue_->failure_of(*job.newest) : std::nullopt;
}

void Operations::give_up(const Job& job) {
  if (job.newest) queue_->give_up(job.newest);
}

void Operations::drain() {
  wait_until([&](int ms) { return queue_->wait_idle(ms); });
  queue_->follow_all();
}

}  // namespace relaxc
