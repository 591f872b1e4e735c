#include "library.h"

#include <dlfcn.h>

#include <stdexcept>

namespace relaxc {

Library::Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ == nullptr) throw std::runtime_error(std::string("the plan's kernels can't be loaded: ") + dlerror());
}

Library::~Library() { dlclose(handle_); }

relaxrt_kernel Library::kernel(const std::string& symbol) const {
  void* found = dlsym(handle_, symbol.c_str());
  if (found == nullptr) throw std::runtime_error("the plan's library has no kernel " + symbol);
  return reinterpret_cast<relaxrt_kernel>(found);
}

}  // namespace relaxc
