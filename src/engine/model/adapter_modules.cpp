#include "model/adapter_modules.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/adapter_whole.h"
#include "model/expert_modules.h"
#include "model/gguf_order.h"
#include "model/layer_name.h"
#include "model/module_pattern.h"
#include "model/registry.h"

namespace vitrine {
namespace {

using Module = Adapter::Module;

// Dropout draws from streams of random numbers beyond those of the models' own dropout.
constexpr uint64_t kDropoutSites = uint64_t{1} << 63;

std::string last_name(const std::string& module) { return module.substr(module.rfind('.') + 1); }
double scale_of(double alpha, int64_t rank, bool rslora) {
  return alpha / (rslora ? std::sqrt(static_cast<double>(rank)) : static_cast<double>(rank));
}

}  // namespace

std::vector<Module> modules_of(const OpenedModel& opened) {
  const bool gguf = opened.files.kind == ModelFiles::Kind::gguf;
  std::vector<Module> modules, outside;
  for (const FileTensor& tensor : file_tensors(*opened.model, false)) {
    const TensorLine& line = *tensor.parts.front();
    const int64_t layer = split_layer(line.ours).first;
    const bool embedding = line.ours == "W_E", lookup = is_lookup(line);
    if (line.weight == nullptr || tensor.is_constant() || (lookup && tensor.parts.size() > 1)) continue;
    if (line.layout.experts > 0 && line.layout.experts_stacked) continue;  // one tensor of many matrices: expert_modules
    Module& m = (layer < 0 ? outside : modules).emplace_back();
    m.name = tensor.name;
    for (const std::string_view ending : {".weight", "_weight"})
      if (m.name.ends_with(ending)) {
        m.name.resize(m.name.size() - ending.size());
        break;
      }
    m.ours = line.ours;
    m.layer = layer;
    m.outside = lookup || line.ours == "W_U";
    m.lookup = m.exchanged = lookup;
    m.in = line.in.size;
    m.out = line.file_outputs(false);
    m.by_columns = tensor.by_columns;
    if (gguf) {
      m.file_row = gguf_rows(line, opened.model->shape().head_dim);
      m.file_column = gguf_columns(line);
    }
    for (const TensorLine* part : tensor.parts) {
      m.weights.push_back(part->weight);
      m.part_sizes.push_back(part->out.size);
    }
    if (!embedding || !opened.model->shape().tied) continue;
    Module tied = m;  // the head, which has no tensor of its own
    tied.name = embedding_names(*opened.model).head;
    tied.lookup = tied.exchanged = false;
    outside.push_back(std::move(tied));
  }
  modules.insert(modules.end(), std::make_move_iterator(outside.begin()), std::make_move_iterator(outside.end()));
  return modules;
}

bool is_lookup(const TensorLine& line) {
  return line.ours.starts_with("W_E") || line.ours.starts_with("W_pos") || line.ours == "W_type";
}

bool named_by(const std::string& target, const Module& m) {
  if (target == kAllLinear) return !m.of_parameter && !m.outside;
  return ends_in_parts(m.name, target) && (!m.of_parameter || target.find('.') != std::string::npos);
}

std::string short_name(const Module& m) { return (m.of_parameter ? "experts." : "") + last_name(m.name); }

std::vector<std::string> last_names(const std::vector<Module>& modules) {
  std::vector<std::string> names;
  for (const Module& m : modules)
    if (std::find(names.begin(), names.end(), short_name(m)) == names.end()) names.push_back(short_name(m));
  return names;
}

void set_size(Module& m, int64_t rank, double alpha, const AdapterOptions& options, size_t index) {
  m.rank = rank;
  m.alpha = alpha;
  m.values.resize(static_cast<size_t>(m.a_count() + m.b_count()));
  LowRank part;
  part.scale = scale_of(alpha, rank, options.rslora);
  part.dropout = options.dropout;
  part.site = kDropoutSites + index;
  part.A.name = m.tensor_name('A');
  part.A.out = rank;
  part.A.in = m.in;
  part.A.stride = static_cast<size_t>(m.in) * sizeof(float);
  part.B.name = m.tensor_name('B');
  part.B.in = rank;
  part.B.stride = static_cast<size_t>(rank) * sizeof(float);
  m.parts.assign(m.weights.size(), part);
  for (size_t i = 0; i < m.parts.size(); ++i) m.parts[i].B.out = m.part_sizes[i];
}

std::vector<Module> parameters_of(const OpenedModel& opened, const AdapterOptions& options) {
  std::vector<Module> chosen;
  for (Module& m : expert_modules(opened)) {
    const auto names = [&](const std::string& target) { return named_by(target, m); };
    if (std::none_of(options.targets.begin(), options.targets.end(), names)) continue;
    if (!chosen.empty() && chosen.back().layer == m.layer) chosen.back().inner = true;
    chosen.push_back(std::move(m));
  }
  return chosen;
}

void check_dropout(const AdapterOptions& options, const std::vector<Module>& modules) {
  const auto of_experts = std::find_if(modules.begin(), modules.end(), [](const Module& m) { return m.of_parameter; });
  if (options.dropout > 0 && of_experts != modules.end())
    throw InputError("lora.dropout is " + Json(options.dropout).dump() + ", and " + of_experts->name +
                     " is a parameter of many matrices, for which PEFT has no dropout. Set it to 0");
  const auto head = std::find_if(modules.begin(), modules.end(), [](const Module& m) { return m.outside && !m.lookup; });
  if (options.dropout > 0 && head != modules.end())
    throw InputError("lora.dropout is " + Json(options.dropout).dump() + ", and " + head->name +
                     " is the output matrix, for which dropout is not supported. Set it to 0");
}

void refuse_held_factors(const OpenedModel& opened) {
  const Family& family = family_of(*opened.model);
  if (opened.gguf == nullptr || !family.gguf_holds_factors) return;
  throw InputError(opened.files.name + " holds the factors of " + family.title +
                   " in its weights, and PEFT's adapters are made for weights without. Name the model's Hugging Face directory "
                   "instead, or convert the adapter beside it: vitrine convert DIRECTORY OUT.gguf --adapter ADAPTER "
                   "--adapter-only");
}

void attach_adapter(OpenedModel& opened, std::shared_ptr<Adapter> adapter) {
  VITRINE_CHECK(opened.adapter == nullptr, "a model has one adapter");
  adapter->attach();
  opened.adapter = std::move(adapter);
}

}  // namespace vitrine
