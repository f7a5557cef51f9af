#include "train/config.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "base/error.h"
#include "base/memory.h"
#include "io/file_checks.h"
#include "io/yaml_layers.h"
#include "model/config_file.h"
#include "model/form.h"
#include "train/checkpoint.h"

namespace vitrine {
namespace {

using Names = std::vector<std::string>;
constexpr int64_t kMost = INT32_MAX;

// A number in [low, high].
double number_in(const YamlValue& value, double low, double high, const char* expected) {
  const double x = value.number();
  if (x < low || x > high) value.fail(std::string("expected ") + expected);
  return x;
}

void read(const YamlValue& from, const char* key, double& to, double low, double high, const char* expected) {
  if (const auto value = from.find(key)) to = number_in(*value, low, high, expected);
}
void read(const YamlValue& from, const char* key, int64_t& to, int64_t low, int64_t high = kMost) {
  if (const auto value = from.find(key)) to = value->whole(low, high);
}
void read(const YamlValue& from, const char* key, bool& to) {
  if (const auto value = from.find(key)) to = value->flag();
}
std::string path_in(const YamlValue& value) {
  std::string path = value.text();
  if (path.empty()) value.fail("expected a path");
  return path;
}
void read(const YamlValue& from, const char* key, std::string& to) {
  if (const auto value = from.find(key)) to = path_in(*value);
}
void read(const YamlValue& from, const char* key, Names& to) {
  if (const auto value = from.find(key))
    for (const YamlValue& item : value->items()) to.push_back(item.text());
}

// Of a key that has a default other than none.
void refuse_null(const YamlValue& from, const char* key, const char* instead) {
  for (const auto& [name, value] : from.members())
    if (name == key && value.is_null()) value.fail(std::string("expected a number (") + instead + ")");
}

template <class Enum>
Enum word(const YamlValue& value, std::initializer_list<std::pair<const char*, Enum>> words) {
  Names names;
  for (const auto& [name, meaning] : words) names.emplace_back(name);
  return words.begin()[value.one_of(names)].second;
}

// A config.json that stands in the YAML file. What looks like a number or a flag is one, unless it is in quotes.
Json json_of(const YamlValue& value) {
  if (value.is_null()) return nullptr;
  if (value.is_object()) {
    Json object = Json::object();
    for (const auto& [key, child] : value.members()) object[key] = json_of(child);
    return object;
  }
  if (value.is_list()) {
    Json list = Json::array();
    for (const YamlValue& item : value.items()) list.push_back(json_of(item));
    return list;
  }
  const std::string text = value.text();
  if (value.is_quoted()) return text;
  if (text == "true" || text == "false") return text == "true";
  if (const auto whole = value.as_whole()) return *whole;
  if (const auto number = value.as_number()) return *number;
  return text;
}

void read_init(const YamlValue& value, InitRule& init) {
  value.allow(Names{"rule", "norms"});
  if (const auto rule = value.find("rule"))
    init.kind =
        word<InitRule::Kind>(*rule, {{"family", InitRule::Kind::family}, {"scale_preserving", InitRule::Kind::scale_preserving}});
  if (const auto norms = value.find("norms")) init.random_norms = word<bool>(*norms, {{"identity", false}, {"random", true}});
}

void read_model(const YamlValue& value, TrainConfig& c) {
  if (value.is_scalar()) {
    c.model = path_in(value);
    return;
  }
  value.allow(
      Names{"path", "config", "tokenizer", "init", "norms", "residual", "mlp", "affine", "positions", "mask", "rotary_values"});
  const auto path = value.find("path"), config = value.find("config"), init = value.find("init");
  if (path.has_value() == config.has_value())
    value.fail("expected either \"path\", an existing model to start from, or \"config\", a config.json for fresh weights");
  read(value, "tokenizer", c.tokenizer);
  if (const auto norms = value.find("norms"))
    c.form.norms = word<const char*>(*norms, {{"as_is", ""}, {"off", "off"}, {"pre", "pre"}, {"post", "post"}});
  const auto part = [&](const char* key, const char* on, std::optional<bool>& to) {
    if (const auto given = value.find(key)) to = word<bool>(*given, {{on, true}, {"off", false}});
  };
  part("residual", "add", c.form.residual);
  part("mlp", "on", c.form.mlp);
  part("affine", "on", c.form.affine);
  part("positions", "on", c.form.positions);
  part("mask", "causal", c.form.causal);
  part("rotary_values", "on", c.form.rotary_value);
  if (path) {
    if (init) init->fail("expected none: the weights are those of model.path. Use model.config for fresh ones");
    c.model = path_in(*path);
    return;
  }
  if (config->is_object()) {
    c.config_path = config->where();
    c.config = json_of(*config);
  } else {
    c.config_path = path_in(*config);
  }
  if (init) read_init(*init, c.init);
}

void read_lora(const YamlValue& value, TrainConfig& c) {
  const Names fresh = {"rank",
                       "alpha",
                       "rslora",
                       "dropout",
                       "targets",
                       "dora",
                       "bias",
                       "modules_to_save",
                       "trainable_token_indices",
                       "ensure_weight_tying"};
  Names known = fresh;
  known.emplace_back("path");
  value.allow(known);
  if (c.model.empty()) value.fail("an adapter needs an existing model: set model.path, not model.config");
  if (c.form.any())
    value.fail("an adapter needs an unchanged model: omit model.norms, model.residual and the other parts of model that are off");
  AdapterOptions& o = c.lora.emplace();
  if (const auto path = value.find("path")) {
    for (const std::string& key : fresh)
      if (const auto other = value.find(key)) other->fail("the adapter in lora.path has its own; leave it out");
    c.adapter = path_in(*path);
    return;
  }
  read(value, "rank", o.rank, 1, kLargestRank);
  read(value, "alpha", o.alpha, 1e-9, 1e9, "a number from 1e-9 to 1e9");
  read(value, "rslora", o.rslora);
  read(value, "dropout", o.dropout, 0, 0.999999, "a share from 0 to below 1");
  read(value, "dora", o.dora);
  read(value, "modules_to_save", o.saved);
  read(value, "ensure_weight_tying", o.tied);
  if (const auto bias = value.find("bias"))
    o.bias = word<AdapterOptions::Bias>(*bias, {{"none", AdapterOptions::Bias::none},
                                                {"all", AdapterOptions::Bias::all},
                                                {"lora_only", AdapterOptions::Bias::of_targets}});
  if (const auto tokens = value.find("trainable_token_indices"))
    for (const YamlValue& id : tokens->items()) o.tokens.push_back(id.whole(0, kMost));
  value.at("targets", "names of matrices, such as [q_proj, v_proj], or all-linear");
  read(value, "targets", o.targets);
}

void read_optimizer(const YamlValue& value, TrainConfig& c) {
  OptimizerOptions& o = c.optimizer;
  using Kind = OptimizerOptions::Kind;
  if (const auto name = value.find("name"))
    o.kind = word<Kind>(
        *name,
        {{"adamw", Kind::adamw}, {"sgd", Kind::sgd}, {"muon", Kind::muon}, {"normuon", Kind::normuon}, {"soap", Kind::soap}});
  if (o.kind == Kind::adamw)
    value.allow(Names{"name", "lr", "betas", "eps", "moments", "weight_decay", "decay", "no_decay", "lr_groups"});
  else if (o.kind == Kind::muon)
    value.allow(Names{"name", "lr", "momentum", "nesterov", "iterations", "scale", "adamw_lr", "betas", "eps", "weight_decay",
                      "decay", "no_decay", "lr_groups"});
  else if (o.kind == Kind::normuon)
    value.allow(Names{"name", "lr", "momentum", "nesterov", "iterations", "scale", "neuron_beta", "adamw_lr", "betas", "eps",
                      "weight_decay", "decay", "no_decay", "lr_groups"});
  else if (o.kind == Kind::soap)
    value.allow(Names{"name", "lr", "betas", "eps", "shampoo_beta", "frequency", "largest_side", "adamw_lr", "weight_decay",
                      "decay", "no_decay", "lr_groups"});
  else
    value.allow(Names{"name", "lr", "momentum", "weight_decay", "decay", "no_decay", "lr_groups"});
  if (o.kind == Kind::muon || o.kind == Kind::normuon) o.momentum = 0.95;
  if (o.kind == Kind::soap) o.beta1 = 0.95;
  if (o.kind == Kind::sgd) o.weight_decay = 0;
  c.schedule.peak = number_in(value.at("lr", "the learning rate, such as 1e-3"), 0, 1e30, "a learning rate from 0 to 1e30");
  if (const auto betas = value.find("betas")) {
    const auto both = betas->items();
    if (both.size() != 2) betas->fail("expected two numbers, such as [0.9, 0.95]");
    o.beta1 = number_in(both[0], 0, 0.999999, "a number from 0 to 0.999999");
    o.beta2 = number_in(both[1], 0, 0.999999, "a number from 0 to 0.999999");
  }
  read(value, "eps", o.eps, 1e-30, 1, "a number from 1e-30 to 1");
  if (const auto moments = value.find("moments")) o.bf16_moments = word<bool>(*moments, {{"f32", false}, {"bf16", true}});
  read(value, "momentum", o.momentum, 0, 0.999999, "a number from 0 to 0.999999");
  read(value, "neuron_beta", o.neuron_beta, 0, 0.999999, "a number from 0 to 0.999999");
  o.shampoo_beta = o.beta2;
  read(value, "shampoo_beta", o.shampoo_beta, 0, 0.999999, "a number from 0 to 0.999999");
  read(value, "frequency", o.frequency, 1);
  read(value, "largest_side", o.largest_side, 1);
  read(value, "nesterov", o.nesterov);
  int64_t iterations = o.iterations;
  read(value, "iterations", iterations, 1, 99);
  o.iterations = static_cast<int>(iterations);
  using Scale = OptimizerOptions::Scale;
  if (const auto scale = value.find("scale"))
    o.scale = word<Scale>(*scale, {{"match_rms", Scale::match_rms}, {"original", Scale::original}});
  if (const auto rate = value.find("adamw_lr")) {
    const double lr = number_in(*rate, 0, 1e30, "a learning rate from 0 to 1e30");
    if (c.schedule.peak == 0) rate->fail("it goes along with optimizer.lr, which is 0");
    o.adamw_lr = lr / c.schedule.peak;
  }
  refuse_null(value, "weight_decay", "0: no decay");
  read(value, "weight_decay", o.weight_decay, 0, 1e6, "a number from 0 to 1e6");
  read(value, "decay", o.decay);
  if (const auto decay = value.find("decay"); decay && o.decay.empty())
    decay->fail("expected patterns of parameter names; where nothing should decay, set weight_decay: 0");
  read(value, "no_decay", o.no_decay);
  if (const auto groups = value.find("lr_groups"))
    for (const auto& [pattern, factor] : groups->members())
      if (!factor.is_null()) o.lr_groups.emplace_back(pattern, number_in(factor, 0, 1e6, "a factor from 0 (frozen) to 1e6"));
}

void read_schedule(const YamlValue& value, TrainConfig& c) {
  value.allow(Names{"warmup", "warmup_ratio", "decay", "minimum", "steps", "cooldown", "cycles"});
  using Decay = Schedule::Decay;
  read(value, "warmup", c.schedule.warmup, 0);
  read(value, "warmup_ratio", c.warmup_ratio, 0, 0.999999, "a share of the steps from 0 to below 1");
  if (const auto ratio = value.find("warmup_ratio"); ratio && value.find("warmup"))
    ratio->fail("schedule.warmup is set too; expected one of them");
  if (const auto decay = value.find("decay"))
    c.schedule.decay = word<Decay>(
        *decay, {{"constant", Decay::constant}, {"linear", Decay::linear}, {"cosine", Decay::cosine}, {"wsd", Decay::wsd}});
  read(value, "minimum", c.schedule.minimum, 0, c.schedule.peak, "a learning rate from 0 to optimizer.lr");
  read(value, "steps", c.schedule.length, 1);
  read(value, "cooldown", c.schedule.cooldown, 1);
  read(value, "cycles", c.schedule.cycles, 1, 1 << 20);
  if (const auto cycles = value.find("cycles"); cycles && c.schedule.decay != Decay::cosine && c.schedule.decay != Decay::linear)
    cycles->fail("it belongs to schedule.decay: cosine and linear");
  const auto cooldown = value.find("cooldown");
  if (cooldown && c.schedule.decay != Decay::wsd) cooldown->fail("it belongs to schedule.decay: wsd");
  if (!cooldown && c.schedule.decay == Decay::wsd)
    value.find("decay")->fail("set schedule.cooldown too: the number of steps at the end during which the rate falls");
  for (const char* key : {"minimum", "steps"})
    if (const auto given = value.find(key); given && c.schedule.decay == Decay::constant)
      given->fail("it would never be read: schedule.decay is constant");
}

void read_dropout(const YamlValue& value, TrainConfig& c) {
  constexpr const char* kExpected = "a share from 0 to below 1";
  constexpr double kBelowOne = 0.999999;
  if (value.is_scalar()) {
    const double p = number_in(value, 0, kBelowOne, kExpected);
    c.dropout_embedding = c.dropout_attention = c.dropout_residual = p;
    c.dropout_everywhere = true;
    return;
  }
  value.allow(Names{"embedding", "attention", "residual"});
  const auto place = [&](const char* key, std::optional<double>& to) {
    if (const auto p = value.find(key)) to = number_in(*p, 0, kBelowOne, kExpected);
  };
  place("embedding", c.dropout_embedding);
  place("attention", c.dropout_attention);
  place("residual", c.dropout_residual);
}

void read_ema(const YamlValue& value, TrainConfig& c) {
  constexpr const char* kExpected = "a decay from 0 to below 1, such as 0.999";
  const bool object = value.is_object();
  if (object) value.allow(Names{"decay"});
  const YamlValue decay = object ? value.at("decay", kExpected) : value;
  const double d = number_in(decay, 0, 1, kExpected);
  if (d == 1) decay.fail(std::string("expected ") + kExpected);
  if (c.lora) value.fail("it averages all weights, and with lora only an adapter learns: leave one of them out");
  c.ema = d;
}

void read_anchor(const YamlValue& y, TrainConfig& c) {
  read(y, "kl_to", c.kl_to);
  const auto weight = y.find("kl_weight");
  if (c.kl_to.empty()) {
    if (weight) weight->fail("set kl_to too: ema, or a model");
    return;
  }
  if (c.kl_to == "ema" && !c.ema) y.find("kl_to")->fail("there is no average to hold to: set ema too, such as ema: 0.999");
  c.kl_weight =
      number_in(y.at("kl_weight", "what the divergence counts for, such as 0.1"), 1e-9, 1e9, "a number from 1e-9 to 1e9");
}

DistillOptions read_distill(const YamlValue& value) {
  value.allow(
      Names{"teacher", "divergence", "beta", "temperature", "alpha", "on_policy", "prompt", "sample_temperature", "cache"});
  using Kind = DivergenceSpec::Kind;
  DistillOptions d;
  d.teacher = value.at("teacher", "a model to learn from").text();
  if (d.teacher.empty()) value.find("teacher")->fail("expected a model to learn from");
  if (const auto kind = value.find("divergence"))
    d.spec.kind = word<Kind>(
        *kind, {{"forward_kl", Kind::forward_kl}, {"reverse_kl", Kind::reverse_kl}, {"jensen_shannon", Kind::jensen_shannon}});
  if (const auto beta = value.find("beta")) {
    if (d.spec.kind != Kind::jensen_shannon) beta->fail("it belongs to divergence: jensen_shannon");
    d.spec.beta = number_in(*beta, 1e-6, 1 - 1e-6, "a number between 0 and 1 (towards 0 forward_kl, towards 1 reverse_kl)");
  }
  read(value, "temperature", d.spec.temperature, 0.01, 1000, "a temperature from 0.01 to 1000");
  if (const auto alpha = value.find("alpha")) {
    d.alpha = number_in(*alpha, 0, 1, "the cross-entropy's share, from 0 to below 1");
    if (d.alpha == 1) alpha->fail("the teacher would not count; expected less, or no \"distill\"");
  }
  read(value, "on_policy", d.on_policy, 0, 1, "a share of the batches from 0 to 1");
  for (const char* key : {"prompt", "sample_temperature"})
    if (const auto given = value.find(key); given && d.on_policy == 0) given->fail("set on_policy too");
  read(value, "prompt", d.prompt, 0, 0.999, "a share of each sequence from 0 to 0.999");
  read(value, "sample_temperature", d.sample_temperature, 0, 100, "a temperature from 0 (greedy) to 100");
  if (const auto cache = value.find("cache")) {
    cache->allow(Names{"folder", "top_k"});
    d.cache = cache->at("folder", "a folder for what the teacher expects").text();
    if (d.cache.empty()) cache->find("folder")->fail("expected a folder");
    read(*cache, "top_k", d.top_k, 1, 1 << 24);
    if (d.on_policy == 1) cache->fail("it would never be read: on_policy is 1");
  }
  return d;
}

PreferenceOptions read_preference(const YamlValue& value, const std::string& section) {
  using Loss = PreferenceOptions::Loss;
  PreferenceOptions o;
  o.section = section;
  o.reference = section == "dpo" || section == "kto";
  if (section == "orpo") {
    value.allow(Names{"beta"});
    o.loss = Loss::odds;
    o.nll = 1;
    o.nll_prompt = true;
  } else if (section == "dpo") {
    value.allow(Names{"beta", "loss_type"});
    if (const auto loss = value.find("loss_type"))
      o.loss = word<Loss>(*loss, {{"sigmoid", Loss::sigmoid}, {"hinge", Loss::hinge}, {"ipo", Loss::ipo}});
  } else if (section == "reward_model") {
    value.allow(Names{"center_rewards_coefficient"});
    o.loss = Loss::reward;
    read(value, "center_rewards_coefficient", o.center, 0, 1e6, "a number from 0 to 1e6");
  } else if (section == "kto") {
    value.allow(Names{"beta", "loss_type", "desirable_weight", "undesirable_weight"});
    o.loss = Loss::kto;
    if (const auto loss = value.find("loss_type"))
      o.loss = word<Loss>(*loss, {{"kto", Loss::kto}, {"apo_zero_unpaired", Loss::apo_zero}});
    read(value, "desirable_weight", o.desirable, 0, 1e6, "a number from 0 to 1e6");
    read(value, "undesirable_weight", o.undesirable, 0, 1e6, "a number from 0 to 1e6");
  } else {
    value.allow(Names{"beta", "loss_type", "cpo_alpha", "simpo_gamma"});
    if (const auto loss = value.find("loss_type"))
      o.loss =
          word<Loss>(*loss, {{"sigmoid", Loss::sigmoid}, {"hinge", Loss::hinge}, {"ipo", Loss::ipo}, {"simpo", Loss::simpo}});
    o.nll = o.loss == Loss::simpo ? 0 : 1;
    o.gamma = o.loss == Loss::simpo ? 0.5 : 0;
    if (const auto gamma = value.find("simpo_gamma"); gamma && o.loss != Loss::simpo)
      gamma->fail("it belongs to loss_type: simpo");
    read(value, "cpo_alpha", o.nll, 0, 1e6, "a number from 0 to 1e6");
    read(value, "simpo_gamma", o.gamma, 0, 1e6, "a number from 0 to 1e6");
  }
  read(value, "beta", o.beta, 1e-6, 1e6, "a number from 1e-6 to 1e6");
  return o;
}

PolicyOptions read_policy(const YamlValue& value) {
  using Loss = PolicyOptions::Loss;
  using Scale = PolicyOptions::Scale;
  value.allow(Names{"reward", "reward_timeout", "group", "max_tokens", "temperature", "drop_cut", "loss_type", "scale_rewards",
                    "beta", "epsilon", "epsilon_high", "iterations"});
  PolicyOptions o;
  o.reward = value.at("reward", "a command that reads lines of JSON and prints a number for each").text();
  if (o.reward.empty()) value.find("reward")->fail("expected a command");
  read(value, "reward_timeout", o.reward_timeout, 0.1, 86400, "seconds from 0.1 to 86400");
  read(value, "group", o.group, 2, 1 << 16);
  o.max_tokens = value.at("max_tokens", "the new tokens of a completion, at most").whole(1, kMost);
  read(value, "temperature", o.temperature, 0.01, 100, "a temperature from 0.01 to 100");
  read(value, "drop_cut", o.drop_cut);
  if (const auto loss = value.find("loss_type"))
    o.loss = word<Loss>(*loss, {{"grpo", Loss::grpo}, {"dapo", Loss::dapo}, {"dr_grpo", Loss::dr_grpo}, {"rloo", Loss::rloo}});
  if (o.loss == Loss::dr_grpo || o.loss == Loss::rloo) o.scale = Scale::none;
  if (const auto scale = value.find("scale_rewards")) {
    if (o.loss == Loss::rloo)
      scale->fail("with loss_type: rloo a reward is compared with the others of its group, and not scaled");
    o.scale = word<Scale>(*scale, {{"group", Scale::group}, {"batch", Scale::batch}, {"none", Scale::none}});
  }
  read(value, "beta", o.beta, 0, 1e6, "a number from 0 (no divergence) to 1e6");
  read(value, "epsilon", o.low, 0, 0.999999, "a number from 0 to below 1");
  o.high = o.low;
  read(value, "epsilon_high", o.high, 0, 1e6, "a number from 0 to 1e6");
  read(value, "iterations", o.iterations, 1, 1000);
  return o;
}

// What a run with kto needs besides the section: kl is measured on each prompt with the answer of another example of its step.
void check_examples(const YamlValue& y, const YamlValue& section, const TrainConfig& c) {
  if (c.preference->loss != PreferenceOptions::Loss::kto) return;
  if (c.batch * c.accumulate < 2)
    y.find("batch")->fail("with kto a step compares each prompt with the answer of another example; expected 2 or more");
  if (c.train_data.size() > 1)
    section.fail("the examples of a step stay together, so kto learns from one folder, and data.train names " +
                 std::to_string(c.train_data.size()) + ". Prepare the files as one folder, or set loss_type: apo_zero_unpaired");
}

// What a run with grpo needs besides the section.
void check_policy(const YamlValue& y, const YamlValue& section, const TrainConfig& c) {
  const PolicyOptions& o = *c.policy;
  if (c.distill || c.preference || c.masked || !c.kl_to.empty())
    section.fail("it is a loss of its own: leave dpo, cpo, orpo, kto, reward_model, masked, distill and kl_to out");
  if (c.eval_every > 0) y.find("eval_every")->fail("with grpo every step's line has the mean reward. Leave it out");
  if (c.steps % o.iterations != 0)
    y.find("steps")->fail("expected a multiple of grpo.iterations, " + std::to_string(o.iterations));
  if (c.save_every % o.iterations != 0)
    y.find("checkpoint")
        ->find("every")
        ->fail("expected a multiple of grpo.iterations, " + std::to_string(o.iterations) +
               ": in between a run has completions that no checkpoint keeps");
}

MaskingOptions read_masked(const YamlValue& value) {
  value.allow(Names{"share", "mask", "random", "token"});
  MaskingOptions o;
  read(value, "share", o.share, 1e-6, 1, "a share of the tokens from 1e-6 to 1");
  read(value, "mask", o.mask, 0, 1, "a share of the scored tokens from 0 to 1");
  read(value, "random", o.random, 0, 1, "a share of the scored tokens from 0 to 1");
  if (o.mask + o.random > 1 + 1e-9)
    value.fail("mask and random are shares of the scored tokens, so they are at most 1 together; here they are " +
               Json(o.mask + o.random).dump());
  if (const auto token = value.find("token")) {
    if (token->is_quoted() || !token->as_whole())
      o.token = token->text();
    else
      o.id = static_cast<int32_t>(token->whole(0, kMost));
    if (!o.id && o.token.empty()) token->fail("expected a piece of the vocabulary, such as \"[MASK]\", or an id");
  }
  return o;
}

// Refuses what transformers' Trainer and nanoGPT call a key, with its name here or what there is instead.
void point_to_ours(const YamlValue& y) {
  static constexpr std::pair<const char*, const char*> kOthers[] = {
      {"learning_rate", "optimizer.lr"},
      {"lr", "optimizer.lr"},
      {"weight_decay", "optimizer.weight_decay"},
      {"optim", "optimizer.name"},
      {"max_steps", "steps"},
      {"max_iters", "steps"},
      {"num_train_epochs", "epochs"},
      {"per_device_train_batch_size", "batch"},
      {"batch_size", "batch"},
      {"gradient_accumulation_steps", "accumulate"},
      {"block_size", "sequence_length"},
      {"max_seq_length", "sequence_length"},
      {"max_length", "sequence_length"},
      {"warmup_steps", "schedule.warmup"},
      {"warmup_iters", "schedule.warmup"},
      {"min_lr", "schedule.minimum"},
      {"lr_scheduler_type", "schedule.decay"},
      {"max_grad_norm", "clip"},
      {"grad_clip", "clip"},
      {"gradient_clipping", "clip"},
      {"micro_batch_size", "batch"},
      {"warmup_ratio", "schedule.warmup_ratio"},
      {"beta1", "optimizer.betas"},
      {"beta2", "optimizer.betas"},
      {"adam_beta1", "optimizer.betas"},
      {"adam_beta2", "optimizer.betas"},
      {"ema_decay", "ema"},
      {"adapter", "lora"},
      {"load_best_model_at_end", "checkpoint.best"},
      {"gradient_checkpointing", "recompute"},
      {"bf16", "compute: bf16"},
      {"eval_steps", "eval_every"},
      {"eval_interval", "eval_every"},
      {"eval_iters", "eval_batches"},
      {"early_stopping_patience", "early_stopping.patience"},
      {"save_steps", "checkpoint.every"},
      {"save_total_limit", "checkpoint.keep"},
      {"output_dir", "out"},
      {"mlm", "masked"},
      {"mlm_probability", "masked.share"},
      {"out_dir", "out"},
  };
  for (const auto& [theirs, ours] : kOthers)
    if (const auto value = y.find(theirs)) value->fail("the key is not known; here it is \"" + std::string(ours) + "\"");
  static constexpr const char* kEveryLine = "every step has a line in metrics.jsonl";
  static constexpr std::pair<const char*, const char*> kNone[] = {
      {"fp16", "training is in f32, and compute: bf16 rounds the operands of products"},
      {"logging_steps", kEveryLine},
      {"log_interval", kEveryLine},
      {"resume_from_checkpoint", "give --resume, which continues from the newest checkpoint in \"out\""},
  };
  for (const auto& [theirs, instead] : kNone)
    if (const auto value = y.find(theirs)) value->fail("the key is not known; " + std::string(instead));
}

constexpr const char* kTrainData = "a folder made by `vitrine data`, or a list of {path: FOLDER, weight: NUMBER}";

void read_train_data(const YamlValue& value, TrainConfig& c) {
  for (const YamlValue& item : value.items()) {
    TrainConfig::DataFolder folder;
    if (item.is_object()) {
      item.allow(Names{"path", "weight"});
      folder.path = item.at("path", "a folder made by `vitrine data`").text();
      if (const auto weight = item.find("weight"))
        folder.weight = number_in(*weight, 1e-9, 1e9, "a weight from 1e-9 to 1e9; leave a folder out that is not to be read");
    } else {
      folder.path = item.text();
    }
    if (folder.path.empty()) item.fail(std::string("expected ") + kTrainData);
    for (const TrainConfig::DataFolder& before : c.train_data)
      if (before.path == folder.path) item.fail("the folder is in the list twice; give it once, with the sum of the weights");
    c.train_data.push_back(std::move(folder));
  }
  if (c.train_data.empty()) value.fail(std::string("expected ") + kTrainData);
}

}  // namespace

TrainConfig train_config(const YamlValue& y, const std::string& path) {
  point_to_ours(y);
  y.allow(Names{"model",
                "lora",
                "data",
                "sequence_length",
                "batch",
                "accumulate",
                "steps",
                "epochs",
                "optimizer",
                "schedule",
                "clip",
                "dropout",
                "recompute",
                "memory",
                "compute",
                "seed",
                "threads",
                "eval_every",
                "eval_batches",
                "eval_tokens",
                "early_stopping",
                "sample_every",
                "sample_prompts",
                "sample_tokens",
                "sample_temperature",
                "checkpoint",
                "layers_every",
                "out",
                "ema",
                "kl_to",
                "kl_weight",
                "distill",
                "metrics",
                "dpo",
                "cpo",
                "orpo",
                "kto",
                "reward_model",
                "grpo",
                "tasks",
                "tasks_every",
                "tasks_limit",
                "masked",
                "optimiser",
                "average",
                "extends"});
  if (const auto extends = y.find("extends"))
    extends->fail("it stands in a file alone, whose keys are merged over those of another");
  TrainConfig c;
  c.path = path;
  read_model(y.at("model", "a model's folder, or {config: …} for fresh weights"), c);
  if (const auto lora = y.find("lora")) read_lora(*lora, c);
  const YamlValue data = y.at("data", "{train: FOLDER, validation: FOLDER}, made by `vitrine data`");
  data.allow(Names{"train", "validation", "documents"});
  read_train_data(data.at("train", kTrainData), c);
  read(data, "validation", c.validation_data);
  read(data, "documents", c.documents);

  c.sequence_length = y.at("sequence_length", "the tokens of one sequence").whole(1, kMost);
  c.batch = y.at("batch", "the sequences of one batch").whole(1, kMost);
  read(y, "accumulate", c.accumulate, 1, 1 << 20);
  const auto steps = y.find("steps"), epochs = y.find("epochs");
  if (steps.has_value() == epochs.has_value())
    y.fail(steps ? "both \"steps\" and \"epochs\" are set; expected one of them"
                 : "neither \"steps\" nor \"epochs\" is set; expected one of them");
  if (steps) c.steps = steps->whole(1, int64_t{1} << 50);
  if (epochs) c.epochs = number_in(*epochs, 1e-9, 1e9, "a number from 1e-9 to 1e9");

  c.schedule.length = 0;
  const auto before = y.find("optimiser");  // the spelling before
  if (before && y.find("optimizer")) before->fail("it is called \"optimizer\" now, which is set too. Leave this one out");
  read_optimizer(before ? *before : y.at("optimizer", "{name: adamw, lr: 1e-3}"), c);
  if (const auto schedule = y.find("schedule")) read_schedule(*schedule, c);
  refuse_null(y, "clip", "0: no clipping");
  refuse_null(y, "dropout", "0: none");
  read(y, "clip", c.clip, 0, 1e12, "a norm from 0 to 1e12 (0: no clipping)");
  if (const auto dropout = y.find("dropout")) read_dropout(*dropout, c);
  if (const auto ema = y.find("ema")) read_ema(*ema, c);
  read_anchor(y, c);
  if (const auto distill = y.find("distill")) c.distill = read_distill(*distill);
  if (c.distill && c.distill->on_policy > 0 && c.sequence_length == 1)
    y.find("sequence_length")->fail("with distill.on_policy the model continues the begin of each sequence; expected 2 or more");
  for (const char* section : {"dpo", "cpo", "orpo", "kto", "reward_model"}) {
    const auto preference = y.find(section);
    if (!preference) continue;
    if (c.preference) preference->fail("\"" + c.preference->section + "\" is set too; expected one loss of preferences");
    c.preference = read_preference(*preference, section);
    if (c.distill || !c.kl_to.empty()) preference->fail("it is a loss of its own: leave distill and kl_to out");
    check_examples(y, *preference, c);
    // As PEFT does it: the score is no matrix that an adapter could stand beside.
    if (c.rewards() && c.lora && c.adapter.empty() &&
        std::find(c.lora->saved.begin(), c.lora->saved.end(), "score") == c.lora->saved.end())
      c.lora->saved.emplace_back("score");
  }
  if (const auto masked = y.find("masked")) {
    c.masked = read_masked(*masked);
    if (c.distill || c.preference || !c.kl_to.empty())
      masked->fail("it is a loss of its own: leave " + (c.preference ? c.preference->section : "dpo") +
                   ", distill and kl_to out");
  }
  if (const auto grpo = y.find("grpo")) c.policy = read_policy(*grpo);
  read(y, "recompute", c.recompute);
  if (const auto memory = y.find("memory")) {
    const std::optional<double> bytes = bytes_of(memory->text());
    if (!bytes || *bytes <= 0) memory->fail("expected bytes, as 6 GiB, 500 MB or 1.5G");
    c.memory = *bytes;
    if (c.recompute) memory->fail("recompute is true, which runs every block again. Leave one of them out: memory says how many");
  }
  if (const auto compute = y.find("compute")) c.bf16 = word<bool>(*compute, {{"f32", false}, {"bf16", true}});
  if (const auto seed = y.find("seed")) c.seed = static_cast<uint64_t>(seed->whole(0, INT64_MAX));
  read(y, "threads", c.threads, 1, 1024);

  read(y, "eval_every", c.eval_every, 1);
  read(y, "eval_batches", c.eval_batches, 1);
  if (c.eval_every > 0 && c.validation_data.empty())
    y.find("eval_every")->fail("there is nothing to evaluate on: set data.validation too");
  if (c.eval_every == 0 && !c.validation_data.empty())
    data.find("validation")->fail("it would never be read: set eval_every too");
  read(y, "eval_tokens", c.eval_tokens, 1, int64_t{1} << 50);
  for (const char* key : {"eval_batches", "eval_tokens", "early_stopping"})
    if (const auto given = y.find(key); given && c.eval_every == 0) given->fail("set eval_every too");
  if (c.eval_batches > 0 && c.eval_tokens > 0) y.find("eval_tokens")->fail("eval_batches is set too; expected one of them");
  read(y, "tasks", c.tasks);
  read(y, "tasks_every", c.tasks_every, 1);
  read(y, "tasks_limit", c.tasks_limit, 1);
  if (c.tasks_every > 0 && c.tasks.empty())
    y.find("tasks_every")->fail("set tasks too: files of multiple-choice items, as `vitrine eval choices` reads them");
  for (const char* key : {"tasks", "tasks_limit"})
    if (const auto given = y.find(key); given && c.tasks_every == 0) given->fail("set tasks_every too");
  read(y, "sample_every", c.sample_every, 1);
  read(y, "sample_prompts", c.sample_prompts);
  read(y, "sample_tokens", c.sample_tokens, 1);
  read(y, "sample_temperature", c.sample_temperature, 0, 100, "a temperature from 0 (greedy) to 100");
  if (c.sample_every > 0 && c.sample_prompts.empty() && !c.policy)
    y.find("sample_every")->fail("set sample_prompts too: a list of texts to continue");
  if (c.sample_every == 0 && !c.sample_prompts.empty()) y.find("sample_prompts")->fail("set sample_every too");
  for (const char* key : {"tasks_every", "sample_every"})
    if (const auto given = y.find(key); given && (c.masked || c.rewards()))
      given->fail(std::string("it needs next tokens, and ") +
                  (c.masked ? "with masked the model learns to fill masks" : "a reward model has none") + ". Leave it out");
  if (const auto checkpoint = y.find("checkpoint")) {
    checkpoint->allow(Names{"every", "keep", "best"});
    read(*checkpoint, "every", c.save_every, 1);
    read(*checkpoint, "keep", c.keep, 1);
    read(*checkpoint, "best", c.best);
  }
  if (const auto average = y.find("average")) {
    average->allow(Names{"last"});
    c.average_last = average->at("last", "how many of the newest checkpoints are averaged").whole(2, 1000);
    if (c.save_every == 0) average->fail("there would be one checkpoint alone: set checkpoint.every too");
  }
  if (const auto grpo = y.find("grpo")) check_policy(y, *grpo, c);
  if (const auto stopping = y.find("early_stopping")) {
    stopping->allow(Names{"patience"});
    c.patience = stopping->at("patience", "validations without a lower loss after which the run ends").whole(1, kMost);
    if (!c.best) stopping->fail("it goes by the best checkpoint, and checkpoint.best is false. Leave one of them out");
  }
  read(y, "layers_every", c.layers_every, 1);
  if (const auto metrics = y.find("metrics")) {
    metrics->allow(Names{"csv", "tensorboard"});
    read(*metrics, "csv", c.metrics.csv);
    read(*metrics, "tensorboard", c.metrics.tensorboard);
  }
  c.out = y.at("out", "the folder of the run: metrics and checkpoints").text();
  if (c.out.empty()) y.find("out")->fail("expected a folder");
  c.text = yaml_text(y);
  return c;
}

TrainConfig read_train_config(const std::string& path, std::span<const std::string> settings) {
  const bool run = is_folder(path);
  const std::string file = run ? path + "/" + RunFolder::kConfig : path;
  if (run && !present(file))
    throw InputError(path + ": has no " + std::string(RunFolder::kConfig) +
                     ", so it is not the folder of a run. Give the configuration's file");
  TrainConfig config = train_config(read_yaml_layers(file, settings), file);
  if (run) config.out = path;  // wherever it has moved
  return config;
}

TrainConfig parse_train_config(const std::string& text, const std::string& where) {
  return train_config(YamlValue::parse(text, where), where);
}

Json with_dropout(Json model_config, const TrainConfig& config) {
  set_dropout(model_config,
              {.embedding = config.dropout_embedding,
               .attention = config.dropout_attention,
               .residual = config.dropout_residual,
               .everywhere = config.dropout_everywhere},
              config.path);
  return model_config;
}

Json with_form(Json model_config, const TrainConfig& config) {
  set_form(model_config, config.form, config.path);
  return model_config;
}

}  // namespace vitrine
