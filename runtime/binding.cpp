// Python's view of the engine: what schedules are made of, and two classes that carry them out.
#include <torch/csrc/utils/pybind.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "binding.h"
#include "channel.h"
#include "device_call.h"
#include "gradients.h"
#include "library.h"
#include "operations.h"
#include "python.h"
#include "queue.h"

namespace py = pybind11;

namespace relaxc {
namespace {

Operand::Source source_of(const std::string& name) {
  if (name == "buffer") return Operand::Source::buffer;
  if (name == "weight") return Operand::Source::weight;
  if (name == "gradient") return Operand::Source::gradient;
  if (name == "value") return Operand::Source::value;
  if (name == "residual") return Operand::Source::residual;
  if (name == "owner") return Operand::Source::owner;
  throw std::invalid_argument("no operand is found at " + name);
}

Operand operand(const std::string& source, const std::optional<at::Tensor>& tensor, int64_t first, bool written) {
  Operand made{source_of(source), tensor.value_or(at::Tensor()), first, written};
  bool native = made.source == Operand::Source::value || made.source == Operand::Source::residual ||
                made.source == Operand::Source::owner;
  if (!native && !tensor) throw std::invalid_argument("an operand at " + source + " needs a tensor");
  if (tensor) made.bytes = tensor->nbytes();
  return made;
}

Kind kind_of(const std::string& name) {
  if (name == "run") return Kind::run;
  if (name == "send") return Kind::send;
  if (name == "receive") return Kind::receive;
  if (name == "check") return Kind::check;
  if (name == "resend") return Kind::resend;
  if (name == "values") return Kind::values;
  if (name == "settle") return Kind::settle;
  throw std::invalid_argument("no action " + name);
}

Action action(const std::string& kind, std::shared_ptr<Call> call, int buffer, int peer, int tag, std::vector<int> near,
              int64_t block, std::shared_ptr<Near> settled) {
  Kind found = kind_of(kind);
  bool calls = found == Kind::run || found == Kind::check || found == Kind::resend || found == Kind::settle;
  if (calls != (call != nullptr))
    throw std::invalid_argument("an action is run, check, resend or settle with a call, else without");
  if ((found == Kind::settle) != (settled != nullptr)) throw std::invalid_argument("what settles, settles something");
  return {found, std::move(call), buffer, peer, tag, std::move(near), block, std::move(settled)};
}

using Device = std::optional<std::shared_ptr<DeviceLibrary>>;

c10::Device device_of(const Device& library) { return library ? (*library)->device() : c10::Device(c10::DeviceType::CPU); }

// The queue and the library that an engine owns, and what it says of them.
class Carrier {
 public:
  Carrier(const Channel& channel, Worker worker, const std::optional<std::string>& library, const Device& device)
      : worker_(worker), device_(device), queue_(std::make_shared<Queue>(transport_over(channel, device_of(device), device.has_value()), device_of(device))) {
    if (library) library_ = std::make_shared<Library>(*library);
  }

  ~Carrier() {
    if (queue_->forked()) {
      // The thread that a child lacks still counts as a waiter of the queue's conditions, whose destruction would wait for it.
      new std::shared_ptr<Queue>(queue_);
      new std::shared_ptr<const Library>(library_);
    }
    // A process group's destructor joins threads that may want the GIL to let go of what they saved of Python's state.
    py::gil_scoped_release release;
    queue_->stop();
    queue_.reset();
  }

  std::shared_ptr<Call> call(const std::string& symbol, const std::string& label, std::vector<Segment> segments,
                             std::vector<at::Tensor> inputs, const std::optional<at::Tensor>& output, uint64_t place,
                             bool owner, std::shared_ptr<Near> near, int own) const {
    if (!library_ && !device_) throw std::invalid_argument("a kernel is called and the plan has no library");
    relaxrt_kernel kernel = symbol.empty() || device_ ? nullptr : library_->kernel(symbol);
    auto there = symbol.empty() || !device_ ? nullptr : std::make_shared<const DeviceKernel>(*device_, symbol);
    if (symbol.empty() && (segments.size() != 1 || segments[0].operands.size() != 1 || !output))
      throw std::invalid_argument("what lends its memory is one operand, in one segment, to one message");
    return std::make_shared<Call>(Call{worker_, library_, kernel, label, std::move(segments), std::move(inputs),
                                       output.value_or(at::Tensor()), place, std::move(near), own, owner,
                                       std::move(there)});
  }

