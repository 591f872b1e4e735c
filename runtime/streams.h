// Order between the stream of whoever trains and the queue's, on devices that run behind the host. On the CPU what has
// returned is done, and there is nothing to order.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <optional>

namespace relaxc {

inline bool is_asynchronous(c10::Device device) { return device.type() != c10::DeviceType::CPU; }

// The handle that a driver knows the current stream of this thread by.
inline void* current_stream(c10::Device device) {
  if (!is_asynchronous(device)) return nullptr;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

// A place in a stream. Empty on the CPU, where everybody is past it.
using Mark = std::shared_ptr<c10::Event>;

// Behind what the current stream has been given so far.
inline Mark mark(c10::Device device) {
  if (!is_asynchronous(device)) return nullptr;
  auto made = std::make_shared<c10::Event>(device.type());
  made->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  return made;
}

// What the current stream is given from here on comes behind `place`; the host does not wait.
inline void follow(c10::Device device, const Mark& place) {
  if (place) place->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
}

// The host waits.
inline void await(const Mark& place) {
  if (place) place->synchronize();
}

// The calling thread gives its work to a stream of its own from here on, one of high priority: little that others wait for.
class OwnStream {
 public:
  explicit OwnStream(c10::Device device) {
    if (is_asynchronous(device)) guard_.emplace(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, true));
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

}  // namespace relaxc
