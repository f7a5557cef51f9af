#include "merge/plan.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>

#include "base/error.h"
#include "base/merge_sort.h"
#include "base/plural.h"
#include "io/file_checks.h"
#include "merge/output.h"
#include "merge/parameters.h"
#include "merge/plan_config.h"
#include "merge/plan_notes.h"
#include "model/config_file.h"
#include "model/from_gguf.h"
#include "model/load.h"
#include "model/registry.h"
#include "runtime/model_tokenizer.h"

namespace vitrine {
namespace {

DType promoted(DType a, DType b) { return a == b ? a : DType::f32; }

class Planner {
 public:
  explicit Planner(MergePlan& plan) : plan_(plan), recipe_(plan.recipe), method_(*plan.method) {}

  void run() {
    open_inputs();
    check_families();
    note_idle_parameters(plan_);
    plan_vocabulary();
    for (const ModuleRecipe& module : recipe_.modules) plan_module(module);
    if (plan_.tensors.empty() && plan_.problems.empty())
      throw UsageError(recipe_.path + ": the merge makes no tensor; do the models hold any that its modules name?");
    note_left_out();
    note_idle_filters(plan_);
    note_other_tokenizers(plan_);
    plan_config(plan_, found_);
    plan_shards(plan_);
  }

 private:
  size_t input_of(const ModelReference& model) const {
    for (size_t i = 0; i < plan_.inputs.size(); ++i)
      if (plan_.inputs[i]->reference() == model) return i;
    VITRINE_CHECK(false, "every model of the recipe is opened");
  }
  const MergeInput& input(const ModelReference& model) const { return *plan_.inputs[input_of(model)]; }

  void open_inputs() {
    for (const ModelReference& model : recipe_.models()) plan_.inputs.push_back(std::make_unique<MergeInput>(model));
    plan_.donor = recipe_.base_model ? input_of(*recipe_.base_model) : 0;
  }

  void check_families() {
    const auto family = [](const MergeInput& model) {
      const auto found = model.config().find("model_type");
      return found != model.config().end() && found->is_string() ? found->get<std::string>() : std::string("?");
    };
    const std::string first = family(*plan_.inputs.front());
    for (const auto& other : plan_.inputs)
      if (family(*other) != first && !plan_.options.allow_crimes)
        throw UsageError(recipe_.path + ": " + plan_.inputs.front()->name() + " is of the family " + first + " and " +
                         other->name() + " of " + family(*other) +
                         "; --allow-crimes merges them all the same, by the names of their tensors");
    const auto holds_factors = [](const std::unique_ptr<MergeInput>& model) {
      return model->opened() != nullptr && model->opened()->gguf != nullptr &&
             family_of(*model->opened()->model).gguf_holds_factors;
    };
    const auto with = std::find_if(plan_.inputs.begin(), plan_.inputs.end(), holds_factors);
    const auto without = std::find_if_not(plan_.inputs.begin(), plan_.inputs.end(), holds_factors);
    if (with != plan_.inputs.end() && without != plan_.inputs.end())
      throw UsageError(recipe_.path + ": " + (*with)->name() + " holds the factors of " +
                       family_of(*(*with)->opened()->model).title + " in its weights, and " + (*without)->name() +
                       " does not. Merge directories only, or GGUF files only");
  }

  // The model whose tokenizer the result gets, if it is none of those that are merged. It needs no weights.
  std::optional<TokenizerInput> other_tokenizer() const {
    const ModelReference& model = recipe_.tokenizer->model;
    if (recipe_.tokenizer->source != TokenizerRecipe::Source::model ||
        std::any_of(plan_.inputs.begin(), plan_.inputs.end(), [&](const auto& input) { return input->reference() == model; }))
      return {};
    ModelFiles files;
    try {
      files.directory = locate_model(model.path);
    } catch (const FileError& error) {
      throw UsageError(recipe_.tokenizer->where + ": expected union, base or a model. " + error.what());
    }
    if (!is_folder(files.directory) || present(files.directory + "/config.json")) files = resolve_model(files.directory);
    Companions companions =
        files.kind == ModelFiles::Kind::gguf ? companions_of(as_huggingface(open_model(std::move(files)))) : companions_in(files);
    return TokenizerInput{{model.path, ""}, std::move(companions), std::numeric_limits<int32_t>::max()};
  }

