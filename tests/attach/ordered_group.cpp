// A group with NCCL's rules for tensors of the host, over Gloo: messages only in groups, which one thread carries out one
// after another; no tags, so messages between two pair up by their order; first used by all. Breaking a rule is an error.
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/utils/pybind.h>

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

namespace {

using c10d::Backend;
using c10d::Work;
using Works = std::vector<c10::intrusive_ptr<Work>>;

class Later final : public Work {
 public:
  explicit Later(bool blocks) : blocks_(blocks) {}
  // As on a device, the host need not wait.
  bool wait(std::chrono::milliseconds timeout) override { return !blocks_ || Work::wait(timeout); }
  void end(std::exception_ptr error = nullptr) { finish(error); }

 private:
  const bool blocks_;
};

class OrderedBackend final : public Backend {
 public:
  OrderedBackend(c10::intrusive_ptr<Backend> inner, bool blocks)
      : Backend(inner->getRank(), inner->getSize()), inner_(std::move(inner)), blocks_(blocks), thread_([this] { serve(); }) {}

  ~OrderedBackend() override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  const std::string getBackendName() const override { return "ordered"; }

  void startCoalescing() override {
    TORCH_CHECK(used_, "messages before the first use by all");
    TORCH_CHECK(!together_, "a group within a group");
    together_.emplace();
  }

  c10::intrusive_ptr<Work> endCoalescing() override {
    TORCH_CHECK(together_ && !together_->empty(), "a group of nothing");
    auto messages = std::move(*together_);
    together_.reset();
    return put([messages = std::move(messages)] {
      Works works;
      for (const auto& begin : messages) works.push_back(begin());
      return works;
    }, blocks_);
  }

  c10::intrusive_ptr<Work> send(std::vector<at::Tensor>& tensors, int peer, int) override {
    return message([this, tensors, peer]() mutable { return inner_->send(tensors, peer, sent_[peer]++); });
  }

  c10::intrusive_ptr<Work> recv(std::vector<at::Tensor>& tensors, int peer, int) override {
    return message([this, tensors, peer]() mutable { return inner_->recv(tensors, peer, received_[peer]++); });
  }

  c10::intrusive_ptr<Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions&) override {
    TORCH_CHECK(!together_, "a sum within a group of messages");
    used_ = true;
    return put([this, tensors]() mutable { return Works{inner_->allreduce(tensors)}; }, true);
  }

  void abort() override {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    for (auto& work : under_way_) work->abort();
    changed_.notify_all();
  }

 private:
  using Begin = std::function<c10::intrusive_ptr<Work>()>;
  using All = std::function<Works()>;

  c10::intrusive_ptr<Work> message(Begin begin) {
    TORCH_CHECK(together_, "a message outside a group");
    together_->push_back(std::move(begin));
    return c10::make_intrusive<Later>(blocks_);
  }

  c10::intrusive_ptr<Work> put(All all, bool blocks) {
    auto later = c10::make_intrusive<Later>(blocks);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      waiting_.emplace_back(std::move(all), later);
    }
    changed_.notify_all();
    return later;
  }

  void serve() {
    for (;;) {
      std::pair<All, c10::intrusive_ptr<Later>> next;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
        if (stopping_) {
          for (auto& [all, later] : waiting_) later->end(std::make_exception_ptr(std::runtime_error("aborted")));
          return;
        }
        next = std::move(waiting_.front());
        waiting_.pop_front();
        under_way_ = next.first();
      }
      try {
        for (auto& work : under_way_) work->wait();
        next.second->end();
      } catch (...) {
        next.second->end(std::current_exception());
      }
      std::lock_guard<std::mutex> lock(mutex_);
      under_way_.clear();
    }
  }

  const c10::intrusive_ptr<Backend> inner_;
  const bool blocks_;
  bool used_ = false;
  std::optional<std::vector<Begin>> together_;
  std::map<int, int> sent_, received_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<All, c10::intrusive_ptr<Later>>> waiting_;
  Works under_way_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

PYBIND11_MODULE(ordered_group, module) {
  module.def("ordered", [](c10::intrusive_ptr<Backend> inner, bool blocks) -> c10::intrusive_ptr<Backend> {
    return c10::make_intrusive<OrderedBackend>(std::move(inner), blocks);
  });
}
