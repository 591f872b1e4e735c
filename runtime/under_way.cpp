// Messages and sums that are under way: posted ahead, and waited for.
#include <ATen/record_function.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "running.h"

namespace relaxc {
namespace {

constexpr int collective_slice_ms = 500;

}  // namespace

void Queue::reduce(Running& running, size_t index, bool begin) {
  const Piece& piece = running.launch.pieces->pieces[index];
  RECORD_FUNCTION(range(begin ? "send" : "receive", piece.bucket), c10::ArrayRef<const c10::IValue>{});
  if (begin)
    running.sums[index] = transport_->all_reduce(piece.sums[running.launch.iteration % piece.sums.size()]);
  else
    await(running, *running.sums[index], piece.bucket, -1);
}

// All receives first, of this bucket and of the next one: a message that finds its receive posted needs no round trip.
void Queue::post_ahead(Running& running, size_t index) {
  const std::vector<Piece>& pieces = running.launch.pieces->pieces;
  size_t next = std::max(index, running.posted);
  while (next < pieces.size() && pieces[next].bucket == pieces[index].bucket) ++next;
  const size_t ahead = next;
  while (next < pieces.size() && pieces[next].bucket == pieces[ahead].bucket) ++next;
  for (; running.posted < next; ++running.posted) {
    make_room(running, running.posted);
    for (const Phase& phase : pieces[running.posted].phases) post(running, running.posted, phase);
  }
}

void Queue::make_room(Running& running, size_t index) {
  const Piece& piece = running.launch.pieces->pieces[index];
  running.arriving[index].resize(piece.buffers.size());
  running.again[index].resize(piece.buffers.size());
}

void Queue::post(Running& running, size_t index, const Phase& phase) {
  const Piece& piece = running.launch.pieces->pieces[index];
  for (const Action& action : phase)
    if (action.kind == Kind::receive)
      running.arriving[index][action.buffer] =
          transport_->receive(piece.buffers[action.buffer], action.peer, tag_of(running, action));
}

void Queue::finish_sends(Running& running, int bucket) {
  for (auto& sent : running.sends) {
    if (!sent.transfer || (bucket >= 0 && sent.bucket != bucket)) continue;
    await(running, *sent.transfer, sent.bucket, sent.peer);
    sent.transfer.reset();
  }
}

void Queue::await(Running& running, Transfer& transfer, int bucket, int peer) {
  running.bucket = bucket;
  running.peer = peer;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) throw std::runtime_error("stopped");
    if (running.launch.given_up) throw std::runtime_error("given up");
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
    if (running.launch.given_up) throw std::runtime_error("given up");
  }
}

}  // namespace relaxc
