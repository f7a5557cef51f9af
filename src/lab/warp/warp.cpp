#include "warp/warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/atomic_file.h"
#include "io/file_checks.h"
#include "io/folder_lock.h"
#include "io/yaml_layers.h"
#include "merge/distance.h"
#include "merge/evaluate.h"
#include "merge/output.h"
#include "merge/run.h"
#include "merge/sweep.h"
#include "model/fingerprint.h"
#include "train/data/prepare.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
using WarpJson = nlohmann::ordered_json;

constexpr const char* kWarpFile = "warp.json";
constexpr int64_t kWarpVersion = 1;

WarpJson json_of(const WarpMeasure& m) {
  WarpJson json = {{"loss", m.loss}, {"perplexity", std::exp(m.loss)}, {"distance", m.distance}};
  if (m.divergence) json["kl"] = *m.divergence;
  return json;
}
WarpMeasure measure_in(const WarpJson& json) {
  WarpMeasure m{json.at("loss").get<double>(), json.at("distance").get<double>(), {}};
  if (json.contains("kl")) m.divergence = json.at("kl").get<double>();
  return m;
}

WarpJson json_of(const WarpRound& round) {
  WarpJson children = WarpJson::array(), points = WarpJson::array();
  for (const WarpRound::Parent& parent : round.children) {
    children.push_back({{"model", parent.model}});
    children.back().update(json_of(parent.measure));
  }
  for (const WarpRound::Point& point : round.points) {
    points.push_back({{"eta", point.eta}});
    points.back().update(json_of(point.measure));
  }
  return {
      {"init", round.init}, {"children", children}, {"etas", points}, {"next", {{"eta", round.next}, {"model", round.model}}}};
}
WarpRound round_in(const WarpJson& json) {
  WarpRound round;
  round.init = json.at("init").get<std::string>();
  for (const WarpJson& child : json.at("children"))
    round.children.push_back({child.at("model").get<std::string>(), measure_in(child)});
  for (const WarpJson& point : json.at("etas")) round.points.push_back({point.at("eta").get<double>(), measure_in(point)});
  round.next = json.at("next").at("eta").get<double>();
  round.model = json.at("next").at("model").get<std::string>();
  return round;
}

uint64_t fingerprint_of_ids(const ScoredWindows& windows) {
  uint64_t sum = 0;
  for (const std::vector<int32_t>& ids : windows.ids) sum = add_to_fingerprint(sum, std::as_bytes(std::span(ids)));
  return sum;
}

class WarpRun {
 public:
  WarpRun(const WarpConfig& config, bool resume, const WarpEvents& events)
      : c_(config),
        resume_(resume),
        events_(events),
        path_(make_folder(config, resume)),
        lock_(path_, path_ + " is worked in by another process; wait for it, or name another folder"),
        pool_(static_cast<int>(config.threads)),
        initial_(open_model(config.model), engine_options()),
        initial_weights_({config.model, ""}) {
    windows_ = c_.text.empty() ? windows_of_data() : windows_of(initial_, read_file(c_.text), c_.window, c_.tokens);
    identity_ = {{"recipe", c_.identity},
                 {"model", hexadecimal(fingerprint_of(initial_.opened()))},
                 {"scored", hexadecimal(fingerprint_of_ids(windows_))}};
  }

  WarpResult go() {
    if (!take_up()) {
      const TextLoss loss = loss_on(initial_, windows_);
      result_.initial = {loss.loss, 0, c_.divergence ? std::optional<double>(0.0) : std::nullopt};
      result_.tokens = loss.tokens;
      result_.window = loss.window;
      save();
    }
    tell();
    while (static_cast<int64_t>(result_.rounds.size()) < c_.rounds && !result_.stopped) {
      std::optional<WarpRound> round = run_round();
      result_.stopped = !round;
      if (!round) break;
      result_.rounds.push_back(std::move(*round));
      save();
      tell();
    }
    return result_;
  }

 private:
  static std::string make_folder(const WarpConfig& config, bool resume) {
    const bool used = fs::exists(config.out + "/" + kWarpFile) || fs::exists(config.out + "/round-1");
    if (used && !resume)
      throw InputError(config.path + ": out: " + config.out +
                       " holds a run already. Go on with it by --resume, or name another folder");
    std::error_code error;
    fs::create_directories(config.out, error);
    if (error) throw InputError(config.path + ": out: " + config.out + " cannot be made: " + error.message());
    return config.out;
  }

  EngineOptions engine_options() const { return {.threads = static_cast<int>(c_.threads)}; }

