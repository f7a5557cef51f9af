#include "inspect/parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "hooks/listening.h"
#include "inspect/adapted_part.h"
#include "inspect/weights.h"
#include "model/abilities.h"
#include "model/layer_name.h"

namespace vitrine {
namespace {

// Collects the parts of some rows while the model runs, and sends them through the norms that stand between them and the stream.
class PartCollector final : public Listener {
 public:
  PartCollector(Engine& engine, std::vector<int64_t> positions, std::string until)
      : weights_(*engine.opened().model), model_(engine.model()), until_(std::move(until)) {
    const ModelShape shape = engine.shape();
    result.positions = std::move(positions);
    result.d_model = shape.d_model;
    spec_ = shape.n_layers > 0 ? model_.layer(0) : LayerRecord{};
    for (int64_t layer = 0; layer < shape.n_layers && !post_norms_; ++layer)
      post_norms_ = weights_.find_vector("blocks." + std::to_string(layer) + ".ln1_post.w") != nullptr;
  }

  StreamParts result;
  std::vector<float> final_scale;  // [R]; empty without a final norm
  std::vector<float> final_x;      // [R, d_model], what the head reads

  bool wants(std::string_view name) const override {
    const auto [layer, rest] = split_layer(name);
    if (name == "ln_final.hook_scale" || name == "ln_final.hook_normalized") return true;
    if (done_) return false;
    if (name == until_ || rest == "hook_embed" || rest == "hook_pos_embed" || rest == "attn.hook_result" ||
        rest == "hook_mlp_out" || rest == "hook_per_layer_out" || rest == "hook_ssm_out")
      return true;
    if (rest == "hook_attn_out") return !model_.layer(layer).has_attention();
    if (rest == "hook_resid_post") return model_.layer(layer).stream_scale != 1;
    if (rest == "ln1_post.hook_scale") return post_norms_ && model_.layer(layer).has_attention();
    return spec_.norms_after && (rest == "ln1.hook_scale" || rest == "ln2.hook_scale");
  }

  Tensor see(Context&, std::string_view name, const Tensor& value) override {
    const auto [layer, rest] = split_layer(name);
    const std::string prefix = "L" + std::to_string(layer) + ".";
    if (name == "ln_final.hook_scale") {
      copy_rows(value, 0, 1, final_scale);
    } else if (name == "ln_final.hook_normalized") {
      copy_rows(value, 0, result.d_model, final_x);
    } else if (rest == "hook_embed") {
      add(StreamPart::Kind::embed, -1, -1, "embed", value, 0);
    } else if (rest == "hook_pos_embed") {
      add(StreamPart::Kind::positions, -1, -1, "pos_embed", value, 0);
    } else if (rest == "attn.hook_result") {
      first_of_attention_ = result.parts.size();
      for (int64_t h = 0; h < value.dim(1); ++h)
        add(StreamPart::Kind::head, layer, h, prefix + "H" + std::to_string(h), value, h * result.d_model);
      if (const Vector& bias = weights_.matrix("blocks." + std::to_string(layer) + ".attn.W_O").bias)
        add_constant(StreamPart::Kind::attention_bias, layer, prefix + "attn_bias", [&](int64_t i) { return bias.at<float>(i); });
      if (spec_.residual_scale != 1) rescale(first_of_attention_, spec_.residual_scale);
    } else if (rest == "hook_attn_out" || rest == "hook_ssm_out") {  // as it is added to the stream
      add(StreamPart::Kind::convolution, layer, -1, prefix + mixer_of(layer), value, 0);
    } else if (rest == "hook_mlp_out") {
      add(StreamPart::Kind::mlp, layer, -1, prefix + "mlp", value, 0);
    } else if (rest == "hook_per_layer_out") {
      add(StreamPart::Kind::per_layer, layer, -1, prefix + "per_layer", value, 0);
    } else if (rest == "hook_resid_post") {  // the whole stream, if the layer multiplies it by a number
      if (const double factor = model_.layer(layer).stream_scale; factor != 1) rescale(0, factor);
    } else if (rest == "ln1_post.hook_scale") {
      through_norm(first_of_attention_, norm_of(layer, "ln1_post"), value);
    } else if (rest == "ln1.hook_scale" || rest == "ln2.hook_scale") {  // on the stream itself
      const std::string short_name(rest.substr(0, 3));
      const FrozenNorm norm = norm_of(layer, short_name);
      through_norm(0, norm, value);
      if (!norm.bias.empty())
        add_constant(StreamPart::Kind::norm_bias, layer, prefix + short_name + "_bias",
                     [&](int64_t i) { return static_cast<float>(norm.bias[static_cast<size_t>(i)]); });
    }
    if (name == until_) {
      copy_rows(value, 0, result.d_model, result.stream);
      done_ = true;
    }
    return {};
  }

 private:
  // What its hooks are called by, in the place of "attn".
  std::string mixer_of(int64_t layer) const {
    if (!model_.layer(layer).delta) return "conv";
    return model_.record().hook("blocks." + std::to_string(layer) + ".ssm.hook_z") != nullptr ? "ssm" : "delta";
  }

