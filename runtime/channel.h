// Over what a queue's messages go.
#pragma once
#include <c10/core/Device.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <chrono>
#include <memory>
#include <optional>

#include "c10d_transport.h"

namespace relaxc {

using Group = std::optional<c10::intrusive_ptr<c10d::ProcessGroup>>;

// A group of the device's own, over which what is there need not go through the host.
struct Ordered {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::chrono::milliseconds timeout;
};

// Of workers: none for one that is alone.
struct Channel {
  Group group;
  std::optional<Ordered> ordered;
};

// `through_host`: buffers are on `device`, which `group` does not reach.
std::unique_ptr<Transport> transport_over(const Channel& channel, c10::Device device, bool through_host);

}  // namespace relaxc
