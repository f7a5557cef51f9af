#include "merge/extract_plan.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/nearest.h"
#include "base/plural.h"
#include "model/module_pattern.h"

namespace vitrine {
namespace {

using PlannedModule = ExtractPlan::Module;
using ModuleKind = ExtractedModule::Kind;

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }

bool holds_floats(const InputTensor& tensor) {
  return tensor.dtype == DType::f32 || tensor.dtype == DType::f16 || tensor.dtype == DType::bf16 || tensor.dtype == DType::f64;
}

std::string where_stored(const MergeInput& input, const InputTensor& tensor) {
  return tensor.stored != nullptr ? *tensor.stored->file : input.name();
}

bool any_fits(const std::vector<ModulePattern>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const ModulePattern& pattern) { return pattern.fits(name); });
}

std::vector<ModulePattern> patterns_of(const std::vector<std::string>& texts, const char* option) {
  std::vector<ModulePattern> patterns;
  for (const std::string& text : texts) try {
      patterns.emplace_back(text, ModulePattern::Place::anywhere);
    } catch (const InputError& error) {
      throw UsageError(std::string(option) + " " + text + " is no regular expression: " + error.what());
    }
  return patterns;
}

// Element by element, whatever the types.
bool differ(const MergeInput& model, const InputTensor& a, const MergeInput& base, const InputTensor& b) {
  if (a.shape != b.shape) return true;
  if (a.stored != nullptr && b.stored != nullptr && a.dtype == b.dtype)
    return std::memcmp(a.stored->data, b.stored->data, a.stored->bytes) != 0;
  if (!holds_floats(a) || !holds_floats(b)) return true;
  const int64_t width = a.shape.empty() ? 1 : a.shape.back(), n = a.elements();
  if (n == 0) return false;
  const int64_t step = a.shape.size() < 2 ? n : std::max<int64_t>(1, (1 << 15) / width) * width;
  std::vector<float> x(static_cast<size_t>(std::min(step, n))), y(x.size());
  for (int64_t first = 0; first < n; first += step) {
    const auto count = static_cast<size_t>(std::min(step, n - first));
    model.read(a, first, count, x.data());
    base.read(b, first, count, y.data());
    if (!std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(count), y.begin())) return true;
  }
  return false;
}

class ExtractPlanner {
 public:
  ExtractPlanner(const MergeInput& model, const MergeInput& base, const ExtractOptions& options)
      : model_(model), base_(base), options_(options) {}

  ExtractPlan plan() {
    if (options_.max_rank < 1)
      throw UsageError("--max-rank is " + std::to_string(options_.max_rank) + "; expected a rank of at least 1");
    if (!(options_.sv_epsilon >= 0))
      throw UsageError("--sv-epsilon is " + std::to_string(options_.sv_epsilon) + "; expected a singular value of at least 0");
    include_ = patterns_of(options_.include, "--include-regex");
    exclude_ = patterns_of(options_.exclude, "--exclude-regex");
    find_output_matrix();
    list_modules();
    check_saved_names();
    check_vocabulary();
    std::map<std::string, std::vector<PlannedModule>> saved;  // by the last part of their names
    for (auto& [name, parts] : modules_) decide(name, parts, saved);
    save_what_differs(std::move(saved));
    find_biases();
    if (std::none_of(plan_.modules.begin(), plan_.modules.end(),
                     [](const PlannedModule& m) { return m.kind != ModuleKind::saved; }))
      throw UsageError("no matrix of " + model_.name() +
                       " is left to extract; an adapter has at least one. Change --include-regex, --exclude-regex or "
                       "--save-module");
    std::sort(plan_.modules.begin(), plan_.modules.end(),
              [](const PlannedModule& a, const PlannedModule& b) { return a.name < b.name; });
    return std::move(plan_);
  }

 private:
  // Many files leave out an output matrix that is the embedding. For PEFT it is a module all the same: a change of the one would
  // leave the other as it was.
  static bool is_tied(const MergeInput& input) {
    if (!input.head().empty() || input.embedding().empty()) return false;
    if (const auto tie = input.config().find("tie_word_embeddings"); tie != input.config().end() && tie->is_boolean())
      return tie->get<bool>();
    const auto classes = input.config().find("architectures");
    if (classes == input.config().end() || !classes->is_array() || classes->empty() || !classes->front().is_string())
      return false;
    const auto name = classes->front().get<std::string>();
    return name.ends_with("ForCausalLM") || name.ends_with("LMHeadModel");
  }
  void find_output_matrix() {
    head_ = !model_.head().empty() ? model_.head() : base_.head();
    if (head_.empty() && is_tied(model_)) head_ = "lm_head.weight";
  }
  const InputTensor* tensor_of(const MergeInput& input, const std::string& name) const {
    const InputTensor* const found = input.find(name);
    return found == nullptr && name == head_ && is_tied(input) ? input.find(input.embedding()) : found;
  }

