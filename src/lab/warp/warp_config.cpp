// The recipe of `vitrine warp`.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/yaml_layers.h"
#include "warp/warp.h"

namespace vitrine {
namespace {

constexpr int64_t kMostRounds = 1000, kMostChildren = 64, kMostEtas = 100;
constexpr const char* kChildKeys = "{data: {train: FOLDER}, seed: 2, …}, keys of `vitrine train` for this child alone";

std::vector<double> etas_in(const YamlValue& value, const char* expected) {
  std::vector<double> etas;
  for (const YamlValue& item : value.items()) {
    const double eta = item.number();
    if (eta < 0 || eta > 2) item.fail("expected a place from 0 (the round's initial model) over 1 (the merged children) to 2");
    if (std::find(etas.begin(), etas.end(), eta) != etas.end()) item.fail("it stands there twice");
    etas.push_back(eta);
  }
  if (etas.empty()) value.fail(std::string("expected ") + expected);
  if (static_cast<int64_t>(etas.size()) > kMostEtas) value.fail("expected " + std::to_string(kMostEtas) + " places at most");
  return etas;
}

void refuse_ours(const YamlValue& train) {
  static constexpr std::pair<const char*, const char*> kOurs[] = {
      {"model", "each round's children begin from one model; \"model\" of the recipe is the first round's"},
      {"out", "the children's folders are made in \"out\" of the recipe"},
      {"lora",
       "whole models are merged; train an adapter with `vitrine train` and merge models as MODEL+ADAPTER with `vitrine merge`"}};
  for (const auto& [key, why] : kOurs)
    if (const auto given = train.find(key)) given->fail(std::string("expected none: ") + why);
}

void read_children(const YamlValue& y, WarpConfig& c) {
  const YamlValue train = y.at("train", "keys of `vitrine train` that all children share, besides model and out");
  if (!train.is_object()) train.fail("expected keys of `vitrine train`");
  refuse_ours(train);
  const YamlValue list = y.at("children", "a list of two or more, each with what is its own, such as {data: {train: FOLDER}}");
  if (!list.is_list()) list.fail(std::string("expected a list of two or more: ") + kChildKeys);
  const std::vector<YamlValue> children = list.items();
  if (children.size() < 2 || children.size() > static_cast<size_t>(kMostChildren))
    list.fail("expected 2 to " + std::to_string(kMostChildren) + " children");
  for (size_t i = 0; i < children.size(); ++i) {
    const bool nothing = children[i].is_null();
    if (!nothing && !children[i].is_object()) children[i].fail(std::string("expected ") + kChildKeys);
    if (!nothing) refuse_ours(children[i]);
    WarpConfig::Child child{(nothing ? train : train.merged_with(children[i])).without("seed")};
    const auto own = nothing ? std::nullopt : children[i].find("seed");
    if (own) {
      child.seed = static_cast<uint64_t>(own->whole(0, INT64_MAX / 2));
    } else {
      const auto shared = train.find("seed");
      child.seed = static_cast<uint64_t>(shared ? shared->whole(0, INT64_MAX / 2) : 1) + i;
    }
    const TrainConfig config =
        train_config(child.train.merged_with(YamlValue::parse("{model: model, out: out}", c.path)), c.path);
    if (c.weights == WarpConfig::Weights::ema && !config.ema)
      y.at("merge", "").fail("there is no average: set train.ema too, such as ema: 0.99");
    if (c.weights == WarpConfig::Weights::best && (config.eval_every == 0 || !config.best))
      y.at("merge", "").fail("without validation no checkpoint is the best: set eval_every and data.validation in \"train\"");
    c.children.push_back(std::move(child));
  }
}

void read_measures(const YamlValue& value, WarpConfig& c) {
  value.allow(std::vector<std::string>{"text", "data", "window", "tokens", "kl"});
  const auto text = value.find("text"), data = value.find("data");
  if (text.has_value() == data.has_value())
    value.fail("expected either \"text\", a file, or \"data\", a folder made by `vitrine data`");
  if (text) c.text = text->text();
  if (data) c.data = data->text();
  if (c.text.empty() && c.data.empty()) (text ? *text : *data).fail("expected a path");
  if (const auto window = value.find("window")) c.window = window->whole(2, 1 << 20);
  if (const auto tokens = value.find("tokens")) c.tokens = tokens->whole(2, INT64_MAX);
  if (const auto kl = value.find("kl")) c.divergence = kl->flag();
}

// Everything but what may change: the number of rounds and of threads, what is written besides, and the folder.
std::string identity_of(YamlValue y) {
  for (const char* key : {"rounds", "threads", "write", "out"}) y = y.without(key);
  return yaml_flow(y);
}

WarpConfig warp_from_yaml(const YamlValue& y, const std::string& path) {
  y.allow(std::vector<std::string>{"model", "out", "rounds", "train", "children", "merge", "slerp", "liti", "evaluate", "write",
                                   "threads"});
  WarpConfig c;
  c.path = path;
  const YamlValue model = y.at("model", "the model that the first round begins from");
  c.model = model.text();
  if (c.model.empty()) model.fail("expected a model");
  const YamlValue out = y.at("out", "the folder of the run");
  c.out = out.text();
  if (c.out.empty()) out.fail("expected a folder");
  if (const auto rounds = y.find("rounds")) c.rounds = rounds->whole(1, kMostRounds);
  if (const auto threads = y.find("threads")) c.threads = threads->whole(1, 1024);
  if (const auto merge = y.find("merge"))
    c.weights = static_cast<WarpConfig::Weights>(merge->one_of(std::vector<std::string>{"last", "best", "ema"}));
  if (const auto slerp = y.find("slerp")) {
    slerp->allow(std::vector<std::string>{"t", "layer_wise"});
    if (const auto t = slerp->find("t")) {
      c.t = t->number();
      if (c.t < 0 || c.t > 1) t->fail("expected a place from 0 (the first child) to 1 (the second)");
    }
    if (const auto layer_wise = slerp->find("layer_wise")) c.layer_wise = layer_wise->flag();
  }
  c.etas = {0, 0.25, 0.5, 0.75, 1};
  c.next = 0.5;
  if (const auto liti = y.find("liti")) {
    liti->allow(std::vector<std::string>{"etas", "next"});
    if (const auto etas = liti->find("etas")) c.etas = etas_in(*etas, "places, such as [0, 0.25, 0.5, 0.75, 1]");
    if (const auto next = liti->find("next")) {
      c.next = next->as_number();
      if (!c.next && next->text() != "best") next->fail("expected an eta, such as 0.5, or best: that of the lowest loss");
      if (c.next) c.next = etas_in(*next, "an eta").front();
    }
  }
  if (c.next && std::find(c.etas.begin(), c.etas.end(), *c.next) == c.etas.end()) c.etas.push_back(*c.next);
  if (const auto write = y.find("write")) {
    c.written = etas_in(*write, "etas whose models are written");
    for (const double eta : c.written)
      if (std::find(c.etas.begin(), c.etas.end(), eta) == c.etas.end()) c.etas.push_back(eta);
  }
  std::sort(c.etas.begin(), c.etas.end());
  read_measures(y.at("evaluate", "{text: FILE}, what the models are scored on"), c);
  read_children(y, c);
  if (const auto slerp = y.find("slerp"); slerp && slerp->find("t") && c.children.size() > 2)
    slerp->find("t")->fail("with more than two children all count alike; leave it out");
  c.identity = identity_of(y);
  return c;
}

}  // namespace

WarpConfig read_warp_config(const std::string& path) { return warp_from_yaml(YamlValue::read(path), path); }

WarpConfig parse_warp_config(const std::string& text, const std::string& where) {
  return warp_from_yaml(YamlValue::parse(text, where), where);
}

}  // namespace vitrine
