#include "cli/bench_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/plural.h"
#include "cli/output.h"
#include "cli/text_table.h"
#include "kernels/table.h"
#include "model/abilities.h"
#include "model/load.h"
#include "model/thread_plan.h"

namespace vitrine::cli {
namespace {

/// Regions of several layers that are cut alike.
struct Group {
  PlannedRegion region;
  std::set<int> layers;
  int64_t regions = 0;
};

std::string name_in_layer(const PlannedRegion& region) {
  const std::string layer = fmt::format("blocks.{}", region.layer);
  if (region.layer < 0) return region.name;
  return region.name.size() > layer.size() ? region.name.substr(layer.size() + 1) : "";
}

std::vector<Group> groups_of(const ThreadPlan& plan) {
  std::vector<Group> groups;
  const auto same = [](const PlannedRegion& a, const PlannedRegion& b) {
    return a.op == b.op && name_in_layer(a) == name_in_layer(b) && a.weights == b.weights && a.chunks == b.chunks &&
           a.total.bytes == b.total.bytes && a.total.multiply_adds == b.total.multiply_adds;
  };
  for (const PlannedRegion& region : plan.regions) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return same(g.region, region); });
    if (group == groups.end()) group = groups.insert(groups.end(), {region, {}, 0});
    ++group->regions;
    if (region.layer >= 0) group->layers.insert(region.layer);
  }
  return groups;
}

struct PlannedStep {
  const char* work;
  StepSize size;
  ThreadPlan plan;
};

OrderedJson cost_json(const TaskCost& cost) {
  return {{"bytes", cost.bytes}, {"multiply_adds", cost.multiply_adds}, {"elements", cost.elements}};
}

int64_t chunks_of(const ThreadPlan& plan) {
  int64_t chunks = 0;
  for (const PlannedRegion& region : plan.regions) chunks += region.chunks;
  return chunks;
}

OrderedJson step_json(const PlannedStep& step) {
  const ThreadPlan& plan = step.plan;
  OrderedJson regions = OrderedJson::array(), threads = OrderedJson::array();
  for (const Group& group : groups_of(plan))
    regions.push_back({{"op", group.region.op},
                       {"name", name_in_layer(group.region)},
                       {"weights", group.region.weights},
                       {"layers", group.layers},
                       {"regions", group.regions},
                       {"chunks", group.region.chunks},
                       {"total", cost_json(group.region.total)},
                       {"largest", cost_json(group.region.largest)}});
  for (const TaskCost& share : plan.by_thread) threads.push_back(cost_json(share));
  OrderedJson serial = cost_json(plan.serial);
  serial["sections"] = plan.serial_sections;
  return {{"work", step.work},
          {"rows", step.size.rows},
          {"position", step.size.position},
          {"ops", plan.ops},
          {"regions", std::ssize(plan.regions)},
          {"barriers", std::ssize(plan.regions)},
          {"chunks", chunks_of(plan)},
          {"total", cost_json(plan.total())},
          {"byte_imbalance", plan.byte_imbalance()},
          {"multiply_add_imbalance", plan.multiply_add_imbalance()},
          {"serial", serial},
          {"by_thread", threads},
          {"by_region", regions}};
}

std::string size_text(int64_t bytes) { return bytes == 0 ? "" : bytes_text(static_cast<double>(bytes)); }
std::string millions(int64_t n) { return n == 0 ? "" : fmt::format("{:.4g}", static_cast<double>(n) / 1e6); }

// "1.02", the largest share over the mean one.
std::string over_mean(int64_t largest, int64_t total, int threads) {
  return total == 0 ? "" : fmt::format("{:.2f}", static_cast<double>(largest) * threads / static_cast<double>(total));
}

