// What is asked while a caller waits for the queue, and told when that is in vain.
#pragma once
#include <ATen/record_function.h>

#include <chrono>
#include <functional>
#include <stdexcept>

#include "queue.h"

namespace relaxc {

struct Watch {
  // Called while waiting, with the seconds waited so far; may throw (a signal, another worker's failure).
  std::function<void(double)> on_wait;
  // Called when the exchange failed; throws.
  std::function<void(const Failure&)> on_failure;

  [[noreturn]] void fail(const Failure& failure) const {
    on_failure(failure);
    throw std::runtime_error(failure.what);
  }

  // Waits until `until(ms)`, which waits at most that long, is true. Returns the seconds that it took.
  template <typename Until>
  double wait(const Queue& queue, Until until) const {
    constexpr int slice_ms = 50;
    RECORD_FUNCTION("relaxc::wait", c10::ArrayRef<const c10::IValue>{});
    auto start = std::chrono::steady_clock::now();
    auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    while (!until(slice_ms)) {
      if (auto failure = queue.failure()) fail(*failure);
      on_wait(seconds());
    }
    return seconds();
  }
};

}  // namespace relaxc
