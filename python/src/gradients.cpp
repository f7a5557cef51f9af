#include "gradients.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "arrays.h"
#include "base/error.h"
#include "hooks.h"
#include "hooks/metric_gradients.h"
#include "hooks/trace.h"

namespace vitrine::python {
namespace {

nb::tuple result_of(HookGradients& found) {
  nb::list rows;
  for (auto& values : found.values) rows.append(arrays(found.order, values));
  return nb::make_tuple(found.loss, rows);
}

// A function of the logits [batch, position, vocab_size], NaN behind the end of a shorter row, that returns a number and its
// derivative of the same shape, float32.
class PythonMetric final : public LogitsMetric {
 public:
  explicit PythonMetric(const nb::object& function) : function_(function) {}
  double evaluate(std::span<const Tensor> logits, std::span<const Tensor> derivative) override {
    const nb::gil_scoped_acquire lock;
    int64_t longest = 0;
    for (const Tensor& z : logits) longest = std::max(longest, z.rows());
    const int64_t vocab = logits.front().row_size(), of_row = longest * vocab;
    const size_t count = logits.size() * static_cast<size_t>(of_row);
    FloatVector all(count, std::numeric_limits<float>::quiet_NaN());
    for (size_t i = 0; i < logits.size(); ++i)
      std::copy_n(logits[i].data<float>(), logits[i].count(), all.data() + static_cast<int64_t>(i) * of_row);
    const Array shown = array_of(std::move(all), {static_cast<int64_t>(logits.size()), longest, vocab});
    const nb::object returned = function_(nb::cast(shown));
    const auto value = nb::cast<double>(returned[0]);
    const auto given = nb::cast<nb::ndarray<const float, nb::c_contig, nb::device::cpu>>(returned[1]);
    if (given.size() != count)
      throw ShapeError("the metric's derivative has " + std::to_string(given.size()) + " numbers; expected " +
                       std::to_string(count) + ", one for each logit");
    for (size_t i = 0; i < derivative.size(); ++i)
      std::copy_n(given.data() + static_cast<int64_t>(i) * of_row, derivative[i].count(), derivative[i].data<float>());
    return value;
  }

 private:
  const nb::object& function_;
};

nb::tuple gradients_of_loss(Session& session, const Ids& ids, const std::vector<int64_t>& lengths,
                            const std::vector<nb::str>& names, const Ids& labels) {
  const std::vector<std::vector<int32_t>> sequences = rows_of_ids(ids, lengths);
  if (labels.size() != ids.size())
    throw InputError("there are " + std::to_string(labels.size()) + " labels for " + std::to_string(ids.size()) + " tokens");
  std::vector<std::vector<int32_t>> targets;  // Python has seen to it that they are in int32's range
  const int64_t* next = labels.data();
  for (const auto& sequence : sequences) {
    std::vector<int32_t>& row = targets.emplace_back();
    for (size_t t = 0; t < sequence.size(); ++t) row.push_back(static_cast<int32_t>(*next++));
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

nb::tuple gradients_of_metric(Session& session, const Ids& ids, const std::vector<int64_t>& lengths,
                              const std::vector<nb::str>& names, const nb::object& metric, const nb::list& hooks) {
  const std::vector<std::vector<int32_t>> sequences = rows_of_ids(ids, lengths);
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
      .def("loss_gradients", &gradients_of_loss, nb::arg("ids"), nb::arg("lengths"), nb::arg("requests"), nb::arg("labels"),
           nb::sig("def loss_gradients(self, ids: numpy.typing.NDArray[numpy.int64], lengths: collections.abc.Sequence[int], "
                   "requests: collections.abc.Sequence[str], labels: numpy.typing.NDArray[numpy.int64]) -> "
                   "tuple[float, list[dict[str, numpy.typing.NDArray[numpy.float32]]]]"))
      .def("metric_gradients", &gradients_of_metric, nb::arg("ids"), nb::arg("lengths"), nb::arg("requests"), nb::arg("metric"),
           nb::arg("hooks"),
           nb::sig("def metric_gradients(self, ids: numpy.typing.NDArray[numpy.int64], lengths: collections.abc.Sequence[int], "
                   "requests: collections.abc.Sequence[str], metric: collections.abc.Callable[..., typing.Any], "
                   "hooks: collections.abc.Sequence[HookCalls]) -> "
                   "tuple[float, list[dict[str, numpy.typing.NDArray[numpy.float32]]]]"));
}

}  // namespace vitrine::python