  void list_modules() {
    std::set<std::string> tensors;
    for (const MergeInput* input : {&model_, &base_})
      for (const auto& [name, tensor] : input->tensors()) tensors.insert(name);
    if (!head_.empty()) tensors.insert(head_);
    for (const std::string& name : tensors) {
      const size_t dot = name.rfind('.');
      if (dot == std::string::npos) {  // of the model itself
        plan_.notes.push_back(name + " belongs to no module and is left out");
        continue;
      }
      ExtractPlan::Part part{name, tensor_of(model_, name), tensor_of(base_, name)};
      modules_[name.substr(0, dot)].push_back(part);
    }
    for (auto& [name, parts] : modules_) {
      plan_.names.push_back(name);
      // The weight before the bias, whatever else there is.
      std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) {
        return std::pair(!a.name.ends_with(".weight"), a.name) < std::pair(!b.name.ends_with(".weight"), b.name);
      });
    }
  }

  void check_saved_names() const {
    for (const std::string& wanted : options_.save_modules) {
      if (std::any_of(plan_.names.begin(), plan_.names.end(), [&](const auto& name) { return ends_in_parts(name, wanted); }))
        continue;
      std::vector<std::string> there;
      for (const std::string& name : plan_.names) there.push_back(last_part(name));
      std::sort(there.begin(), there.end());
      there.erase(std::unique(there.begin(), there.end()), there.end());
      const std::string meant = meant_by(wanted, there);
      throw UsageError("--save-module " + wanted + " names no module of " + model_.name() +
                       (meant.empty() ? "" : "; did you mean " + meant + "?"));
    }
  }

  void check_vocabulary() {
    const InputTensor *const own = model_.find(model_.embedding()), *const its = base_.find(base_.embedding());
    if (own == nullptr || its == nullptr || own->shape.empty() || its->shape.empty() || own->shape[0] == its->shape[0]) return;
    resized_ = true;
    plan_.notes.push_back(model_.name() + " has " + std::to_string(own->shape[0]) + " tokens and " + base_.name() + " " +
                          std::to_string(its->shape[0]) + ": embeddings are saved whole" +
                          (options_.embed_lora ? ", --embed-lora has no effect" : "") +
                          "; resize those of the base model before the adapter is loaded");
  }

  bool is_embedding(const std::string& module, const std::vector<ExtractPlan::Part>& parts) const {
    const std::string weight = module + ".weight";
    const InputTensor* const any = parts[0].model != nullptr ? parts[0].model : parts[0].base;
    if (any == nullptr || any->shape.size() != 2) return false;
    if (weight == head_ || weight == model_.embedding() || weight == base_.embedding()) return true;
    const std::string last = last_part(module);
    return last.find("embed") != std::string::npos || last == "wte" || last == "wpe" || last == "relative_attention_bias";
  }

  // A matrix, perhaps with a bias, and nothing else.
  static bool is_matrix(const std::string& module, const std::vector<ExtractPlan::Part>& parts) {
    if (parts.empty() || parts.size() > 2 || parts[0].name != module + ".weight") return false;
    if (parts.size() == 2 && parts[1].name != module + ".bias") return false;
    for (const ExtractPlan::Part& part : parts)
      for (const InputTensor* tensor : {part.model, part.base})
        if (tensor != nullptr &&
            (!holds_floats(*tensor) || tensor->shape.size() != (&part == &parts[0] ? 2u : 1u) || tensor->elements() == 0))
          return false;
    return true;
  }

  void decide(const std::string& name, const std::vector<ExtractPlan::Part>& parts,
              std::map<std::string, std::vector<PlannedModule>>& saved) {
    const auto named = [&](const std::string& wanted) { return ends_in_parts(name, wanted); };
    PlannedModule made{ModuleKind::saved, name, false, parts};
    if (std::any_of(options_.save_modules.begin(), options_.save_modules.end(), named)) {
      if (holds_modules(name))
        throw UsageError("--save-module names " + name + ", which holds other modules; expected one of tensors alone, such as " +
                         modules_.lower_bound(name + ".")->first);
      return add_saved(std::move(made));
    }
    const bool excluded = any_fits(exclude_, name), embedding = is_embedding(name, parts);
    const bool whole = embedding && (!options_.embed_lora || resized_);
    if (excluded || (!whole && !include_.empty() && !any_fits(include_, name))) return;
    if (whole || !is_matrix(name, parts)) {
      if (!whole && options_.skip_undecomposable) {
        skipped_ += differs(parts);
        return;
      }
      if (holds_modules(name)) {  // PEFT would save them as well, and adapt none of them
        if (differs(parts)) plan_.notes.push_back(parts[0].name + " differs and is left out: " + name + " holds other modules");
        return;
      }
      saved[last_part(name)].push_back(std::move(made));
      return;
    }
    check_shapes(made, false);
    made.kind = embedding && name + ".weight" != head_ ? ModuleKind::embedding : ModuleKind::matrix;
    made.by_columns = made.kind == ModuleKind::matrix && is_by_columns(name, parts);
    plan_.modules.push_back(std::move(made));
  }

  bool holds_modules(const std::string& name) const {
    const auto next = modules_.lower_bound(name + ".");
    return next != modules_.end() && next->first.starts_with(name + ".");
  }

  bool differs(const std::vector<ExtractPlan::Part>& parts) const {
    return std::any_of(parts.begin(), parts.end(), [&](const ExtractPlan::Part& part) {
      return part.model == nullptr || part.base == nullptr || differ(model_, *part.model, base_, *part.base);
    });
  }

  void add_saved(PlannedModule module) {
    check_shapes(module, module.name + ".weight" == head_ || is_embedding(module.name, module.parts));
    plan_.modules.push_back(std::move(module));
  }

  // All modules of a name, if one of them changed: a list of those that did would be long, and is not what PEFT's users expect.
  void save_what_differs(std::map<std::string, std::vector<PlannedModule>> saved) {
    for (auto& [last, modules] : saved)
      if (std::any_of(modules.begin(), modules.end(), [&](const PlannedModule& m) { return differs(m.parts); }))
        for (PlannedModule& module : modules) add_saved(std::move(module));
    if (skipped_ > 0)
      plan_.notes.push_back(plural(skipped_, "module") +
                            " differ and cannot be A and B; they are omitted because of --skip-undecomposable");
  }

  void check_shapes(const PlannedModule& module, bool rows_may_differ) const {
    for (const ExtractPlan::Part& part : module.parts) {
      if (part.model == nullptr || part.base == nullptr) {
        const bool head = part.name == head_ && module.kind == ModuleKind::saved && part.model != nullptr;
        if (head) continue;
        throw InputError((part.model == nullptr ? model_ : base_).name() + " has no tensor \"" + part.name + "\", which " +
                         (part.model == nullptr ? base_ : model_).name() +
                         " has; expected both models to have the same tensors. Is it the base of this model? "
                         "--exclude-regex leaves modules out");
      }
      const std::vector<int64_t>&own = part.model->shape, &its = part.base->shape;
      if (own == its) continue;
      if (rows_may_differ && own.size() == its.size() && !own.empty() && std::equal(own.begin() + 1, own.end(), its.begin() + 1))
        continue;
      throw FileError(where_stored(model_, *part.model),
                      "tensor \"" + part.name + "\" is " + shape_text(own) + "; expected " + shape_text(its) + " as in " +
                          base_.name() + ". Is it the base of this model? --exclude-regex leaves modules out");
    }
  }

  // Whether the file holds [in, out], as GPT-2's: the bias tells, or what is known of the family; of a square matrix without
  // either, its neighbors.
  bool is_by_columns(const std::string& name, const std::vector<ExtractPlan::Part>& parts) const {
    if (name + ".weight" == head_) return false;
    if (const FileTensor* made = parts[0].model->made; made != nullptr) return made->by_columns;
    const auto told = [](const std::vector<ExtractPlan::Part>& of) -> int {
      if (of.size() < 2 || of[0].model == nullptr || of[1].model == nullptr || of[0].model->shape.size() != 2) return 0;
      const int64_t rows = of[0].model->shape[0], columns = of[0].model->shape[1], outputs = of[1].model->elements();
      return rows == columns ? 0 : outputs == columns ? 1 : outputs == rows ? -1 : 0;
    };
    if (const int own = told(parts); own != 0) return own > 0;
    const std::string parent = name.substr(0, name.rfind('.') == std::string::npos ? 0 : name.rfind('.') + 1);
    for (auto it = modules_.lower_bound(parent); it != modules_.end() && it->first.starts_with(parent); ++it)
      if (it->second.size() == 2 && it->first.find('.', parent.size()) == std::string::npos)
        if (const int its = told(it->second); its != 0) return its > 0;
    return false;
  }

  // PEFT adds biases to all matrices or to none, and to no embedding.
  void find_biases() {
    for (const PlannedModule& m : plan_.modules)
      if (m.kind == ModuleKind::matrix && m.parts.size() == 2)
        plan_.biases = plan_.biases || differ(model_, *m.parts[1].model, base_, *m.parts[1].base);
    if (!plan_.biases) return;
    for (PlannedModule& m : plan_.modules)
      if (m.kind == ModuleKind::embedding) {
        m.kind = ModuleKind::saved;
        plan_.notes.push_back(m.name + " is saved whole: PEFT has no embeddings as A and B beside biases");
      }
  }

  const MergeInput &model_, &base_;
  const ExtractOptions& options_;
  std::vector<ModulePattern> include_, exclude_;
  std::map<std::string, std::vector<ExtractPlan::Part>> modules_;
  std::string head_;      // the output matrix, be it in the files or not
  bool resized_ = false;  // the vocabularies differ
  int64_t skipped_ = 0;
  ExtractPlan plan_;
};