  void plan_vocabulary() {
    if (!recipe_.tokenizer) return;
    std::vector<TokenizerInput> vocabularies;
    for (const auto& model : plan_.inputs) {
      const InputTensor* const embedding = model->find(model->embedding());
      if (embedding == nullptr || embedding->shape.empty())
        throw UsageError(recipe_.tokenizer->where + ": no embedding is found in " + model->name() +
                         "; without one its tokens cannot be aligned. Leave \"tokenizer\" out, if the vocabularies are equal");
      Companions files = model->opened() != nullptr ? companions_of(*model->opened()) : companions_in(model->files());
      vocabularies.push_back({model->reference(), std::move(files), embedding->shape.front()});
    }
    const std::optional<TokenizerInput> other = other_tokenizer();
    plan_.tokens = plan_tokens(*recipe_.tokenizer, vocabularies, recipe_.base_model ? std::optional(plan_.donor) : std::nullopt,
                               other ? &*other : nullptr);
    if (plan_.tokens->tokens.empty())
      throw UsageError(recipe_.tokenizer->where + ": the result would have no token. The embedding of " +
                       plan_.inputs[plan_.donor]->name() + " is " +
                       shape_text(plan_.inputs[plan_.donor]->find(plan_.inputs[plan_.donor]->embedding())->shape) +
                       "; expected a row for each token of its tokenizer");
    for (const std::string& line : plan_.tokens->report) plan_.notes.push_back("tokenizer: " + line);
  }

  // The slice with the base model among its sources and every end of layers known.
  OutputSlice completed(const OutputSlice& slice, const std::string& stack) const {
    OutputSlice made = slice;
    const auto& base = slice.base_model ? slice.base_model : recipe_.base_model;
    const bool whole = slice.sources.front().end < 0;
    if (whole && base &&
        std::none_of(made.sources.begin(), made.sources.end(), [&](const SliceSource& s) { return s.model == *base; }))
      made.sources.push_back({*base, 0, -1, {}, recipe_.where});
    for (SliceSource& source : made.sources) {
      const int64_t layers = input(source.model).layers(stack);
      if (source.end < 0) source.end = layers;
      if (source.end > layers)
        throw UsageError(source.where + " asks for layers " + std::to_string(source.first) + " to " +
                         std::to_string(source.end - 1) + "; " + source.model.text() + " has " +
                         plural(static_cast<size_t>(layers), "layer"));
    }
    const int64_t layers = made.sources.front().end - made.sources.front().first;
    for (const SliceSource& source : made.sources)
      if (source.end - source.first != layers)
        throw UsageError(source.where + ": " + made.sources.front().model.text() + " has " + std::to_string(layers) +
                         " layers and " + source.model.text() + " " + std::to_string(source.end - source.first) +
                         "; name the layers to merge under \"slices\"");
    check_inputs(made);
    return made;
  }

  int base_of(const OutputSlice& slice) const {
    const auto& base = slice.base_model ? slice.base_model : recipe_.base_model;
    if (!base || method_.base == MergeMethod::Base::ignored) return -1;
    for (size_t i = 0; i < slice.sources.size(); ++i)
      if (slice.sources[i].model == *base) return static_cast<int>(i);
    return -1;
  }

