// A launch as the queue's thread carries it out.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "again.h"
#include "queue.h"

namespace relaxc {

struct Queue::Running {
  Launch& launch;
  std::vector<size_t> next;                                    // per piece: the phase to come
  size_t posted = 0;                                           // pieces whose receives are posted
  std::vector<std::vector<std::unique_ptr<Transfer>>> arriving;  // per piece and buffer
  std::vector<std::unique_ptr<Transfer>> sums;                 // per piece: its all-reduce
  std::vector<std::vector<Again>> again;                       // per piece and buffer that tells of it
  struct Sent {
    std::unique_ptr<Transfer> transfer;
    int bucket;
    int peer;
  };
  std::vector<at::Tensor> resent;  // outlive their sends
  std::vector<Sent> sends;
  int bucket = -1;  // for the message of a failure
  int peer = -1;
};

}  // namespace relaxc
