#include "device_call.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "relaxrt/cuda_abi.h"
#include "streams.h"

namespace relaxc {
namespace {

constexpr int64_t blocks_a_multiprocessor = 16;  // of threads; any number is right
constexpr int64_t scratch_limit = 64 << 20;      // bytes, of all of them: SCRATCH_LIMIT of manifest.py
constexpr int64_t scratch_rounding = 16;         // elements, emit/cuda.py's

// Arrays of a call that go to the device as one copy. They are laid out first, so that pointers between them are known.
class Packet {
 public:
  template <typename Item>
  size_t reserve(size_t items) {
    static_assert(std::is_trivially_copyable_v<Item>);
    const size_t at = bytes_;
    bytes_ += (items * sizeof(Item) + 15) / 16 * 16;
    return at;
  }

  void allocate(c10::Device device) {
    auto bytes = at::TensorOptions().dtype(at::kByte);
    const auto size = static_cast<int64_t>(std::max<size_t>(bytes_, 1));
    there_ = at::empty({size}, bytes.device(device));
    here_ = is_asynchronous(device) ? at::empty({size}, bytes.pinned_memory(true)) : at::empty({size}, bytes);
  }

  template <typename Item>
  Item* here(size_t at) const {
    return reinterpret_cast<Item*>(static_cast<char*>(here_.mutable_data_ptr()) + at);
  }

  template <typename Item>
  Item* there(size_t at) const {
    return reinterpret_cast<Item*>(static_cast<char*>(there_.mutable_data_ptr()) + at);
  }

  template <typename Item>
  const Item* put(size_t at, const Item* items, size_t number) const {
    if (items == nullptr) return nullptr;
    std::memcpy(here<Item>(at), items, number * sizeof(Item));
    return there<Item>(at);
  }

  // Pinned memory is not used again before the copy is done: torch's allocator sees to that.
  void send() { there_.copy_(here_, /*non_blocking=*/true); }

