// A libcuda whose device is the CPU: its memory is the host's, and a cubin is the path of a library that holds generated
// kernels under emulation.h. The environment says what it is: FAKE_CUDA_VERSION (12040), FAKE_CUDA_CAPABILITY (80),
// FAKE_CUDA_DEVICES (1), and FAKE_CUDA_REFUSES, the name of an entry point that fails with FAKE_CUDA_ERROR (209).
// FAKE_CUDA_LOG names a file that gets a line for each launch, FAKE_CUDA_ORDER is that of a block's threads (0).
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

#include "relaxrt/cuda_abi.h"

namespace {

struct Module {
  void* library;
};

struct Function {
  Module* module;
  void (*kernel)(relaxrt_cuda_call);
  std::string name;
};

std::mutex one_at_a_time;  // the emulation has one device's state
thread_local int contexts = 0;

int setting(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text != nullptr ? atoi(text) : otherwise;
}

int outcome(const char* entry) {
  const char* refused = getenv("FAKE_CUDA_REFUSES");
  return refused != nullptr && strcmp(refused, entry) == 0 ? setting("FAKE_CUDA_ERROR", 209) : 0;
}

}  // namespace

extern "C" {

int cuInit(unsigned) { return outcome("cuInit"); }

int cuDriverGetVersion(int* version) {
  *version = setting("FAKE_CUDA_VERSION", 12040);
  return 0;
}

int cuDeviceGetCount(int* count) {
  *count = setting("FAKE_CUDA_DEVICES", 1);
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal < setting("FAKE_CUDA_DEVICES", 1) ? 0 : 101;
}

int cuDeviceGetAttribute(int* value, int attribute, int) {
  const int capability = setting("FAKE_CUDA_CAPABILITY", 80);
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : attribute == 16 ? 2 : 0;
  return 0;
}

int cuDevicePrimaryCtxRetain(void** context, int) {
  static int the_one;
  *context = &the_one;
  return 0;
}

int cuDevicePrimaryCtxRelease_v2(int) { return 0; }

int cuCtxPushCurrent_v2(void* context) {
  if (context == nullptr) return 201;
  ++contexts;
  return 0;
}

int cuCtxPopCurrent_v2(void**) {
  --contexts;
  return 0;
}

int cuModuleLoadData(void** module, const void* image) {
  if (contexts == 0) return 201;
  if (int failed = outcome("cuModuleLoadData")) return failed;
  void* library = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return 200;
  *module = new Module{library};
  return 0;
}

int cuModuleUnload(void*) { return 0; }

int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (contexts == 0) return 201;
  auto* held = static_cast<Module*>(module);
  void* found = dlsym(held->library, name);
  if (found == nullptr) return 500;
  *function = new Function{held, reinterpret_cast<void (*)(relaxrt_cuda_call)>(found), name};
  return 0;
}

int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned, void*,
                   void** parameters, void**) {
  if (contexts == 0) return 201;
  if (int failed = outcome("cuLaunchKernel")) return failed;
  if (blocks == 0 || threads == 0) return 1;
  using Emulate = int (*)(void (*)(relaxrt_cuda_call), unsigned, unsigned, const relaxrt_cuda_call*, int, unsigned, char*, int64_t);
  auto* held = static_cast<Function*>(function);
  auto emulate = reinterpret_cast<Emulate>(dlsym(held->module->library, "relaxrt_emulate"));
  if (emulate == nullptr) return 500;
  char message[4096] = "";
  std::lock_guard<std::mutex> lock(one_at_a_time);
  if (const char* log = getenv("FAKE_CUDA_LOG")) {
    if (FILE* file = fopen(log, "a")) {
      fprintf(file, "%s %u %u\n", held->name.c_str(), blocks, threads);
      fclose(file);
    }
  }
  auto* call = static_cast<relaxrt_cuda_call*>(parameters[0]);
  if (emulate(held->kernel, blocks, threads, call, setting("FAKE_CUDA_ORDER", 0), 1, message, sizeof message) == 0) return 0;
  fprintf(stderr, "fake driver: %s: %s\n", held->name.c_str(), message);
  return 700;
}

int cuGetErrorName(int error, const char** name) {
  *name = error == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : error == 100 ? "CUDA_ERROR_NO_DEVICE"
        : error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
        : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : nullptr;
  return *name != nullptr ? 0 : 1;
}

int cuGetErrorString(int error, const char** text) {
  *text = error == 209 ? "no kernel image is available for execution on the device"
        : error == 100 ? "no CUDA-capable device is detected"
        : error == 700 ? "an illegal memory access was encountered" : nullptr;
  return *text != nullptr ? 0 : 1;
}
}
