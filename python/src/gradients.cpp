#include "gradients.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "arrays.h"
#include "base/error.h"
#include "hooks.h"
#include "inspect/metric_gradients.h"
#include "inspect/trace.h"

namespace vitrine::python {
namespace {

using RowsOfIds = nb::ndarray<const int64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

std::vector<std::vector<int32_t>> sequences_of(const RowsOfIds& ids) {
  std::vector<std::vector<int32_t>> sequences;
  for (size_t i = 0; i < ids.shape(0); ++i)
    sequences.push_back(token_ids(std::span(ids.data() + i * ids.shape(1), ids.shape(1))));
  return sequences;
}

nb::tuple result_of(HookGradients& found) {
  nb::list rows;
  for (auto& values : found.values) rows.append(arrays(found.order, values));
  return nb::make_tuple(found.loss, rows);
}

// A function of the logits [batch, position, vocab_size] that returns a number and its derivative of the same shape, float32.
class PythonMetric final : public LogitsMetric {
 public:
  explicit PythonMetric(const nb::object& function) : function_(function) {}
  double evaluate(std::span<const Tensor> logits, std::span<const Tensor> derivative) override {
    const nb::gil_scoped_acquire lock;
    const auto rows = static_cast<size_t>(logits.front().rows()), vocab = static_cast<size_t>(logits.front().row_size());
    FloatVector all;
    all.reserve(logits.size() * rows * vocab);
    for (const Tensor& z : logits) all.insert(all.end(), z.data<float>(), z.data<float>() + z.count());
    const size_t count = all.size();
    const Array flat = batch_of_one(std::move(all), {static_cast<int64_t>(count)});
    const nb::object shaped = nb::cast(flat).attr("reshape")(logits.size(), rows, vocab);
    const nb::object returned = function_(shaped);
    const auto value = nb::cast<double>(returned[0]);
    const auto given = nb::cast<nb::ndarray<const float, nb::c_contig, nb::device::cpu>>(returned[1]);
    if (given.size() != count)
      throw ShapeError("the metric's derivative has " + std::to_string(given.size()) + " numbers; expected " +
                       std::to_string(count) + ", one for each logit");
    const float* from = given.data();
    for (const Tensor& d : derivative) {
      std::memcpy(d.raw(), from, d.bytes());
      from += d.count();
    }
    return value;
  }

 private:
  const nb::object& function_;
};

nb::tuple gradients_of_loss(Session& session, const RowsOfIds& ids, const std::vector<nb::str>& names, const RowsOfIds& labels) {
  const std::vector<std::vector<int32_t>> sequences = sequences_of(ids);
  std::vector<std::vector<int32_t>> targets;  // Python has seen to it that they are in int32's range
  for (size_t i = 0; i < labels.shape(0); ++i) {
    std::vector<int32_t>& row = targets.emplace_back();
    for (size_t t = 0; t < labels.shape(1); ++t) row.push_back(static_cast<int32_t>(labels.data()[i * labels.shape(1) + t]));
  }
  const std::vector<std::string> requests = utf8(names);
  HookGradients found;
  {
    const nb::gil_scoped_release unlocked;
    const Running running(session);
    found = hook_gradients(session.engine, sequences, targets, requests);
  }
  return result_of(found);
}

nb::tuple gradients_of_metric(Session& session, const RowsOfIds& ids, const std::vector<nb::str>& names, const nb::object& metric,
                              const nb::list& hooks) {
  const std::vector<std::vector<int32_t>> sequences = sequences_of(ids);
  const std::vector<std::string> requests = utf8(names);
  std::deque<PythonHooks> listeners;
  std::vector<Listener*> of_each;
  for (const nb::handle calls : hooks) of_each.push_back(&listeners.emplace_back(nb::cast<const HookCalls&>(calls)));
  if (!of_each.empty() && of_each.size() != sequences.size())
    throw UsageError("there are hook functions for " + std::to_string(of_each.size()) + " sequences; expected " +
                     std::to_string(sequences.size()));
  PythonMetric asked(metric);
  HookGradients found;
  {
    const nb::gil_scoped_release unlocked;
    const Running running(session);
    found = metric_gradients(session.engine, sequences, asked, requests, of_each);
  }
  return result_of(found);
}

}  // namespace

void bind_gradients(nb::class_<Session>& session) {
  session
      .def("loss_gradients", &gradients_of_loss, nb::arg("ids"), nb::arg("requests"), nb::arg("labels"),
           nb::sig("def loss_gradients(self, ids: numpy.typing.NDArray[numpy.int64], requests: collections.abc.Sequence[str], "
                   "labels: numpy.typing.NDArray[numpy.int64]) -> tuple[float, list[dict[str, "
                   "numpy.typing.NDArray[numpy.float32]]]]"))
      .def("metric_gradients", &gradients_of_metric, nb::arg("ids"), nb::arg("requests"), nb::arg("metric"), nb::arg("hooks"),
           nb::sig("def metric_gradients(self, ids: numpy.typing.NDArray[numpy.int64], requests: collections.abc.Sequence[str], "
                   "metric: collections.abc.Callable[..., typing.Any], hooks: collections.abc.Sequence[HookCalls]) -> "
                   "tuple[float, list[dict[str, numpy.typing.NDArray[numpy.float32]]]]"));
}

}  // namespace vitrine::python
