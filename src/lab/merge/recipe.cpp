#include "merge/recipe.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/error.h"
#include "base/mapped_file.h"

namespace vitrine {
namespace {

constexpr int64_t kMostLayers = 1 << 16;

// PyYAML's words for flags, which mergekit's recipes may use.
std::optional<bool> as_flag(const YamlValue& value) {
  if (!value.is_scalar() || value.is_quoted()) return {};
  const std::string text = value.text();
  for (const char* yes : {"true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON"})
    if (text == yes) return true;
  for (const char* no : {"false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF"})
    if (text == no) return false;
  return {};
}

ParameterScalar read_scalar(const YamlValue& value) {
  if (!value.is_scalar()) value.fail("expected a number, a flag or a word");
  if (const auto number = value.as_number()) return *number;
  if (const auto flag = as_flag(value)) return *flag;
  return value.text();
}

std::vector<ParameterScalar> read_values(const YamlValue& value) {
  if (value.is_scalar()) return {read_scalar(value)};
  if (!value.is_list()) value.fail("expected a value or a list of values");
  std::vector<ParameterScalar> values;
  for (const YamlValue& item : value.items()) values.push_back(read_scalar(item));
  if (values.empty()) value.fail("expected at least one value");
  return values;
}

ParameterSetting::Case read_case(const YamlValue& value) {
  static const std::string kKnown[] = {"value", "filter"};
  value.allow(kKnown);
  ParameterSetting::Case made;
  made.values = read_values(value.at("value", "the value for tensors that fit the filter"));
  if (const auto filter = value.find("filter")) {
    made.filter = filter->text();
    if (made.filter == "*") made.filter.clear();
  }
  return made;
}

ParameterSetting read_setting(const YamlValue& value) {
  ParameterSetting setting;
  setting.where = value.where();
  if (value.is_object()) {
    setting.cases.push_back(read_case(value));
    return setting;
  }
  const std::vector<YamlValue> items = value.items();
  const bool filtered =
      value.is_list() && std::any_of(items.begin(), items.end(), [](const YamlValue& v) { return v.is_object(); });
  if (!filtered) {
    setting.cases.push_back({"", read_values(value)});
    return setting;
  }
  for (const YamlValue& item : items) {
    if (!item.is_object()) item.fail("expected an object with \"value\" and \"filter\", as its neighbors are");
    setting.cases.push_back(read_case(item));
  }
  return setting;
}

ParameterSettings read_parameters(const YamlValue& around) {
  ParameterSettings settings;
  const auto found = around.find("parameters");
  if (!found) return settings;
  if (!found->is_object()) found->fail("expected an object: one key for each parameter");
  for (const auto& [name, value] : found->members())
    if (!value.is_null()) settings.emplace(name, read_setting(value));
  return settings;
}

std::string read_path(const YamlValue& value) {
  if (!value.is_object()) {
    std::string text = value.text();
    if (text.empty()) value.fail("expected a model: a folder, a .gguf file or an id in the local Hugging Face cache");
    return text;
  }
  static const std::string kKnown[] = {"path", "revision"};
  value.allow(kKnown);
  if (const auto revision = value.find("revision"))
    revision->fail("revisions are not looked up; name the folder of that revision in the cache");
  return value.at("path", "a model").text();
}

ModelReference read_reference(const YamlValue& value) {
  ModelReference made;
  if (value.is_object() && value.find("model")) {
    static const std::string kKnown[] = {"model", "lora", "override_architecture"};
    value.allow(kKnown);
    made.path = read_path(value.at("model", "a model"));
    if (const auto lora = value.find("lora")) made.adapter = read_path(*lora);
    return made;
  }
  const auto split = model_reference(read_path(value));
  if (!split) value.fail("expected a model, or a model and one adapter as model+adapter");
  return *split;
}

std::optional<ModelReference> read_base(const YamlValue& around) {
  if (const auto base = around.find("base_model")) return read_reference(*base);
  return {};
}

SliceSource read_source(const YamlValue& value, bool whole_model) {
  static const std::string kModel[] = {"model", "parameters"}, kSlice[] = {"model", "layer_range", "parameters"};
  if (!value.is_object()) value.fail("expected an object with \"model\"");
  if (whole_model) {
    value.allow(kModel);
  } else {
    value.allow(kSlice);
  }
  SliceSource source;
  source.where = value.where();
  source.model = read_reference(value.at("model", "a model"));
  source.parameters = read_parameters(value);
  if (whole_model) return source;
  const YamlValue range = value.at("layer_range", "[first, end]: layers first to end - 1");
  const std::vector<YamlValue> ends = range.items();
  if (!range.is_list() || ends.size() != 2) range.fail("expected [first, end]: layers first to end - 1");
  source.first = ends[0].whole(0, kMostLayers);
  source.end = ends[1].whole(0, kMostLayers);
  if (source.end <= source.first) range.fail("expected an end after the first layer");
  return source;
}

std::vector<YamlValue> read_list(const YamlValue& value, const char* expected) {
  if (!value.is_list()) value.fail(expected);
  std::vector<YamlValue> items = value.items();
  if (items.empty()) value.fail(expected);
  return items;
}

// The same model twice in one slice has no meaning that anyone could have meant: its parameters are found by its name.
void refuse_twice(const std::vector<SliceSource>& sources) {
  std::set<ModelReference> seen;
  for (const SliceSource& source : sources)
    if (!seen.insert(source.model).second)
      throw InputError(source.where + ": the model " + source.model.text() + " is named twice among the sources; name each once");
}

std::vector<OutputSlice> read_slices(const YamlValue& value) {
  static const std::string kKnown[] = {"sources", "base_model", "residual_weight", "parameters"};
  std::vector<OutputSlice> slices;
  for (const YamlValue& item : read_list(value, "expected a list of slices, each with \"sources\"")) {
    if (!item.is_object()) item.fail("expected an object with \"sources\"");
    item.allow(kKnown);
    OutputSlice& slice = slices.emplace_back();
    slice.where = item.where();
    slice.base_model = read_base(item);
    slice.parameters = read_parameters(item);
    for (const YamlValue& source : read_list(item.at("sources", "a list of models and layers"), "expected a list of models"))
      slice.sources.push_back(read_source(source, false));
    refuse_twice(slice.sources);
    const int64_t layers = slice.sources.front().end - slice.sources.front().first;
    for (const SliceSource& source : slice.sources)
      if (source.end - source.first != layers)
        throw InputError(source.where + ": the slice takes " + std::to_string(source.end - source.first) + " layers of " +
                         source.model.text() + " and " + std::to_string(layers) + " of " + slice.sources.front().model.text() +
                         "; expected as many of each source");
  }
  return slices;
}

OutputSlice read_models(const YamlValue& value) {
  OutputSlice slice;
  slice.where = value.where();
  for (const YamlValue& item : read_list(value, "expected a list of models")) slice.sources.push_back(read_source(item, true));
  refuse_twice(slice.sources);
  return slice;
}

// The layers of one module: from "models" or from "slices", one of which is there.
ModuleRecipe read_module(const YamlValue& around, std::string name) {
  ModuleRecipe module;
  module.name = std::move(name);
  const auto models = around.find("models"), slices = around.find("slices");
  if (models && slices) slices->fail("expected one of \"models\" and \"slices\", not both");
  if (models) {
    module.slices.push_back(read_models(*models));
  } else if (slices) {
    module.slices = read_slices(*slices);
  } else {
    around.fail("expected \"models\" or \"slices\"");
  }
  return module;
}

DType read_dtype(const YamlValue& value) {
  const auto dtype = dtype_from_torch(value.text());
  if (!dtype) value.fail("expected float32, bfloat16 or float16");
  return *dtype;
}

TokenRule read_token_rule(const YamlValue& value) {
  static const std::string kKnown[] = {"source", "force"}, kSource[] = {"kind", "model", "token", "token_id"};
  value.allow(kKnown);
  TokenRule rule;
  rule.where = value.where();
  if (const auto force = value.find("force")) {
    const auto flag = as_flag(*force);
    if (!flag) force->fail("expected true or false");
    rule.force = *flag;
  }
  const auto source = value.find("source");
  if (!source) return rule;
  const auto kind = source->is_object() ? source->find("kind") : std::nullopt;
  if (!kind) {
    rule.kind = TokenRule::Kind::model;
    rule.model = read_reference(*source);
    return rule;
  }
  source->allow(kSource);
  static const std::string kKinds[] = {"model_token", "zero"};
  if (kind->one_of(kKinds) == 1) {
    rule.kind = TokenRule::Kind::zero;
    return rule;
  }
  rule.kind = TokenRule::Kind::model_token;
  rule.model = read_reference(source->at("model", "the model whose token it is"));
  if (const auto token = source->find("token")) rule.token = token->text();
  if (const auto id = source->find("token_id")) rule.token_id = id->whole(0, INT32_MAX);
  if (rule.token.has_value() == rule.token_id.has_value()) source->fail("expected either \"token\" or \"token_id\"");
  return rule;
}

void read_tokenizer_source(const YamlValue& value, TokenizerRecipe& to) {
  if (value.is_scalar() && value.text() == "union") {
    to.source = TokenizerRecipe::Source::union_of_all;
  } else if (value.is_scalar() && value.text() == "base") {
    to.source = TokenizerRecipe::Source::base;
  } else {
    to.source = TokenizerRecipe::Source::model;
    to.model = read_reference(value);
  }
}

std::optional<TokenizerRecipe> read_tokenizer(const YamlValue& document) {
  const auto tokenizer = document.find("tokenizer"), source = document.find("tokenizer_source");
  if (tokenizer && source) source->fail("expected one of \"tokenizer_source\" and \"tokenizer\", not both");
  if (!tokenizer && !source) return {};
  TokenizerRecipe made;
  if (source) {
    made.where = source->where();
    read_tokenizer_source(*source, made);
    return made;
  }
  static const std::string kKnown[] = {"source", "tokens", "pad_to_multiple_of"};
  made.where = tokenizer->where();
  tokenizer->allow(kKnown);
  if (const auto from = tokenizer->find("source")) read_tokenizer_source(*from, made);
  if (const auto pad = tokenizer->find("pad_to_multiple_of")) made.pad_to_multiple_of = pad->whole(1, 1 << 20);
  if (const auto tokens = tokenizer->find("tokens")) {
    if (!tokens->is_object()) tokens->fail("expected an object: one key for each token");
    for (const auto& [token, rule] : tokens->members()) made.tokens.emplace_back(token, read_token_rule(rule));
  }
  return made;
}

void find_without_effect(const YamlValue& value, std::vector<std::string>& found) {
  if (value.is_list())
    for (const YamlValue& item : value.items()) find_without_effect(item, found);
  if (!value.is_object()) return;
  for (const auto& [key, inside] : value.members()) {
    if (key == "residual_weight" || key == "override_architecture") found.push_back(inside.where());
    if (key != "parameters" && key != "tokens") find_without_effect(inside, found);
  }
}

MergeRecipe read_recipe(const YamlValue& document, const std::string& path) {
  static const std::string kKnown[] = {"merge_method", "models",           "slices",        "modules",
                                       "base_model",   "parameters",       "dtype",         "out_dtype",
                                       "tokenizer",    "tokenizer_source", "chat_template", "name"};
  if (!document.is_object()) document.fail("expected a merge: an object with \"merge_method\" and \"models\" or \"slices\"");
  document.allow(kKnown);
  MergeRecipe recipe;
  recipe.path = path;
  const YamlValue method = document.at("merge_method", "the name of a merge method");
  recipe.method = method.text();
  recipe.where = method.where();
  if (const auto name = document.find("name")) recipe.name = name->text();
  recipe.base_model = read_base(document);
  recipe.parameters = read_parameters(document);
  if (const auto dtype = document.find("dtype")) recipe.dtype = read_dtype(*dtype);
  if (const auto dtype = document.find("out_dtype")) recipe.out_dtype = read_dtype(*dtype);
  if (const auto chat = document.find("chat_template")) recipe.chat_template = chat->text();
  recipe.tokenizer = read_tokenizer(document);
  find_without_effect(document, recipe.without_effect);

  const auto modules = document.find("modules");
  const bool others = document.find("models") || document.find("slices");
  if (modules && others) modules->fail("expected exactly one of \"models\", \"slices\" and \"modules\"");
  if (!modules && !others) document.fail("expected exactly one of \"models\", \"slices\" and \"modules\"");
  if (!modules) {
    recipe.modules.push_back(read_module(document, ""));
    return recipe;
  }
  static const std::string kModule[] = {"slices", "models", "parameters"};
  if (!modules->is_object() || modules->members().empty()) modules->fail("expected an object: one key for each module");
  for (const auto& [name, value] : modules->members()) {
    if (!value.is_object()) value.fail("expected an object with \"models\" or \"slices\"");
    value.allow(kModule);
    recipe.modules.push_back(read_module(value, name));
    recipe.modules.back().parameters = read_parameters(value);
  }
  return recipe;
}

// Where a model lies, however it is written. An id in the cache stays as it is.
std::string meant_place(const std::string& path) {
  std::error_code error;
  std::filesystem::path place = std::filesystem::canonical(path, error);
  if (error) place = std::filesystem::path(path).lexically_normal();
  if (!place.has_filename() && place.has_parent_path()) place = place.parent_path();
  return place.string();
}

// The document of several whose value begins at line `first`: up to the next "---", without the one that it may stand behind.
std::string lines_of(const std::string& text, int first) {
  std::string part;
  int line = 1;
  for (size_t at = 0; at < text.size(); ++line) {
    const size_t stop = std::min(text.find('\n', at), text.size() - 1) + 1;
    std::string_view words = std::string_view(text).substr(at, stop - at);
    at = stop;
    if (line < first) continue;
    const bool marker =
        words.starts_with("---") && (words.size() == 3 || std::string_view(" \t\r\n").find(words[3]) != words.npos);
    if (marker && line > first) break;
    if (marker) words.remove_prefix(std::min(words.find_first_not_of(" \t", 3), words.size()));
    part += words;
  }
  return part;
}

}  // namespace

std::optional<ModelReference> model_reference(const std::string& text) {
  const size_t plus = text.find('+');
  if (plus == std::string::npos) return text.empty() ? std::nullopt : std::optional(ModelReference{text, ""});
  if (plus == 0 || plus + 1 == text.size() || text.find('+', plus + 1) != std::string::npos) return {};
  return ModelReference{text.substr(0, plus), text.substr(plus + 1)};
}

std::vector<ModelReference> MergeRecipe::models() const {
  std::vector<ModelReference> found;
  const auto add = [&](const ModelReference& model) {
    if (std::find(found.begin(), found.end(), model) == found.end()) found.push_back(model);
  };
  for (const ModuleRecipe& module : modules)
    for (const OutputSlice& slice : module.slices) {
      for (const SliceSource& source : slice.sources) add(source.model);
      if (slice.base_model) add(*slice.base_model);
    }
  if (base_model) add(*base_model);
  return found;
}

void for_each_model(MergeRecipe& recipe, const std::function<void(ModelReference&)>& visit) {
  for (ModuleRecipe& module : recipe.modules)
    for (OutputSlice& slice : module.slices) {
      for (SliceSource& source : slice.sources) visit(source.model);
      if (slice.base_model) visit(*slice.base_model);
    }
  if (recipe.base_model) visit(*recipe.base_model);
  if (!recipe.tokenizer) return;
  if (recipe.tokenizer->source == TokenizerRecipe::Source::model) visit(recipe.tokenizer->model);
  for (auto& [token, rule] : recipe.tokenizer->tokens)
    if (rule.kind == TokenRule::Kind::model || rule.kind == TokenRule::Kind::model_token) visit(rule.model);
}

void join_models(MergeRecipe& recipe) {
  std::map<std::string, std::string> names;  // by the place that they mean
  const auto join = [&](std::string& path) {
    if (!path.empty()) path = names.emplace(meant_place(path), path).first->second;
  };
  for_each_model(recipe, [&](ModelReference& model) {
    join(model.path);
    join(model.adapter);
  });
  for (const ModuleRecipe& module : recipe.modules)
    for (const OutputSlice& slice : module.slices) refuse_twice(slice.sources);
}

std::vector<MergeRecipe> parse_merge_recipes(const std::string& text, const std::string& where) {
  const std::vector<YamlValue> documents = YamlValue::parse_all(text, where);
  if (documents.empty()) throw FileError(where, "is empty; expected a merge, with \"merge_method\" and \"models\" or \"slices\"");
  std::vector<MergeRecipe> recipes;
  for (size_t i = 0; i < documents.size(); ++i) {
    MergeRecipe recipe = read_recipe(documents[i], where);
    recipe.yaml = documents.size() == 1 ? text : lines_of(text, documents[i].line());
    recipes.push_back(std::move(recipe));
  }
  return recipes;
}

std::vector<MergeRecipe> read_merge_recipes(const std::string& path) {
  return parse_merge_recipes(read_file(path, YamlLimits().bytes), path);
}

std::optional<DType> dtype_from_torch(std::string_view name) {
  if (name.starts_with("torch.")) name.remove_prefix(6);
  if (name == "float32" || name == "f32") return DType::f32;
  if (name == "bfloat16" || name == "bf16") return DType::bf16;
  if (name == "float16" || name == "f16") return DType::f16;
  return {};
}

}  // namespace vitrine