  void check_inputs(const OutputSlice& slice) const {
    const int base = base_of(slice);
    const size_t n = slice.sources.size(), others = n - (base >= 0 ? 1 : 0);
    const auto refuse = [&](const std::string& problem) {
      throw UsageError(recipe_.where + " is " + method_.name + ", which " + problem);
    };
    const auto& named = slice.base_model ? slice.base_model : recipe_.base_model;
    if (base < 0 && named && method_.base != MergeMethod::Base::ignored)
      refuse("works from the base model; " + named->text() + " is not among the sources of the slice. Add it to them");
    if (base < 0 && method_.base == MergeMethod::Base::required) refuse("needs a base model; name it as \"base_model\"");
    const auto count = [](size_t from, size_t to) {
      if (from == to) return "exactly " + std::to_string(from);
      return to == 0 ? "at least " + std::to_string(from) : std::to_string(from) + " to " + std::to_string(to);
    };
    if (n < method_.fewest || (method_.most != 0 && n > method_.most))
      refuse("merges " + count(method_.fewest, method_.most) + " models" + (base >= 0 ? ", the base included" : "") + "; there " +
             (n == 1 ? "is 1" : "are " + std::to_string(n)));
    if (others < method_.fewest_others || (method_.most_others != 0 && others > method_.most_others))
      refuse("merges " + count(method_.fewest_others, method_.most_others) + " models besides the base; there " +
             (others == 1 ? "is 1" : "are " + std::to_string(others)));
  }

  static bool holds_everything(const ModuleRecipe& module) { return module.name.empty() || module.name == "default"; }
  static bool holds(const ModuleRecipe& module, const std::string& name) {
    if (holds_everything(module)) return true;
    return name.starts_with(module.name) && (name.size() == module.name.size() || name[module.name.size()] == '.');
  }

  void note_left_out() {
    constexpr size_t kShown = 3;
    std::set<std::string> names;
    for (const auto& model : plan_.inputs)
      for (const auto& [name, tensor] : model->tensors())
        if (std::none_of(recipe_.modules.begin(), recipe_.modules.end(),
                         [&](const ModuleRecipe& module) { return holds(module, name); }))
          names.insert(name);
    if (names.empty()) return;
    std::string list;
    size_t shown = 0;
    for (auto name = names.begin(); name != names.end() && shown < kShown; ++name, ++shown)
      list += (shown == 0 ? "" : ", ") + *name;
    plan_.notes.push_back(plural(names.size(), "tensor") + " in no module of the recipe, left out of the result: " + list +
                          (names.size() > kShown ? ", …" : ""));
  }

  void plan_module(const ModuleRecipe& module) {
    // The stacks of layers of all inputs, and their tensors outside of them.
    std::set<std::string> stacks, outside;
    for (const auto& model : plan_.inputs)
      for (const auto& [name, tensor] : model->tensors()) {
        const LayerName place = layer_name(name);
        (place.layer < 0 ? outside : stacks).insert(place.layer < 0 ? name : place.stack);
      }
    const bool everything = holds_everything(module);
    const auto belongs = [&](const std::string& name) { return holds(module, name); };
    std::string all_stacks;
    for (const std::string& stack : stacks) all_stacks += (all_stacks.empty() ? "" : ", ") + stack;
    found_.stacks = std::max(found_.stacks, stacks.size());
    const bool sliced = module.slices.front().sources.front().end >= 0;
    std::erase_if(stacks, [&](const std::string& stack) { return !belongs(stack); });
    if (!everything && stacks.empty())
      throw UsageError(recipe_.path + ": no tensor of the models is in a module \"" + module.name +
                       "\"; a module is the beginning of " + "tensors' names. Their layers are in " + all_stacks +
                       "; \"default\" is all of a model");
    if (stacks.size() > 1 && sliced) {
      std::string list;
      for (const std::string& stack : stacks) list += (list.empty() ? "" : ", ") + stack;
      throw UsageError(module.slices.front().where + ": the models have several stacks of layers (" + list +
                       "); put \"slices\" under \"modules\" with the name of one, and the others beside it");
    }
    if (stacks.empty()) stacks.insert("");
    bool first_stack = true;
    for (const std::string& stack : stacks) {
      std::vector<OutputSlice> slices;
      for (const OutputSlice& slice : module.slices) slices.push_back(completed(slice, stack));
      if (first_stack)
        for (const std::string& name : outside) {
          if (!belongs(name)) continue;
          const bool behind = plan_.inputs[plan_.donor]->is_behind_layers(name);
          plan_tensor(module, behind ? slices.back() : slices.front(), LayerName{"", -1, name}, -1, 0, 0);
        }
      first_stack = false;
      int64_t layer = 0;
      for (const OutputSlice& slice : slices) {
        const int64_t layers = slice.sources.front().end - slice.sources.front().first;
        for (int64_t i = 0; i < layers; ++i, ++layer) {
          std::set<std::string> rests;
          for (const SliceSource& source : slice.sources) {
            const std::string begin = stack + "." + std::to_string(source.first + i) + ".";
            const auto& tensors = input(source.model).tensors();
            for (auto at = tensors.lower_bound(begin); at != tensors.end() && at->first.starts_with(begin); ++at)
              rests.insert(at->first.substr(begin.size()));
          }
          const double t = layers > 1 ? static_cast<double>(i) / static_cast<double>(layers - 1) : 1;
          for (const std::string& rest : rests) plan_tensor(module, slice, LayerName{stack, layer, rest}, layer, i, t);
          const SliceSource& from = slice.sources[static_cast<size_t>(std::max(0, base_of(slice)))];
          if (sliced) found_.sliced[stack].push_back({&input(from.model).config(), from.first + i});
        }
      }
    }
  }

