#pragma once
// What to do to a model: interventions, patching grids and paths as a recipe, read from YAML and written as it. docs/intervene.md
// explains every key with examples.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hooks/spliced_model.h"
#include "io/yaml_reader.h"

namespace vitrine {

/// A text, or token ids that go in exactly as given.
struct PromptSpec {
  std::string text;
  std::vector<int32_t> tokens;
  bool from_tokens = false;
  bool special = true;  // BOS and EOS by the tokenizer's rule, with a text
  std::string where;    // "recipe.yaml:3: "prompt"", for messages; may be empty
};

/// One token: an id, a text that is one token, or a piece as the vocabulary spells it.
struct TokenSpec {
  std::string text;
  int32_t id = -1;  // -1: `text` says which
  std::string where;
};

/// Numbers to be put or added somewhere.
struct VectorSpec {
  std::vector<float> values;              // written in the recipe
  std::vector<int64_t> shape;             // of them: [] for one number
  std::string file, tensor;               // or a safetensors file and a tensor's name
  std::optional<PromptSpec> plus, minus;  // or: the value at the same hook for `plus`, less that for `minus`,
  int64_t position = -1;                  // at this position of each
  std::string where;
};

/// One thing done to a part of the model, at some positions.
struct Intervention {
  enum class Target : uint8_t { head, mlp, attn, layer, norm, positions, hook, sae };
  enum class Action : uint8_t { zero, mean, resample, set, add, scale, identity, unit_scale, no_weight, features };
  enum class From : uint8_t { own, clean, corrupt, prompts };  // whose values mean (own: this run's) and resample take
  Target target = Target::hook;
  std::vector<std::string> of;         // "3.7", "2", "1:4", "*", a norm's or a hook's pattern; of sae the directory
  std::vector<std::string> positions;  // slices; empty: all
  Action action = Action::zero;
  From from = From::own;
  std::vector<PromptSpec> prompts;
  bool by_position = false;  // mean over prompts: position by position
  VectorSpec vector;
  double factor = 1;  // add: times, scale: by
  // Of sae, which has no action: what parse_feature_edit reads, the hook if it is not the files', whether the error stays.
  std::vector<std::string> features;
  std::string sae_hook;
  bool keep_error = true;
  std::string where;
};

/// What a run is measured by, at one position (loss: over the whole prompt).
struct MetricSpec {
  enum class Kind : uint8_t {
    none,
    logit_difference,  // logit of the first token - logit of the second
    logprob,           // of one token
    kl,                // KL(clean run || this run)
    loss,              // mean of -log p of the clean prompt's own next tokens
  };
  Kind kind = Kind::none;
  std::vector<TokenSpec> tokens;
  int64_t position = -1;
  std::string where;
};

/// Activation patching, or ablation, of one place after another.
struct GridSpec {
  std::string what;   // resid_pre, resid_mid, resid_post, attn_out, mlp_out; z, result, q, k, v, pattern
  bool patch = true;  // values come from the other prompt; false: ablation by `action`
  Intervention::Action action = Intervention::Action::zero;  // of an ablation: zero or mean
  std::vector<std::string> layers, heads;                    // slices; empty: all
  std::vector<std::string> positions;
  std::string where;
};

/// Path patching: what reaches the receivers from each sender on the direct paths between them.
struct PathSpec {
  std::vector<std::string> heads, mlps;                // senders: "3.7", "*"
  std::vector<std::string> to_heads, inputs, to_mlps;  // receivers; inputs of heads: q, k, v
  bool to_logits = false;
  bool freeze_mlps = true;  // false: MLPs between them are computed again, as part of the path
  std::string where;
};

struct Recipe {
  std::string path;           // the file, for messages
  std::string model;          // empty: not said
  std::string adapter;        // the folder of one that stands beside the model; empty: none
  std::vector<SaeFile> saes;  // that every run goes through: their hooks are among the model's
  PromptSpec prompt;          // the clean one
  std::optional<PromptSpec> corrupt;
  bool run_corrupt = false;  // which of them is edited
  std::vector<Intervention> interventions;
  MetricSpec metric;
  std::optional<GridSpec> grid;
  std::optional<PathSpec> paths;
};

/// Errors: FileError with file, line, field, what was found and what was expected; unknown keys come with the nearest known one.
Recipe read_recipe(const std::string& path);
Recipe recipe_of(const YamlValue& root, const std::string& path);

/// The recipe as YAML that reads back as the same one.
std::string to_yaml(const Recipe& recipe);
/// One entry of `interventions:`.
std::string to_yaml(const Intervention& intervention);
/// The block `path:`.
std::string to_yaml(const PathSpec& path);

}  // namespace vitrine
