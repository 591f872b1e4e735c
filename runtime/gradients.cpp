#include "gradients.h"

#include <ATen/ATen.h>
#include <ATen/ScalarOps.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
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

Gradients::Gradients(std::shared_ptr<Queue> queue, Worker worker) : queue_(std::move(queue)), worker_(worker) {}

void Gradients::add(at::Tensor parameter, std::string name, int bucket, int64_t offset, Residual residual) {
  parameters_.push_back({std::move(parameter), std::move(name), bucket, offset, {}, nullptr, 0});
  memory_->residuals.push_back(std::move(residual));
  memory_->zeros.emplace_back();
}

void Gradients::add(Bucket bucket) { buckets_.push_back(std::move(bucket)); }

void Gradients::add(Piece piece) { pieces_->pieces.push_back(std::move(piece)); }

void Gradients::attach() {
  std::weak_ptr<Gradients> self = shared_from_this();
  pieces_->buckets = buckets_.size();
  census_bucket_ = static_cast<int>(buckets_.size()) - 1;
  for (const Bucket& bucket : buckets_) longest_delay_ = std::max<size_t>(longest_delay_, bucket.delay);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& p = parameters_[i];
    if (p.bucket >= 0)
      for (const at::Tensor& flat : buckets_[p.bucket].flat)
        p.views.push_back(flat.as_strided(p.tensor.sizes(), p.tensor.strides(), p.offset));
    p.accumulator = torch::autograd::impl::grad_accumulator(p.tensor);
    p.hook = p.accumulator->add_post_hook(std::make_unique<Hook>([self, i] {
      if (auto gradients = self.lock()) gradients->on_gradient(static_cast<int>(i));
    }, [self] {
      if (auto gradients = self.lock()) gradients->refuse_compiled();
    }));
  }
  if (exchanges()) queue_->start();
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
  if (parameter.bucket < 0) {
    if (const at::Tensor& grad = parameter.tensor.grad(); grad.defined()) check_gradient(parameter, grad);
    iteration.fired[index] = 1;
    return;
  }
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
  iteration_ = std::make_shared<Iteration>(pieces_, number_, memory_, worker_.rank);
  for (size_t b = 0; b < buckets_.size(); ++b) iteration_->missing[b] = static_cast<int>(buckets_[b].parameters.size());
  auto backward = std::make_shared<Backward>(weak_from_this());
  backward_ = backward;
  if (exchanges()) queue_->push(iteration_);
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
  if (!iteration || !exchanges() || queue_->cancel(iteration) || queue_->failure()) return;
  broken_ = true;
  try {
    on_broken(iteration->iteration);  // the others need not wait until their timeout
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
  const Bucket& bucket = buckets_[parameter.bucket];
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
  const at::Tensor& slot = view(index, iteration_->iteration);
  if (bucket.coded) {
    slot.copy_(grad.detach());
    iteration_->tensors[index] = slot;
  } else if (grad.is_alias_of(slot)) {
    slot.mul_(1.0 / worker_.workers);
  } else {
    at::Tensor out = slot;
    at::mul_out(out, grad.detach(), at::native::wrapped_scalar_tensor(1.0 / worker_.workers));
    if (bucket.delay == 0) grad = slot;
  }
}

void Gradients::collect_absent(int index) {
  Parameter& parameter = parameters_[index];
  const Bucket& bucket = buckets_[parameter.bucket];
  at::NoGradGuard no_grad;
  iteration_->absent[index] = 1;
  if (!parameter.views.empty()) {
    iteration_->tensors[index] = view(index, iteration_->iteration);
    iteration_->tensors[index].zero_();
  } else {
    iteration_->tensors[index] = at::zeros_like(parameter.tensor).detach();
  }
  const at::Tensor& residual = memory_->residuals[index].worker;
  if (bucket.coded && residual.defined() && !memory_->zeros[index].defined())
    memory_->zeros[index] = at::zeros_like(residual);
}

// --- at the end of backward

// The parameters that no hook fired for: gradients of earlier micro-batches, or none. One that was frozen meanwhile has
// none either, whatever zero_grad has left in .grad, and its residual waits until it is thawed.
void Gradients::complete(Iteration& iteration) {
  at::NoGradGuard no_grad;
  auto* census = iteration.census.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = parameters_[i];
    census[i] = iteration.fired[i] || (parameter.tensor.requires_grad() && parameter.tensor.grad().defined());
    if (iteration.fired[i] || parameter.bucket < 0) continue;
    if (census[i])
      collect(static_cast<int>(i));
    else
      collect_absent(static_cast<int>(i));
  }
  fired_.assign(census, census + parameters_.size());
}