  FrozenNorm norm_of(int64_t layer, const std::string& name) const {
    return frozen_norm(weights_, model_.layer(layer), "blocks." + std::to_string(layer) + "." + name);
  }

  void copy_rows(const Tensor& value, int64_t offset, int64_t n, std::vector<float>& to) const {
    for (const int64_t row : result.positions) {
      const float* from = value.row<float>(row) + offset;
      to.insert(to.end(), from, from + n);
    }
  }

  void add(StreamPart::Kind kind, int64_t layer, int64_t head, std::string name, const Tensor& value, int64_t offset) {
    result.parts.push_back({kind, layer, head, std::move(name)});
    copy_rows(value, offset, result.d_model, result.values);
  }

  template <class F>
  void add_constant(StreamPart::Kind kind, int64_t layer, std::string name, F&& number) {
    result.parts.push_back({kind, layer, -1, std::move(name)});
    for (size_t r = 0; r < result.positions.size(); ++r)
      for (int64_t i = 0; i < result.d_model; ++i) result.values.push_back(number(i));
  }

  void rescale(size_t first_part, double factor) {
    const size_t each = result.positions.size() * static_cast<size_t>(result.d_model);
    for (size_t i = first_part * each; i < result.values.size(); ++i) result.values[i] *= static_cast<float>(factor);
  }

  void through_norm(size_t first_part, const FrozenNorm& norm, const Tensor& scale) {
    const auto d = static_cast<size_t>(result.d_model), rows = result.positions.size();
    std::vector<double> x(d);
    for (size_t p = first_part; p < result.parts.size(); ++p)
      for (size_t r = 0; r < rows; ++r) {
        float* part = result.values.data() + (p * rows + r) * d;
        std::copy(part, part + d, x.begin());
        norm.apply(x.data(), static_cast<double>(*scale.row<float>(result.positions[r])));
        for (size_t i = 0; i < d; ++i) part[i] = static_cast<float>(x[i]);
      }
  }

