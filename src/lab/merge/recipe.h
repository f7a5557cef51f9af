#pragma once
// A merge as it is written down: mergekit's YAML (docs/merge.md), typed and checked, before any weight file is opened.
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "io/yaml_reader.h"

namespace vitrine {

/// A model as a recipe names it: "path", an id in the local Hugging Face cache, or "path+adapter".
struct ModelReference {
  std::string path, adapter;  // adapter: the folder of a LoRA adapter, or empty
  auto operator<=>(const ModelReference&) const = default;
  std::string text() const { return adapter.empty() ? path : path + "+" + adapter; }
};

/// "path" or "path+adapter". Nothing for a text that is neither.
std::optional<ModelReference> model_reference(const std::string& text);

/// A value of a parameter: a number, a flag or a word.
using ParameterScalar = std::variant<double, bool, std::string>;

/// What a recipe says of one parameter: the first case whose filter occurs in the tensor's name counts. Several values are a
/// gradient over the layers of the output slice.
struct ParameterSetting {
  struct Case {
    std::string filter;  // a part of tensor names; empty: all of them
    std::vector<ParameterScalar> values;
  };
  std::vector<Case> cases;
  std::string where;  // file, line and field, for messages
};
using ParameterSettings = std::map<std::string, ParameterSetting, std::less<>>;

/// Layers [first, end) of a model; of `models:`, all of them.
struct SliceSource {
  ModelReference model;
  int64_t first = 0, end = -1;  // -1: as many as the model has
  ParameterSettings parameters;
  std::string where;
};

/// Layers of the result, made of as many layers of each source.
struct OutputSlice {
  std::vector<SliceSource> sources;
  std::optional<ModelReference> base_model;
  ParameterSettings parameters;
  std::string where;
};

/// What becomes of one stack of layers. The name is empty where the recipe has no `modules`.
struct ModuleRecipe {
  std::string name;
  std::vector<OutputSlice> slices;
  ParameterSettings parameters;
};

/// Where a token's row of the embedding comes from, if not from each model's own.
struct TokenRule {
  enum class Kind : uint8_t { none, model, model_token, zero };
  Kind kind = Kind::none;
  ModelReference model;              // of model and model_token
  std::optional<std::string> token;  // of model_token: one of the two
  std::optional<int64_t> token_id;
  bool force = false;  // also for the models that have the token
  std::string where;
};

struct TokenizerRecipe {
  enum class Source : uint8_t { union_of_all, base, model };
  Source source = Source::union_of_all;
  ModelReference model;                                   // of Source::model
  std::vector<std::pair<std::string, TokenRule>> tokens;  // as the file orders them: those nobody has get their ids so
  int64_t pad_to_multiple_of = 0;                         // 0: no padding
  std::string where;
};

/// One document of a recipe file.
struct MergeRecipe {
  std::string name;  // of a document whose result others use; empty: the one whose result is wanted
  std::string method;
  std::optional<ModelReference> base_model;
  std::vector<ModuleRecipe> modules;  // one without name for `models` and `slices`
  ParameterSettings parameters;
  std::optional<DType> dtype, out_dtype;
  std::optional<TokenizerRecipe> tokenizer;
  std::string chat_template;                // empty: the donor's
  std::string yaml;                         // the document's own text
  std::string path, where;                  // of the file; file and line of the method
  std::vector<std::string> without_effect;  // where it has keys that mergekit takes and that change nothing

  /// Every model it names, once each, in the order of the text; the base model where it is named first.
  std::vector<ModelReference> models() const;
};

/// Calls `visit` for each model that the recipe names, wherever it stands; a model may come several times.
void for_each_model(MergeRecipe& recipe, const std::function<void(ModelReference&)>& visit);

/// Gives a model that is named in several ways ("m/qwen", "./m/qwen/", a link to it) the name that comes first. Errors:
/// InputError if this makes two sources of a slice one.
void join_models(MergeRecipe& recipe);

/// Reads a recipe file of one or more documents. Errors: FileError with file, line and field.
std::vector<MergeRecipe> read_merge_recipes(const std::string& path);
/// The same for text; `where` is named in errors.
std::vector<MergeRecipe> parse_merge_recipes(const std::string& text, const std::string& where);

/// "float32", "bfloat16", "float16", also with "torch." before it, or our own names. Nothing for others.
std::optional<DType> dtype_from_torch(std::string_view name);

}  // namespace vitrine
