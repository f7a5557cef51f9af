#include "picture/data/attention_layer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "ops/attention.h"
#include "ops/linear.h"
#include "picture/data/normals.h"
#include "picture/data/studio.h"

namespace vitrine {
namespace {

constexpr uint64_t kInputSeed = 0;

double deviation(std::span<const float> numbers) {
  double sum = 0, squares = 0;
  for (const float x : numbers) {
    sum += x;
    squares += static_cast<double>(x) * x;
  }
  const auto n = static_cast<double>(numbers.size());
  return std::sqrt(std::max(0.0, squares / n - sum / n * (sum / n)));
}

std::span<const float> all_numbers(const Tensor& t) { return {t.data<float>(), static_cast<size_t>(t.count())}; }

// A matrix that exists while it multiplies.
Tensor product(Context& ctx, const Tensor& x, int matrix, int64_t out) {
  const int64_t in = x.row_size();
  std::vector<float> numbers(static_cast<size_t>(in * out));
  ctx.run(out, [&](int64_t row, int) {
    const auto first = static_cast<size_t>(row * in);
    attention_layer_weights(matrix, in, first, std::span(numbers).subspan(first, static_cast<size_t>(in)));
  });
  Weight w;
  w.name = "random";
  w.data = reinterpret_cast<const std::byte*>(numbers.data());
  w.out = out;
  w.in = in;
  w.stride = static_cast<size_t>(in) * sizeof(float);
  return linear(ctx, x, w);
}

// [rows, n, H] to [rows, n · times, H]: each head as often as query heads read it.
Tensor for_each_query(Context& ctx, const Tensor& heads, int64_t times) {
  const Tensor all = ctx.empty({heads.rows(), heads.dim(1) * times, heads.dim(2)});
  const auto size = static_cast<size_t>(heads.dim(2));
  for (int64_t i = 0; i < heads.rows() * heads.dim(1); ++i)
    for (int64_t t = 0; t < times; ++t)
      std::memcpy(all.data<float>() + static_cast<size_t>(i * times + t) * size,
                  heads.data<float>() + static_cast<size_t>(i) * size, size * sizeof(float));
  return all;
}

}  // namespace

std::vector<float> attention_layer_input(size_t count) {
  const std::vector<double> numbers = normals(kInputSeed, count);
  return {numbers.begin(), numbers.end()};
}

void attention_layer_weights(int matrix, int64_t in, uint64_t first, std::span<float> numbers) {
  const float most = 1 / std::sqrt(static_cast<float>(in));
  std::array<uint32_t, 4> words{};  // of the block of four numbers
  for (size_t i = 0; i < numbers.size(); ++i) {
    const uint64_t index = first + i;
    if (i == 0 || index % 4 == 0) words = philox(1 + static_cast<uint64_t>(matrix), index / 4, 0);
    numbers[i] = (2 * uniform_from(words[index % 4]) - 1) * most;
  }
}

AttentionLayerRun run_attention_layer(ThreadPool& pool, const AttentionLayerSizes& s) {
  const int64_t rows = s.batch * s.length, H = s.head_dim();
  Context ctx(pool);
  ctx.numerics.f32 = true;
  AttentionLayerRun run;
  Step step;
  const std::vector<int32_t> tokens(static_cast<size_t>(s.length), 0);
  for (int64_t b = 0; b < s.batch; ++b) step.add(tokens);
  const auto note = [&](const char* name, std::vector<int64_t> shape, const Tensor& t) {
    run.values.push_back({name, std::move(shape), deviation(all_numbers(t))});
  };

  const Tensor x = ctx.empty({rows, s.d_model});
  const std::vector<float> input = attention_layer_input(static_cast<size_t>(x.count()));
  std::copy(input.begin(), input.end(), x.data<float>());
  note("X", {s.batch, s.length, s.d_model}, x);
  const int64_t heads[] = {s.n_heads, s.n_kv_heads, s.n_kv_heads};
  constexpr const char* kNames[][2] = {{"X W_Q", "q"}, {"X W_K", "k"}, {"X W_V", "v"}};
  Tensor qkv[3];
  for (int m = 0; m < 3; ++m) {
    const Tensor y = product(ctx, x, m, heads[m] * H);
    note(kNames[m][0], {s.batch, s.length, heads[m] * H}, y);
    qkv[m] = y.view({rows, heads[m], H});
    note(kNames[m][1], {s.batch, s.length, heads[m], H}, qkv[m]);
    run.parameters[m] = s.d_model * heads[m] * H;
  }
  const AttentionSpec spec{.scale = 1 / std::sqrt(static_cast<double>(H)), .causal = false};
  const Tensor z = attention(ctx, "attn", qkv[0], qkv[1], qkv[2], step, 0, spec);
  note("z", {s.batch, s.length, s.n_heads, H}, z);
  const int64_t times = s.n_heads / s.n_kv_heads;
  const Tensor other =
      attention(ctx, "attn", qkv[0], for_each_query(ctx, qkv[1], times), for_each_query(ctx, qkv[2], times), step, 0, spec);
  for (int64_t i = 0; i < z.count(); ++i)
    run.repeated = std::max(run.repeated, std::abs(static_cast<double>(z.data<float>()[i]) - other.data<float>()[i]));
  const Tensor out = product(ctx, z.view({rows, s.n_heads * H}), 3, s.d_model);
  note("z W_O", {s.batch, s.length, s.d_model}, out);
  run.parameters[3] = s.n_heads * H * s.d_model;
  const std::span<const float> numbers = all_numbers(out);
  run.out.assign(numbers.begin(), numbers.end());
  run.multiply_adds = rows * std::accumulate(std::begin(run.parameters), std::end(run.parameters), int64_t{0}) +
                      2 * s.batch * s.length * s.length * s.n_heads * H;
  return run;
}

PictureJson data_of_attention_layer(Studio& studio) {
  const AttentionLayerSizes sizes;
  static const AttentionLayerRun run = run_attention_layer(studio.engine.context().pool(), sizes);  // the same for every model
  PictureJson p = present(
      fmt::format(
          "One attention layer of {} query heads and {} key and value heads of {} numbers, run on {} sequences of {} tokens: "
          "random numbers, random weights, no positions and no mask. Every {} query heads read one key head; with keys and "
          "values repeated for each of them the result is the same.",
          sizes.n_heads, sizes.n_kv_heads, sizes.head_dim(), sizes.batch, sizes.length, sizes.n_heads / sizes.n_kv_heads),
      "");
  p["values"] = PictureJson::array();
  for (const AttentionLayerRun::Value& value : run.values) {
    std::string shape;
    for (const int64_t size : value.shape) shape += (shape.empty() ? "" : ", ") + std::to_string(size);
    p["values"].push_back(
        {{"name", value.name}, {"shape", value.shape}, {"written", "(" + shape + ")"}, {"deviation", number(value.deviation)}});
  }
  p["matrices"] = PictureJson::array();
  const char* const names[] = {"W_Q", "W_K", "W_V", "W_O"};
  for (int m = 0; m < 4; ++m) p["matrices"].push_back({{"name", names[m]}, {"parameters", run.parameters[m]}});
  p["repeated"] = number(run.repeated);
  p["multiplyAdds"] = run.multiply_adds;
  p["alt"] = fmt::format(
      "In and out: {}. Queries in heads: {}. Keys and values in heads: {}. The largest difference to repeated keys "
      "and values is {:.1e}.",
      p["values"].back().at("written").get<std::string>(), p["values"][2].at("written").get<std::string>(),
      p["values"][4].at("written").get<std::string>(), run.repeated);
  p["prose"] = {{"repeated", number(run.repeated)}};
  p["charts"] = PictureJson::parse(R"json([
    {"kind": "bars", "title": "Parameters of the four matrices", "label": "Parameters of W_Q, W_K, W_V and W_O.", "name": "{matrices.*.name}", "value": "matrices.*.parameters",
     "note": "{matrices.*.parameters|count}", "hint": "{matrices.*.name}\n{matrices.*.parameters|count} parameters"},
    {"kind": "bars", "title": "Standard deviation of what each step gives", "label": "Standard deviations along the layer.", "name": "{values.*.name} {values.*.written}", "value": "values.*.deviation",
     "hint": "{values.*.name}\nshape {values.*.written}\nstandard deviation {values.*.deviation}"},
    {"kind": "remark", "text": "{multiplyAdds|count} multiply-adds. Keys and values repeated for every query head: largest difference {repeated}."}
  ])json");
  p["tables"] = PictureJson::parse(R"json([
    {"columns": [["value", "values.*.name"], ["shape", "values.*.written"], ["standard deviation", "values.*.deviation", ".4f"]]},
    {"columns": [["matrix", "matrices.*.name"], ["parameters", "matrices.*.parameters", "count"]]}
  ])json");
  return p;
}

}  // namespace vitrine
