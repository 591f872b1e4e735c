// CUDA's driver, found at run time: this runtime is the same with and without it.
#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace relaxc {

// What the driver says of a call that failed; `code` is its CUresult, -1 where there is no driver.
struct DriverError : std::runtime_error {
  DriverError(const std::string& what, int code) : std::runtime_error(what), code(code) {}
  int code;
};

struct DriverCalls;  // its functions

class Driver {
 public:
  // Loads libcuda.so.1, or `path`. Throws DriverError.
  explicit Driver(const std::string& path = "");
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  int version() const;  // 12040 is CUDA 12.4
  int devices() const;
  struct Capability {
    int major, minor, multiprocessors;
  };
  Capability capability(int device) const;  // throws DriverError

  const DriverCalls& calls() const { return *calls_; }
  void check(int result, const std::string& doing) const;  // throws DriverError

 private:
  void* handle_;
  std::unique_ptr<DriverCalls> calls_;
};

// Device code in the primary context of one device, which torch's is too.
class DeviceModule {
 public:
  // `image` is a cubin. Throws DriverError.
  DeviceModule(std::shared_ptr<const Driver> driver, int device, const std::string& image);
  ~DeviceModule();
  DeviceModule(const DeviceModule&) = delete;
  DeviceModule& operator=(const DeviceModule&) = delete;

  void* function(const std::string& symbol) const;  // throws DriverError
  // `stream` is a CUstream, `parameter` what the kernel is given by value. Does not wait.
  void launch(void* function, const std::string& symbol, unsigned blocks, unsigned threads, void* stream, void* parameter) const;
  int multiprocessors() const { return multiprocessors_; }

 private:
  class Current;  // makes the context that of this thread, for a while

  const std::shared_ptr<const Driver> driver_;
  const int device_;
  int multiprocessors_ = 1;
  void* context_ = nullptr;
  void* module_ = nullptr;
};

}  // namespace relaxc
