/* module.cpp: what Python sees of the backend. */
#include <torch/csrc/utils/pybind.h>

#include <optional>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "process_group.hpp"

namespace py = pybind11;

namespace {

/* A group that Python owns. Its end waits for the runner, whose callbacks may wait for Python's
 * lock: so the lock is released. */
class PythonGroup : public coll_torch::CollGroup {
public:
  using CollGroup::CollGroup;

  ~PythonGroup() override {
    if (!PyGILState_Check())
      return;
    py::gil_scoped_release released;
    runner_.reset();
  }
};

void monitored_barrier(PythonGroup &group, std::optional<std::chrono::milliseconds> timeout) {
  c10d::BarrierOptions options;
  options.timeout = timeout.value_or(c10d::kUnsetTimeout);
  group.monitoredBarrier(options, true);
}

} // namespace

PYBIND11_MODULE(_C, module) {
  py::module::import("torch.distributed"); /* it defines the base class */
  py::class_<PythonGroup, coll_torch::Base, c10::intrusive_ptr<PythonGroup>>(module,
                                                                             "ProcessGroupColl")
      .def(py::init<const c10::intrusive_ptr<c10d::Store> &, int, int, std::chrono::milliseconds,
                    const std::string &, bool>(),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("name"),
           py::arg("has_cuda"), py::call_guard<py::gil_scoped_release>())
      .def("monitored_barrier", &monitored_barrier, py::arg("timeout"),
           "A barrier whose error names all ranks that have not come within the timeout.",
           py::call_guard<py::gil_scoped_release>())
      .def("_abort_if_busy", &PythonGroup::abort_if_busy, py::call_guard<py::gil_scoped_release>())
      .def("abort", &PythonGroup::abort, "Ends all operations with an error, on all ranks.",
           py::call_guard<py::gil_scoped_release>());
}
