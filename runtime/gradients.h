// Autograd's side: collects gradients as backward makes them, and lands the results before backward() returns.
#pragma once
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "iteration.h"
#include "queue.h"
#include "watch.h"

namespace relaxc {

// Parameters whose gradients are ready together. `delay` counts iterations. The last bucket, without parameters, is the
// census.
struct Bucket {
  std::vector<int> parameters;
  bool coded = false;
  int delay = 0;
  std::vector<at::Tensor> flat;  // one buffer for each iteration that can be under way; none: the exchange is in .grad itself
};

class Gradients : public std::enable_shared_from_this<Gradients> {
 public:
  Gradients(std::shared_ptr<Queue> queue, Worker worker);

  // Before attach(). `bucket` is -1 where the gradient is not exchanged: only the end of backward is told then.
  void add(at::Tensor parameter, std::string name, int bucket, int64_t offset, Residual residual);
  void add(Bucket bucket);
  void add(Piece piece);
  void attach();  // installs the hooks, and starts the queue where something is exchanged
  void detach();

  // False while gradients only accumulate (no_sync).
  bool enabled = true;
  // The loss scale of the gradients to come; called at the first gradient of a backward. Empty: no GradScaler.
  std::function<double()> loss_scale;
  // Called at the end of each backward outside no_sync, when the results have landed. May be empty.
  std::function<void()> on_backward;
  Watch watch;
  // refuse(code, message, help) throws what Python raises for the user's mistake.
  std::function<void(const std::string&, const std::string&, const std::string&)> refuse;
  // Called where this worker can't go on with an iteration that the others have begun.
  std::function<void(uint64_t)> on_broken;

  uint64_t iterations() const { return number_; }
  void set_iterations(uint64_t number);  // of a checkpoint; nothing may be under way
  // Names the first parameter whose hook was lost since attach (its dtype or storage type changed), or "".
  std::string lost() const;
  // Parameters for which nothing landed in the newest iteration: the optimiser must not see them.
  std::vector<int> hidden() const { return hidden_; }
  // Per parameter: whether it had a gradient here in the newest iteration.
  std::vector<bool> fired() const { return fired_; }
  double scale() const { return scale_; }  // residuals are in units of this loss scale
  void drain();  // waits until nothing is under way
  double exposed_seconds() const { return exposed_seconds_; }
  // For state_dict: the results that have not landed yet, oldest first; per iteration (number, scale, census, flat copies).
  struct Pending {
    uint64_t number;
    double scale;
    at::Tensor census;
    std::vector<at::Tensor> flat;  // per bucket; undefined for buckets without delay
  };
  std::vector<Pending> pending();
  void set_pending(const std::vector<Pending>& pending);

 private:
  struct Parameter {
    at::Tensor tensor;
    std::string name;
    int bucket;
    int64_t offset;
    std::vector<at::Tensor> views;  // into each flat buffer of its bucket
    decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) accumulator;
    uintptr_t hook = 0;
  };
  struct Backward;  // from the first gradient to the callback; its end without a callback is an abort
  struct Past {
    std::shared_ptr<Iteration> iteration;
    double scale;
  };

  void follow_scale();
  void on_gradient(int index);
  void begin();
  void queue_callback(std::shared_ptr<Backward> backward);
  void on_callback(const std::shared_ptr<Backward>& backward);
  bool exchanges() const { return !buckets_.empty(); }
  void complete(Iteration& iteration);
  void finish();
  void release(Iteration& iteration);
  void land_due();
  void clear(const Bucket& bucket);
  void aborted();
  void refuse_broken() const;
  void refuse_compiled() const;
  void collect(int index);
  void collect_absent(int index);
  void check_gradient(const Parameter& parameter, const at::Tensor& grad) const;
  void land(const Past& past, int bucket);
  void land_now(Iteration& iteration, int index);
  void land_late(const Past& past, int index);
  void await(const Launch& launch, int bucket);
  void raise();
  const at::Tensor& view(int index, uint64_t iteration) const;

  std::shared_ptr<Queue> queue_;
  const Worker worker_;
  std::vector<Bucket> buckets_;
  std::shared_ptr<Pieces> pieces_ = std::make_shared<Pieces>();
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
  std::vector<Parameter> parameters_;
  uint64_t number_ = 0;
  double scale_ = 1;
  std::shared_ptr<Iteration> iteration_;  // of the backward that is running
  std::weak_ptr<Backward> backward_;
  std::deque<Past> past_;                 // as many as the largest delay, newest last
  size_t longest_delay_ = 0;
  int census_bucket_ = -1;
  std::vector<int> hidden_;
  std::vector<bool> fired_;
  bool broken_ = false;
  double exposed_seconds_ = 0;
};

}  // namespace relaxc