  TokenData open_data() const {
    TokenData data = TokenData::open(c_.data);
    if (data.vocab_size() > initial_.shape().vocab_size)
      throw InputError(c_.path + ": evaluate.data: " + c_.data + " has token ids below " + std::to_string(data.vocab_size()) +
                       ", and the vocabulary of " + c_.model + " has " + std::to_string(initial_.shape().vocab_size) +
                       ". Prepare the data with this model's tokenizer");
    if (initial_.has_tokenizer() && data.tokenizer() != tokenizer_fingerprint(initial_.tokenizer()))
      throw InputError(c_.path + ": evaluate.data: " + c_.data + " was made with another tokenizer than that of " + c_.model +
                       ". Prepare it again: vitrine data … --tokenizer " + c_.model);
    return data;
  }

  /// Of the documents of the first `tokens` ids.
  ScoredWindows windows_of_data() const {
    const TokenData data = open_data();
    const uint64_t end = c_.tokens > 0 ? std::min(data.tokens(), static_cast<uint64_t>(c_.tokens)) : data.tokens();
    std::vector<uint64_t> starts = data.document_starts(0, end);
    starts.push_back(end);
    size_t document = 0;
    const auto next = [&](std::vector<int32_t>& ids) {
      if (document + 1 >= starts.size()) return false;
      ids.resize(starts[document + 1] - starts[document]);
      data.read(starts[document++], ids);
      return true;
    };
    return windows_of(initial_, next, c_.data, c_.window);
  }

  void say(const std::string& line) const {
    if (events_.say) events_.say(line);
  }
  void tell() const {
    if (events_.measured) events_.measured(result_);
  }
  bool stop() const { return events_.stop && events_.stop(); }

  void save() const {
    WarpJson rounds = WarpJson::array();
    for (const WarpRound& round : result_.rounds) rounds.push_back(json_of(round));
    const WarpJson document = {{"version", kWarpVersion},
                               {"model", c_.model},
                               {"tokens", result_.tokens},
                               {"window", result_.window},
                               {"initial", json_of(result_.initial)},
                               {"rounds", rounds},
                               {"identity", identity_}};
    write_file_atomically(path_ + "/" + kWarpFile, document.dump(1) + "\n");
  }

  // Reads what an earlier process has done. False: nothing yet.
  bool take_up() {
    const std::string file = path_ + "/" + kWarpFile;
    if (!resume_ || !present(file)) return false;
    try {
      const WarpJson document = WarpJson::parse(read_file(file));
      if (document.at("version").get<int64_t>() != kWarpVersion)
        throw FileError(file, "is of another version of vitrine; begin a new run in another folder");
      for (const auto& [key, what] :
           {std::pair("recipe", "another recipe"), {"model", "another initial model"}, {"scored", "another text"}})
        if (document.at("identity").at(key) != identity_.at(key))
          throw UsageError(path_ + " was begun with " + what +
                           ". Set it back, or name another folder; only rounds, threads and write may change");
      result_.initial = measure_in(document.at("initial"));
      result_.tokens = document.at("tokens").get<int64_t>();
      result_.window = document.at("window").get<int64_t>();
      for (const WarpJson& round : document.at("rounds")) {
        result_.rounds.push_back(round_in(round));
        if (const std::string& model = result_.rounds.back().model; !present(model + "/config.json"))
          throw InputError(file + " tells of " + model +
                           ", which is not there. Put it back, or begin a new run in another folder");
      }
    } catch (const WarpJson::exception& error) {
      throw FileError(file, std::string("cannot be read: ") + error.what() + ". Remove it and the run is measured again");
    }
    if (!result_.rounds.empty()) say(fmt::format("going on after round {}", result_.rounds.size()));
    return true;
  }

  WarpMeasure measure(Engine& engine) {
    WarpMeasure m;
    m.loss = loss_on(engine, windows_).loss;
    const std::optional<double> distance = weight_distance(engine.opened().checkpoint, initial_weights_);
    if (!distance)
      throw InputError(c_.path + ": " + engine.name() + " has other tensors than " + c_.model +
                       ", so there is no distance between them");
    m.distance = *distance;
    if (c_.divergence) m.divergence = divergence_on(initial_, engine, windows_);
    return m;
  }

  // Nothing: it was stopped.
  std::optional<WarpRound> run_round() {
    const auto number = static_cast<int64_t>(result_.rounds.size()) + 1;
    const std::string folder = path_ + "/round-" + std::to_string(number);
    WarpRound round;
    round.init = result_.rounds.empty() ? c_.model : result_.rounds.back().model;
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw InputError(folder + " cannot be made: " + error.message());
    for (size_t i = 0; i < c_.children.size(); ++i) {
      const std::string model = train_child(round.init, folder, number, i);
      if (model.empty()) return {};
      round.children.push_back({model, {}});
    }
    for (WarpRound::Parent& parent : round.children) {
      if (stop()) return {};
      Engine engine(open_model(parent.model), engine_options());
      parent.measure = measure(engine);
    }
    write_once(slerp_recipe(round), folder + "/slerp");
    if (!sweep_etas(folder + "/slerp", round)) return {};
    for (const double eta : c_.etas)
      if (eta == round.next || std::find(c_.written.begin(), c_.written.end(), eta) != c_.written.end())
        write_once(liti_recipe(round.init, folder + "/slerp", eta), fmt::format("{}/liti-{}", folder, eta));
    round.model = fmt::format("{}/liti-{}", folder, round.next);
    return round;
  }