  void plan_tensor(const ModuleRecipe& module, const OutputSlice& slice, const LayerName& place, int64_t layer, int64_t offset,
                   double t) {
    PlannedTensor tensor;
    tensor.name = place.with_layer(layer);
    tensor.stack = place.stack;
    tensor.layer = layer;
    tensor.t = t;
    const int base = base_of(slice);
    std::vector<const SliceSource*> from;
    std::string lacking;
    size_t lack = 0;
    bool present = false, tied = false;
    for (size_t i = 0; i < slice.sources.size(); ++i) {
      const SliceSource& source = slice.sources[i];
      const size_t index = input_of(source.model);
      const MergeInput& model = *plan_.inputs[index];
      std::string name = place.with_layer(source.first + offset);
      const InputTensor* found = model.find(name);
      present = present || found != nullptr;
      if (found == nullptr && is_head(plan_, name)) {  // the embedding is its output matrix
        name = model.embedding();
        found = model.find(name);
        tied = true;
      }
      if (found == nullptr) {
        ++lack;
        lacking += (lacking.empty() ? "" : ", ") + model.name();
        continue;
      }
      if (static_cast<int>(i) == base) tensor.base = static_cast<int>(tensor.sources.size());
      tensor.vocabulary = tensor.vocabulary || name == model.embedding() || is_head(plan_, name);
      tensor.sources.push_back({index, name, found});
      from.push_back(&source);
    }
    if (!present) return;  // a head that no source has on its own
    if (tied) found_.untied = true;
    if (lack > 0 && !resolve_missing(tensor, from, lacking)) return;
    resolve_shape(tensor);
    resolve_type(tensor);
    if (!tensor.copied) resolve_parameters(tensor, module, slice, from);
    plan_.tensors.push_back(std::move(tensor));
  }