  void stop() {
    py::gil_scoped_release release;
    queue_->stop();
  }

  py::dict counters(double exposed_seconds) const {
    py::dict result;
    const Counters& counters = queue_->counters;
    result["bytes_sent"] = queue_->bytes();
    result["exchange_seconds"] = static_cast<double>(counters.busy_ns.load()) * 1e-9;
    result["kernel_seconds"] = static_cast<double>(counters.kernel_ns.load()) * 1e-9;
    result["exposed_seconds"] = exposed_seconds;
    result["exchanges"] = counters.launches.load();
    result["trips"] = counters.trips.load();
    return result;
  }

  const std::shared_ptr<Queue>& queue() const { return queue_; }

 private:
  const Worker worker_;
  const Device device_;
  std::shared_ptr<const Library> library_;
  std::shared_ptr<Queue> queue_;
};

class Engine {
 public:
  Engine(const Channel& channel, int rank, int workers, uint64_t seed, const std::optional<std::string>& library,
         const Device& device)
      : carrier(channel, {rank, workers, seed}, library, device),
        gradients(std::make_shared<Gradients>(carrier.queue(), Worker{rank, workers, seed})) {}

  ~Engine() { gradients->detach(); }

  void add_parameter(const at::Tensor& parameter, const std::string& name, int bucket, int64_t offset,
                     const std::optional<at::Tensor>& worker, const std::optional<at::Tensor>& owner,
                     int64_t owner_first) {
    gradients->add(parameter, name, bucket, offset,
                   Residual{worker.value_or(at::Tensor()), owner.value_or(at::Tensor()), owner_first});
  }

  void add_bucket(const std::vector<int>& parameters, bool coded, int delay, const std::vector<at::Tensor>& flat) {
    gradients->add(Bucket{parameters, coded, delay, flat});
  }

  void add_piece(const Piece& piece) { gradients->add(piece); }

  // `watch` has, beside what watch_of asks for, refuse(code, message, help), which raises, and on_broken(iteration).
  void start(const py::object& watch) {
    py::function refuse = watch.attr("refuse"), on_broken = watch.attr("on_broken");
    gradients->refuse = [refuse](const std::string& code, const std::string& message, const std::string& help) {
      with_python([&] { refuse(code, message, help); });
    };
    gradients->on_broken = [on_broken](uint64_t iteration) { with_python([&] { on_broken(iteration); }); };
    gradients->watch = watch_of(watch);
    gradients->attach();
  }

  void stop() {
    gradients->detach();
    carrier.stop();
  }

  void drain() {
    py::gil_scoped_release release;
    gradients->drain();
  }

  void set_on_backward(const std::optional<py::function>& call) {
    gradients->on_backward = nullptr;
    if (call) gradients->on_backward = [call = *call] { with_python([&] { call(); }); };
  }

  using PendingRow = std::tuple<uint64_t, double, at::Tensor, std::vector<std::optional<at::Tensor>>>;

  std::vector<PendingRow> pending() {
    py::gil_scoped_release release;
    std::vector<PendingRow> rows;
    for (auto& entry : gradients->pending()) {
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
    gradients->set_iterations(iterations);
    gradients->set_pending(pending);
  }

  void set_loss_scale(const py::function& loss_scale) {
    gradients->loss_scale = [loss_scale] {
      double scale = 1;
      with_python([&] { scale = loss_scale().cast<double>(); });
      return scale;
    };
  }

  Carrier carrier;  // outlives the hooks
  std::shared_ptr<Gradients> gradients;
};

using Calls = std::vector<std::shared_ptr<Call>>;

void run_calls(const Calls& calls, uint64_t iteration, std::vector<double> numbers,
               std::optional<std::vector<double>> weights) {
  Arguments given{iteration, std::move(numbers), std::move(weights).value_or(std::vector<double>()), nullptr, {}};
  for (const auto& call : calls) call->run(given);
}

struct PythonOperations {
  PythonOperations(const Channel& channel, int rank, int workers, uint64_t seed, const std::optional<std::string>& library,
                   const py::object& watch, bool survives, const Device& device)
      : carrier(workers > 1 ? channel : Channel{}, {rank, workers, seed}, library, device), operations(carrier.queue(), survives) {
    operations.watch = watch_of(watch);
  }

