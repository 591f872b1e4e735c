// The exchange of gradients of one iteration. Hooks fill it while backward runs, the queue empties it.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "launch.h"

namespace relaxc {

struct Residual {
  at::Tensor worker;  // whole parameter, or undefined
  at::Tensor owner;   // the range that this worker owns, or undefined
  int64_t owner_first = 0;
};

// What the exchange of gradients remembers from one iteration to the next, per parameter.
struct Memory {
  std::vector<Residual> residuals;
  std::vector<at::Tensor> zeros;  // stands for an absent gradient's residual, kept at zero
};

class Iteration final : public Launch {
 public:
  Iteration(std::shared_ptr<const Pieces> pieces, uint64_t number, std::shared_ptr<Memory> memory, int rank);

  std::vector<std::atomic<int>> missing;  // per bucket: gradients that are not there yet
  std::vector<char> fired;                // per parameter: its gradient arrived in this backward
  std::vector<at::Tensor> tensors;        // per parameter of a coded bucket: what is encoded and decoded into
  std::vector<char> absent;               // per parameter: no gradient here; contributes zeros and keeps its residual
  at::Tensor census;                      // per parameter a byte: some worker has a gradient for it

  // The last bucket, without parameters: buffer w of its piece is worker w's census.
  int census_bucket() const { return static_cast<int>(pieces->buckets) - 1; }

  char* find(Operand::Source source, const Segment& segment) override;
  void starts(const Piece& piece) override;
  void ran(const Call& call) override;
  void arrived() override;
  bool lands_early(int bucket) const override { return bucket != census_bucket(); }

 private:
  void give_back(int parameter);

  const std::shared_ptr<Memory> memory_;
  const int rank_;
};

}  // namespace relaxc