  // Whether the tensor is made at all.
  bool resolve_missing(PlannedTensor& tensor, std::vector<const SliceSource*>& from, const std::string& lacking) {
    if (!plan_.options.allow_missing) {
      plan_.problems.push_back(tensor.name + " is missing in " + lacking);
      return false;
    }
    const size_t n = tensor.sources.size(), others = n - (tensor.base >= 0 ? 1 : 0);
    const bool enough = n >= method_.fewest && others >= method_.fewest_others &&
                        (method_.base != MergeMethod::Base::required || tensor.base >= 0);
    if (enough) {
      plan_.notes.push_back(tensor.name + " is merged without " + lacking + ", which lacks it");
      return true;
    }
    if (n == 1) {
      tensor.copied = true;
      plan_.notes.push_back(tensor.name + " is taken from " + plan_.inputs[tensor.sources[0].input]->name() +
                            ", the only model that has it");
      return true;
    }
    if (tensor.base >= 0) {
      tensor.sources = {tensor.sources[static_cast<size_t>(tensor.base)]};
      from = {from[static_cast<size_t>(tensor.base)]};
      tensor.base = 0;
      tensor.copied = true;
      plan_.notes.push_back(tensor.name + " is taken from the base model: " + lacking + " lacks it");
      return true;
    }
    plan_.notes.push_back(tensor.name + " is left out: " + lacking + " lacks it");
    return false;
  }

  void resolve_shape(PlannedTensor& tensor) {
    tensor.shape = tensor.sources.front().tensor->shape;
    const bool rows = tensor.vocabulary && !tensor.shape.empty();
    const auto differ = [&](const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
      const ptrdiff_t skip = rows && (plan_.tokens || plan_.options.truncate_embeddings) ? 1 : 0;
      return a.size() != b.size() || !std::equal(a.begin() + skip, a.end(), b.begin() + skip);
    };
    for (const PlannedTensor::Source& source : tensor.sources) {
      const auto& shape = source.tensor->shape;
      if (differ(shape, tensor.shape)) {
        plan_.problems.push_back(tensor.name + " is " + shape_text(tensor.shape) + " in " +
                                 plan_.inputs[tensor.sources.front().input]->name() + " and " + shape_text(shape) + " in " +
                                 plan_.inputs[source.input]->name() +
                                 (rows ? "; align the vocabularies with \"tokenizer_source\"" : ""));
        return;
      }
      if (rows && !plan_.tokens) tensor.shape[0] = std::min(tensor.shape[0], shape[0]);
    }
    if (rows && plan_.tokens) {
      check_rows(tensor);
      tensor.shape[0] = plan_.tokens->rows;
    }
    if (rows && !plan_.tokens && plan_.options.truncate_embeddings) found_.vocab_size = tensor.shape[0];
  }

  // Rows of tokens are taken by their number, wherever the token plan says that they are.
  void check_rows(const PlannedTensor& tensor) {
    const auto name = [&](size_t input) { return plan_.inputs[input]->name(); };
    std::set<size_t> given;
    for (const PlannedTensor::Source& source : tensor.sources) {
      given.insert(source.input);
      const auto& shape = source.tensor->shape;
      const MergeInput& model = *plan_.inputs[source.input];
      const int64_t rows = model.find(model.embedding())->shape.front();
      if (shape.size() != 2 || shape.front() < rows || is_integer(source.tensor->dtype)) {
        plan_.problems.push_back(tensor.name + " is " + shape_text(shape) + " " + std::string(name_of(source.tensor->dtype)) +
                                 " in " + name(source.input) + "; tokens are aligned in matrices of float numbers with a row " +
                                 "for each of the " + std::to_string(rows) + " rows of the embedding");
        return;
      }
    }
    for (const PlannedTensor::Source& source : tensor.sources)
      for (size_t id = 0; id < plan_.tokens->tokens.size(); ++id) {
        if (plan_.tokens->own[source.input][id] >= 0) continue;
        for (const auto& [input, row] : plan_.tokens->defaults[id])
          if (!given.contains(static_cast<size_t>(input))) {
            plan_.problems.push_back(tensor.name + ": the row of token \"" + plan_.tokens->tokens[id] + "\" comes from " +
                                     name(static_cast<size_t>(input)) +
                                     ", which is no source of this tensor; name another \"source\" of the tokenizer, or a rule " +
                                     "for the token");
            return;
          }
      }
  }

