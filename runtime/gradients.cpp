#include "gradients.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace relaxc {
namespace {

using torch::autograd::variable_list;

// Runs a function after a node of the graph. Compiled autograd traces hooks into its own graph, where ours can't run.
class Hook final : public torch::autograd::FunctionPostHook {
 public:
  explicit Hook(std::function<void()> run, std::function<void()> compiled = {})
      : run_(std::move(run)), compiled_(std::move(compiled)) {}
  variable_list operator()(const variable_list& outputs, const variable_list&) override {
    run_();
    return outputs;
  }
  void compiled_args(torch::dynamo::autograd::CompiledNodeArgs&) const override {
    if (compiled_) compiled_();
    throw std::runtime_error("compiled autograd can't run this hook");
  }

 private:
  std::function<void()> run_;
  std::function<void()> compiled_;
};

constexpr int slice_ms = 50;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The layout that segments rely on: the parameter's own order over dense memory. A side of length 1 has no order: autograd
// leaves its stride as it comes.
bool same_layout(const at::Tensor& grad, const at::Tensor& parameter) {
  for (int64_t side = 0; side < parameter.dim(); ++side)
    if (parameter.size(side) != 1 && grad.stride(side) != parameter.stride(side)) return false;
  return grad.is_non_overlapping_and_dense();
}

}  // namespace

struct Gradients::Backward {
  explicit Backward(std::weak_ptr<Gradients> owner) : owner(std::move(owner)) {}
  ~Backward() {
    if (finished) return;
    if (auto gradients = owner.lock()) gradients->aborted();
  }
  std::weak_ptr<Gradients> owner;
  bool finished = false;
};

Gradients::Gradients(std::shared_ptr<Queue> queue, int workers) : queue_(std::move(queue)), workers_(workers) {}

void Gradients::add(at::Tensor parameter, std::string name, int bucket, int64_t offset) {
  parameters_.push_back({std::move(parameter), std::move(name), bucket, {}, nullptr, 0});
  offsets_.push_back(offset);
}

void Gradients::attach() {
  std::weak_ptr<Gradients> self = shared_from_this();
  census_bucket_ = queue_->buckets.size() - 1;
  for (size_t b = 0; b < queue_->buckets.size(); ++b) {
    longest_delay_ = std::max<size_t>(longest_delay_, queue_->buckets[b].delay);
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = parameters_[i];
    for (const at::Tensor& flat : queue_->flat[p.bucket])
      p.views.push_back(flat.as_strided(p.tensor.sizes(), p.tensor.strides(), offsets_[i]));
    p.accumulator = torch::autograd::impl::grad_accumulator(p.tensor);
    p.hook = p.accumulator->add_post_hook(std::make_unique<Hook>([self, i] {
      if (auto gradients = self.lock()) gradients->on_gradient(static_cast<int>(i));
    }, [self] {
      if (auto gradients = self.lock()) gradients->refuse_compiled();
    }));
  }
}

void Gradients::detach() {
  for (Parameter& p : parameters_) {
    if (p.accumulator) p.accumulator->del_post_hook(p.hook);
    p.accumulator = nullptr;
  }
}

std::string Gradients::lost() const {
  for (const Parameter& p : parameters_)
    if (p.accumulator && p.tensor.requires_grad() &&
        torch::autograd::impl::try_get_grad_accumulator(p.tensor) != p.accumulator)
      return p.name;
  return "";
}

// --- during backward

void Gradients::on_gradient(int index) {
  if (!enabled) return;
  if (broken_) refuse_broken();
  if (backward_.expired()) begin();
  Iteration& iteration = *iteration_;
  Parameter& parameter = parameters_[index];
  if (iteration.fired[index])
    refuse("RX0611",
           "parameter " + parameter.name +
               " received a second gradient in one backward, as reentrant activation checkpointing gives a module that "
               "is used twice",
           "checkpoint with use_reentrant=False");
  iteration.fired[index] = 1;
  collect(index);
  if (--iteration.missing[parameter.bucket] == 0) queue_->ready(iteration, parameter.bucket);
}

void Gradients::begin() {
  if (auto failure = queue_->failure()) raise();
  follow_scale();
  iteration_ = std::make_shared<Iteration>(number_, queue_->buckets.size(), parameters_.size());
  for (size_t b = 0; b < queue_->buckets.size(); ++b)
    iteration_->missing[b] = static_cast<int>(queue_->buckets[b].parameters.size());
  iteration_->census = at::zeros({static_cast<int64_t>(parameters_.size())}, at::kByte);
  auto backward = std::make_shared<Backward>(weak_from_this());
  backward_ = backward;
  queue_->push(iteration_);
  queue_callback(std::move(backward));
}

void Gradients::queue_callback(std::shared_ptr<Backward> backward) {
  torch::autograd::Engine::get_default_engine().queue_callback([backward = std::move(backward)] {
    if (auto gradients = backward->owner.lock()) gradients->on_callback(backward);
  });
}

