#pragma once
// The metrics of training runs, as their folders have them.
#include <string>
#include <vector>

#include "base/json.h"

namespace vitrine::cli {

struct MetricRun {
  std::string name;
  std::vector<Json> lines;  // each an object with a step; the numbers of layers by their full names: "layer_grad_norm.blocks.0"
};

/// The lines of a run's folder, or of a metrics.jsonl, also .gz or .zst; the name is `run`. A last line that is half-written is
/// skipped. Errors: InputError for a file that is missing, or a line without a step.
MetricRun open_metric_run(const std::string& run);

/// The page that `vitrine curves` writes, with its usual metrics; `lines` stand below the title.
void write_curves_page(const std::string& path, const std::string& title, const std::vector<std::string>& lines,
                       const std::vector<MetricRun>& runs);

}  // namespace vitrine::cli
