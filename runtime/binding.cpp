// Python's view of the engine: one class, built by relaxc/attach/engine.py and driven by autograd.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/utils/pybind.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "c10d_transport.h"
#include "gradients.h"
#include "library.h"
#include "queue.h"

namespace py = pybind11;

namespace relaxc {
namespace {

// (kind, symbol, name, ranges, inputs, tensor, residual, owner, buffer, peer, tag)
using ActionRow = std::tuple<std::string, std::string, std::string, std::vector<std::tuple<int, int64_t, int64_t>>,
                             std::vector<int>, bool, bool, bool, int, int, int>;

// Runs Python from a thread that need not hold the GIL; its exception goes on as torch's own.
template <typename Call>
void with_python(Call call) {
  py::gil_scoped_acquire gil;
  try {
    call();
  } catch (py::error_already_set& error) {
    error.restore();
    python_error persistent;
    persistent.persist();
    throw std::move(persistent);
  }
}

class Engine {
 public:
  Engine(const c10::intrusive_ptr<c10d::ProcessGroup>& group, uint64_t seed, const std::optional<std::string>& library)
      : queue_(std::make_shared<Queue>(c10d_transport(group), group->getRank(), group->getSize(), seed)),
        gradients_(std::make_shared<Gradients>(queue_, group->getSize())) {
    if (library) library_ = std::make_unique<Library>(*library);
  }

  ~Engine() {
    if (queue_->forked()) {
      // The thread that a child lacks still counts as a waiter of the queue's conditions, whose destruction would wait for it.
      new std::shared_ptr<Queue>(queue_);
      library_.release();
    }
    stop();
  }

  void add_parameter(const at::Tensor& parameter, const std::string& name, int bucket, int64_t offset,
                     const std::optional<at::Tensor>& worker, const std::optional<at::Tensor>& owner,
                     int64_t owner_first) {
    gradients_->add(parameter, name, bucket, offset);
    queue_->residuals.push_back({worker.value_or(at::Tensor()), owner.value_or(at::Tensor()), owner_first});
    queue_->zeros.emplace_back();
  }

  void add_bucket(const std::vector<int>& parameters, bool coded, int delay, const std::vector<at::Tensor>& flat) {
    queue_->buckets.push_back({parameters, coded, delay});
    queue_->flat.push_back(flat);
  }

  void add_piece(int bucket, uint64_t place, const std::vector<at::Tensor>& buffers,
                 const std::vector<std::vector<ActionRow>>& phases) {
    Piece piece{bucket, place, buffers, {}};
    for (const auto& rows : phases) {
      Phase phase;
      for (const ActionRow& row : rows) phase.push_back(action(row));
      piece.phases.push_back(std::move(phase));
    }
    queue_->pieces.push_back(std::move(piece));
  }

  // `watch` has on_wait(seconds), which may raise; on_failure(iteration, bucket, peer, what) and refuse(code, message,
  // help), which raise; and on_broken(iteration).
  void start(const py::object& watch) {
    py::function on_wait = watch.attr("on_wait"), on_failure = watch.attr("on_failure");
    py::function refuse = watch.attr("refuse"), on_broken = watch.attr("on_broken");
    gradients_->refuse = [refuse](const std::string& code, const std::string& message, const std::string& help) {
      with_python([&] { refuse(code, message, help); });
    };
    gradients_->on_broken = [on_broken](uint64_t iteration) { with_python([&] { on_broken(iteration); }); };
    gradients_->on_wait = [on_wait](double seconds) {
      with_python([&] {
        if (PyErr_CheckSignals() != 0) throw py::error_already_set();
        on_wait(seconds);
      });
    };
    gradients_->on_failure = [on_failure](const Failure& failure) {
      with_python([&] { on_failure(failure.iteration, failure.bucket, failure.peer, failure.what); });
    };
    gradients_->attach();
    queue_->start();
  }

  void stop() {
    if (!gradients_) return;
    gradients_->detach();
    py::gil_scoped_release release;
    queue_->stop();
  }

