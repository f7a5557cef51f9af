#include "cli/train_sweep.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/plural.h"
#include "cli/curves.h"
#include "cli/output.h"
#include "cli/text_table.h"
#include "io/atomic_file.h"
#include "io/file_checks.h"

namespace vitrine::cli {
namespace {

struct Row {
  const SweptRun* run = nullptr;
  MetricRun metrics;
  OrderedJson last = OrderedJson::object();  // the newest of each number, without those of layers
  std::optional<double> best_loss;
  int64_t best_step = 0;
  bool failed = false;

  std::optional<double> number(const char* name) const {
    return last.contains(name) ? std::optional(last.at(name).get<double>()) : std::nullopt;
  }
};

Row row_of(const SweptRun& run, bool failed) {
  Row row;
  row.run = &run;
  row.metrics.name = run.name;
  row.failed = failed;
  if (!present(run.config.out + "/metrics.jsonl")) return row;  // it failed before its first step
  row.metrics.lines = open_metric_run(run.config.out).lines;
  for (const Json& line : row.metrics.lines) {
    for (const auto& [name, value] : line.items())
      if (value.is_number() && name.find('.') == std::string::npos) row.last[name] = value;
    if (!line.contains("val_loss") || !line.at("val_loss").is_number()) continue;
    const double loss = line.at("val_loss").get<double>();
    if (row.best_loss && *row.best_loss <= loss) continue;
    row.best_loss = loss;
    row.best_step = line.at("step").get<int64_t>();
  }
  return row;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted;
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return '"' + quoted + '"';
}

// Columns: the name, every key that a run sets, the best validation loss, the newest of each metric.
std::string csv_of(const std::vector<Row>& rows) {
  std::vector<std::string> keys, metrics;
  const auto add = [](std::vector<std::string>& names, const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const Row& row : rows) {
    for (const auto& [key, value] : row.run->values) add(keys, key);
    for (const auto& [name, value] : row.last.items()) add(metrics, name);
  }
  std::string text = "name";
  for (const std::string& key : keys) text += "," + csv_cell(key);
  text += ",best_val_loss,best_step";
  for (const std::string& name : metrics) text += "," + csv_cell(name);
  text += "\n";
  for (const Row& row : rows) {
    text += csv_cell(row.run->name);
    for (const std::string& key : keys) {
      const auto& values = row.run->values;
      const auto set = std::find_if(values.rbegin(), values.rend(), [&](const auto& value) { return value.first == key; });
      text += "," + (set == values.rend() ? "" : csv_cell(set->second));
    }
    text += row.best_loss ? "," + Json(*row.best_loss).dump() + "," + std::to_string(row.best_step) : ",,";
    for (const std::string& name : metrics) text += "," + (row.last.contains(name) ? row.last.at(name).dump() : "");
    text += "\n";
  }
  return text;
}

std::string shown(std::optional<double> number, const char* failed = "-") {
  return number ? fmt::format("{:.4f}", *number) : failed;
}

void print_rows(const std::vector<Row>& rows) {
  TextTable table{{{"run", true}, {"step"}, {"loss"}, {"val loss"}, {"best"}, {"at step"}, {"tokens/s"}}, {}};
  for (const Row& row : rows)
    table.rows.push_back({row.run->name, row.failed ? "failed" : fmt::format("{:.0f}", row.number("step").value_or(0)),
                          shown(row.number("loss")), shown(row.number("val_loss")), shown(row.best_loss),
                          row.best_loss ? std::to_string(row.best_step) : "-",
                          row.number("tokens_per_s") ? grouped(static_cast<int64_t>(*row.number("tokens_per_s"))) : "-"});
  print_table(table);
}

OrderedJson rows_json(const std::vector<Row>& rows) {
  OrderedJson runs = OrderedJson::array();
  for (const Row& row : rows) {
    OrderedJson values = OrderedJson::object();
    for (const auto& [key, value] : row.run->values) values[key] = value;
    runs.push_back({{"name", row.run->name},
                    {"values", values},
                    {"failed", row.failed},
                    {"best_val_loss", row.best_loss ? OrderedJson(*row.best_loss) : OrderedJson()},
                    {"best_step", row.best_loss ? OrderedJson(row.best_step) : OrderedJson()},
                    {"last", row.last}});
  }
  return runs;
}

void write_files(const std::string& folder, const std::vector<Row>& rows) {
  std::vector<MetricRun> curves;
  std::vector<std::string> lines;
  for (const Row& row : rows) {
    curves.push_back(row.metrics);
    lines.push_back(fmt::format("{}: loss {}, validation loss {}, best {}{}", row.run->name, shown(row.number("loss")),
                                shown(row.number("val_loss")), shown(row.best_loss), row.failed ? "; failed" : ""));
  }
  write_file_atomically(folder + "/sweep.csv", csv_of(rows));
  write_curves_page(folder + "/sweep.html", "Sweep", lines, curves);
}

}  // namespace

void run_train_sweep(const TrainSweep& sweep, const SweepOptions& options,
                     const std::function<TrainResult(const TrainConfig& config)>& run) {
  std::vector<Row> rows;
  std::string failures;
  bool stopped = false;
  for (size_t i = 0; i < sweep.runs.size() && !stopped; ++i) {
    const SweptRun& swept = sweep.runs[i];
    if (options.writes) log("run {} of {}: {}", i + 1, sweep.runs.size(), swept.name);
    bool failed = false;
    try {
      stopped = run(swept.config).stopped;
    } catch (const RunError& error) {
      if (!options.goes_on) throw;
      failed = true;
      log("{}", visible_message(error.what()));
      failures += (failures.empty() ? "" : ", ") + swept.name;
    }
    if (!options.writes) continue;
    rows.push_back(row_of(swept, failed));
    if (is_folder(sweep.folder)) write_files(sweep.folder, rows);
  }
  if (!options.writes) return;
  if (options.json) {
    print_json({{"out", sweep.folder}, {"stopped", stopped}, {"runs", rows_json(rows)}});
  } else {
    print_rows(rows);
    print("{}\n", sweep.folder + "/sweep.html");
    if (stopped) print("stopped. Go on with: {}\n", options.again);
  }
  if (!failures.empty()) throw RunError("these runs of the sweep failed: " + failures);
}

}  // namespace vitrine::cli
