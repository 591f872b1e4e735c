// A device for c10 that has streams and events and does nothing, but say who asks for what order: a line on stderr each.
// Threads are told apart by their streams: the main thread's is 7, a queue's own of high priority is 1, others have 0. With FAILS set no
// event can be recorded on a queue's stream, as on CUDA once an assertion on the device has failed.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace {

const std::thread::id main_thread = std::this_thread::get_id();
thread_local c10::StreamId own = 0;

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::Device getDevice() const override { return {type(), 0}; }
  c10::Device exchangeDevice(c10::Device) const override { return getDevice(); }
  void setDevice(c10::Device) const override {}
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }

  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, std::this_thread::get_id() == main_thread ? 7 : own);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool high_priority = false) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, high_priority ? 1 : 2);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    const c10::Stream before = getStream(stream.device());
    own = stream.id();
    return before;
  }

  void record(void**, const c10::Stream& stream, c10::DeviceIndex, c10::EventFlag) const override {
    if (stream.id() == 1 && std::getenv("FAILS")) throw std::runtime_error("device-side assert triggered");
    std::fprintf(stderr, "record %d\n", int(stream.id()));
  }
  void block(void*, const c10::Stream& stream) const override { std::fprintf(stderr, "follow %d\n", int(stream.id())); }
  void synchronizeEvent(void*) const override { std::fprintf(stderr, "the host waits\n"); }
  void synchronizeStream(const c10::Stream&) const override { std::fprintf(stderr, "the host waits\n"); }
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

}  // namespace
