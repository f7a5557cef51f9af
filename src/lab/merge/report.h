#pragma once
// What a merge did to every tensor, for the page of `vitrine merge --report`.
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace vitrine {

struct MergePlan;
struct TensorMeasure;

/// One tensor of the result. NaN: not known, or without a meaning for this method; the page shows it as absent. A list may be
/// empty, which says the same of all of its values.
struct MergeTensorReport {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  std::string name;      // as the output's file calls it
  int64_t layer = -1;    // -1: of no layer (embeddings, the final norm)
  int64_t elements = 0;  // 0: the product of the shape
  std::vector<int64_t> shape;
  std::vector<double> norms;       // of each input's task vector, input − base; without a base, of the input's tensor itself. NaN
                                   // for the base and for inputs that have no part in this tensor
  std::vector<double> cosines;     // of each pair i < j of those: 0,1  0,2  …  1,2  …; n (n − 1) / 2 for n inputs
  double sign_conflict = kNone;    // share of elements at which two of them have opposite signs, 0 to 1
  std::vector<double> kept;        // share of each task vector's elements that pruning kept, 0 to 1
  double angle = kNone;            // between the first two of `norms` that are there, radians
  double result_norm = kNone;      // L2 norm of the result
  double result_distance = kNone;  // L2 norm of result − base; without a base, of result − the first input
  // As the recipe's gradients and filters came out for this tensor: one value, or one for each input.
  std::vector<std::pair<std::string, std::vector<double>>> parameters;
};

struct MergeReport {
  std::string title;                // of the page; empty: one made of method and inputs
  std::string method;               // "dare_ties", as a recipe names it
  std::string method_title;         // "DARE with TIES"
  std::string paper;                // "arXiv:2311.03099" or an address; empty: none
  std::vector<std::string> inputs;  // in the order of `norms`, `kept` and the values of parameters
  int base = -1;                    // which of the inputs the task vectors are taken from; -1: there is none
  std::string recipe_yaml;
  std::vector<std::string> notes;  // shown below the summary, a line each
  std::vector<MergeTensorReport> tensors;
};

/// Collects the measures of a run; `report()` is whole when it is over.
class MergeReporter {
 public:
  explicit MergeReporter(const MergePlan& plan);
  void add(size_t tensor, const TensorMeasure& measure);
  /// The tensors in the order of their layers.
  MergeReport report() const;

 private:
  const MergePlan& plan_;
  MergeReport report_;
};

}  // namespace vitrine
