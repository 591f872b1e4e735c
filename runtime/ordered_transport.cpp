// Messages that pair up by their order, in groups: NCCL's rules. They are kept by never sending or receiving outside a group,
// by groups in one order on all workers, which the queue sees to, and by lists that agree, which the schedule sees to.
#include "ordered_transport.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <stdexcept>
#include <utility>
#include <vector>

#include "overdue.h"

namespace relaxc {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

// All messages of a group end together. Waiting for it makes the current stream wait; the host goes on.
class Together final : public Transfer {
 public:
  explicit Together(std::shared_ptr<Work> work) : work_(std::move(work)) {}
  bool wait(int) override {
    if (!*work_) throw std::logic_error("a message is waited for before its group has left");
    if (!(*work_)->wait()) throw std::runtime_error("aborted");
    return true;
  }
  void abort() override {}  // by the transport: one message can't be aborted

 private:
  std::shared_ptr<Work> work_;
};

class OrderedTransport final : public Transport {
 public:
  OrderedTransport(c10::intrusive_ptr<c10d::ProcessGroup> group, c10::Device device, std::chrono::milliseconds timeout,
                   std::unique_ptr<Transport> inner)
      : group_(std::move(group)),
        backend_(group_->getBackend(device.type())),
        device_(device),
        inner_(std::move(inner)),
        overdue_(timeout, [this](const Overdue::Entry& entry, const std::string& what) {
          const bool first = !aborted_.exchange(true);
          if (lost) lost(entry.iteration, entry.bucket, what);
          if (first) backend_->abort();
        }) {}

  bool ordered() const override { return true; }

  void open(uint64_t iteration, int bucket) override {
    iteration_ = iteration;
    bucket_ = bucket;
    together_.clear();
    work_ = std::make_shared<Work>();
  }

  void close() override {
    if (together_.empty()) return;
    backend_->startCoalescing();
    for (auto& [bytes, peer, sends] : together_) {
      std::vector<at::Tensor> tensors{bytes};
      if (sends)
        backend_->send(tensors, peer, 0);
      else
        backend_->recv(tensors, peer, 0);
    }
    *work_ = backend_->endCoalescing();
    together_.clear();
    watch(*work_);
  }

  std::unique_ptr<Transfer> send(const at::Tensor& bytes, int peer, int tag) override {
    this->bytes += bytes.nbytes();
    return here(bytes) ? put(bytes, peer, true) : inner_->send(bytes, peer, tag);
  }

  std::unique_ptr<Transfer> receive(const at::Tensor& bytes, int peer, int tag) override {
    return here(bytes) ? put(bytes, peer, false) : inner_->receive(bytes, peer, tag);
  }

  std::unique_ptr<Transfer> all_reduce(const at::Tensor& values) override {
    bytes += values.nbytes();
    if (!here(values)) return inner_->all_reduce(values);
    std::vector<at::Tensor> tensors{values};
    Work work = backend_->allreduce(tensors);
    watch(work);
    return std::make_unique<Together>(std::make_shared<Work>(std::move(work)));
  }

  bool settled() const override { return overdue_.empty(); }

  void abort() override {
    inner_->abort();
    overdue_.stop();
    if (!aborted_.exchange(true)) backend_->abort();
  }

  void link(int, std::shared_ptr<Transport>, int) override {
    throw std::logic_error("a worker that comes back is linked over groups with tags");
  }

 private:
  struct Message {
    at::Tensor bytes;
    int peer;
    bool sends;
  };

  bool here(const at::Tensor& tensor) const { return tensor.device() == device_; }

  std::unique_ptr<Transfer> put(const at::Tensor& bytes, int peer, bool sends) {
    together_.push_back({bytes, peer, sends});
    return std::make_unique<Together>(work_);
  }

  void watch(const Work& work) {
    overdue_.add({iteration_, bucket_, [work] {
                    if (!work->isCompleted()) return false;
                    if (work->exception()) std::rethrow_exception(work->exception());
                    return true;
                  }});
  }

  const c10::intrusive_ptr<c10d::ProcessGroup> group_;
  const c10::intrusive_ptr<c10d::Backend> backend_;
  const c10::Device device_;
  const std::unique_ptr<Transport> inner_;
  uint64_t iteration_ = 0;
  int bucket_ = -1;
  std::vector<Message> together_;
  std::shared_ptr<Work> work_;
  std::atomic<bool> aborted_{false};
  Overdue overdue_;  // last: its thread ends before what it looks at
};

}  // namespace

std::unique_ptr<Transport> ordered_transport(c10::intrusive_ptr<c10d::ProcessGroup> group, c10::Device device,
                                             std::chrono::milliseconds timeout, std::unique_ptr<Transport> inner) {
  return std::make_unique<OrderedTransport>(std::move(group), device, timeout, std::move(inner));
}

}  // namespace relaxc
