// Work that a device was given and that must end in time, looked after by a thread: whoever gave it does not wait.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace relaxc {

// In the order in which it was given, which is the order in which it ends.
class Overdue {
 public:
  struct Entry {
    uint64_t iteration;
    int bucket;
    std::function<bool()> done;  // throws where the work has failed
  };
  using Late = std::function<void(const Entry&, const std::string& what)>;

  // `late` is called once, by the thread, for the first entry that has failed or taken longer than `timeout` since all
  // before it had ended; no entry is looked at after it.
  Overdue(std::chrono::milliseconds timeout, Late late) : timeout_(timeout), late_(std::move(late)) {
    thread_ = std::thread([this] { watch(); });
  }
  // Waits for what has been added, if it was not told to stop.
  ~Overdue() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
  }

  bool empty() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return entries_.empty();
  }

  void add(Entry entry) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      entries_.push_back(std::move(entry));
    }
    changed_.notify_all();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds look_every{20};

  void watch() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || ending_ || !entries_.empty(); });
      if (stopping_ || entries_.empty()) return;
      const Clock::time_point end = Clock::now() + timeout_;
      std::string what;
      while (!stopping_ && (what = state(entries_.front(), Clock::now() > end)) == under_way)
        changed_.wait_for(lock, look_every, [&] { return stopping_; });
      if (stopping_) return;
      Entry first = std::move(entries_.front());
      entries_.pop_front();
      if (what.empty()) continue;
      lock.unlock();
      late_(first, what);
      return;
    }
  }

  // Empty: it has ended.
  static std::string state(const Entry& entry, bool late) {
    try {
      if (entry.done()) return "";
    } catch (const std::exception& error) {
      return error.what();
    }
    return late ? "timed out on the device" : under_way;
  }

  static constexpr const char* under_way = "under way";
  const std::chrono::milliseconds timeout_;
  const Late late_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> entries_;
  bool stopping_ = false, ending_ = false;
  std::thread thread_;
};

}  // namespace relaxc
