#include "picture/data/merge_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/plural.h"
#include "vitrine/version.h"

namespace vitrine {
namespace {

// "arXiv:2311.03099" and addresses; null for a paper that is named in another way.
PictureJson address_of(const std::string& paper) {
  constexpr std::string_view kArxiv = "arXiv:";
  if (paper.starts_with(kArxiv)) return "https://arxiv.org/abs/" + paper.substr(kArxiv.size(), paper.find(' ') - kArxiv.size());
  if (paper.starts_with("https://") || paper.starts_with("http://")) return paper;
  return nullptr;
}

void check_list(const MergeTensorReport& tensor, const std::string& list, size_t found, size_t expected,
                const std::string& each) {
  if (found == 0 || found == expected) return;
  throw InputError(fmt::format("report of a merge: tensor \"{}\": {} has {}; expected {} ({}), or none", tensor.name, list,
                               plural(found, "value"), expected, each));
}

PictureJson tensor_json(const MergeTensorReport& tensor, size_t inputs) {
  const std::string each = "one for each input";
  check_list(tensor, "norms", tensor.norms.size(), inputs, each);
  check_list(tensor, "kept", tensor.kept.size(), inputs, each);
  check_list(tensor, "cosines", tensor.cosines.size(), inputs * (inputs - 1) / 2, "one for each pair of inputs");
  if (tensor.layer < -1)
    throw InputError(fmt::format("report of a merge: tensor \"{}\" is of layer {}", tensor.name, tensor.layer));
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) {
    if (size < 0) throw InputError(fmt::format("report of a merge: tensor \"{}\" has a dimension of {}", tensor.name, size));
    elements *= size;
  }
  PictureJson parameters = PictureJson::object();
  for (const auto& [name, values] : tensor.parameters) {
    if (values.size() != 1) check_list(tensor, "parameter " + name, values.size(), inputs, "one for each input, or one for all");
    parameters[name] = numbers(values);
  }
  return {{"name", tensor.name},
          {"layer", tensor.layer},
          {"elements", tensor.elements > 0 ? tensor.elements : elements},
          {"shape", tensor.shape},
          {"norms", numbers(tensor.norms)},
          {"cosines", numbers(tensor.cosines)},
          {"signConflict", number(tensor.sign_conflict)},
          {"kept", numbers(tensor.kept)},
          {"angle", number(tensor.angle)},
          {"resultNorm", number(tensor.result_norm)},
          {"resultDistance", number(tensor.result_distance)},
          {"parameters", std::move(parameters)}};
}

}  // namespace

PictureJson merge_report_json(const MergeReport& report) {
  const size_t inputs = report.inputs.size();
  if (inputs == 0) throw InputError("report of a merge: it has no inputs");
  if (report.base < -1 || report.base >= static_cast<int>(inputs))
    throw InputError(fmt::format("report of a merge: the base is input {} of {}; expected 0 to {}, or -1 for none", report.base,
                                 inputs, inputs - 1));
  const std::string method = report.method_title.empty() ? report.method : report.method_title;
  const size_t models = report.base >= 0 && inputs > 1 ? inputs - 1 : inputs;  // the base is what they are compared with
  PictureJson tensors = PictureJson::array();
  for (const MergeTensorReport& tensor : report.tensors) tensors.push_back(tensor_json(tensor, inputs));
  return {{"format", 1},
          {"kind", "merge"},
          {"version", version()},
          {"title", report.title.empty() ? fmt::format("{} of {}", method, plural(models, "model")) : report.title},
          {"method", report.method},
          {"methodTitle", method},
          {"paper", report.paper},
          {"paperAddress", address_of(report.paper)},
          {"inputs", report.inputs},
          {"base", report.base < 0 ? PictureJson(nullptr) : PictureJson(report.base)},
          {"recipe", report.recipe_yaml},
          {"notes", report.notes},
          {"tensors", std::move(tensors)}};
}

}  // namespace vitrine