  void drain() {
    py::gil_scoped_release release;
    gradients_->drain();
  }

  py::dict counters() const {
    py::dict result;
    const Counters& counters = queue_->counters;
    result["bytes_sent"] = counters.bytes.load();
    result["exchange_seconds"] = static_cast<double>(counters.busy_ns.load()) * 1e-9;
    result["codec_seconds"] = static_cast<double>(counters.kernel_ns.load()) * 1e-9;
    result["exposed_seconds"] = gradients_->exposed_seconds();
    result["exchanges"] = counters.iterations.load();
    return result;
  }

  using PendingRow = std::tuple<uint64_t, double, at::Tensor, std::vector<std::optional<at::Tensor>>>;

  std::vector<PendingRow> pending() {
    py::gil_scoped_release release;
    std::vector<PendingRow> rows;
    for (auto& entry : gradients_->pending()) {
      std::vector<std::optional<at::Tensor>> flat;
      for (auto& tensor : entry.flat) flat.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
      rows.emplace_back(entry.number, entry.scale, entry.census, std::move(flat));
    }
    return rows;
  }

  void resume(uint64_t iterations, const std::vector<PendingRow>& rows) {
    py::gil_scoped_release release;
    std::vector<Gradients::Pending> pending;
    for (const auto& [number, scale, census, flat] : rows) {
      pending.push_back({number, scale, census, {}});
      for (const auto& tensor : flat) pending.back().flat.push_back(tensor.value_or(at::Tensor()));
    }
    gradients_->set_iterations(iterations);
    gradients_->set_pending(pending);
  }

  void set_loss_scale(const py::function& loss_scale) {
    gradients_->loss_scale = [loss_scale] {
      double scale = 1;
      with_python([&] { scale = loss_scale().cast<double>(); });
      return scale;
    };
  }

  Gradients& gradients() { return *gradients_; }

 private:
  Action action(const ActionRow& row) const {
    const auto& [kind, symbol, name, ranges, inputs, tensor, residual, owner, buffer, peer, tag] = row;
    Action action;
    action.kind = kind == "run" ? Kind::run : kind == "send" ? Kind::send : Kind::receive;
    if (action.kind == Kind::run) action.kernel = library_->kernel(symbol);
    action.name = name;
    for (const auto& [parameter, first, elements] : ranges) action.ranges.push_back({parameter, first, elements});
    action.inputs = inputs;
    action.tensor = tensor;
    action.residual = residual;
    action.owner = owner;
    action.buffer = buffer;
    action.peer = peer;
    action.tag = tag;
    return action;
  }

  std::unique_ptr<Library> library_;  // outlives the queue that calls into it
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Gradients> gradients_;
};

}  // namespace

PYBIND11_MODULE(relaxc_runtime, module) {
  module.doc() = "relaxc's runtime: exchanges gradients as a plan says, over a c10d process group";
  py::class_<Engine>(module, "Engine")
      .def(py::init<const c10::intrusive_ptr<c10d::ProcessGroup>&, uint64_t, const std::optional<std::string>&>())
      .def("add_parameter", &Engine::add_parameter)
      .def("add_bucket", &Engine::add_bucket)
      .def("add_piece", &Engine::add_piece)
      .def("start", &Engine::start)
      .def("stop", &Engine::stop)
      .def("drain", &Engine::drain)
      .def("counters", &Engine::counters)
      .def("pending", &Engine::pending)
      .def("resume", &Engine::resume)
      .def("set_loss_scale", &Engine::set_loss_scale)
      .def_property_readonly("scale", [](Engine& engine) { return engine.gradients().scale(); })
      .def("lost", [](Engine& engine) { return engine.gradients().lost(); })
      .def("hidden", [](Engine& engine) { return engine.gradients().hidden(); })
      .def_property_readonly("iterations", [](Engine& engine) { return engine.gradients().iterations(); })
      .def_property(
          "enabled", [](Engine& engine) { return engine.gradients().enabled; },
          [](Engine& engine, bool enabled) { engine.gradients().enabled = enabled; });
}

}  // namespace relaxc
