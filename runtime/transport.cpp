// Tagged messages over c10d. Methods of Backend are called, those of ProcessGroup being partly deprecated.
#include "c10d_transport.h"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace relaxc {
namespace {

class Message final : public Transfer {
 public:
  explicit Message(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  bool wait(int) override {
    if (!work_->wait()) throw std::runtime_error("aborted");
    return true;
  }
  void abort() override { work_->abort(); }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
};

// A collective runs on a thread of the group's, which the group's destructor joins. One that is given up may wait there for
// a lost worker, so its group is never destroyed: the process could not end before the timeout.
class Collective final : public Transfer {
 public:
  Collective(c10::intrusive_ptr<c10d::Work> work, c10::intrusive_ptr<c10d::ProcessGroup> group)
      : work_(std::move(work)), group_(std::move(group)) {}
  ~Collective() override {
    if (!work_->isCompleted()) group_.release();
  }
  bool wait(int ms) override {
    try {
      work_->wait(std::chrono::milliseconds(ms));
    } catch (const std::exception&) {
      if (!work_->isCompleted()) return false;  // the slice ended, not the work
      work_->wait();                            // its own outcome, as it may have ended just after the slice
    }
    return true;
  }
  void abort() override {}

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

class C10dTransport final : public Transport {
 public:
  explicit C10dTransport(c10::intrusive_ptr<c10d::ProcessGroup> group)
      : group_(std::move(group)), backend_(group_->getBackend(c10::DeviceType::CPU)) {}

  std::unique_ptr<Transfer> send(const at::Tensor& bytes, int peer, int tag) override {
    this->bytes += bytes.nbytes();
    if (auto [way, index] = way_to(peer); way) return way->send(bytes, index, tag);
    std::vector<at::Tensor> tensors{bytes};
    return std::make_unique<Message>(backend_->send(tensors, peer, tag));
  }

  std::unique_ptr<Transfer> receive(const at::Tensor& bytes, int peer, int tag) override {
    if (auto [way, index] = way_to(peer); way) return way->receive(bytes, index, tag);
    std::vector<at::Tensor> tensors{bytes};
    return std::make_unique<Message>(backend_->recv(tensors, peer, tag));
  }

  std::unique_ptr<Transfer> all_reduce(const at::Tensor& values) override {
    std::vector<at::Tensor> tensors{values};
    bytes += values.nbytes();
    return std::make_unique<Collective>(backend_->allreduce(tensors), group_);
  }

  void link(int peer, std::shared_ptr<Transport> way, int index) override {
    std::lock_guard lock(mutex_);
    if (ways_.count(peer)) former_.push_back(ways_[peer].first);
    ways_[peer] = {std::move(way), index};
  }

 private:
  using Way = std::pair<std::shared_ptr<Transport>, int>;

  Way way_to(int peer) {
    std::lock_guard lock(mutex_);
    auto found = ways_.find(peer);
    return found == ways_.end() ? Way{nullptr, -1} : found->second;
  }

  std::mutex mutex_;
  std::map<int, Way> ways_;
  std::vector<std::shared_ptr<Transport>> former_;  // what failed on them may still be under way
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
  c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace

std::unique_ptr<Transport> c10d_transport(c10::intrusive_ptr<c10d::ProcessGroup> group) {
  return std::make_unique<C10dTransport>(std::move(group));
}

}  // namespace relaxc
