// What the engine needs of c10d: tagged messages between two workers, and sums over all. Only its implementations see c10d.
#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace relaxc {

// One message or collective under way. Its buffers stay in use until wait() returned or threw.
class Transfer {
 public:
  virtual ~Transfer() = default;
  // True when complete; false where it may be waited for again. A message is waited for to its end, which abort() brings
  // about; a collective can't be aborted, so it is waited for in slices of `ms`. Throws std::exception where the transfer
  // failed or the group's timeout passed.
  virtual bool wait(int ms) = 0;
  virtual void abort() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<Transfer> send(const at::Tensor& bytes, int peer, int tag) = 0;
  virtual std::unique_ptr<Transfer> receive(const at::Tensor& bytes, int peer, int tag) = 0;
  virtual std::unique_ptr<Transfer> all_reduce(const at::Tensor& values) = 0;
  // Whether messages pair up by their order alone, without tags. What is sent and received between open() and close() then
  // goes as one group, and groups follow one another in the same order on all workers, with lists that agree. On a device
  // its end is that of a stream's work, which the host doesn't wait for: where it does not come within the timeout, `lost`
  // is told, of any thread, and what is under way ends.
  virtual bool ordered() const { return false; }
  virtual void open(uint64_t /*iteration*/, int /*bucket*/) {}
  virtual void close() {}
  virtual bool settled() const { return true; }  // whether all of that work has ended, as far as it is looked after
  virtual void abort() {}  // all that is under way, from here on
  std::function<void(uint64_t iteration, int bucket, const std::string& what)> lost;

  // From here on messages with `peer` go another way, on which it is `index`. Any thread.
  virtual void link(int peer, std::shared_ptr<Transport> way, int index) = 0;

  std::atomic<uint64_t> bytes{0};  // handed to c10d by this worker
};

// Of a worker that has nobody to talk to: a sum over all is what it has.
std::unique_ptr<Transport> alone();

}  // namespace relaxc