  NamedWeights weights_;
  const Model& model_;
  LayerRecord spec_;
  bool post_norms_ = false, done_ = false;
  std::string until_;
  size_t first_of_attention_ = 0;
};

double gap_of(const StreamParts& s) {
  double gap = 0;
  const auto d = static_cast<size_t>(s.d_model);
  for (size_t r = 0; r < s.positions.size(); ++r)
    for (size_t i = 0; i < d; ++i) {
      double sum = 0;
      for (size_t p = 0; p < s.parts.size(); ++p) sum += static_cast<double>(s.part(p, r)[i]);
      gap = std::max(gap, std::abs(sum - static_cast<double>(s.stream_at(r)[i])));
    }
  return gap;
}

std::string end_of_stream(const ModelShape& shape) { return "blocks." + std::to_string(shape.n_layers - 1) + ".hook_resid_post"; }

// Runs the ids once; the logits of the positions are left in `z` [R, vocab_size] if it is given.
PartCollector collect(Engine& engine, std::span<const int32_t> ids, const StreamPartsOptions& options, std::vector<float>* z) {
  require_residual(engine.model(), engine.name(), "The sum of parts");
  require_plain_head(engine.model(), engine.name(), "The sum of parts");
  engine.check_ids(ids);
  const ModelShape shape = engine.shape();
  std::vector<int64_t> positions = positions_or_last(options.positions, ids.size());
  const std::string until = options.until.empty() ? end_of_stream(shape) : options.until;
  const auto [layer, rest] = split_layer(until);
  if (layer < 0 || layer >= shape.n_layers || (rest != "hook_resid_pre" && rest != "hook_resid_mid" && rest != "hook_resid_post"))
    throw InputError("\"" + until +
                     "\" is no point of the residual stream; expected blocks.<layer>.hook_resid_pre, _mid or "
                     "_post with a layer from 0 to " +
                     std::to_string(shape.n_layers - 1));
  if (engine.model().record().hook(until) == nullptr)
    throw InputError(engine.name() + " has no hook \"" + until +
                     "\": its MLP reads the stream that its attention reads; ask for " + "hook_resid_pre or hook_resid_post");
  const auto most_parts = static_cast<size_t>(2 + shape.n_layers * (shape.n_heads + 5));
  const size_t per_position =
      most_parts * static_cast<size_t>(shape.d_model) + (z != nullptr ? static_cast<size_t>(shape.vocab_size) : 0);
  require_memory(positions.size() * per_position * sizeof(float), options.memory,
                 "The parts of the residual stream at " + std::to_string(positions.size()) + " position(s)",
                 "Ask for fewer positions");
  PartCollector collector(engine, positions, until);
  collector.result.values.reserve(positions.size() * most_parts * static_cast<size_t>(shape.d_model));
  Context& ctx = engine.context();
  const auto frame = ctx.frame();
  const Listening listening(ctx, collector);
  const int64_t last = static_cast<int64_t>(ids.size()) - 1;
  const Tensor logits = engine.run(Step::of(ids), z != nullptr ? std::span<const int64_t>(positions) : std::span(&last, 1));
  if (z != nullptr) z->assign(logits.data<float>(), logits.data<float>() + logits.count());
  return collector;
}

// The logit of one token before the cap, for x [d_model], in the arithmetic of the model's head.
double before_cap(Context& ctx, const Head& head, std::span<const float> x, int32_t token) {
  const auto frame = ctx.frame();
  const Tensor row = ctx.empty({1, head.weight->in});
  std::copy(x.begin(), x.end(), row.data<float>());
  float logit = 0;
  adapted_part(ctx, row, *head.weight, token, 1, &logit);
  logit *= static_cast<float>(head.scale);
  if (head.weight->bias) logit += head.weight->bias.at<float>(token);
  return static_cast<double>(logit);
}

}  // namespace

std::vector<int64_t> positions_or_last(std::span<const int64_t> positions, size_t tokens) {
  const auto n = static_cast<int64_t>(tokens);
  if (positions.empty()) return {n - 1};
  for (const int64_t position : positions)
    if (position < 0 || position >= n)
      throw InputError("position " + std::to_string(position) + " is outside the prompt of " + std::to_string(n) +
                       " tokens (0 to " + std::to_string(n - 1) + ")");
  return {positions.begin(), positions.end()};
}

StreamParts stream_parts(Engine& engine, std::span<const int32_t> ids, const StreamPartsOptions& options) {
  StreamParts result = std::move(collect(engine, ids, options, nullptr).result);
  result.gap = gap_of(result);
  return result;
}

LogitAttribution attribute_logits(Engine& engine, std::span<const int32_t> ids, std::span<const int32_t> tokens,
                                  std::span<const int64_t> positions, size_t memory) {
  const ModelShape shape = engine.shape();
  for (const int32_t token : tokens)
    if (token < 0 || token >= shape.vocab_size)
      throw InputError("token " + std::to_string(token) + " is outside the vocabulary of " + engine.name() + " (0 to " +
                       std::to_string(shape.vocab_size - 1) + ")");
  std::vector<float> z;
  PartCollector collected =
      collect(engine, ids, {.positions = {positions.begin(), positions.end()}, .until = {}, .memory = memory}, &z);
  StreamParts& stream = collected.result;
  const NamedWeights weights(*engine.opened().model);
  const FrozenNorm norm = frozen_norm(weights, engine.model().layer(0), "ln_final");
  const Head head = engine.model().head();
  const auto d = static_cast<size_t>(stream.d_model), rows = stream.positions.size(),
             vocab = static_cast<size_t>(shape.vocab_size);
  if (norm.gain.empty()) collected.final_x = stream.stream;

  LogitAttribution result;
  result.softcap = head.softcap;
  std::vector<double> direction(d);
  for (size_t r = 0; r < rows; ++r) {
    const float* row = z.data() + r * vocab;
    const auto most_likely = static_cast<int32_t>(std::max_element(row, row + vocab) - row);
    for (const int32_t token : tokens.empty() ? std::span(&most_likely, 1) : tokens) {
      LogitAttribution::Logit logit;
      logit.position = stream.positions[r];
      logit.token = token;
      logit.logit = static_cast<double>(row[token]);
      for (size_t i = 0; i < d; ++i) direction[i] = head.scale * head.weight->at<double>(token, static_cast<int64_t>(i));
      for (size_t i = 0; i < norm.bias.size(); ++i) logit.norm_bias += direction[i] * norm.bias[i];
      if (head.weight->bias) logit.head_bias = head.weight->bias.at<double>(token);
      if (!norm.gain.empty()) {
        // u · (gain ⊙ (x - mean(x))) / scale = (u ⊙ gain - mean(u ⊙ gain)) · x / scale
        double mean = 0;
        for (size_t i = 0; i < d; ++i) mean += direction[i] *= norm.gain[i];
        mean /= static_cast<double>(d);
        const auto scale = static_cast<double>(collected.final_scale[r]);
        for (double& u : direction) u = (u - (norm.rms ? 0 : mean)) / scale;
      }
      double sum = logit.norm_bias + logit.head_bias;
      for (size_t p = 0; p < stream.parts.size(); ++p) {
        const std::span<const float> part = stream.part(p, r);
        double dot = 0;
        for (size_t i = 0; i < d; ++i) dot += direction[i] * static_cast<double>(part[i]);
        logit.parts.push_back(dot);
        sum += dot;
      }
      logit.before_cap = logit.logit;
      if (head.softcap != 0)
        logit.before_cap = before_cap(engine.context(), head, std::span(collected.final_x).subspan(r * d, d), token);
      logit.rounding = logit.before_cap - sum;
      result.logits.push_back(std::move(logit));
    }
  }
  result.parts = std::move(stream.parts);
  return result;
}

}  // namespace vitrine