  Carrier carrier;
  Operations operations;
};

void define_channel(py::module_& module) {
  py::class_<Channel>(module, "Channel")
      .def(py::init([](Group group, Group ordered, double timeout) {
             std::optional<Ordered> over;
             if (ordered) over = Ordered{std::move(*ordered), std::chrono::milliseconds(static_cast<int64_t>(timeout * 1e3))};
             return Channel{std::move(group), std::move(over)};
           }),
           py::arg("group") = py::none(), py::arg("ordered") = py::none(), py::arg("timeout") = 0.0);
}

void define_schedule(py::module_& module) {
  py::class_<Operand>(module, "Operand")
      .def(py::init(&operand), py::arg("source"), py::arg("tensor") = py::none(), py::arg("first") = 0,
           py::arg("written") = false);
  py::class_<Segment>(module, "Segment")
      .def(py::init([](int parameter, int64_t first, int64_t elements, std::vector<Operand> operands) {
             return Segment{parameter, first, elements, std::move(operands)};
           }),
           py::arg("parameter"), py::arg("first"), py::arg("elements"), py::arg("operands"));
  py::class_<Near, std::shared_ptr<Near>>(module, "Near").def(py::init<>());
  py::class_<Call, std::shared_ptr<Call>>(module, "Call")
      .def(
          "run",
          [](const std::shared_ptr<Call>& call, uint64_t iteration, std::vector<double> numbers,
             std::optional<std::vector<double>> weights) {
            run_calls({call}, iteration, std::move(numbers), std::move(weights));
          },
          py::arg("iteration"), py::arg("numbers"), py::arg("weights") = py::none(),
          py::call_guard<py::gil_scoped_release>());
  py::class_<Action>(module, "Action")
      .def(py::init(&action), py::arg("kind"), py::arg("call") = py::none(), py::arg("buffer") = -1, py::arg("peer") = -1,
           py::arg("tag") = 0, py::arg("near") = std::vector<int>(), py::arg("block") = 0, py::arg("settled") = nullptr);
  py::class_<Piece>(module, "Piece")
      .def(py::init([](int bucket, std::vector<at::Tensor> buffers, std::vector<Phase> phases, std::vector<at::Tensor> sums,
                       bool lent) {
             return Piece{bucket, std::move(buffers), std::move(phases), std::move(sums), lent};
           }),
           py::arg("bucket"), py::arg("buffers") = std::vector<at::Tensor>(), py::arg("phases") = std::vector<Phase>(),
           py::arg("sums") = std::vector<at::Tensor>(), py::arg("lent") = false);
  py::class_<Job, std::shared_ptr<Job>>(module, "Job");
}

template <typename Class, typename Carried>
void define_call(Class& made, Carried carried) {
  made.def(
      "call",
      [carried](const typename Class::type& self, const std::string& symbol, const std::string& label,
                std::vector<Segment> segments, std::vector<at::Tensor> inputs, const std::optional<at::Tensor>& output,
                uint64_t place, bool owner, std::shared_ptr<Near> near, int own) {
        return (self.*carried).call(symbol, label, std::move(segments), std::move(inputs), output, place, owner,
                                    std::move(near), own);
      },
      py::arg("symbol"), py::arg("label"), py::arg("segments"), py::arg("inputs") = std::vector<at::Tensor>(),
      py::arg("output") = py::none(), py::arg("place") = 0, py::arg("owner") = false, py::arg("near") = nullptr,
      py::arg("own") = -1);
}

void define_engine(py::module_& module) {
  py::class_<Engine> engine(module, "Engine");
  engine
      .def(py::init<const Channel&, int, int, uint64_t, const std::optional<std::string>&, const Device&>(), py::arg("channel"),
           py::arg("rank"), py::arg("workers"), py::arg("seed"), py::arg("library"), py::arg("device") = py::none())
      .def("add_parameter", &Engine::add_parameter)
      .def("add_bucket", &Engine::add_bucket)
      .def("add_piece", &Engine::add_piece)
      .def("start", &Engine::start)
      .def("stop", &Engine::stop)
      .def("drain", &Engine::drain)
      .def("counters", [](const Engine& engine) { return engine.carrier.counters(engine.gradients->exposed_seconds()); })
      .def("pending", &Engine::pending)
      .def("resume", &Engine::resume)
      .def("set_loss_scale", &Engine::set_loss_scale)
      .def("set_on_backward", &Engine::set_on_backward)
      .def_property_readonly("scale", [](const Engine& engine) { return engine.gradients->scale(); })
      .def("lost", [](const Engine& engine) { return engine.gradients->lost(); })
      .def("hidden", [](const Engine& engine) { return engine.gradients->hidden(); })
      .def("fired", [](const Engine& engine) { return engine.gradients->fired(); })
      .def_property_readonly("iterations", [](const Engine& engine) { return engine.gradients->iterations(); })
      .def_property(
          "enabled", [](const Engine& engine) { return engine.gradients->enabled; },
          [](Engine& engine, bool enabled) { engine.gradients->enabled = enabled; });
  define_call(engine, &Engine::carrier);
}

void define_operations(py::module_& module) {
  using Self = PythonOperations;
  using Weights = std::optional<std::vector<double>>;
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<Self> operations(module, "Operations");
  operations
      .def(py::init<const Channel&, int, int, uint64_t, const std::optional<std::string>&, const py::object&, bool, const Device&>(),
           py::arg("channel"), py::arg("rank"), py::arg("workers"), py::arg("seed"), py::arg("library"), py::arg("watch"),
           py::arg("survives") = false, py::arg("device") = py::none())
      .def(
          "run",
          [](Self& self, const Calls& calls, uint64_t iteration, std::vector<double> numbers, Weights weights) {
            self.carrier.queue()->timed([&] { run_calls(calls, iteration, std::move(numbers), std::move(weights)); });
            self.operations.computed();
          },
          py::arg("calls"), py::arg("iteration"), py::arg("numbers"), py::arg("weights") = py::none(), Release())
      .def("job", [](const Self& self, std::vector<Piece> pieces) { return self.operations.job(std::move(pieces)); })
      .def(
          "start",
          [](Self& self, Job& job, uint64_t iteration, Weights weights, bool held, std::optional<uint64_t> tag) {
            self.operations.start(job, iteration, std::move(weights).value_or(std::vector<double>()), held, tag);
          },
          py::arg("job"), py::arg("iteration"), py::arg("weights") = py::none(), py::arg("held") = false,
          py::arg("tag") = py::none(), Release())
      .def("ready", [](Self& self, Job& job, int bucket) { self.operations.ready(job, bucket); }, Release())
      .def("free", [](Self& self, Job& job) { self.operations.free(job); }, Release())
      .def(
          "wait", [](Self& self, Job& job, int bucket) { self.operations.wait(job, bucket); }, py::arg("job"),
          py::arg("bucket") = -1, Release())
      .def(
          "done", [](Self& self, Job& job, int bucket) { return self.operations.done(job, bucket); }, py::arg("job"),
          py::arg("bucket") = -1, Release())
      .def("over", [](const Self& self, const Job& job) { return self.operations.over(job); })
      .def("failure",
           [](const Self& self, const Job& job) {
             auto failure = self.operations.failure(job);
             return failure ? std::make_optional(std::make_tuple(failure->bucket, failure->peer, failure->what)) : std::nullopt;
           })
      .def("give_up", [](Self& self, Job& job) { self.operations.give_up(job); }, Release())
      .def("drain", [](Self& self) { self.operations.drain(); }, Release())
      .def("link",
           [](Self& self, int peer, c10::intrusive_ptr<c10d::ProcessGroup> group, int index) {
             self.carrier.queue()->link(peer, c10d_transport(std::move(group)), index);  // behind what stages
           })
      .def("stop", [](Self& self) { self.carrier.stop(); })
      .def("counters", [](const Self& self) { return self.carrier.counters(self.operations.exposed_seconds()); });
  define_call(operations, &Self::carrier);
}

}  // namespace

PYBIND11_MODULE(relaxc_runtime, module) {
  module.doc() = "relaxc's runtime: runs a plan's kernels and exchanges, over c10d process groups";
  define_channel(module);
  define_schedule(module);
  define_devices(module);
  define_engine(module);
  define_operations(module);
}

}  // namespace relaxc
