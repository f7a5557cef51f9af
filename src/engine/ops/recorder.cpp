#include "ops/recorder.h"

#include <algorithm>

namespace vitrine {

bool fits(std::string_view glob, std::string_view name) {
  const size_t last = glob.rfind('*');  // most names differ behind it
  if (last != std::string_view::npos && !name.ends_with(glob.substr(last + 1))) return false;
  size_t p = 0, n = 0, star = std::string_view::npos, mark = 0;
  while (n < name.size()) {
    if (p < glob.size() && glob[p] == '*') {
      star = p++;
      mark = n;
    } else if (p < glob.size() && glob[p] == name[n]) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++mark;
    } else {
      return false;
    }
  }
  while (p < glob.size() && glob[p] == '*') ++p;
  return p == glob.size();
}

namespace {

struct Cut {
  int64_t first, count;
};
Cut cut(const HookRequest::Range& range, int64_t offset, int64_t size) {
  const int64_t first = std::clamp<int64_t>(range.first - offset, 0, size);
  return {first, std::max<int64_t>(0, std::clamp<int64_t>(range.end - offset, 0, size) - first)};
}

template <class T>
void copy_cut(ThreadPool& pool, const Tensor& t, Cut a, Cut b, FloatVector& out) {  // [A, B, rest]
  const int64_t rest = t.count() / std::max<int64_t>(1, t.dim(0) * t.dim(1)), row = t.dim(1) * rest;
  const bool whole = b.count == t.dim(1);
  const int64_t runs = whole ? std::min<int64_t>(a.count, 1) : a.count, length = (whole ? a.count * t.dim(1) : b.count) * rest;
  out.resize(static_cast<size_t>(runs * length));
  // All threads copy: the system hands them the pages as they write.
  constexpr int64_t kPiece = 65536;
  const int64_t pieces = (length + kPiece - 1) / kPiece;
  const auto copy = [&](int64_t i, int) {
    const int64_t run = i / pieces, first = i % pieces * kPiece, end = std::min(length, first + kPiece);
    const T* source = t.data<T>() + (a.first + run) * row + b.first * rest;
    std::copy(source + first, source + end, out.data() + run * length + first);
  };
  if (runs * length > kPiece) {
    pool.run(runs * pieces, copy);
  } else {
    for (int64_t i = 0; i < runs * pieces; ++i) copy(i, 0);
  }
}

// first_value: no value has the name yet, so that what is taken here lives as long as the recorder.
Recorder::Value keep(Context& ctx, const Tensor& t, const HookRequest& request, bool pattern, int64_t offset, bool first_value) {
  Recorder::Value value;
  const Tensor full = t.shape().rank() == 1 ? t.view({t.dim(0), 1}) : t;
  const bool heads_second = !pattern && full.shape().rank() >= 3;
  const Cut first = pattern ? cut(request.heads, 0, full.dim(0)) : cut(request.positions, offset, full.dim(0));
  Cut second{0, full.dim(1)};
  if (pattern) second = cut(request.positions, offset, full.dim(1));
  if (heads_second) second = cut(request.heads, 0, full.dim(1));
  if (!first_value || !request.whole() || !ctx.take(full, value.values))
    visit_scalar(full, [&](auto zero) { copy_cut<decltype(zero)>(ctx.pool(), full, first, second, value.values); });
  value.shape = {first.count, second.count};
  for (int i = 2; i < full.shape().rank(); ++i) value.shape.push_back(full.dim(i));
  return value;
}

// Adds later queries to a pattern [head, query, key]: both sides are widened to the longer row of keys.
Recorder::Value join_patterns(const Recorder::Value& a, const Recorder::Value& b, float absent) {
  Recorder::Value joined;
  const int64_t heads = a.shape[0], keys = std::max(a.shape[2], b.shape[2]);
  joined.shape = {heads, a.shape[1] + b.shape[1], keys};
  for (int64_t h = 0; h < heads; ++h)
    for (const Recorder::Value* part : {&a, &b})
      for (int64_t i = 0; i < part->shape[1]; ++i) {
        const float* row = part->values.data() + (h * part->shape[1] + i) * part->shape[2];
        joined.values.insert(joined.values.end(), row, row + part->shape[2]);
        joined.values.insert(joined.values.end(), static_cast<size_t>(keys - part->shape[2]), absent);
      }
  return joined;
}

}  // namespace

Recorder::Recorder(const std::vector<HookRequest>& requests) {
  for (const HookRequest& request : requests) {
    takes_ = takes_ || request.whole();
    if (request.glob.find('*') == std::string::npos)
      by_name_.try_emplace(request.glob, request);
    else
      globs_.push_back(request);
  }
}

const HookRequest* Recorder::request_for(std::string_view name) const {
  if (const auto named = by_name_.find(name); named != by_name_.end()) return &named->second;
  const auto glob = std::find_if(globs_.begin(), globs_.end(), [&](const HookRequest& r) { return fits(r.glob, name); });
  return glob == globs_.end() ? nullptr : &*glob;
}

bool Recorder::wants(std::string_view name) const { return request_for(name) != nullptr; }

Tensor Recorder::see(Context& ctx, std::string_view name, const Tensor& value) {
  const HookRequest* const request = request_for(name);
  const bool pattern = heads_first(name);
  int64_t& heard = rows_heard_[std::string(name)];
  const auto [place, fresh] = values_.try_emplace(std::string(name), Value{});
  Value now = keep(ctx, value, *request, pattern, heard, fresh);
  heard += value.dim(pattern ? 1 : 0);
  if (fresh) {
    order_.emplace_back(name);
    place->second = std::move(now);
  } else if (pattern) {
    const float absent = name.ends_with("hook_attn_scores") ? -std::numeric_limits<float>::infinity() : 0;
    place->second = join_patterns(place->second, now, absent);
  } else {
    place->second.shape[0] += now.shape[0];
    place->second.values.insert(place->second.values.end(), now.values.begin(), now.values.end());
  }
  return {};
}

}  // namespace vitrine