void Gradients::finish() {
  at::NoGradGuard no_grad;
  past_.push_back({iteration_, scale_});
  release(*iteration_);
  ++number_;
  hidden_.clear();
  land_due();
  while (past_.size() > longest_delay_) past_.pop_front();
  iteration_.reset();
  if (on_backward) on_backward();
}

// Whatever backward brought, it brings no more: what still waits may leave.
void Gradients::release(Iteration& iteration) {
  for (size_t b = 0; b < buckets_.size(); ++b)
    if (iteration.missing[b] > 0 || buckets_[b].parameters.empty()) queue_->ready(iteration, static_cast<int>(b));
}

void Gradients::land_due() {
  for (int b = 0; b < census_bucket_; ++b) {
    size_t delay = buckets_[b].delay;
    if (past_.size() <= delay) {
      clear(buckets_[b]);
      continue;
    }
    const Past& due = past_[past_.size() - 1 - delay];
    await(*due.iteration, b);
    await(*due.iteration, census_bucket_);
    land(due, b);
  }
}

// Nothing has landed yet.
void Gradients::clear(const Bucket& bucket) {
  for (int p : bucket.parameters) {
    at::Tensor& grad = parameters_[p].tensor.mutable_grad();
    if (grad.defined()) grad.zero_();
    hidden_.push_back(p);
  }
}

void Gradients::land(const Past& past, int bucket) {
  at::NoGradGuard no_grad;
  for (int p : buckets_[bucket].parameters) {
    if (buckets_[bucket].delay == 0)
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
  grad.copy_(view(index, past.iteration->iteration));
  if (past.scale != scale_) grad.mul_(scale_ / past.scale);
}

// --- waiting

void Gradients::await(const Launch& launch, int bucket) {
  if (!queue_->landed(launch, bucket))
    exposed_seconds_ += watch.wait(*queue_, [&](int ms) { return queue_->wait(launch, bucket, ms); });
  queue_->follow(launch, bucket);
}

void Gradients::raise() {
  iteration_.reset();
  watch.fail(*queue_->failure());
}

void Gradients::drain() {
  if (broken_) refuse_broken();
  watch.wait(*queue_, [&](int ms) { return queue_->wait_idle(ms); });
  queue_->follow_all();
}

// Residuals of another scale would be added at the wrong size, so they follow. Scales are powers of two: no bit is lost.
void Gradients::follow_scale() {
  if (!loss_scale) return;
  double scale = loss_scale();
  if (scale == scale_) return;
  drain();
  for (Residual& residual : memory_->residuals)
    for (at::Tensor* tensor : {&residual.worker, &residual.owner})
      if (tensor->defined()) tensor->mul_(scale / scale_);
  scale_ = scale;
}

// --- what is under way, for checkpoints

std::vector<Gradients::Pending> Gradients::pending() {
  drain();
  std::vector<Pending> result;
  for (const Past& past : past_) {
    Pending entry{past.iteration->iteration, past.scale, past.iteration->census.clone(), {}};
    for (size_t b = 0; b < buckets_.size(); ++b) {
      const auto& slots = buckets_[b].flat;
      bool late = buckets_[b].delay > 0;
      entry.flat.push_back(late ? slots[past.iteration->iteration % slots.size()].clone() : at::Tensor());
    }
    result.push_back(std::move(entry));
  }
  return result;
}

void Gradients::set_iterations(uint64_t number) {
  drain();
  number_ = number;
}

void Gradients::set_pending(const std::vector<Pending>& pending) {
  drain();
  past_.clear();
  for (const Pending& entry : pending) {
    auto iteration = std::make_shared<Iteration>(pieces_, entry.number, memory_, worker_.rank);
    std::fill(iteration->landed.begin(), iteration->landed.end(), 1);
    iteration->census = entry.census.clone();
    for (size_t b = 0; b < buckets_.size(); ++b) {
      const auto& slots = buckets_[b].flat;
      if (b < entry.flat.size() && entry.flat[b].defined()) slots[entry.number % slots.size()].copy_(entry.flat[b]);
    }
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (!parameters_[i].views.empty()) iteration->tensors[i] = view(static_cast<int>(i), entry.number);
    past_.push_back({iteration, entry.scale});
  }
}

}  // namespace relaxc