  // The child's checkpoint; empty: it was stopped.
  std::string train_child(const std::string& init, const std::string& folder, int64_t round, size_t i) {
    const std::string name = folder + "/child-" + std::to_string(i + 1), file = name + ".yaml";
    const WarpConfig::Child& child = c_.children[i];
    const uint64_t seed = child.seed + static_cast<uint64_t>(round - 1) * c_.children.size();
    const YamlValue own =
        YamlValue::parse(fmt::format("{{model: {}, out: {}, seed: {}}}", yaml_quoted(init), yaml_quoted(name), seed), c_.path);
    const YamlValue settings = child.train.merged_with(own);
    const TrainConfig config = train_config(settings, c_.path);
    write_file_atomically(file, "# Child " + std::to_string(i + 1) + " of round " + std::to_string(round) +
                                    ", for `vitrine train`.\n" + yaml_text(settings));
    say(fmt::format("round {} of {}, child {} of {}: from {}", round, c_.rounds, i + 1, c_.children.size(), init));
    TrainEvents events = events_.child ? events_.child(round, static_cast<int64_t>(i) + 1) : TrainEvents{};
    if (!events.stop) events.stop = events_.stop;
    const TrainResult result = train(config, true, events);
    if (result.stopped) return "";
    if (c_.weights == WarpConfig::Weights::ema) return result.checkpoint + "/ema";
    if (c_.weights == WarpConfig::Weights::best && result.best_step > 0)
      return name + "/step-" + std::to_string(result.best_step);
    return result.checkpoint;
  }

  MergeRecipe recipe_of(const std::string& text) const { return parse_merge_recipes(text, c_.path).front(); }

  // In a recipe, a "+" in a text stands before an adapter.
  static std::string reference_to(const std::string& model) {
    return model.find('+') == std::string::npos ? yaml_quoted(model) : "{model: " + yaml_quoted(model) + "}";
  }

  MergeRecipe slerp_recipe(const WarpRound& round) const {
    std::string text = "merge_method: slerp_task_vectors\nbase_model: " + reference_to(round.init) + "\nmodels:\n";
    for (const WarpRound::Parent& parent : round.children) text += "  - model: " + reference_to(parent.model) + "\n";
    return recipe_of(text + fmt::format("parameters: {{t: {}, layer_wise: {}}}\ndtype: float32\n", c_.t, c_.layer_wise));
  }

  MergeRecipe liti_recipe(const std::string& init, const std::string& merged, double eta) const {
    return recipe_of("merge_method: liti\nbase_model: " + reference_to(init) + "\nmodels:\n  - model: " + reference_to(merged) +
                     fmt::format("\nparameters: {{eta: {}}}\ndtype: float32\n", eta));
  }

  // A directory has its name when it is whole: what is there is kept.
  void write_once(const MergeRecipe& recipe, const std::string& directory) {
    if (present(directory + "/config.json")) return;
    const MergePlan plan = plan_merge(recipe, {});
    write_merge(plan, merge_companions(plan, fs::path(directory).filename().string()), directory, pool_,
                {.resume = false, .replace = true});
  }

  bool sweep_etas(const std::string& merged, WarpRound& round) {
    MergePlan plan = plan_merge(liti_recipe(round.init, merged, 0), {});
    for (const double eta : c_.etas) {
      if (stop()) return false;
      override_parameter(plan, "eta", eta);
      round.points.push_back({eta, measure(*merge_in_memory(plan, engine_options()))});
    }
    const auto best = std::min_element(round.points.begin(), round.points.end(),
                                       [](const auto& a, const auto& b) { return a.measure.loss < b.measure.loss; });
    round.next = c_.next.value_or(best->eta);
    return true;
  }

  const WarpConfig& c_;
  bool resume_;
  const WarpEvents& events_;
  std::string path_;
  FolderLock lock_;
  ThreadPool pool_;
  Engine initial_;
  MergeInput initial_weights_;
  ScoredWindows windows_;
  WarpJson identity_;
  WarpResult result_;
};

}  // namespace

WarpResult run_warp(const WarpConfig& config, bool resume, const WarpEvents& events) {
  return WarpRun(config, resume, events).go();
}

}  // namespace vitrine
