// A generated CUDA kernel bound to memory and messages, as Call binds the CPU's.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "driver.h"
#include "relaxrt/abi.h"

namespace relaxc {

struct Arguments;

// One field of a code: items of `bytes` bytes each, or of `bits` bits packed by planes, or the `part` of them that a top
// keeps. relaxc/wire/layout.py defines them.
struct FieldBytes {
  bool per_element;
  int64_t bytes;
  int bits;
  double part;

  int64_t of(int64_t items) const;
};

// What emit says of a kernel. `per_block` is in elements, 0: a segment is a block, an empty one only if `empty`.
struct LaunchPlan {
  std::string symbol;
  unsigned threads;
  int64_t per_block;
  bool empty;
  int64_t scratch_per_element;  // bytes of scratch for each element of a block
  std::vector<FieldBytes> fields;

  int64_t blocks(int64_t elements) const;   // that a segment of so many has
  int64_t message(int64_t elements) const;  // bytes of its code
};

// A plan's kernels on one device.
class DeviceLibrary {
 public:
  // `device` is where tensors are, `index` the driver's number of it. Without an image it has no kernels, and needs no
  // driver. Throws DriverError.
  DeviceLibrary(std::shared_ptr<const Driver> driver, c10::Device device, int index, const std::string& image,
                std::vector<LaunchPlan> launches);

  c10::Device device() const { return device_; }

 private:
  friend class DeviceKernel;
  const c10::Device device_;
  const std::shared_ptr<const DeviceModule> module_;
  std::map<std::string, LaunchPlan> launches_;
};

class DeviceKernel {
 public:
  DeviceKernel(std::shared_ptr<const DeviceLibrary> library, const std::string& symbol);  // throws DriverError
  // Launches on the current stream of the device, and does not wait. `operands` are those of all segments, one behind the
  // other; `call` has the host's arrays.
  void run(const std::vector<relaxrt_segment>& segments, const std::vector<void*>& operands, const relaxrt_call& call,
           size_t numbers) const;

 private:
  const std::shared_ptr<const DeviceLibrary> library_;
  const LaunchPlan& plan_;
  void* const function_;
};

}  // namespace relaxc
