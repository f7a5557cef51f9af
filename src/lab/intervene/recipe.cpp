#include "intervene/recipe.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "sae/splice.h"

namespace vitrine {
namespace {

using Target = Intervention::Target;
using Action = Intervention::Action;
using Names = std::vector<std::string>;

template <class Enum>
struct Word {
  const char* word;
  Enum value;
};
constexpr std::array kTargetWords = {Word<Target>{"head", Target::head}, Word<Target>{"mlp", Target::mlp},
                                     Word<Target>{"attn", Target::attn}, Word<Target>{"layer", Target::layer},
                                     Word<Target>{"norm", Target::norm}, Word<Target>{"hook", Target::hook}};
constexpr std::array kActions = {Word<Action>{"zero", Action::zero},
                                 Word<Action>{"mean", Action::mean},
                                 Word<Action>{"resample", Action::resample},
                                 Word<Action>{"set", Action::set},
                                 Word<Action>{"add", Action::add},
                                 Word<Action>{"scale", Action::scale},
                                 Word<Action>{"identity", Action::identity},
                                 Word<Action>{"unit_scale", Action::unit_scale},
                                 Word<Action>{"no_weight", Action::no_weight}};
constexpr std::array kGridded = {"resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out", "z",
                                 "result",    "q",         "k",          "v",        "pattern"};

template <class Words>
Names names_of(const Words& words) {
  Names names;
  for (const auto& word : words) names.emplace_back(word.word);
  return names;
}

// The value that a scalar names.
template <class Words>
auto value_of(const YamlValue& value, const Words& words) {
  return words[value.one_of(names_of(words))].value;
}

template <class Words, class Enum>
const char* word_of(Enum value, const Words& words) {
  for (const auto& word : words)
    if (word.value == value) return word.word;
  return "";
}

// A name, an index or a range, as it is written. The open range in `[1, -3:]` is the object {"-3": null} to YAML.
std::string text_of(const YamlValue& value) {
  if (!value.is_object()) return value.text();
  const auto members = value.members();
  int64_t index = 0;
  if (members.size() == 1 && members[0].second.is_null()) {
    const std::string& key = members[0].first;
    const char* const end = key.data() + key.size();
    if (const auto [stop, error] = std::from_chars(key.data(), end, index); error == std::errc{} && stop == end) return key + ":";
  }
  value.fail("expected a name, an index or a range, such as 2:4 or -3:");
}

Names texts(const std::optional<YamlValue>& value) {
  Names result;
  if (!value) return result;
  for (const YamlValue& item : value->items()) result.push_back(text_of(item));
  if (result.empty()) value->fail("expected at least one");
  return result;
}

// Those under a key, none where it is absent. A key without a value is refused: none means all.
Names texts(const YamlValue& from, std::string_view key) {
  for (const auto& [name, value] : from.members())
    if (name == key && value.is_null()) value.fail("expected at least one, or omit the key for all");
  return texts(from.find(key));
}

PromptSpec read_prompt(const YamlValue& value) {
  PromptSpec prompt;
  prompt.where = value.where();
  if (!value.is_object()) {
    prompt.text = value.text();
    return prompt;
  }
  value.allow(Names{"text", "tokens", "special"});
  const auto text = value.find("text"), tokens = value.find("tokens");
  if (text.has_value() == tokens.has_value()) value.fail("expected either \"text\" or \"tokens\"");
  if (const auto special = value.find("special")) prompt.special = special->flag();
  if (text) prompt.text = text->text();
  if (tokens) {
    prompt.from_tokens = true;
    for (const YamlValue& id : tokens->items()) prompt.tokens.push_back(static_cast<int32_t>(id.whole(0, INT32_MAX)));
  }
  return prompt;
}

// Numbers in nested lists, all of one size at each level.
void read_numbers(const YamlValue& value, size_t level, VectorSpec& vector) {
  if (!value.is_list()) {
    if (level != vector.shape.size()) value.fail("expected a list here, as beside it");
    const auto number = static_cast<float>(value.number());
    if (!std::isfinite(number)) value.fail("expected a number that f32 holds, up to 3.4e38");
    vector.values.push_back(number);
    return;
  }
  const auto items = value.items();
  const auto size = static_cast<int64_t>(items.size());
  if (size == 0) value.fail("expected numbers");
  if (level == vector.shape.size()) {
    if (!vector.values.empty()) value.fail("expected a number here, as beside it");
    vector.shape.resize(level + 1, size);
  }
  if (vector.shape[level] != size)
    value.fail("expected " + std::to_string(vector.shape[level]) + " entries, as in the list before it");
  for (const YamlValue& item : items) read_numbers(item, level + 1, vector);
}

VectorSpec read_vector(const YamlValue& value) {
  VectorSpec vector;
  vector.where = value.where();
  if (!value.is_object()) {
    read_numbers(value, 0, vector);
    return vector;
  }
  value.allow(Names{"file", "tensor", "plus", "minus", "position"});
  const auto file = value.find("file"), plus = value.find("plus");
  if (file.has_value() == plus.has_value())
    value.fail("expected either \"file\" and \"tensor\", or \"plus\" (and \"minus\"): the prompts whose values are taken");
  if (file) {
    vector.file = file->text();
    vector.tensor = value.at("tensor", "the name of a tensor in the file").text();
    return vector;
  }
  vector.plus = read_prompt(*plus);
  if (const auto minus = value.find("minus")) vector.minus = read_prompt(*minus);
  if (const auto position = value.find("position")) vector.position = position->whole(INT32_MIN, INT32_MAX);
  return vector;
}

void read_from(const YamlValue& value, Intervention& result) {
  if (value.is_scalar() && (value.text() == "clean" || value.text() == "corrupt")) {
    result.from = value.text() == "clean" ? Intervention::From::clean : Intervention::From::corrupt;
    return;
  }
  result.from = Intervention::From::prompts;
  for (const YamlValue& item : value.items()) result.prompts.push_back(read_prompt(item));
  if (result.prompts.empty()) value.fail("expected a prompt");
}

// DIR, or {sae: DIR, hook: …, error: …}.
SaeFile read_sae_file(const YamlValue& value) {
  SaeFile file;
  if (value.is_object()) {
    value.allow(Names{"sae", "hook", "error"});
    file.path = value.at("sae", "the directory of an autoencoder").text();
    if (const auto hook = value.find("hook")) file.hook = hook->text();
    if (const auto error = value.find("error")) file.keep_error = error->flag();
  } else {
    file.path = value.text();
  }
  if (file.path.empty()) value.fail("expected the directory of an autoencoder");
  return file;
}

// What is done to features: [12=0, 7+=2].
Names read_features(const YamlValue& features) {
  for (const std::string& text : texts(features)) {
    try {
      parse_feature_edit(text);
    } catch (const InputError& error) {
      features.fail(error.what());
    }
  }
  return texts(features);
}

// An autoencoder's features: {sae: DIR, features: [12=0], hook: …, positions: …, error: …}.
Intervention read_sae_entry(const YamlValue& value, const YamlValue& directory) {
  Intervention result;
  result.where = value.where();
  result.target = Target::sae;
  value.allow(Names{"sae", "features", "hook", "positions", "error"});
  result.of = {directory.text()};
  if (result.of[0].empty()) directory.fail("expected the directory of an autoencoder");
  result.features = read_features(value.at("features", "what to do with its features: [12=0, 7+=2, 9*=0.5]"));
  result.positions = texts(value, "positions");
  if (const auto hook = value.find("hook")) result.sae_hook = hook->text();
  if (const auto error = value.find("error")) result.keep_error = error->flag();
  return result;
}

Intervention read_intervention(const YamlValue& value) {
  if (const auto directory = value.find("sae")) return read_sae_entry(value, *directory);
  Intervention result;
  result.where = value.where();
  Names known = names_of(kTargetWords);
  known.insert(known.end(), {"positions", "do", "features", "from", "over", "by_position", "vector", "times", "by"});
  value.allow(known);
  std::string found;
  for (const auto& word : kTargetWords) {
    const auto of = value.find(word.word);
    if (!of) continue;
    if (!found.empty()) value.fail("names both \"" + found + "\" and \"" + word.word + "\"; expected one of them in an entry");
    found = word.word;
    result.target = word.value;
    result.of = texts(of);
  }
  result.positions = texts(value, "positions");
  if (found.empty()) {
    if (result.positions.empty())
      value.fail("names no part of the model; expected head, mlp, attn, layer, norm, hook, sae or positions");
    result.target = Target::positions;
  }
  if (const auto features = value.find("features")) {  // of an autoencoder that the run goes through
    if (result.target != Target::hook || found.empty())
      features->fail("expected \"hook: ….hook_sae_acts_post\" or \"sae: DIR\" beside it, whose features these are");
    value.allow(Names{"hook", "features", "positions"});
    result.action = Action::features;
    result.features = read_features(*features);
    return result;
  }
  const YamlValue action =
      value.at("do", "what to do there: zero, mean, resample, set, add, scale, identity, unit_scale or no_weight");
  result.action = value_of(action, kActions);

  // The keys that go with the action, and no others.
  Names allowed = names_of(kTargetWords);
  allowed.insert(allowed.end(), {"positions", "do"});
  switch (result.action) {
    case Action::mean: allowed.insert(allowed.end(), {"over", "by_position"}); break;
    case Action::resample: allowed.emplace_back("from"); break;
    case Action::set: allowed.emplace_back("vector"); break;
    case Action::add: allowed.insert(allowed.end(), {"vector", "times"}); break;
    case Action::scale: allowed.emplace_back("by"); break;
    default: break;
  }
  value.allow(allowed);
  if (result.action == Action::mean) {
    const auto over = value.find("over");
    if (over && !(over->is_scalar() && over->text() == "positions")) read_from(*over, result);
    const auto by_position = value.find("by_position");
    result.by_position = by_position && by_position->flag();
    if (result.by_position && result.from != Intervention::From::prompts)
      by_position->fail("expected \"over\" with several prompts beside it: the mean of one prompt by position changes nothing");
  }
  if (result.action == Action::resample) {
    const YamlValue from = value.at("from", "clean, corrupt or a prompt, whose values are put there");
    read_from(from, result);
    if (result.prompts.size() > 1) from.fail("expected one prompt");
  }
  if (result.action == Action::set || result.action == Action::add)
    result.vector = read_vector(value.at("vector", "a number, a list of numbers, {file, tensor} or {plus, minus}"));
  if (const auto times = value.find("times")) result.factor = times->number();
  if (result.action == Action::scale) result.factor = value.at("by", "a factor").number();

  const bool norm = result.action == Action::unit_scale || result.action == Action::no_weight;
  if (norm && result.target != Target::norm)
    action.fail("only a norm has a scale and a weight to leave out; expected \"norm: …\"");
  if (result.action == Action::identity && result.target != Target::norm && result.target != Target::layer)
    action.fail("only a norm or a layer can let its input through unchanged; zero takes away what a sub-layer adds");
  return result;
}

TokenSpec read_token(const YamlValue& value) {
  TokenSpec token;
  token.where = value.where();
  if (const auto id = value.as_whole()) {
    token.id = static_cast<int32_t>(value.whole(0, INT32_MAX));
  } else {
    token.text = value.text();
  }
  return token;
}

MetricSpec read_metric(const YamlValue& value) {
  using Kind = MetricSpec::Kind;
  MetricSpec metric;
  metric.where = value.where();
  if (!value.is_object()) {
    constexpr std::array kPlain = {Word<Kind>{"kl", Kind::kl}, Word<Kind>{"loss", Kind::loss}};
    metric.kind = value_of(value, kPlain);
    return metric;
  }
  value.allow(Names{"logit_difference", "logprob", "kl", "loss", "position"});
  const auto difference = value.find("logit_difference"), logprob = value.find("logprob");
  const auto wanted = [&](const char* key) {
    const auto flag = value.find(key);
    return flag && flag->flag();
  };
  const bool kl = wanted("kl"), loss = wanted("loss");
  if (int{difference.has_value()} + int{logprob.has_value()} + int{kl} + int{loss} != 1)
    value.fail("expected one of logit_difference: [A, B], logprob: A, kl: true, loss: true");
  if (difference) {
    metric.kind = Kind::logit_difference;
    for (const YamlValue& token : difference->items()) metric.tokens.push_back(read_token(token));
    if (metric.tokens.size() != 2) difference->fail("expected two tokens: the logit of the first less that of the second");
  } else if (logprob) {
    metric.kind = Kind::logprob;
    metric.tokens.push_back(read_token(*logprob));
  } else {
    metric.kind = kl ? Kind::kl : Kind::loss;
  }
  if (const auto position = value.find("position")) {
    if (loss) position->fail("the loss is over the whole prompt");
    metric.position = position->whole(INT32_MIN, INT32_MAX);
  }
  return metric;
}

GridSpec read_grid(const YamlValue& value, bool patch) {
  GridSpec grid;
  grid.where = value.where();
  grid.patch = patch;
  if (value.is_object()) {
    Names known = {"what", "layers", "heads", "positions"};
    if (!patch) known.emplace_back("do");
    value.allow(known);
    grid.layers = texts(value, "layers");
    grid.heads = texts(value, "heads");
    grid.positions = texts(value, "positions");
    if (const auto action = value.find("do")) {
      constexpr std::array kAblations = {Word<Action>{"zero", Action::zero}, Word<Action>{"mean", Action::mean}};
      grid.action = value_of(*action, kAblations);
    }
  }
  const YamlValue what = value.is_object() ? value.at("what", "what is replaced, such as resid_pre or z") : value;
  grid.what = kGridded[what.one_of(Names(kGridded.begin(), kGridded.end()))];
  return grid;
}

PathSpec read_path(const YamlValue& value) {
  PathSpec path;
  path.where = value.where();
  value.allow(Names{"senders", "receivers", "mlps"});
  const YamlValue senders = value.at("senders", "{head: …} or {mlp: …}");
  senders.allow(Names{"head", "mlp"});
  path.heads = texts(senders.find("head"));
  path.mlps = texts(senders.find("mlp"));
  if (path.heads.empty() && path.mlps.empty()) senders.fail("expected a head or an mlp");
  const YamlValue receivers = value.at("receivers", "logits, or {head: …, inputs: [q, k, v], mlp: …, logits: true}");
  if (!receivers.is_object()) {
    if (receivers.text() != "logits") receivers.fail("expected logits, or {head: …, inputs: [q, k, v], mlp: …}");
    path.to_logits = true;
  } else {
    receivers.allow(Names{"head", "inputs", "mlp", "logits"});
    path.to_heads = texts(receivers.find("head"));
    path.inputs = texts(receivers.find("inputs"));
    path.to_mlps = texts(receivers.find("mlp"));
    if (const auto logits = receivers.find("logits")) path.to_logits = logits->flag();
    if (path.to_heads.empty() && path.to_mlps.empty() && !path.to_logits) receivers.fail("expected a head, an mlp or the logits");
    if (path.to_heads.empty() && !path.inputs.empty()) receivers.fail("has \"inputs\" and no \"head\" whose inputs they are");
    if (path.inputs.empty() && !path.to_heads.empty()) path.inputs = {"q", "k", "v"};
    for (const std::string& input : path.inputs)
      if (input != "q" && input != "k" && input != "v")
        receivers.at("inputs", "").fail("\"" + input + "\" is no input of a head; expected q, k or v");
  }
  if (const auto mlps = value.find("mlps")) {
    if (mlps->text() != "frozen" && mlps->text() != "recomputed") mlps->fail("expected frozen or recomputed");
    path.freeze_mlps = mlps->text() == "frozen";
  }
  return path;
}

// Writing -------------------------------------------------------------------------------------------------------------

// As it was written where that reads back as the same text.
std::string scalar(const std::string& text) {
  const bool plain =
      !text.empty() && text.size() < 80 &&
      std::all_of(
          text.begin(), text.end(),
          [](unsigned char c) {
            return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '/';
          }) &&
      text != "true" && text != "false" && text != "null" && text != "clean" && text != "corrupt" && text != "positions";
  return plain ? text : yaml_quoted(text);
}

std::string list_of(const Names& texts) {
  if (texts.size() == 1) return scalar(texts[0]);
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + scalar(text);
  return "[" + list + "]";
}

// The shortest text that reads back as the same number.
std::string number(double value) { return Json(value).dump(); }

std::string prompt_yaml(const PromptSpec& prompt) {
  if (!prompt.from_tokens && prompt.special) return yaml_quoted(prompt.text);
  if (!prompt.from_tokens) return "{text: " + yaml_quoted(prompt.text) + ", special: false}";
  std::string ids;
  for (const int32_t id : prompt.tokens) ids += (ids.empty() ? "" : ", ") + std::to_string(id);
  return "{tokens: [" + ids + "]}";
}

std::string numbers_yaml(const VectorSpec& vector, size_t level, size_t& next) {
  if (level == vector.shape.size()) return number(static_cast<double>(vector.values[next++]));
  std::string list;
  for (int64_t i = 0; i < vector.shape[level]; ++i) list += (i > 0 ? ", " : "") + numbers_yaml(vector, level + 1, next);
  return "[" + list + "]";
}

std::string vector_yaml(const VectorSpec& vector) {
  if (!vector.file.empty()) return "{file: " + yaml_quoted(vector.file) + ", tensor: " + yaml_quoted(vector.tensor) + "}";
  if (vector.plus) {
    std::string text = "{plus: " + prompt_yaml(*vector.plus);
    if (vector.minus) text += ", minus: " + prompt_yaml(*vector.minus);
    return text + ", position: " + std::to_string(vector.position) + "}";
  }
  size_t next = 0;
  return numbers_yaml(vector, 0, next);
}

std::string token_yaml(const TokenSpec& token) { return token.id >= 0 ? std::to_string(token.id) : yaml_quoted(token.text); }

std::string metric_yaml(const MetricSpec& metric) {
  using Kind = MetricSpec::Kind;
  std::string text;
  switch (metric.kind) {
    case Kind::none: return "";
    case Kind::logit_difference:
      text = "logit_difference: [" + token_yaml(metric.tokens[0]) + ", " + token_yaml(metric.tokens[1]) + "]";
      break;
    case Kind::logprob: text = "logprob: " + token_yaml(metric.tokens[0]); break;
    case Kind::kl: text = "kl: true"; break;
    case Kind::loss: return "metric: loss\n";
  }
  return "metric: {" + text + ", position: " + std::to_string(metric.position) + "}\n";
}

std::string from_yaml(const Intervention& i) {
  if (i.from == Intervention::From::clean) return "clean";
  if (i.from == Intervention::From::corrupt) return "corrupt";
  std::string list;
  for (const PromptSpec& prompt : i.prompts) list += (list.empty() ? "" : ", ") + prompt_yaml(prompt);
  return "[" + list + "]";
}

std::string grid_yaml(const GridSpec& grid) {
  std::string text = std::string(grid.patch ? "patch" : "ablate") + ":\n  what: " + grid.what + "\n";
  if (!grid.patch) text += std::string("  do: ") + word_of(grid.action, kActions) + "\n";
  if (!grid.layers.empty()) text += "  layers: " + list_of(grid.layers) + "\n";
  if (!grid.heads.empty()) text += "  heads: " + list_of(grid.heads) + "\n";
  if (!grid.positions.empty()) text += "  positions: " + list_of(grid.positions) + "\n";
  return text;
}

}  // namespace

Recipe recipe_of(const YamlValue& root, const std::string& path) {
  Recipe recipe;
  recipe.path = path;
  if (root.is_null())
    throw FileError(path, "is empty; expected a recipe with \"prompt\" and \"interventions\", \"patch\" or \"path\"");
  root.allow(Names{"model", "adapter", "saes", "prompt", "corrupt", "run", "interventions", "metric", "patch", "ablate", "path"});
  if (const auto model = root.find("model")) recipe.model = model->text();
  if (const auto adapter = root.find("adapter")) recipe.adapter = adapter->text();
  if (const auto saes = root.find("saes"))
    for (const YamlValue& item : saes->items()) recipe.saes.push_back(read_sae_file(item));
  recipe.prompt = read_prompt(root.at("prompt", "the text or tokens to run"));
  if (const auto corrupt = root.find("corrupt")) recipe.corrupt = read_prompt(*corrupt);
  if (const auto interventions = root.find("interventions"))
    for (const YamlValue& item : interventions->items()) recipe.interventions.push_back(read_intervention(item));
  if (const auto metric = root.find("metric")) recipe.metric = read_metric(*metric);
  const auto patch = root.find("patch"), ablate = root.find("ablate"), paths = root.find("path");
  if (int{patch.has_value()} + int{ablate.has_value()} + int{paths.has_value()} > 1)
    root.fail("expected one of \"patch\", \"ablate\" and \"path\"; each is a grid of its own");
  if (patch) recipe.grid = read_grid(*patch, true);
  if (ablate) recipe.grid = read_grid(*ablate, false);
  if (paths) recipe.paths = read_path(*paths);
  const bool gridded = recipe.grid || recipe.paths;
  if (!gridded && recipe.interventions.empty())
    root.fail("nothing is to be done; expected \"interventions\", \"patch\", \"ablate\" or \"path\"");
  if ((patch || paths) && !recipe.corrupt)
    root.fail("patching takes values of one prompt into the run of another; expected \"corrupt\", the other prompt");
  // Patching usually asks what restores the clean answer: clean values into the corrupt run.
  recipe.run_corrupt = patch || paths;
  if (const auto run = root.find("run")) {
    if (run->text() != "clean" && run->text() != "corrupt") run->fail("expected clean or corrupt");
    recipe.run_corrupt = run->text() == "corrupt";
    if (recipe.run_corrupt && !recipe.corrupt) run->fail("there is no \"corrupt\" prompt to run");
  }
  for (const Intervention& i : recipe.interventions)
    if (i.from == Intervention::From::corrupt && !recipe.corrupt)
      throw InputError(i.where + " takes values from the corrupt prompt; expected \"corrupt\" in the recipe");
  if (gridded && recipe.metric.kind == MetricSpec::Kind::none)
    root.fail("a grid needs \"metric\": logit_difference, logprob, kl or loss");
  return recipe;
}

Recipe read_recipe(const std::string& path) { return recipe_of(YamlValue::read(path), path); }

std::string to_yaml(const Intervention& i) {
  std::string text;
  const auto line = [&](const std::string& key, const std::string& value) {
    text += (text.empty() ? "  - " : "    ") + key + ": " + value + "\n";
  };
  if (i.target == Target::sae) {
    line("sae", yaml_quoted(i.of[0]));
    line("features", list_of(i.features));
    if (!i.sae_hook.empty()) line("hook", scalar(i.sae_hook));
    if (!i.positions.empty()) line("positions", list_of(i.positions));
    if (!i.keep_error) line("error", "false");
    return text;
  }
  if (i.target != Target::positions) line(word_of(i.target, kTargetWords), list_of(i.of));
  if (!i.positions.empty()) line("positions", list_of(i.positions));
  if (i.action == Action::features) {
    line("features", list_of(i.features));
    return text;
  }
  line("do", word_of(i.action, kActions));
  switch (i.action) {
    case Action::mean:
      line("over", i.from == Intervention::From::own ? "positions" : from_yaml(i));
      if (i.by_position) line("by_position", "true");
      break;
    case Action::resample: line("from", from_yaml(i)); break;
    case Action::set: line("vector", vector_yaml(i.vector)); break;
    case Action::add:
      line("vector", vector_yaml(i.vector));
      line("times", number(i.factor));
      break;
    case Action::scale: line("by", number(i.factor)); break;
    default: break;
  }
  return text;
}

std::string to_yaml(const PathSpec& path) {
  const auto object = [](std::initializer_list<std::pair<const char*, std::string>> entries) {
    std::string text;
    for (const auto& [key, value] : entries)
      if (!value.empty()) text += (text.empty() ? "" : ", ") + std::string(key) + ": " + value;
    return "{" + text + "}";
  };
  const auto list = [](const Names& names) { return names.empty() ? std::string() : list_of(names); };
  return "path:\n  senders: " + object({{"head", list(path.heads)}, {"mlp", list(path.mlps)}}) + "\n  receivers: " +
         object({{"head", list(path.to_heads)},
                 {"inputs", list(path.inputs)},
                 {"mlp", list(path.to_mlps)},
                 {"logits", path.to_logits ? "true" : ""}}) +
         "\n  mlps: " + (path.freeze_mlps ? "frozen" : "recomputed") + "\n";
}

std::string to_yaml(const Recipe& recipe) {
  std::string text;
  if (!recipe.model.empty()) text += "model: " + yaml_quoted(recipe.model) + "\n";
  if (!recipe.adapter.empty()) text += "adapter: " + yaml_quoted(recipe.adapter) + "\n";
  if (!recipe.saes.empty()) text += "saes:\n";
  for (const SaeFile& file : recipe.saes)
    text += "  - {sae: " + yaml_quoted(file.path) + (file.hook.empty() ? "" : ", hook: " + scalar(file.hook)) +
            (file.keep_error ? "" : ", error: false") + "}\n";
  text += "prompt: " + prompt_yaml(recipe.prompt) + "\n";
  if (recipe.corrupt) text += "corrupt: " + prompt_yaml(*recipe.corrupt) + "\n";
  text += std::string("run: ") + (recipe.run_corrupt ? "corrupt" : "clean") + "\n";
  text += metric_yaml(recipe.metric);
  if (recipe.grid) text += grid_yaml(*recipe.grid);
  if (!recipe.interventions.empty()) text += "interventions:\n";
  for (const Intervention& i : recipe.interventions) text += to_yaml(i);
  if (recipe.paths) text += to_yaml(*recipe.paths);
  return text;
}

}  // namespace vitrine
