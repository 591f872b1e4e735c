#include "driver.h"

#include <dlfcn.h>

namespace relaxc {
namespace {

constexpr const char* library = "libcuda.so.1";
constexpr int major_attribute = 75, minor_attribute = 76, multiprocessors_attribute = 16;

template <typename Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(handle, name));
  if (function == nullptr) throw DriverError(std::string("the driver has no ") + name, -1);
}

}  // namespace

// As cuda.h declares them; a CUresult is an int, a CUdevice too, every other handle a pointer.
struct DriverCalls {
  int (*init)(unsigned);
  int (*version)(int*);
  int (*count)(int*);
  int (*device)(int*, int);
  int (*attribute)(int*, int, int);
  int (*retain)(void**, int);
  int (*release)(int);
  int (*push)(void*);
  int (*pop)(void**);
  int (*load)(void**, const void*);
  int (*unload)(void*);
  int (*function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*name)(int, const char**);
  int (*text)(int, const char**);
};

Driver::Driver(const std::string& path)
    : handle_(dlopen(path.empty() ? library : path.c_str(), RTLD_NOW | RTLD_LOCAL)), calls_(std::make_unique<DriverCalls>()) {
  if (handle_ == nullptr) throw DriverError(std::string("CUDA's driver can't be loaded: ") + dlerror(), -1);
  find(handle_, "cuInit", calls_->init);
  find(handle_, "cuDriverGetVersion", calls_->version);
  find(handle_, "cuDeviceGetCount", calls_->count);
  find(handle_, "cuDeviceGet", calls_->device);
  find(handle_, "cuDeviceGetAttribute", calls_->attribute);
  find(handle_, "cuDevicePrimaryCtxRetain", calls_->retain);
  find(handle_, "cuDevicePrimaryCtxRelease_v2", calls_->release);
  find(handle_, "cuCtxPushCurrent_v2", calls_->push);
  find(handle_, "cuCtxPopCurrent_v2", calls_->pop);
  find(handle_, "cuModuleLoadData", calls_->load);
  find(handle_, "cuModuleUnload", calls_->unload);
  find(handle_, "cuModuleGetFunction", calls_->function);
  find(handle_, "cuLaunchKernel", calls_->launch);
  find(handle_, "cuGetErrorName", calls_->name);
  find(handle_, "cuGetErrorString", calls_->text);
  check(calls_->init(0), "CUDA's driver does not start");
}

// The library stays: a process can't take CUDA up again.
Driver::~Driver() = default;

void Driver::check(int result, const std::string& doing) const {
  if (result == 0) return;
  const char *name = nullptr, *text = nullptr;
  calls_->name(result, &name);
  calls_->text(result, &text);
  const std::string what = name == nullptr ? "error " + std::to_string(result) : name;
  throw DriverError(doing + ": " + (text == nullptr ? what : std::string(text) + " (" + what + ")"), result);
}

int Driver::version() const {
  int found = 0;
  check(calls_->version(&found), "the driver's version is not known");
  return found;
}

int Driver::devices() const {
  int found = 0;
  check(calls_->count(&found), "the driver does not count its devices");
  return found;
}

Driver::Capability Driver::capability(int device) const {
  int handle = 0;
  Capability found{};
  check(calls_->device(&handle, device), "the driver has no device " + std::to_string(device));
  for (auto [attribute, value] : {std::pair{major_attribute, &found.major}, std::pair{minor_attribute, &found.minor},
                                  std::pair{multiprocessors_attribute, &found.multiprocessors}})
    check(calls_->attribute(value, attribute, handle), "an attribute of device " + std::to_string(device) + " is not known");
  return found;
}

class DeviceModule::Current {
 public:
  explicit Current(const DeviceModule& module) : calls_(module.driver_->calls()) {
    module.driver_->check(calls_.push(module.context_), "the device's context can't be used");
  }
  ~Current() {
    void* former = nullptr;
    calls_.pop(&former);
  }

 private:
  const DriverCalls& calls_;
};

DeviceModule::DeviceModule(std::shared_ptr<const Driver> driver, int device, const std::string& image)
    : driver_(std::move(driver)), device_(device), multiprocessors_(driver_->capability(device).multiprocessors) {
  const DriverCalls& calls = driver_->calls();
  driver_->check(calls.retain(&context_, device_), "the context of device " + std::to_string(device));
  try {
    Current current(*this);
    driver_->check(calls.load(&module_, image.data()), "the plan's kernels can't be loaded");
  } catch (...) {
    calls.release(device_);
    throw;
  }
}

DeviceModule::~DeviceModule() {
  const DriverCalls& calls = driver_->calls();
  // At the end of a process the driver may have gone: then there is nothing to unload, and it says so.
  if (calls.push(context_) == 0) {
    calls.unload(module_);
    void* former = nullptr;
    calls.pop(&former);
  }
  calls.release(device_);
}

void* DeviceModule::function(const std::string& symbol) const {
  void* found = nullptr;
  Current current(*this);
  driver_->check(driver_->calls().function(&found, module_, symbol.c_str()), "the plan has no kernel " + symbol + " for this device");
  return found;
}

void DeviceModule::launch(void* function, const std::string& symbol, unsigned blocks, unsigned threads, void* stream,
                          void* parameter) const {
  Current current(*this);
  void* parameters[] = {parameter};
  driver_->check(driver_->calls().launch(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr),
                 "kernel " + symbol + " was not launched");
}

}  // namespace relaxc
