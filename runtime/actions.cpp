// What the queue's thread does for one action of a piece: kernels, messages, and what is sent again.
#include <ATen/record_function.h>

#include <chrono>
#include <utility>

#include "running.h"

namespace relaxc {

void Queue::act(Running& running, size_t index, const Action& action) {
  const Piece& piece = running.launch.pieces->pieces[index];
  running.peer = action.kind == Kind::run ? -1 : action.peer;
  switch (action.kind) {
    case Kind::run:
      run(running, index, action);
      break;
    case Kind::send: {
      RECORD_FUNCTION(range("send", piece.bucket), c10::ArrayRef<const c10::IValue>{});
      running.sends.push_back(
          {transport_->send(piece.buffers[action.buffer], action.peer, tag_of(running, action)),
           piece.bucket, action.peer});
      break;
    }
    case Kind::receive: {
      RECORD_FUNCTION(range("receive", piece.bucket), c10::ArrayRef<const c10::IValue>{});
      await(running, *running.arriving[index][action.buffer], piece.bucket, action.peer);
      break;
    }
    case Kind::check:
      check(running, index, action);
      break;
    case Kind::resend:
      resend(running, index, action);
      break;
    case Kind::values:
      if (auto& transfer = running.again[index][action.buffer].transfer) await(running, *transfer, piece.bucket, action.peer);
      break;
    case Kind::settle:
      action.settled->values = near_of(running, index, action);
      break;
  }
}

// For each input what it is decoded near to where some of it was sent again.
std::vector<at::Tensor> Queue::near_of(Running& running, size_t index, const Action& action) {
  const Piece& piece = running.launch.pieces->pieces[index];
  std::vector<at::Tensor> near;
  for (int buffer : action.near) {
    const bool again = buffer >= 0 && running.again[index][buffer].values.defined();
    near.push_back(again ? replaced(*action.call, piece.buffers[buffer], action.block, running.again[index][buffer].values)
                         : at::Tensor());
  }
  return near;
}

void Queue::run(Running& running, size_t index, const Action& action) {
  const std::vector<at::Tensor> kept = near_of(running, index, action);
  std::vector<const void*> near;
  for (const at::Tensor& values : kept) near.push_back(values.defined() ? values.const_data_ptr() : nullptr);
  run_kernel(running, *action.call, running.launch.weights, std::move(near));
}

// Both ends know from the bytes how much is sent again; where nothing is, there is no message.
void Queue::check(Running& running, size_t index, const Action& action) {
  run_kernel(running, *action.call, {});
  const at::Tensor& trips = running.launch.pieces->pieces[index].buffers[action.buffer];
  const int64_t found = tripped_blocks(trips);
  if (found == 0) return;
  counters.trips += found;
  Again& again = running.again[index][action.buffer];
  again.values = room_for(*action.call, trips, action.block);
  again.transfer = transport_->receive(again.values, action.peer, tag_of(running, action));
}

void Queue::resend(Running& running, size_t index, const Action& action) {
  const Piece& piece = running.launch.pieces->pieces[index];
  const at::Tensor& trips = piece.buffers[action.buffer];
  if (tripped_blocks(trips) == 0) return;
  at::Tensor values;
  timed([&] { values = packed(*action.call, trips, action.block); });
  running.resent.push_back(values);
  running.sends.push_back({transport_->send(values, action.peer, tag_of(running, action)), piece.bucket, action.peer});
}

void Queue::run_kernel(Running& running, const Call& call, std::vector<double> weights, std::vector<const void*> near) {
  timed([&] {
    call.run({running.launch.iteration, {}, std::move(weights), &running.launch, std::move(near)});
    running.launch.ran(call);
  });
}

// A worker that is an iteration ahead waits, and says so, instead of taking another iteration's message for this one's.
int Queue::tag_of(const Running& running, const Action& action) const {
  if (!iteration_in_tags) return action.tag;
  return static_cast<int>((running.launch.tag & 1023) << 20) | action.tag;
}

std::string Queue::range(const char* what, int bucket) const {
  return std::string("relaxc::") + what + "/" + bucket_word + std::to_string(bucket);
}

void Queue::timed(const std::function<void()>& kernels) {
  auto start = std::chrono::steady_clock::now();
  kernels();
  counters.kernel_ns += std::chrono::nanoseconds(std::chrono::steady_clock::now() - start).count();
}

}  // namespace relaxc
