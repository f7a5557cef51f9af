#pragma once
// What a merge did to every tensor, for the page of `vitrine merge --report`.
#include "merge/run.h"
#include "picture/data/merge_report.h"

namespace vitrine {

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
