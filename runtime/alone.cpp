#include <stdexcept>

#include "transport.h"

namespace relaxc {
namespace {

class Complete final : public Transfer {
 public:
  bool wait(int) override { return true; }
  void abort() override {}
};

class Alone final : public Transport {
 public:
  std::unique_ptr<Transfer> send(const at::Tensor&, int, int) override { throw std::logic_error("a message to nobody"); }
  std::unique_ptr<Transfer> receive(const at::Tensor&, int, int) override {
    throw std::logic_error("a message from nobody");
  }
  std::unique_ptr<Transfer> all_reduce(const at::Tensor&) override { return std::make_unique<Complete>(); }
  void link(int, std::shared_ptr<Transport>, int) override { throw std::logic_error("a way to nobody"); }
};

}  // namespace

std::unique_ptr<Transport> alone() { return std::make_unique<Alone>(); }

}  // namespace relaxc
