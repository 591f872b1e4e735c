#pragma once
#include <c10/util/intrusive_ptr.h>

#include "transport.h"

namespace c10d {
class ProcessGroup;
}

namespace relaxc {

std::unique_ptr<Transport> c10d_transport(c10::intrusive_ptr<c10d::ProcessGroup> group);

}  // namespace relaxc
