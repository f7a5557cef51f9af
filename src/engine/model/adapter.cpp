#include "model/adapter.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/nearest.h"
#include "base/philox.h"
#include "model/adapter_modules.h"
#include "model/adapter_whole.h"
#include "model/expert_modules.h"
#include "model/layer_name.h"

namespace vitrine {
namespace {

using Module = Adapter::Module;

// Fresh values draw from streams of random numbers beyond those of the models' own dropout.
constexpr uint64_t kFreshStreams = uint64_t{2} << 32;

std::string joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

// DoRA's magnitudes of a fresh adapter: the lengths of the matrix's rows, so that nothing changes.
void fresh_magnitudes(Module& m) {
  if (m.outside || m.of_parameter)
    throw InputError("lora.dora is set, and " + m.name + " is " + (m.outside ? "an embedding or the head" : "of experts") +
                     ", for which DoRA is not supported. Leave it out of lora.targets");
  m.dora = true;
  m.values.resize(static_cast<size_t>(m.a_count() + m.b_count() + m.out));
  float* to = m.values.data() + m.a_count() + m.b_count();
  const std::vector<float> ones(static_cast<size_t>(m.out), 1);
  for (const Weight* weight : m.weights) {
    LowRank alone;
    alone.A.in = weight->in;
    alone.magnitude.data = ones.data();
    alone.magnitude.size = weight->out;
    for (const float ratio : magnitude_ratios(*weight, alone)) *to++ = 1 / ratio;
  }
}

// Whether something changes the embedding or the head of a tied model alone.
bool parts_embedding(const OpenedModel& opened, const AdapterOptions& options) {
  const EmbeddingNames names = embedding_names(*opened.model);
  for (const std::vector<std::string>* list : {&options.targets, &options.saved})
    for (const std::string& target : *list)
      if (names.embedding.ends_with(target) || names.head.ends_with(target)) {
        if (!options.tokens.empty())
          throw InputError(
              "lora.trainable_token_indices has tokens of a tied embedding, which are those of the head too, and \"" + target +
              "\" changes one of the two another way; both together are not supported");
        return true;
      }
  return false;
}

void refuse_twice(const Adapter::Parts& parts) {
  std::map<std::pair<const void*, bool>, const std::string*> adapted;  // of weights also whether they are looked up
  const auto add = [&](const void* what, bool lookup, const std::string& name) {
    if (const auto [place, fresh] = adapted.try_emplace({what, lookup}, &name); !fresh)
      throw InputError("the adapter has the same matrix twice, in " + *place->second + " and in " + name +
                       ". Adapt the experts each by itself or all in one parameter, not both, and an embedding in one way");
  };
  for (const Module& m : parts.modules)
    for (const Weight* weight : m.weights) {
      add(weight, m.lookup, m.name);
      if (m.also_head) add(weight, false, m.name);
    }
  for (const Adapter::Whole& whole : parts.wholes)
    for (const TensorLine* line : whole.tensor.parts) {
      const void* const what = line->weight != nullptr ? static_cast<const void*>(line->weight) : line->vector;
      if (whole.lookup) add(what, true, whole.name);
      if (whole.product) add(what, false, whole.name);
    }
  for (const Adapter::Tokens& tokens : parts.tokens) {
    if (tokens.lookup) add(tokens.weight, true, tokens.name);
    if (tokens.product) add(tokens.weight, false, tokens.name);
  }
}

const std::byte* as_bytes(const float* values) { return reinterpret_cast<const std::byte*>(values); }

}  // namespace

std::string Adapter::Module::tensor_name(char which) const {
  const std::string module = of_parameter ? name.substr(0, name.rfind('.')) + (inner ? ".base_layer" : "") : name;
  if (which == 'M') return "base_model.model." + module + ".lora_magnitude_vector";
  if (lookup) return "base_model.model." + module + ".lora_embedding_" + which;
  return "base_model.model." + module + ".lora_" + which + ".weight";
}

Adapter::Adapter(AdapterOptions options, Parts parts, std::string directory)
    : options_(std::move(options)), all_(std::move(parts)), directory_(std::move(directory)) {
  static std::atomic<uint64_t> made{0};
  id_ = ++made;
  refuse_twice(all_);
  for (Module& m : all_.modules) {
    point(m, m.values.data(), m.values.data() + m.a_count(), m.values.data() + m.a_count() + m.b_count());
    for (size_t i = 0; m.dora && i < m.parts.size(); ++i) {
      const std::vector<float> ratios = magnitude_ratios(*m.weights[i], m.parts[i]);
      m.ratios.insert(m.ratios.end(), ratios.begin(), ratios.end());
    }
    size_t first = 0;
    for (size_t i = 0; i < m.parts.size(); ++i) {
      if (m.dora) m.parts[i].ratio = m.ratios.data() + first;
      first += static_cast<size_t>(m.part_sizes[i]);
      if (m.lookup) by_weight_.lookups[m.weights[i]] = &m.parts[i];
      if (!m.lookup || m.also_head) by_weight_.beside[m.weights[i]] = &m.parts[i];
    }
  }
  for (Whole& whole : all_.wholes) {
    const std::vector<const TensorLine*>& lines = whole.tensor.parts;
    whole.weights.resize(lines.size());
    whole.vectors.resize(lines.size());
    whole.instead.resize(lines.size());
    point(whole, whole.values.data(), nullptr);
    for (size_t i = 0; i < lines.size(); ++i) {
      whole.instead[i].whole = &whole.weights[i];
      if (lines[i]->vector != nullptr) by_weight_.vectors[lines[i]->vector] = &whole.vectors[i];
      if (lines[i]->weight == nullptr) continue;
      if (whole.lookup) by_weight_.lookups[lines[i]->weight] = &whole.instead[i];
      if (whole.product) by_weight_.beside[lines[i]->weight] = &whole.instead[i];
    }
  }
  for (Tokens& tokens : all_.tokens) {
    tokens.part.A.data = as_bytes(static_cast<const float*>(tokens.values.data()));
    if (tokens.lookup) by_weight_.lookups[tokens.weight] = &tokens.part;
    if (tokens.product) by_weight_.beside[tokens.weight] = &tokens.part;
  }
}

void add_row_adapters(const ScaledAdapters& adapters, int64_t first, int64_t rows, std::vector<RowAdapter>& to) {
  for (const ScaledAdapter& adapter : adapters) to.push_back({first, rows, &adapter.adapter->parts(), adapter.scale});
}

void Adapter::point(Module& m, const float* A, const float* B, const float* magnitudes) {
  for (size_t i = 0; i < m.parts.size(); ++i) {
    LowRank& part = m.parts[i];
    part.A.data = as_bytes(A + static_cast<int64_t>(i / m.parts_of_one()) * m.rank * m.in);
    part.B.data = as_bytes(B);
    B += part.B.out * part.B.in;
    if (!m.dora) continue;
    part.magnitude.name = m.tensor_name('M');
    part.magnitude.data = magnitudes;
    part.magnitude.size = part.B.out;
    magnitudes += part.B.out;
  }
}

void Adapter::point(Whole& whole, const float* values, float* gradients) {
  whole.data = values;
  const auto row = static_cast<size_t>(whole.tensor.shape.back());
  for (size_t i = 0; i < whole.tensor.parts.size(); ++i) {
    const TensorLine& line = *whole.tensor.parts[i];
    if (line.vector != nullptr) {
      const auto begin = static_cast<size_t>(line.first_row(false));
      Vector& vector = whole.vectors[i];
      vector.name = line.vector->name;
      vector.data = values + begin;
      vector.size = line.out.size;
      if (gradients != nullptr) vector.grad = {gradients + begin, 1};
      continue;
    }
    const size_t begin = static_cast<size_t>(line.first_row(false)) * row + static_cast<size_t>(line.first_column(false));
    Weight& weight = whole.weights[i];
    weight.name = line.weight->name;
    weight.data = as_bytes(values + begin);
    weight.out = line.out.size;
    weight.in = line.in.size;
    weight.by_columns = whole.tensor.by_columns;
    weight.stride = row * sizeof(float);
    if (gradients != nullptr) weight.grad = {gradients + begin, row};
  }
}

void Adapter::attach() {
  attached_ = true;
  for (const Module& m : all_.modules)
    for (size_t i = 0; i < m.parts.size(); ++i) m.weights[i]->adapter = &m.parts[i];
  for (const Tokens& tokens : all_.tokens) tokens.weight->adapter = &tokens.part;
  for (const Whole& whole : all_.wholes)
    for (size_t i = 0; i < whole.tensor.parts.size(); ++i) {
      const TensorLine& line = *whole.tensor.parts[i];
      if (line.vector != nullptr) {
        *line.vector = whole.vectors[i];
        continue;
      }
      Weight with = whole.weights[i];
      with.bias = line.weight->bias;
      with.adapter = line.weight->adapter;
      *line.weight = std::move(with);
    }
}

std::vector<Adapter::Learned> Adapter::learned() const {
  std::vector<Learned> all;
  for (const Module& m : all_.modules) {
    all.push_back({m.tensor_name('A'), m.ours, {m.experts * m.rank, m.in}, m.layer});
    all.push_back({m.tensor_name('B'), m.ours, {m.experts * m.out, m.rank}, m.layer});
    if (m.dora) all.push_back({m.tensor_name('M'), m.ours, {m.out}, m.layer, false});
  }
  for (const Whole& whole : all_.wholes) {
    const std::string& ours = whole.tensor.parts.front()->ours;
    all.push_back({whole.name, ours, whole.tensor.shape, split_layer(ours).first, whole.matrix()});
  }
  for (const Tokens& tokens : all_.tokens)
    all.push_back({tokens.tensor_name(), tokens.lookup ? "W_E" : "W_U", {tokens.part.A.out, tokens.part.A.in}});
  return all;
}

void Adapter::bind(std::span<float* const> values, std::span<float* const> gradients) {
  size_t next = 0;
  const auto take = [&](const float* from, int64_t count) {
    std::memcpy(values[next], from, static_cast<size_t>(count) * sizeof(float));
    return next++;
  };
  for (Module& m : all_.modules) {
    const size_t a = take(m.A(), m.a_count()), b = take(m.B(), m.b_count()), magnitude = m.dora ? take(m.magnitudes(), m.out) : b;
    point(m, values[a], values[b], values[magnitude]);
    float *to_b = gradients[b], *to_magnitude = gradients[magnitude];
    for (size_t i = 0; i < m.parts.size(); ++i) {
      LowRank& part = m.parts[i];
      part.A.grad = {gradients[a] + static_cast<int64_t>(i / m.parts_of_one()) * m.rank * m.in, static_cast<size_t>(m.in)};
      part.B.grad = {to_b, static_cast<size_t>(m.rank)};
      to_b += part.B.out * m.rank;
      part.ratio = nullptr;  // it changes from step to step
      if (m.dora) part.magnitude.grad = {to_magnitude, 1};
      to_magnitude += m.dora ? part.B.out : 0;
    }
    m.values = m.ratios = {};
  }
  for (Whole& whole : all_.wholes) {
    const size_t i = take(whole.data, whole.count());
    point(whole, values[i], gradients[i]);
    whole.values = {};
  }
  for (Tokens& tokens : all_.tokens) {
    const size_t i = take(reinterpret_cast<const float*>(tokens.part.A.data), tokens.part.A.out * tokens.part.A.in);
    tokens.part.A.data = as_bytes(static_cast<const float*>(values[i]));
    tokens.part.A.grad = {gradients[i], static_cast<size_t>(tokens.part.A.in)};
    tokens.values = {};
  }
  if (attached_) attach();
}

std::string Adapter::only_attached() const {
  for (const Whole& whole : all_.wholes)
    for (const TensorLine* line : whole.tensor.parts) {
      if (line->vector == nullptr) continue;
      const std::string_view part = split_layer(line->ours).second;
      const auto has = [&](std::string_view word) { return part.find(word) != std::string_view::npos; };
      const bool norm = (part.ends_with(".w") || part.ends_with(".b")) && (part.starts_with("ln") || has("norm"));
      // Those of mixtures are read by rows in another order, those of convolutions, of state spaces and of the
      // head by other ops.
      const bool other =
          line->layout.experts > 0 || has("expert") || has("router") || has("conv") || part == "b_U" || part == "ssm.norm.w";
      if (!other && (norm || has("b_"))) continue;
      return "it changes the whole tensor \"" + whole.name +
             "\", which cannot be another for some texts only. Run it beside the "
             "model for all of them (--adapter), or merge it (vitrine convert)";
    }
  return {};
}

std::vector<std::string> Adapter::files() const {
  if (directory_.empty()) return {};
  return adapter_files(directory_);
}

int64_t Adapter::parameter_count() const {
  int64_t count = 0;
  for (const Learned& tensor : learned()) {
    int64_t numbers = 1;
    for (const int64_t n : tensor.shape) numbers *= n;
    count += numbers;
  }
  return count;
}

void add_fresh_adapter(OpenedModel& opened, const AdapterOptions& options, uint64_t seed) {
  refuse_held_factors(opened);
  if (opened.model->shape().tied && !options.tied && parts_embedding(opened, options)) untie(opened);
  const bool tied = opened.model->shape().tied;
  Adapter::Parts parts;
  if (tied) parts.tied_head = embedding_names(*opened.model).head;
  std::vector<Module> all = modules_of(opened);
  std::vector<Module>& chosen = parts.modules;
  std::vector<std::string> names = last_names(all);
  for (Module& m : parameters_of(opened, options)) all.push_back(std::move(m));
  for (const Module& m : expert_modules(opened))
    if (std::find(names.begin(), names.end(), short_name(m)) == names.end()) names.push_back(short_name(m));
  std::vector<std::string> known = names;
  known.emplace_back(kAllLinear);
  for (const std::string& target : options.targets)
    if (target != kAllLinear && std::none_of(all.begin(), all.end(), [&](const Module& m) { return named_by(target, m); }))
      throw InputError("lora.targets: \"" + target + "\" names no matrix of " + opened.files.name + "; did you mean \"" +
                       nearest(target, known) + "\"? There are " + joined(names) + ", and all-linear for all of them");
  const auto named = [&](const Module& m) {
    return std::any_of(options.targets.begin(), options.targets.end(),
                       [&](const std::string& target) { return named_by(target, m); });
  };
  const bool head_named =
      std::any_of(all.begin(), all.end(), [&](const Module& m) { return m.name == parts.tied_head && named(m); });
  for (size_t index = 0; index < all.size(); ++index) {
    Module& m = all[index];
    const bool tied_embedding = tied && m.lookup && m.ours == "W_E";
    if (tied && m.name == parts.tied_head) continue;  // it is the embedding
    if (!named(m) && !(tied_embedding && head_named)) continue;
    // One row is the gate of a shared expert, which all-linear does not mean.
    if (m.out == 1 && std::find(options.targets.begin(), options.targets.end(), kAllLinear) != options.targets.end()) continue;
    if (options.rank > std::min(m.in, m.out))
      throw InputError("lora.rank is " + std::to_string(options.rank) + ", and " + m.name + " is [" + std::to_string(m.out) +
                       ", " + std::to_string(m.in) + "]: beyond " + std::to_string(std::min(m.in, m.out)) +
                       " an adapter is larger than what it stands for. Lower it");
    set_size(m, options.rank, options.alpha, options, index);
    const float bound = 1 / std::sqrt(static_cast<float>(m.in));
    for (int64_t i = 0; i < m.a_count(); ++i) {
      const auto words = philox(seed, static_cast<uint64_t>(i) / 4, kFreshStreams + index);
      m.values[static_cast<size_t>(i)] = m.lookup ? static_cast<float>(normals_from(words)[static_cast<size_t>(i % 4)])
                                                  : (2 * uniform_from(words[static_cast<size_t>(i % 4)]) - 1) * bound;
    }
    m.also_head = tied_embedding;
    if (options.dora) fresh_magnitudes(m);
    chosen.push_back(std::move(m));
  }
  if (chosen.empty()) throw InputError("lora.targets is empty; expected some of " + joined(names) + ", or all-linear");
  check_dropout(options, chosen);
  parts.wholes = fresh_wholes(opened, options, chosen);
  if (!options.tokens.empty()) {
    parts.tokens.push_back(tokens_of(opened, embedding_names(*opened.model).embedding, options.tokens, tied));
    fill_tokens(parts.tokens.back());
  }
  attach_adapter(opened, std::make_shared<Adapter>(options, std::move(parts), ""));
}

}  // namespace vitrine