// In reentrant checkpointing the callback comes at the end of the inner backward: wait for the end of the outer node, then
// queue again, from the outer graph.
void Gradients::on_callback(const std::shared_ptr<Backward>& backward) {
  if (auto node = torch::autograd::get_current_node()) {
    auto held = std::make_shared<std::shared_ptr<Backward>>(backward);
    std::weak_ptr<Gradients> self = weak_from_this();
    node->add_post_hook(std::make_unique<Hook>([self, held] {
      auto gradients = self.lock();
      if (gradients && *held) gradients->queue_callback(std::exchange(*held, nullptr));
    }));
    return;
  }
  complete(*iteration_);  // what it throws is an abort still
  backward->finished = true;
  backward_.reset();
  finish();
}

// An exception ended backward before its callback.
void Gradients::aborted() {
  auto iteration = std::exchange(iteration_, nullptr);
  if (!iteration || queue_->cancel(iteration) || queue_->failure()) return;
  broken_ = true;
  try {
    on_broken(iteration->number);  // the others need not wait until their timeout
  } catch (const std::exception&) {
    // This runs while the user's own exception is on its way; that one counts.
  }
}

void Gradients::refuse_broken() const {
  refuse("RX0612",
         "an exception ended backward after some gradients had left for the other workers, so this worker's plan no longer "
         "agrees with theirs",
         "restart the run from a checkpoint");
}

void Gradients::refuse_compiled() const {
  refuse("RX0610", "compiled autograd does not run relaxc's gradient hooks",
         "turn it off (torch._dynamo.config.compiled_autograd = False) or detach the plan");
}

void Gradients::check_gradient(const Parameter& parameter, const at::Tensor& grad) const {
  if (grad.layout() != at::kStrided)
    refuse("RX0406", "parameter " + parameter.name + " has a sparse gradient", "use sparse=False in its embedding");
  if (grad.scalar_type() != parameter.tensor.scalar_type())
    refuse("RX0407", "the gradient of parameter " + parameter.name + " has another dtype than it",
           "keep gradients in the dtype of their parameter");
}

const at::Tensor& Gradients::view(int index, uint64_t iteration) const {
  const auto& views = parameters_[index].views;
  return views[iteration % views.size()];
}

void Gradients::collect(int index) {
  Parameter& parameter = parameters_[index];
  const Bucket& bucket = queue_->buckets[parameter.bucket];
  at::NoGradGuard no_grad;
  at::Tensor& grad = parameter.tensor.mutable_grad();
  check_gradient(parameter, grad);
  // Of backward(create_graph=True): the mean is written to memory that the user's graph doesn't know.
  if (grad.requires_grad()) grad = at::empty_like(parameter.tensor).detach().copy_(grad.detach());
  if (bucket.coded && bucket.delay == 0) {
    if (!same_layout(grad, parameter.tensor)) grad = at::empty_like(parameter.tensor).copy_(grad);
    iteration_->tensors[index] = grad;
    return;
  }
  const at::Tensor& slot = view(index, iteration_->number);
  if (bucket.coded) {
    slot.copy_(grad.detach());
    iteration_->tensors[index] = slot;
  } else if (grad.is_alias_of(slot)) {
    slot.mul_(1.0 / workers_);
  } else {
    at::Tensor out = slot;
    at::mul_out(out, grad.detach(), at::native::wrapped_scalar_tensor(1.0 / workers_));
    if (bucket.delay == 0) grad = slot;
  }
}

void Gradients::collect_absent(int index) {
  Parameter& parameter = parameters_[index];
  const Bucket& bucket = queue_->buckets[parameter.bucket];
  at::NoGradGuard no_grad;
  iteration_->absent[index] = 1;
  if (!parameter.views.empty()) {
    iteration_->tensors[index] = view(index, iteration_->number);
    iteration_->tensors[index].zero_();
  } else {
    iteration_->tensors[index] = at::zeros_like(parameter.tensor).detach();
  }
  const at::Tensor& residual = queue_->residuals[index].worker;
  if (bucket.coded && residual.defined() && !queue_->zeros[index].defined())
    queue_->zeros[index] = at::zeros_like(residual);
}

// --- at the end of backward

// The parameters that no hook fired for: gradients of earlier micro-batches, or none. One that was frozen meanwhile has
// none either, whatever zero_grad has left in .grad, and its residual waits until it is thawed.
void Gradients::complete(Iteration& iteration) {
  at::NoGradGuard no_grad;
  auto* census = iteration.census.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    if (iteration.fired[i]) {
      census[i] = 1;
    } else if (parameters_[i].tensor.requires_grad() && parameters_[i].tensor.grad().defined()) {
      collect(static_cast<int>(i));
      census[i] = 1;
    } else {
      collect_absent(static_cast<int>(i));
    }
  }
}