// The last part of a name where `short_enough` says that it means no other module; else the whole name.
template <class ShortEnough>
std::vector<std::string> shortest_names(const std::vector<std::string>& names, const ShortEnough& short_enough) {
  std::vector<std::string> made;
  for (const std::string& name : names) {
    const std::string last = last_part(name);
    made.push_back(short_enough(last) ? last : name);
  }
  std::sort(made.begin(), made.end());
  made.erase(std::unique(made.begin(), made.end()), made.end());
  return made;
}

}  // namespace

ExtractPlan plan_extraction(const MergeInput& model, const MergeInput& base, const ExtractOptions& options) {
  return ExtractPlanner(model, base, options).plan();
}

Json adapter_config(const ExtractPlan& plan, const std::map<std::string, int64_t>& ranks, const std::string& base) {
  std::set<std::string> targets, saved;
  int64_t rank = 0;
  for (const auto& [name, its] : ranks) {
    targets.insert(name);
    rank = std::max(rank, its);
  }
  bool by_columns = false;
  for (const PlannedModule& module : plan.modules) {
    if (module.kind == ModuleKind::saved) saved.insert(module.name);
    by_columns = by_columns || (targets.contains(module.name) && module.by_columns);
  }
  const auto all_of = [&](const std::set<std::string>& chosen, const auto& fits) {
    return std::all_of(plan.names.begin(), plan.names.end(),
                       [&](const std::string& name) { return !fits(name) || chosen.contains(name); });
  };
  // PEFT compares target_modules with the last parts of names, modules_to_save with their last letters.
  const std::vector<std::string> target_names = shortest_names({targets.begin(), targets.end()}, [&](const std::string& last) {
    return all_of(targets, [&](const std::string& name) { return ends_in_parts(name, last); });
  });
  const std::vector<std::string> saved_names = shortest_names({saved.begin(), saved.end()}, [&](const std::string& last) {
    return all_of(saved, [&](const std::string& name) { return name.ends_with(last); });
  });
  Json other_ranks = Json::object();
  for (const auto& [key, its] : pattern_keys({ranks.begin(), ranks.end()}, static_cast<double>(rank)))
    other_ranks[key] = static_cast<int64_t>(its);
  Json config = {{"peft_type", "LORA"},
                 {"task_type", "CAUSAL_LM"},
                 {"base_model_name_or_path", base},
                 {"r", rank},
                 {"lora_alpha", rank},
                 {"rank_pattern", other_ranks},
                 {"alpha_pattern", other_ranks},
                 {"lora_dropout", 0.0},
                 {"use_rslora", false},
                 {"target_modules", target_names},
                 {"modules_to_save", saved_names.empty() ? Json(nullptr) : Json(saved_names)},
                 {"fan_in_fan_out", by_columns},
                 {"bias", "none"},
                 {"init_lora_weights", true},
                 {"inference_mode", true}};
  if (plan.biases) config["lora_bias"] = true;
  return config;
}

}  // namespace vitrine
