// A plan's generated kernels, loaded with dlopen.
#pragma once
#include <memory>
#include <string>

#include "relaxrt/abi.h"

namespace relaxc {

class Library {
 public:
  explicit Library(const std::string& path);  // throws std::runtime_error
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  relaxrt_kernel kernel(const std::string& symbol) const;  // throws std::runtime_error

 private:
  void* handle_;
};

}  // namespace relaxc