void print_step(const PlannedStep& step) {
  const ThreadPlan& plan = step.plan;
  const TaskCost total = plan.total();
  print("{}  {} at position {}: {}, as many barriers, {} chunks\n", bold(pad_right(step.work, 7)),
        plural(step.size.rows, "token"), step.size.position, plural(std::ssize(plan.regions), "region"),
        grouped(chunks_of(plan)));
  if (plan.regions.empty())
    return print("         the caller does all: {} read, {:.4g} million multiply-adds, {:.3g} million elements\n",
                 bytes_text(static_cast<double>(plan.serial.bytes)), static_cast<double>(plan.serial.multiply_adds) / 1e6,
                 static_cast<double>(plan.serial.elements) / 1e6);
  print(
      "         per thread {} read ({:.3f} of an even share) and {} million multiply-adds ({:.3f}); alone {} with {} million "
      "elements\n",
      bytes_text(plan.byte_imbalance() * static_cast<double>(total.bytes) / plan.threads), plan.byte_imbalance(),
      fmt::format("{:.4g}", plan.multiply_add_imbalance() * static_cast<double>(total.multiply_adds) / plan.threads / 1e6),
      plan.multiply_add_imbalance(), plural(plan.serial_sections, "section"),
      fmt::format("{:.3g}", static_cast<double>(plan.serial.elements) / 1e6));
  TextTable table{
      {{"  op", true}, {"layers"}, {"regions"}, {"chunks"}, {"bytes"}, {"largest"}, {"10^6 ma"}, {"largest"}, {"weights", true}},
      {}};
  for (const Group& group : groups_of(plan)) {
    const PlannedRegion& region = group.region;
    const std::string name = name_in_layer(region);
    table.rows.push_back({"  " + region.op + (name.empty() ? "" : " " + name),
                          group.layers.empty() ? "" : std::to_string(group.layers.size()), std::to_string(group.regions),
                          grouped(region.chunks), size_text(region.total.bytes),
                          over_mean(region.largest.bytes, region.total.bytes, plan.threads), millions(region.total.multiply_adds),
                          over_mean(region.largest.multiply_adds, region.total.multiply_adds, plan.threads),
                          fmt::format("{}", fmt::join(region.weights, " "))});
  }
  print_table(table);
}

}  // namespace

void print_thread_plan(const ModelOptions& options, const PlanSizes& sizes) {
  OpenedModel opened;
  opened.files = resolve_model(model_or_shipped(options.model));
  if (opened.files.weights.empty())
    opened.model = model_from_config(opened.files);
  else
    opened = open_headers(std::move(opened.files));
  Model& model = *opened.model;
  if (!sizes.weights.empty()) set_weight_types(model, weight_type_named(sizes.weights, "--weights"));
  require_causal(model, opened.files.name, "A plan of decode");
  const int64_t length = model.shape().context_length, context = length > 0 ? length : INT64_MAX;
  const int64_t prompt = sizes.prompt > 0 ? sizes.prompt : std::min<int64_t>(512, context - 1 - sizes.depth);
  if (prompt < 1 || prompt > context - 1 - sizes.depth)
    throw UsageError(fmt::format("--depth and --prompt: {} + {} tokens and one of decode do not fit the model's context of {}.",
                                 sizes.depth, std::max<int64_t>(prompt, 1), context));
  const Numerics numerics{.f32 = options.compute == "f32", .exact = options.exact};
  const CacheTypes chosen = cache_types_for(opened, numerics);
  const CacheTypes types = {cache_type(options.cache_keys, "--cache-type-k").value_or(chosen.keys),
                            cache_type(options.cache_values, "--cache-type-v").value_or(chosen.values)};
  const StepSize decode{.rows = 1,
                        .position = sizes.depth + prompt,
                        .cached = true,
                        .types = types,
                        .numerics = numerics,
                        .threads = options.threads > 0 ? static_cast<int>(options.threads) : usable_cores()};
  StepSize prefill = decode;
  prefill.rows = std::min(prompt, kPrefillChunk);
  prefill.position = sizes.depth;
  const PlannedStep steps[] = {{"prefill", prefill, plan_threads(model, prefill)},
                               {"decode", decode, plan_threads(model, decode)}};
  if (options.json) {
    OrderedJson list = OrderedJson::array();
    for (const PlannedStep& step : steps) list.push_back(step_json(step));
    return print_json({{"model", opened.files.name},
                       {"weights", sizes.weights.empty() ? OrderedJson(nullptr) : OrderedJson(sizes.weights)},
                       {"kernels", kernels().name},
                       {"threads", decode.threads},
                       {"cache_types", {{"keys", name_of(types.keys)}, {"values", name_of(types.values)}}},
                       {"steps", list}});
  }
  print("{}    {}{}, {}, kernels {}; nothing is run\n", bold("model"), opened.files.name,
        sizes.weights.empty() ? opened.files.weights.empty() ? " as bf16 (configuration only)" : "" : " as " + sizes.weights,
        plural(int64_t{decode.threads}, "thread"), kernels().name);
  for (const PlannedStep& step : steps) print_step(step);
}

}  // namespace vitrine::cli
