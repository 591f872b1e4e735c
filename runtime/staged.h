#pragma once
#include <c10/core/Device.h>

#include <memory>

#include "transport.h"

namespace relaxc {

// Carries what is on `device` through memory of the host, where `inner` takes its messages from: Gloo's messages between two
// must be there. What is on another device, such as the census, goes as it is.
std::unique_ptr<Transport> staged(std::unique_ptr<Transport> inner, c10::Device device);

}  // namespace relaxc
