// Parts of the Python module.
#pragma once
#include <pybind11/pybind11.h>

namespace relaxc {

void define_devices(pybind11::module_& module);

}  // namespace relaxc
