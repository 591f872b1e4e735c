// Python's view of devices: the driver, and a plan's kernels there.
#include <torch/csrc/utils/pybind.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "binding.h"
#include "device_call.h"
#include "driver.h"

namespace py = pybind11;

namespace relaxc {
namespace {

LaunchPlan launch_plan(const std::string& symbol, unsigned threads, int64_t per_block, bool empty, int64_t scratch_per_element,
                       const std::vector<std::tuple<bool, int64_t, int, double>>& fields) {
  LaunchPlan made{symbol, threads, per_block, empty, scratch_per_element, {}};
  for (const auto& [per_element, bytes, bits, part] : fields) made.fields.push_back({per_element, bytes, bits, part});
  return made;
}

}  // namespace

void define_devices(py::module_& module) {
  static py::exception<DriverError> driver_error(module, "DriverError", PyExc_RuntimeError);
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const DriverError& error) {
      py::set_error(driver_error, error.what());
    }
  });
  py::class_<Driver, std::shared_ptr<Driver>>(module, "Driver")
      .def(py::init<const std::string&>(), py::arg("path") = "")
      .def_property_readonly("version", &Driver::version)
      .def_property_readonly("devices", &Driver::devices)
      .def("capability", [](const Driver& driver, int device) {
        Driver::Capability found = driver.capability(device);
        return std::make_pair(found.major, found.minor);
      });
  py::class_<LaunchPlan>(module, "LaunchPlan")
      .def(py::init(&launch_plan), py::arg("symbol"), py::arg("threads"), py::arg("per_block"), py::arg("empty"),
           py::arg("scratch_per_element"),
           py::arg("fields"))
      .def("blocks", &LaunchPlan::blocks)
      .def("message", &LaunchPlan::message);
  py::class_<DeviceLibrary, std::shared_ptr<DeviceLibrary>>(module, "DeviceLibrary")
      .def(py::init([](std::shared_ptr<Driver> driver, c10::Device device, int index, const py::bytes& image,
                       std::vector<LaunchPlan> launches) {
             return std::make_shared<DeviceLibrary>(std::move(driver), device, index, std::string(image), std::move(launches));
           }),
           py::arg("driver").none(true), py::arg("device"), py::arg("index"), py::arg("image"), py::arg("launches"));
}

}  // namespace relaxc