  void resolve_type(PlannedTensor& tensor) {
    DType type = tensor.sources.front().tensor->dtype;
    for (const PlannedTensor::Source& source : tensor.sources) {
      const DType other = source.tensor->dtype;
      if (other != type && (is_integer(other) || is_integer(type))) {
        plan_.problems.push_back(tensor.name + " is " + std::string(name_of(tensor.sources.front().tensor->dtype)) + " in " +
                                 plan_.inputs[tensor.sources.front().input]->name() + " and " + std::string(name_of(other)) +
                                 " in " + plan_.inputs[source.input]->name() +
                                 "; whole numbers are copied, and must be of one type in all models");
        return;
      }
      type = promoted(type, source.tensor->dtype);
    }
    if (is_integer(type)) {
      tensor.copied = true;
      tensor.dtype = type;
      return;
    }
    if (type == DType::f64) type = DType::f32;
    tensor.dtype = recipe_.out_dtype.value_or(recipe_.dtype.value_or(type));
  }

  void resolve_parameters(PlannedTensor& tensor, const ModuleRecipe& module, const OutputSlice& slice,
                          const std::vector<const SliceSource*>& from) {
    const std::array<const ParameterSettings*, 3> shared = {&slice.parameters, &module.parameters, &recipe_.parameters};
    for (const ParameterSpec& spec : method_.parameters) {
      if (spec.scope == ParameterScope::shared) {
        tensor.parameters.shared[spec.name] = resolve_parameter(spec, shared, tensor.name, tensor.t, recipe_.where);
        continue;
      }
      std::vector<double>& values = tensor.parameters.per_input[spec.name];
      for (size_t i = 0; i < tensor.sources.size(); ++i) {
        if (static_cast<int>(i) == tensor.base && spec.scope == ParameterScope::non_base) {
          values.push_back(std::numeric_limits<double>::quiet_NaN());
          continue;
        }
        const std::array<const ParameterSettings*, 4> scopes = {&from[i]->parameters, shared[0], shared[1], shared[2]};
        values.push_back(resolve_parameter(spec, scopes, tensor.sources[i].name, tensor.t, from[i]->where));
      }
    }
  }

  MergePlan& plan_;
  const MergeRecipe& recipe_;
  const MergeMethod& method_;
  ConfigFindings found_;
};

}  // namespace

int64_t PlannedTensor::elements() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

uint64_t MergePlan::bytes_read() const {
  uint64_t bytes = 0;
  for (const PlannedTensor& tensor : tensors)
    for (const PlannedTensor::Source& source : tensor.sources)
      bytes += source.tensor->stored != nullptr
                   ? source.tensor->stored->bytes
                   : static_cast<uint64_t>(source.tensor->elements()) * row_bytes(source.tensor->dtype, 1);
  return bytes;
}

uint64_t MergePlan::bytes_written() const {
  uint64_t bytes = 0;
  for (const PlannedShard& shard : shards) bytes += shard.bytes;
  return bytes;
}

MergePlan plan_merge(const MergeRecipe& recipe, const MergeOptions& options) {
  MergePlan plan;
  plan.recipe = recipe;
  join_models(plan.recipe);
  plan.options = options;
  plan.method = &find_merge_method(recipe.method, recipe.where);
  Planner(plan).run();
  if (recipe.chat_template != "auto") static_cast<void>(merged_chat_template(plan));  // refuses one that is none
  return plan;
}

void refuse_problems(const MergePlan& plan) {
  if (plan.problems.empty()) return;
  constexpr size_t kShown = 8;
  std::string list;
  for (size_t i = 0; i < std::min(kShown, plan.problems.size()); ++i) list += "\n  " + plan.problems[i];
  if (plan.problems.size() > kShown) list += "\n  and " + std::to_string(plan.problems.size() - kShown) + " more";
  throw UsageError(plan.recipe.path + ": " + plural(plan.problems.size(), "tensor") + " cannot be merged:" + list +
                   "\n--dry-run lists all of them; --allow-missing merges what is missing in some models from the others");
}

}  // namespace vitrine
