/* module.cpp: what Python sees of the backend. */
#include <torch/extension.h>
#include <pybind11/chrono.h>

#include "process_group.hpp"

namespace py = pybind11;

PYBIND11_MODULE(_C, module) {
  py::module::import("torch.distributed");
  py::class_<coll_torch::CollGroup, coll_torch::Base, c10::intrusive_ptr<coll_torch::CollGroup>>(
      module, "ProcessGroupColl")
      .def(py::init<const c10::intrusive_ptr<c10d::Store> &, int, int, std::chrono::milliseconds>(),
           py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
           py::call_guard<py::gil_scoped_release>())
      .def("abort", &coll_torch::CollGroup::abort,
           "Ends all operations with an error, on all ranks.");
}
