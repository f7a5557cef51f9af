#include "ops/dry_run.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#include "ops/tape.h"

namespace vitrine {

ValueRecord DryRun::value_of(const Tensor& t) {
  const auto [place, fresh] = number_at_.try_emplace(t.raw(), values_);
  if (fresh) ++values_;
  return {place->second, t.shape()};
}

ValueRecord DryRun::new_value(const Tensor& t) {
  number_at_[t.raw()] = values_;
  return {values_++, t.shape()};
}

void DryRun::add(Context& ctx, const OpCall& call) {
  OpRecord op;
  op.op = call.op;
  char buffer[Context::kLongestName];
  op.name = ctx.full_name(call.name, buffer);
  if (op.name.ends_with('.')) op.name.pop_back();
  constexpr std::string_view kBlocks = "blocks.";
  if (op.name.starts_with(kBlocks)) op.layer = std::atoi(op.name.c_str() + kBlocks.size());
  for (const Tensor& t : call.inputs) op.inputs.push_back(value_of(t));
  for (const Tensor& t : call.outputs) {
    op.outputs.push_back(new_value(t));
    op.bytes_made += static_cast<int64_t>(t.bytes());
  }
  op.weights = call.weights;
  op.vectors = call.vectors;
  for (size_t i = 0; i < op.weights.size() && (call.weights_read < 0 || static_cast<int64_t>(i) < call.weights_read); ++i) {
    const Weight& w = *op.weights[i];
    const int64_t rows = call.rows_read < 0 ? w.out : call.rows_read;
    op.bytes_read += rows * static_cast<int64_t>(row_bytes(w.dtype, static_cast<size_t>(w.in)));
  }
  for (const Vector* v : op.vectors) op.bytes_read += static_cast<int64_t>(row_bytes(v->dtype, static_cast<size_t>(v->size)));
  op.spec = call.spec;
  op.cache_layer = call.cache_layer;
  op.multiply_adds = call.multiply_adds;
  op.rows_read = call.rows_read;
  if (Tape* tape = ctx.tape())
    op.bytes_kept = static_cast<int64_t>(tape->arena().mark() - std::exchange(tape_mark_, tape->arena().mark()));
  op.bytes_peak = static_cast<int64_t>(ctx.arena().peak());
  ctx.arena().forget_peak();
  op.regions = std::exchange(regions_of_next_, {});
  ops_.push_back(std::move(op));
}

void DryRun::fold(Context& ctx, size_t begin, const OpCall& call) {
  const std::vector<OpRecord> parts(std::make_move_iterator(ops_.begin() + static_cast<std::ptrdiff_t>(begin)),
                                    std::make_move_iterator(ops_.end()));
  ops_.resize(begin);
  add(ctx, call);
  OpRecord& whole = ops_.back();
  std::vector<RegionRecord> behind = std::exchange(whole.regions, {});  // what came after the last part
  for (const OpRecord& part : parts) {
    whole.regions.insert(whole.regions.end(), part.regions.begin(), part.regions.end());
    whole.weights.insert(whole.weights.end(), part.weights.begin(), part.weights.end());
    whole.vectors.insert(whole.vectors.end(), part.vectors.begin(), part.vectors.end());
    whole.multiply_adds += part.multiply_adds;
    whole.bytes_read += part.bytes_read;
    whole.bytes_kept += part.bytes_kept;
    whole.bytes_peak = std::max(whole.bytes_peak, part.bytes_peak);
    whole.cache_layer = std::max(whole.cache_layer, part.cache_layer);
  }
  whole.regions.insert(whole.regions.end(), std::make_move_iterator(behind.begin()), std::make_move_iterator(behind.end()));
}

void DryRun::add_region(int64_t tasks, bool share, const std::function<TaskCost(int64_t)>& cost) {
  if (!regions_ || tasks <= 0) return;
  RegionRecord& region = regions_of_next_.emplace_back();
  region.shared = share;
  for (int64_t task = 0; task < tasks; ++task) region.add(cost(task));
}

std::vector<OpRecord> DryRun::take_ops() && {
  if (!ops_.empty()) ops_.back().regions.insert(ops_.back().regions.end(), regions_of_next_.begin(), regions_of_next_.end());
  return std::move(ops_);
}

void DryRun::move(const Tensor& from, const Tensor& to) {
  if (const auto found = number_at_.find(from.raw()); found != number_at_.end()) number_at_[to.raw()] = found->second;
}

Tensor DryRun::see(Context&, std::string_view name, const Tensor& value) {
  hooks_.push_back({std::string(name), value.shape(), value_of(value).number, ops_.size()});
  return {};
}

}  // namespace vitrine
