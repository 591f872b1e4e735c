#include "again.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

namespace relaxc {
namespace {

int64_t item_bytes(const Call& call) { return static_cast<int64_t>(call.segments.at(0).operands.at(0).tensor.element_size()); }

const at::Tensor& first_of(const Call& call) { return call.segments.at(0).operands.at(0).tensor; }

// What is packed and unpacked here is so on the host: it is little, or nothing.
at::Tensor room(const Call& call, int64_t elements) {
  return at::empty({elements}, first_of(call).options().device(c10::DeviceType::CPU));
}

at::Tensor on_host(const Operand& operand, int64_t elements) {
  const at::Tensor flat = operand.tensor.as_strided({elements}, {1}, operand.tensor.storage_offset() + operand.first);
  return flat.cpu();
}

// Calls visit(data, elements, tripped) for each block in order.
template <typename Visit>
void each_block(const Call& call, const at::Tensor& trips, int64_t block, Visit visit) {
  const at::Tensor known = trips.cpu();
  const uint8_t* told = known.const_data_ptr<uint8_t>();
  for (const Segment& segment : call.segments) {
    const at::Tensor held = on_host(segment.operands.at(0), segment.elements);
    const char* data = static_cast<const char*>(held.const_data_ptr());
    for (int64_t start = 0; start < segment.elements;) {
      int64_t elements = block == 0 ? segment.elements : std::min(block, segment.elements - start);
      visit(data + start * item_bytes(call), elements, *told++ != 0);
      start += elements;
    }
  }
}

int64_t tripped_elements(const Call& call, const at::Tensor& trips, int64_t block) {
  int64_t found = 0;
  each_block(call, trips, block, [&](const char*, int64_t elements, bool tripped) { found += tripped ? elements : 0; });
  return found;
}

}  // namespace

int64_t tripped_blocks(const at::Tensor& trips) {
  const at::Tensor known = trips.cpu();
  const uint8_t* told = known.const_data_ptr<uint8_t>();
  return trips.numel() - std::count(told, told + trips.numel(), uint8_t(0));
}

at::Tensor room_for(const Call& call, const at::Tensor& trips, int64_t block) {
  return at::empty({tripped_elements(call, trips, block)}, first_of(call).options());
}

at::Tensor packed(const Call& call, const at::Tensor& trips, int64_t block) {
  at::Tensor values = room(call, tripped_elements(call, trips, block));
  char* to = static_cast<char*>(values.mutable_data_ptr());
  each_block(call, trips, block, [&](const char* data, int64_t elements, bool tripped) {
    if (!tripped) return;
    std::memcpy(to, data, elements * item_bytes(call));
    to += elements * item_bytes(call);
  });
  return values.to(first_of(call).device());
}

at::Tensor replaced(const Call& call, const at::Tensor& trips, int64_t block, const at::Tensor& values) {
  int64_t total = 0;
  for (const Segment& segment : call.segments) total += segment.elements;
  at::Tensor result = room(call, total);
  char* to = static_cast<char*>(result.mutable_data_ptr());
  const at::Tensor sent = values.cpu();
  const char* from = static_cast<const char*>(sent.const_data_ptr());
  each_block(call, trips, block, [&](const char* data, int64_t elements, bool tripped) {
    const int64_t bytes = elements * item_bytes(call);
    std::memcpy(to, tripped ? from : data, bytes);
    if (tripped) from += bytes;
    to += bytes;
  });
  return result.to(first_of(call).device());
}

}  // namespace relaxc
