// Calling Python from a thread that need not hold the GIL.
#pragma once
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <utility>

#include "watch.h"

namespace relaxc {

// The exception of what is called goes on as torch's own.
template <typename Call>
void with_python(Call call) {
  pybind11::gil_scoped_acquire gil;
  try {
    call();
  } catch (pybind11::error_already_set& error) {
    error.restore();
    python_error persistent;
    persistent.persist();
    throw std::move(persistent);
  }
}

// `watch` has on_wait(seconds), which may raise, and on_failure(iteration, bucket, peer, what), which raises.
inline Watch watch_of(const pybind11::object& watch) {
  pybind11::function on_wait = watch.attr("on_wait"), on_failure = watch.attr("on_failure");
  Watch result;
  result.on_wait = [on_wait](double seconds) {
    with_python([&] {
      if (PyErr_CheckSignals() != 0) throw pybind11::error_already_set();
      on_wait(seconds);
    });
  };
  result.on_failure = [on_failure](const Failure& failure) {
    with_python([&] { on_failure(failure.iteration, failure.bucket, failure.peer, failure.what); });
  };
  return result;
}

}  // namespace relaxc
