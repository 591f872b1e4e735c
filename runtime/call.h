// A generated kernel bound to memory and messages.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device_call.h"
#include "library.h"
#include "relaxrt/abi.h"

namespace relaxc {

// Where a kernel's operand is found when the kernel runs.
struct Operand {
  enum class Source {
    buffer,    // element `first` of `tensor`
    weight,    // the data of the parameter `tensor`, which users swap
    gradient,  // its .grad; zeros where absent
    value,     // what a native exchange works on: .grad, or its flat buffer
    residual,  // a native exchange's, this worker's own
    owner,     // and the owner's
  };
  Source source = Source::buffer;
  at::Tensor tensor;
  int64_t first = 0;
  bool written = false;
  size_t bytes = 0;  // of the tensor, when this was made
};

// Elements [first, first + elements) of a parameter, from a block border on.
struct Segment {
  int parameter = 0;
  int64_t first = 0;
  int64_t elements = 0;
  std::vector<Operand> operands;  // in the plan's order
};

struct Worker {
  int rank = 0;
  int workers = 1;
  uint64_t seed = 0;
};

// Finds the operands of a native exchange in its iteration.
class Native {
 public:
  virtual ~Native() = default;
  virtual char* find(Operand::Source source, const Segment& segment) = 0;
};

struct Arguments {
  uint64_t iteration = 0;
  std::vector<double> numbers;
  std::vector<double> weights;  // one for each input, or none: the inputs are only summed
  Native* native = nullptr;
  std::vector<const void*> near;  // for each input what it is decoded near to; none, or null: what the operand holds
};

// For each input of a call what it is decoded near to; undefined: what the operand holds. The queue fills it in.
struct Near {
  std::vector<at::Tensor> values;
};

struct Call {
  Worker worker;
  std::shared_ptr<const Library> library;  // outlives the kernel
  relaxrt_kernel kernel = nullptr;         // null: the message is the memory of the one operand, nothing is copied
  std::string label;                       // what a profiler shows
  std::vector<Segment> segments;
  std::vector<at::Tensor> inputs;          // messages
  at::Tensor output;                       // undefined: it makes no message
  uint64_t place = 0;
  std::shared_ptr<const Near> near;        // null, or empty: all inputs are near what the operand holds
  int own = -1;                            // which input is this worker's own message
  bool owner = false;                      // the dither key is that of `place` + 1, without the worker
  std::shared_ptr<const DeviceKernel> device;  // instead of `kernel` where the tensors are on a device

  // Throws std::invalid_argument where weights and inputs differ in number, std::runtime_error where a parameter's data was
  // replaced by something of another size or order.
  void run(const Arguments& given) const;
  void lend() const;
};

char* bytes_at(const at::Tensor& tensor, int64_t element);

// Whether the elements of `grad` stand in memory as the parameter's do. A side of length 1 has no order: autograd leaves its
// stride as it comes.
bool same_layout(const at::Tensor& grad, const at::Tensor& parameter);

}  // namespace relaxc
