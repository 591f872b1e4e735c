#include "staged.h"

#include <ATen/ATen.h>

#include <utility>

#include "streams.h"

namespace relaxc {
namespace {

// A message or sum whose bytes are in `host` while it is under way. What arrived goes to `device` on the stream of whoever
// waits for it.
class Staged final : public Transfer {
 public:
  Staged(std::unique_ptr<Transfer> inner, at::Tensor host, at::Tensor device)
      : inner_(std::move(inner)), host_(std::move(host)), device_(std::move(device)) {}
  bool wait(int ms) override {
    if (!inner_->wait(ms)) return false;
    if (device_.defined()) device_.copy_(host_, /*non_blocking=*/true);
    return true;
  }
  void abort() override { inner_->abort(); }

 private:
  std::unique_ptr<Transfer> inner_;
  at::Tensor host_, device_;
};

class StagedTransport final : public Transport {
 public:
  StagedTransport(std::unique_ptr<Transport> inner, c10::Device device) : inner_(std::move(inner)), device_(device) {}

  std::unique_ptr<Transfer> send(const at::Tensor& bytes, int peer, int tag) override {
    this->bytes += bytes.nbytes();
    if (bytes.device() != device_) return inner_->send(bytes, peer, tag);
    at::Tensor host = to_host(bytes);
    return std::make_unique<Staged>(inner_->send(host, peer, tag), host, at::Tensor());
  }

  std::unique_ptr<Transfer> receive(const at::Tensor& bytes, int peer, int tag) override {
    if (bytes.device() != device_) return inner_->receive(bytes, peer, tag);
    at::Tensor host = room(bytes);
    return std::make_unique<Staged>(inner_->receive(host, peer, tag), host, bytes);
  }

  std::unique_ptr<Transfer> all_reduce(const at::Tensor& values) override {
    bytes += values.nbytes();
    if (values.device() != device_) return inner_->all_reduce(values);
    at::Tensor host = to_host(values);
    return std::make_unique<Staged>(inner_->all_reduce(host), host, values);
  }

  void link(int peer, std::shared_ptr<Transport> way, int index) override { inner_->link(peer, std::move(way), index); }

 private:
  at::Tensor room(const at::Tensor& like) const {
    return at::empty(like.sizes(), at::TensorOptions().dtype(like.dtype()).pinned_memory(is_asynchronous(device_)));
  }

  // Waits until the bytes are there: the other side can't wait in this side's stream.
  at::Tensor to_host(const at::Tensor& tensor) const {
    at::Tensor host = room(tensor);
    host.copy_(tensor, /*non_blocking=*/true);
    await(mark(device_));
    return host;
  }

  const std::unique_ptr<Transport> inner_;
  const c10::Device device_;
};

}  // namespace

std::unique_ptr<Transport> staged(std::unique_ptr<Transport> inner, c10::Device device) {
  return std::make_unique<StagedTransport>(std::move(inner), device);
}

}  // namespace relaxc
