#include "call.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <limits>
#include <new>
#include <stdexcept>

#include "keys.h"

namespace relaxc {
namespace {

// Zeros that stand for absent gradients while a kernel runs.
using Zeros = std::vector<std::pair<int, at::Tensor>>;

void note_write(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

char* weight(const Operand& operand, const Segment& segment) {
  const at::Tensor& tensor = operand.tensor;
  if (tensor.nbytes() != operand.bytes || !tensor.is_non_overlapping_and_dense())
    throw std::runtime_error("the data of a parameter was replaced by a tensor of another size, dtype or memory order");
  if (operand.written) note_write(tensor);
  return bytes_at(tensor, segment.first);
}

char* absent(const Operand& operand, const Segment& segment, Zeros& zeros) {
  if (zeros.empty() || zeros.back().first != segment.parameter)
    zeros.emplace_back(segment.parameter, at::zeros_like(operand.tensor).detach());
  return bytes_at(zeros.back().second, segment.first);
}

char* gradient(const Operand& operand, const Segment& segment, Zeros& zeros) {
  at::Tensor& grad = operand.tensor.mutable_grad();
  if (!grad.defined() && !operand.written) return absent(operand, segment, zeros);
  if (!grad.defined()) grad = at::zeros_like(operand.tensor).detach();
  // Of backward(create_graph=True) the user's graph doesn't know what is written here.
  if (grad.requires_grad() || !same_layout(grad, operand.tensor) || grad.nbytes() != operand.bytes)
    grad = at::empty_like(operand.tensor).detach().copy_(grad.detach());
  if (operand.written) note_write(grad);
  return bytes_at(grad, segment.first);
}

char* find(const Operand& operand, const Segment& segment, const Arguments& given, Zeros& zeros) {
  switch (operand.source) {
    case Operand::Source::buffer:
      return bytes_at(operand.tensor, operand.first);
    case Operand::Source::weight:
      return weight(operand, segment);
    case Operand::Source::gradient:
      return gradient(operand, segment, zeros);
    default:
      if (given.native == nullptr) throw std::invalid_argument("an operand of a native exchange outside of one");
      return given.native->find(operand.source, segment);
  }
}

// With fewer elements a second thread costs more than it brings.
constexpr int64_t elements_a_thread = 1 << 15;

// As many threads as torch gives the one that calls, each with a part of the blocks.
void share(relaxrt_kernel kernel, const std::vector<relaxrt_segment>& segments, const relaxrt_call& call) {
  int64_t elements = 0;
  for (const relaxrt_segment& segment : segments) elements += segment.elements;
  const auto part = [&](int64_t from, int64_t to) {
    const int64_t end = to < elements ? to : std::numeric_limits<int64_t>::max();  // blocks of cells alone are at the end
    kernel(segments.data(), static_cast<int64_t>(segments.size()), &call, from, end);
  };
  if (elements < 2 * elements_a_thread) return part(0, elements);
  at::parallel_for(0, elements, elements_a_thread, part);
}

}  // namespace

char* bytes_at(const at::Tensor& tensor, int64_t element) {
  return static_cast<char*>(tensor.mutable_data_ptr()) + element * static_cast<int64_t>(tensor.element_size());
}

bool same_layout(const at::Tensor& grad, const at::Tensor& parameter) {
  for (int64_t side = 0; side < parameter.dim(); ++side)
    if (parameter.size(side) != 1 && grad.stride(side) != parameter.stride(side)) return false;
  return grad.is_non_overlapping_and_dense();
}

// The message, a tensor that all who use it share, becomes a view of the bytes that the operand has now.
void Call::lend() const {
  const Segment& segment = segments.at(0);
  const Operand& operand = segment.operands.at(0);
  weight(operand, segment);  // looks at it
  const auto item = static_cast<int64_t>(operand.tensor.element_size());
  at::Tensor message = output;
  at::NoGradGuard no_grad;
  message.set_(operand.tensor.storage(), (operand.tensor.storage_offset() + segment.first) * item, {segment.elements * item}, {1});
}

void Call::run(const Arguments& given) const {
  if (kernel == nullptr && !device) return lend();
  if (!given.weights.empty() && !inputs.empty() && given.weights.size() != inputs.size())
    throw std::invalid_argument(label + ": " + std::to_string(given.weights.size()) + " weights for " +
                                std::to_string(inputs.size()) + " messages");
  RECORD_FUNCTION(label, c10::ArrayRef<const c10::IValue>{});
  at::NoGradGuard no_grad;
  Zeros zeros;
  std::vector<void*> operands;
  operands.reserve(segments.empty() ? 0 : segments.size() * segments.front().operands.size());
  for (const Segment& segment : segments)
    for (const Operand& operand : segment.operands) operands.push_back(find(operand, segment, given, zeros));
  std::vector<relaxrt_segment> bound;
  bound.reserve(segments.size());
  void* const* next = operands.data();
  for (const Segment& segment : segments) {
    bound.push_back({next, segment.elements, static_cast<uint64_t>(segment.first), static_cast<uint32_t>(segment.parameter)});
    next += segment.operands.size();
  }
  std::vector<const uint8_t*> messages;
  for (const at::Tensor& input : inputs) messages.push_back(input.const_data_ptr<uint8_t>());
  relaxrt_call call{};
  call.inputs = messages.data();
  call.number_of_inputs = static_cast<int64_t>(messages.size());
  call.weights = messages.empty() || given.weights.empty() ? nullptr : given.weights.data();
  call.output = output.defined() ? output.mutable_data_ptr<uint8_t>() : nullptr;
  call.numbers = given.numbers.empty() ? nullptr : given.numbers.data();
  call.workers = worker.workers;
  call.key = message_key(worker.seed, given.iteration, place + (owner ? 1 : 0),
                         owner ? everyone : static_cast<uint32_t>(worker.rank));
  std::vector<const void*> near_values = given.near;
  if (near_values.empty() && near != nullptr)
    for (const at::Tensor& values : near->values)
      near_values.push_back(values.defined() ? values.const_data_ptr() : nullptr);
  call.near = near_values.empty() ? nullptr : near_values.data();
  call.own = own;
  call.shared = shared_key(worker.seed, given.iteration);
  if (device) return device->run(bound, operands, call, given.numbers.size());
  try {
    share(kernel, bound, call);
  } catch (const std::bad_alloc&) {
    throw std::runtime_error(label + ": no memory for scratch, which a kernel that takes a tensor as a block needs");
  }
}

}  // namespace relaxc
