// Blocks of a message that did not decode near the receiver's own value, and whose values are sent as they are.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>

#include "call.h"
#include "transport.h"

namespace relaxc {

// What of one message is sent again: undefined where nothing is.
struct Again {
  at::Tensor values;
  std::unique_ptr<Transfer> transfer;
};

// `trips` has a byte for each block, `block` is in elements (0: a segment is a block). What is packed and unpacked is the
// first operand of the call.

int64_t tripped_blocks(const at::Tensor& trips);

// Room for the values of the blocks that have tripped.
at::Tensor room_for(const Call& call, const at::Tensor& trips, int64_t block);

// Those values, one block behind the other.
at::Tensor packed(const Call& call, const at::Tensor& trips, int64_t block);

// All that the operand holds, segments one behind the other, with `values` in the blocks that have tripped.
at::Tensor replaced(const Call& call, const at::Tensor& trips, int64_t block, const at::Tensor& values);

}  // namespace relaxc