 private:
  size_t bytes_ = 0;
  at::Tensor here_, there_;
};

struct Totals {
  int64_t blocks = 0, bytes = 0, elements = 0, largest = 0;
};

// `here` and `there` are all operands on the host and on the device.
Totals lay_out(const LaunchPlan& plan, const std::vector<relaxrt_segment>& segments, relaxrt_cuda_segment* bound,
               void* const* here, void* const* there) {
  Totals totals;
  for (const relaxrt_segment& segment : segments) {
    void* const* theirs = there + (segment.operands - here);
    *bound++ = {theirs, segment.elements, segment.first, segment.parameter, totals.blocks, totals.bytes, totals.elements};
    totals.blocks += plan.blocks(segment.elements);
    totals.bytes += plan.message(segment.elements);
    totals.elements += segment.elements;
    totals.largest = std::max(totals.largest, plan.per_block ? std::min(plan.per_block, segment.elements) : segment.elements);
  }
  return totals;
}

const LaunchPlan& found(const std::map<std::string, LaunchPlan>& launches, const std::string& symbol) {
  auto place = launches.find(symbol);
  if (place == launches.end()) throw DriverError("the plan has no kernel " + symbol + " for this device", -1);
  return place->second;
}

}  // namespace

int64_t FieldBytes::of(int64_t items) const {
  if (part > 0) {
    // As Python rounds: halves to even.
    const auto most = static_cast<double>(items);
    const double wanted = part >= 1 ? std::floor(part) : std::max(1.0, std::nearbyint(part * most));
    return static_cast<int64_t>(std::min(most, wanted)) * bytes;
  }
  if (bits == 0) return items * bytes;
  int64_t found = 0;
  for (int plane = 1; plane <= 8; plane *= 2)
    if (bits & plane) found += (items * plane + 7) / 8;
  return found;
}

int64_t LaunchPlan::blocks(int64_t elements) const {
  if (per_block == 0) return elements > 0 || empty ? 1 : 0;
  return (elements + per_block - 1) / per_block;
}

int64_t LaunchPlan::message(int64_t elements) const {
  auto of_block = [&](int64_t items) {
    int64_t bytes = 0;
    for (const FieldBytes& field : fields) bytes += field.of(field.per_element ? items : 1);
    return bytes;
  };
  if (elements == 0) return 0;
  const int64_t block = per_block ? per_block : elements;
  return elements / block * of_block(block) + (elements % block ? of_block(elements % block) : 0);
}

DeviceLibrary::DeviceLibrary(std::shared_ptr<const Driver> driver, c10::Device device, int index, const std::string& image,
                             std::vector<LaunchPlan> launches)
    : device_(device),
      module_(image.empty() ? nullptr : std::make_shared<DeviceModule>(std::move(driver), index, image)) {
  for (LaunchPlan& launch : launches) {
    std::string symbol = launch.symbol;
    launches_.emplace(std::move(symbol), std::move(launch));
  }
}

DeviceKernel::DeviceKernel(std::shared_ptr<const DeviceLibrary> library, const std::string& symbol)
    : library_(std::move(library)), plan_(found(library_->launches_, symbol)), function_(library_->module_->function(symbol)) {}

void DeviceKernel::run(const std::vector<relaxrt_segment>& segments, const std::vector<void*>& operands,
                       const relaxrt_call& call, size_t numbers) const {
  if (segments.empty()) return;
  const c10::Device device = library_->device_;
  const auto inputs = static_cast<size_t>(call.number_of_inputs);
  Packet packet;
  const size_t at_segments = packet.reserve<relaxrt_cuda_segment>(segments.size());
  const size_t at_operands = packet.reserve<void*>(operands.size());
  const size_t at_inputs = packet.reserve<const uint8_t*>(inputs);
  const size_t at_near = packet.reserve<const void*>(call.near ? inputs : 0);
  const size_t at_weights = packet.reserve<double>(call.weights ? inputs : 0);
  const size_t at_numbers = packet.reserve<double>(numbers);
  packet.allocate(device);
  packet.put<void*>(at_operands, operands.data(), operands.size());
  const Totals totals = lay_out(plan_, segments, packet.here<relaxrt_cuda_segment>(at_segments),
                                operands.data(), packet.there<void*>(at_operands));
  if (totals.blocks == 0) return;
  relaxrt_cuda_call made{};
  made.segments = packet.there<relaxrt_cuda_segment>(at_segments);
  made.number_of_segments = static_cast<int64_t>(segments.size());
  made.blocks = totals.blocks;
  made.inputs = packet.put(at_inputs, call.inputs, inputs);
  made.near = packet.put(at_near, call.near, inputs);
  made.weights = packet.put(at_weights, call.weights, inputs);
  made.numbers = packet.put(at_numbers, call.numbers, numbers);
  made.number_of_inputs = call.number_of_inputs;
  made.output = call.output;
  made.workers = call.workers;
  made.key = call.key;
  made.shared = call.shared;
  made.own = call.own;
  packet.send();

  int64_t grid = std::min(totals.blocks, library_->module_->multiprocessors() * blocks_a_multiprocessor);
  at::Tensor scratch;
  if (plan_.scratch_per_element > 0) {
    made.scratch_bytes = (totals.largest + scratch_rounding - 1) / scratch_rounding * scratch_rounding * plan_.scratch_per_element;
    grid = std::clamp<int64_t>(scratch_limit / std::max<int64_t>(made.scratch_bytes, 1), 1, grid);
    scratch = at::empty({grid * made.scratch_bytes}, at::TensorOptions().dtype(at::kByte).device(device));
    made.scratch = scratch.mutable_data_ptr<uint8_t>();
  }
  // What is freed here is memory of this stream, on which it is used again only behind this kernel.
  library_->module_->launch(function_, plan_.symbol, static_cast<unsigned>(grid), plan_.threads, current_stream(device), &made);
}

}  // namespace relaxc