void Gradients::finish() {
  at::NoGradGuard no_grad;
  auto iteration = iteration_;
  for (size_t b = 0; b < queue_->buckets.size(); ++b)
    if (iteration->missing[b] > 0 || queue_->buckets[b].parameters.empty()) queue_->ready(*iteration, static_cast<int>(b));
  past_.push_back({iteration, scale_});
  ++number_;
  hidden_.clear();
  for (size_t b = 0; b < queue_->buckets.size(); ++b) {
    const Bucket& bucket = queue_->buckets[b];
    if (b == census_bucket_) continue;
    if (past_.size() <= static_cast<size_t>(bucket.delay)) {
      for (int p : bucket.parameters) {
        at::Tensor& grad = parameters_[p].tensor.mutable_grad();
        if (grad.defined()) grad.zero_();
        hidden_.push_back(p);
      }
      continue;
    }
    const Past& due = past_[past_.size() - 1 - bucket.delay];
    await(static_cast<int>(b), due.iteration->number);
    await(static_cast<int>(census_bucket_), due.iteration->number);
    land(due, static_cast<int>(b));
  }
  while (past_.size() > longest_delay_) past_.pop_front();
  iteration_.reset();
}

void Gradients::land(const Past& past, int bucket) {
  at::NoGradGuard no_grad;
  for (int p : queue_->buckets[bucket].parameters) {
    if (queue_->buckets[bucket].delay == 0)
      land_now(*past.iteration, p);
    else
      land_late(past, p);
  }
}

void Gradients::land_now(Iteration& iteration, int index) {
  if (!iteration.absent[index]) return;  // the result is in .grad already
  if (iteration.census.const_data_ptr<uint8_t>()[index])
    parameters_[index].tensor.mutable_grad() = iteration.tensors[index];
}

void Gradients::land_late(const Past& past, int index) {
  at::Tensor& grad = parameters_[index].tensor.mutable_grad();
  if (!past.iteration->census.const_data_ptr<uint8_t>()[index]) {
    if (grad.defined()) grad.zero_();
    hidden_.push_back(index);
    return;
  }
  if (!grad.defined()) grad = at::empty_like(parameters_[index].tensor).detach();
  grad.copy_(view(index, past.iteration->number));
  if (past.scale != scale_) grad.mul_(scale_ / past.scale);
}

// --- waiting

void Gradients::await(int bucket, uint64_t iteration) {
  if (queue_->done(bucket, iteration)) return;
  auto start = std::chrono::steady_clock::now();
  while (!queue_->wait(bucket, iteration, slice_ms)) {
    if (queue_->failure()) raise();
    on_wait(seconds_since(start));
  }
  exposed_seconds_ += seconds_since(start);
}

void Gradients::raise() {
  iteration_.reset();
  auto failure = queue_->failure();
  on_failure(*failure);
  throw std::runtime_error(failure->what);
}

void Gradients::drain() {
  if (broken_) refuse_broken();
  auto start = std::chrono::steady_clock::now();
  while (!queue_->wait_idle(slice_ms)) {
    if (queue_->failure()) raise();
    on_wait(seconds_since(start));
  }
}

// Residuals of another scale would be added at the wrong size, so they follow. Scales are powers of two: no bit is lost.
void Gradients::follow_scale() {
  if (!loss_scale) return;
  double scale = loss_scale();
  if (scale == scale_) return;
  drain();
  for (Residual& residual : queue_->residuals)
    for (at::Tensor* tensor : {&residual.worker, &residual.owner})
      if (tensor->defined()) tensor->mul_(scale / scale_);
  scale_ = scale;
}

// --- what is under way, for checkpoints

std::vector<Gradients::Pending> Gradients::pending() {
  drain();
  std::vector<Pending> result;
  for (const Past& past : past_) {
    Pending entry{past.iteration->number, past.scale, past.iteration->census.clone(), {}};
    for (size_t b = 0; b < queue_->buckets.size(); ++b) {
      const auto& slots = queue_->flat[b];
      bool late = queue_->buckets[b].delay > 0;
      entry.flat.push_back(late ? slots[past.iteration->number % slots.size()].clone() : at::Tensor());
    }
    result.push_back(std::move(entry));
  }
  return result;
}

void Gradients::set_iterations(uint64_t number) {
  drain();
  number_ = number;
  queue_->set_completed(number);
}

void Gradients::set_pending(const std::vector<Pending>& pending) {
  drain();
  past_.clear();
  for (const Pending& entry : pending) {
    auto iteration = std::make_shared<Iteration>(entry.number, queue_->buckets.size(), parameters_.size());
    iteration->census = entry.census.clone();
    for (size_t b = 0; b < queue_->buckets.size(); ++b) {
      const auto& slots = queue_->flat[b];
      if (b < entry.flat.size() && entry.flat[b].defined()) slots[entry.number % slots.size()].copy_(entry.flat[b]);
    }
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (!parameters_[i].views.empty()) iteration->tensors[i] = view(static_cast<int>(i), entry.number);
    past_.push_back({iteration, entry.scale});
  }
}

}  // namespace relaxc
