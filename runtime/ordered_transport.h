#pragma once
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>

#include "transport.h"

namespace c10d {
class ProcessGroup;
}

namespace relaxc {

// Over a group whose messages know no tags and may only go together, in groups (NCCL): what is on `device`. Everything else
// goes by `inner`. What does not end within `timeout` is lost.
std::unique_ptr<Transport> ordered_transport(c10::intrusive_ptr<c10d::ProcessGroup> group, c10::Device device,
                                             std::chrono::milliseconds timeout, std::unique_ptr<Transport> inner);

}  // namespace relaxc
