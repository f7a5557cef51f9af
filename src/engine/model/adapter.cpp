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
#include "model/expert_modules.h"

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

void refuse_twice(const std::vector<Module>& modules) {
  std::map<const Weight*, const Module*> adapted;
  for (const Module& m : modules)
    for (const Weight* weight : m.weights)
      if (const auto [place, fresh] = adapted.try_emplace(weight, &m); !fresh)
        throw InputError("the adapter has the same matrix twice, in " + place->second->name + " and in " + m.name +
                         ". Adapt the experts each by itself or all in one parameter, not both");
}

}  // namespace

std::string Adapter::Module::tensor_name(char which) const {
  const std::string module = of_parameter ? name.substr(0, name.rfind('.')) + (inner ? ".base_layer" : "") : name;
  return "base_model.model." + module + ".lora_" + which + ".weight";
}

Adapter::Adapter(AdapterOptions options, std::vector<Module> modules, std::string directory)
    : options_(std::move(options)), modules_(std::move(modules)), directory_(std::move(directory)) {
  static std::atomic<uint64_t> made{0};
  id_ = ++made;
  refuse_twice(modules_);
  for (Module& m : modules_) {
    point(m, m.values.data(), m.values.data() + m.a_count());
    for (size_t i = 0; i < m.parts.size(); ++i) by_weight_.beside[m.weights[i]] = &m.parts[i];
  }
}

void add_row_adapters(const ScaledAdapters& adapters, int64_t first, int64_t rows, std::vector<RowAdapter>& to) {
  for (const ScaledAdapter& adapter : adapters) to.push_back({first, rows, &adapter.adapter->parts(), adapter.scale});
}

void Adapter::point(Module& m, const float* A, const float* B) {
  for (size_t i = 0; i < m.parts.size(); ++i) {
    LowRank& part = m.parts[i];
    part.A.data = reinterpret_cast<const std::byte*>(A + static_cast<int64_t>(i / m.parts_of_one()) * m.rank * m.in);
    part.B.data = reinterpret_cast<const std::byte*>(B);
    B += part.B.out * part.B.in;
  }
}

void Adapter::bind(size_t module, float* A, float* B, float* grad_A, float* grad_B) {
  Module& m = modules_.at(module);
  std::memcpy(A, m.A(), static_cast<size_t>(m.a_count()) * sizeof(float));
  std::memcpy(B, m.B(), static_cast<size_t>(m.b_count()) * sizeof(float));
  point(m, A, B);
  for (size_t i = 0; i < m.parts.size(); ++i) {
    LowRank& part = m.parts[i];
    part.A.grad = {grad_A + static_cast<int64_t>(i / m.parts_of_one()) * m.rank * m.in, static_cast<size_t>(m.in)};
    part.B.grad = {grad_B, static_cast<size_t>(m.rank)};
    grad_B += part.B.out * m.rank;
  }
  m.values = {};
}

std::vector<std::string> Adapter::files() const {
  if (directory_.empty()) return {};
  return adapter_files(directory_);
}

int64_t Adapter::parameter_count() const {
  int64_t count = 0;
  for (const Module& m : modules_) count += m.a_count() + m.b_count();
  return count;
}

void add_fresh_adapter(OpenedModel& opened, const AdapterOptions& options, uint64_t seed) {
  std::vector<Module> all = modules_of(opened), chosen;
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
  for (size_t index = 0; index < all.size(); ++index) {
    Module& m = all[index];
    if (std::none_of(options.targets.begin(), options.targets.end(),
                     [&](const std::string& target) { return named_by(target, m); }))
      continue;
    if (options.rank > std::min(m.in, m.out))
      throw InputError("lora.rank is " + std::to_string(options.rank) + ", and " + m.name + " is [" + std::to_string(m.out) +
                       ", " + std::to_string(m.in) + "]: beyond " + std::to_string(std::min(m.in, m.out)) +
                       " an adapter is larger than what it stands for. Lower it");
    set_size(m, options.rank, options.alpha, options, index);
    const float bound = 1 / std::sqrt(static_cast<float>(m.in));
    for (int64_t i = 0; i < m.a_count(); ++i) {
      const auto words = philox(seed, static_cast<uint64_t>(i) / 4, kFreshStreams + index);
      m.values[static_cast<size_t>(i)] = (2 * uniform_from(words[static_cast<size_t>(i % 4)]) - 1) * bound;
    }
    chosen.push_back(std::move(m));
  }
  if (chosen.empty()) throw InputError("lora.targets is empty; expected some of " + joined(names) + ", or all-linear");
  check_dropout(options, chosen);
  attach_adapter(opened, std::make_shared<Adapter>(options, std::move(chosen), ""));
}

}  // namespace vitrine
