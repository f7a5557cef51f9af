// vitrine verify: this model's numbers against those of a reference implementation.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "io/safetensors.h"
#include "ops/recorder.h"

namespace vitrine::cli {
namespace {

struct VerifyOptions {
  ModelOptions model;
  std::string reference;
  double absolute = 2e-5, relative = 1e-4;
};

/// One sequence of a reference: row `row` of prompt `name`, whose tensors may be padded.
struct ReferencePrompt {
  std::string name;
  std::vector<int32_t> ids;
  int64_t row = 0, rows = 1, begin = 0;  // this sequence among the prompt's rows; first real position
};

/// How far one kind of value is from the reference, over all prompts.
struct Distance {
  double largest = 0, sum = 0, largest_reference = 0;
  int64_t count = 0, outside = 0;
  void add(float ours, float theirs, double absolute, double relative) {
    const double d = std::abs(static_cast<double>(ours) - static_cast<double>(theirs));
    largest = std::isnan(d) ? INFINITY : std::max(largest, d);
    sum += d;
    largest_reference = std::max(largest_reference, std::abs(static_cast<double>(theirs)));
    ++count;
    outside += !(d <= absolute + relative * std::abs(static_cast<double>(theirs)));
  }
};

std::vector<int32_t> ids_of(const Json& list, const std::string& file) {
  std::vector<int32_t> ids;
  if (!list.is_array()) throw FileError(file, "expected a list of token ids");
  for (const Json& id : list) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() > INT32_MAX)
      throw FileError(file, "expected token ids, found " + id.dump().substr(0, 40));
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

/// prompts.json: {name: {"input_ids": [[…]], "attention_mask": [[…]]}}; or golden.json: [{"ids": […]}], named 0, 1, ….
std::vector<ReferencePrompt> read_reference_prompts(const std::filesystem::path& folder) {
  std::vector<ReferencePrompt> prompts;
  const std::string named = (folder / "prompts.json").string(), listed = (folder / "golden.json").string();
  if (std::filesystem::exists(named)) {
    const Json document = read_json(named);
    if (!document.is_object()) throw FileError(named, "expected an object with a prompt under each name");
    for (const auto& [name, prompt] : document.items()) {
      if (!prompt.is_object() || !prompt.contains("input_ids") || !prompt["input_ids"].is_array())
        throw FileError(named, "prompt \"" + name + "\" has no list under \"input_ids\"");
      const Json& rows = prompt["input_ids"];
      for (size_t row = 0; row < rows.size(); ++row) {
        ReferencePrompt one{name, ids_of(rows[row], named), static_cast<int64_t>(row), static_cast<int64_t>(rows.size()), 0};
        if (prompt.contains("attention_mask")) {
          const Json& mask = prompt["attention_mask"];
          if (!mask.is_array() || mask.size() != rows.size())
            throw FileError(named, "\"attention_mask\" of \"" + name + "\" has another shape than \"input_ids\"");
          const std::vector<int32_t> real = ids_of(mask[row], named);
          if (real.size() != one.ids.size())
            throw FileError(named, "\"attention_mask\" of \"" + name + "\" has another shape than \"input_ids\"");
          const auto first = std::find(real.begin(), real.end(), 1);
          const auto end = std::find(first, real.end(), 0);
          one.begin = first - real.begin();
          one.ids = std::vector<int32_t>(one.ids.begin() + one.begin, one.ids.begin() + (end - real.begin()));
        }
        prompts.push_back(std::move(one));
      }
    }
  } else if (std::filesystem::exists(listed)) {
    const Json document = read_json(listed);
    if (!document.is_array()) throw FileError(listed, "expected a list of prompts");
    for (size_t i = 0; i < document.size(); ++i) {
      if (!document[i].is_object() || !document[i].contains("ids"))
        throw FileError(listed, fmt::format("prompt {} has no \"ids\"", i));
      prompts.push_back({std::to_string(i), ids_of(document[i]["ids"], listed)});
    }
  } else {
    throw FileError(folder.string(),
                    "holds neither prompts.json nor golden.json, so it is no reference. docs/numerics.md describes one.");
  }
  if (prompts.empty()) throw FileError(folder.string(), "the reference has no prompt");
  return prompts;
}

/// The hook that a reference's tensor is compared with: hidden.0 enters the first layer, hidden.i leaves layer i - 1, the
/// last one is what the head reads (transformers' output_hidden_states).
std::string hook_for(const std::string& what, int64_t n_layers) {
  if (what == "logits") return "hook_logits";
  const auto number = [&](const char* prefix) -> int64_t {
    const std::string digits = what.substr(std::min(what.size(), std::string(prefix).size()));
    if (!what.starts_with(prefix) || digits.empty() || digits.size() > 6 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
      return -1;
    return std::stoll(digits);
  };
  if (const int64_t i = number("attn."); i >= 0 && i < n_layers) return fmt::format("blocks.{}.attn.hook_pattern", i);
  const int64_t i = number("hidden.");
  if (i < 0 || i > n_layers) return "";
  if (i == 0) return "blocks.0.hook_resid_pre";
  return i == n_layers ? "final" : fmt::format("blocks.{}.hook_resid_post", i - 1);
}

/// Rows of a reference tensor that belong to one sequence, without padding; scores [head, query, key] likewise.
std::vector<float> reference_rows(const StoredTensor& t, const ReferencePrompt& p, bool pattern) {
  const auto n = static_cast<int64_t>(p.ids.size());
  std::vector<int64_t> shape = t.shape;
  const size_t rank = pattern ? 3 : 2;
  if (shape.size() == rank) shape.insert(shape.begin(), 1);
  const auto wrong = [&] {
    return FileError(
        *t.file,
        fmt::format("tensor \"{}\" is {} of {}; expected f32 and {} sequence(s) of at least {} positions, as prompts.json says",
                    t.name, shape_text(t.shape), name_of(t.dtype), p.rows, p.begin + n));
  };
  if (t.dtype != DType::f32 || shape.size() != rank + 1 || shape[0] != p.rows || shape[rank - 1] < p.begin + n ||
      (pattern && shape[3] < p.begin + n))
    throw wrong();
  const auto* data = reinterpret_cast<const float*>(t.data);
  std::vector<float> out;
  if (!pattern) {
    const float* first = data + (p.row * shape[1] + p.begin) * shape[2];
    return {first, first + n * shape[2]};
  }
  for (int64_t head = 0; head < shape[1]; ++head)
    for (int64_t query = 0; query < n; ++query) {
      const float* keys = data + ((p.row * shape[1] + head) * shape[2] + p.begin + query) * shape[3] + p.begin;
      out.insert(out.end(), keys, keys + n);
    }
  return out;
}

struct Report {
  std::map<std::string, Distance> by_what;
  double kl_sum = 0, kl_largest = 0;
  int64_t positions = 0, same_top = 0;
};

/// KL(reference || ours) and whether the likeliest token is the same, for one position.
void compare_distributions(std::span<const float> ours, std::span<const float> theirs, Report& report) {
  const double our_sum = log_sum_exp(ours), their_sum = log_sum_exp(theirs);
  double kl = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double p = static_cast<double>(theirs[i]) - their_sum;
    kl += std::exp(p) * (p - (static_cast<double>(ours[i]) - our_sum));
  }
  kl = std::max(0.0, kl);
  report.kl_sum += kl;
  report.kl_largest = std::max(report.kl_largest, kl);
  ++report.positions;
  report.same_top += std::max_element(ours.begin(), ours.end()) - ours.begin() ==
                     std::max_element(theirs.begin(), theirs.end()) - theirs.begin();
}

void verify_prompt(Engine& engine, const ReferencePrompt& p, const std::map<std::string, const StoredTensor*>& tensors,
                   const VerifyOptions& o, Report& report) {
  engine.check_ids(p.ids);
  const auto n = static_cast<int64_t>(p.ids.size());
  const int64_t n_layers = engine.shape().n_layers;
  std::vector<HookRequest> requests;
  for (const auto& [what, tensor] : tensors)
    if (const std::string hook = hook_for(what, n_layers); !hook.empty() && hook != "final")
      requests.push_back({.pattern = hook});
  Recorder recorder(requests);
  Context& ctx = engine.context();
  ctx.listen(&recorder);
  const auto frame = ctx.frame();
  const Step step = Step::of(p.ids);
  const Tensor residual = engine.model().residual(ctx, step);
  const int64_t last = n - 1;
  logits(ctx, residual, engine.model().head(), std::span(&last, 1));
  ctx.listen(nullptr);

  for (const auto& [what, tensor] : tensors) {
    const std::string hook = hook_for(what, n_layers);
    if (hook.empty()) continue;
    std::span<const float> ours;
    if (hook == "final") {
      ours = {residual.data<float>(), static_cast<size_t>(residual.count())};
    } else if (const auto found = recorder.values().find(hook); found != recorder.values().end()) {
      ours = found->second.numbers;
    }
    const std::vector<float> theirs = reference_rows(*tensor, p, what.starts_with("attn."));
    if (ours.size() != theirs.size())
      throw FileError(
          *tensor->file,
          fmt::format("tensor \"{}\" holds {} numbers for prompt \"{}\"; this model has {}. Is it a reference of the same model?",
                      tensor->name, theirs.size(), p.name, ours.size()));
    Distance& distance = report.by_what[what];
    for (size_t i = 0; i < ours.size(); ++i) distance.add(ours[i], theirs[i], o.absolute, o.relative);
    if (what != "logits") continue;
    const auto vocab = static_cast<size_t>(engine.shape().vocab_size);
    for (size_t row = 0; row < ours.size() / vocab; ++row)
      compare_distributions(ours.subspan(row * vocab, vocab), std::span(theirs).subspan(row * vocab, vocab), report);
  }
}

/// "hidden.10" after "hidden.9".
bool before(const std::string& a, const std::string& b) {
  const auto key = [](const std::string& s) {
    const size_t dot = s.find('.');
    return std::pair(s.substr(0, dot), dot == std::string::npos ? -1L : std::stol(s.substr(dot + 1)));
  };
  return key(a) < key(b);
}

void verify(const VerifyOptions& o) {
  const std::filesystem::path folder = o.reference;
  const std::vector<ReferencePrompt> prompts = read_reference_prompts(folder);
  const Checkpoint reference = open_safetensors((folder / "forward.safetensors").string());
  Engine engine = open_engine(o.model);
  Report report;
  for (const ReferencePrompt& p : prompts) {
    std::map<std::string, const StoredTensor*> tensors;
    for (const auto& [name, tensor] : reference.tensors())
      if (name.starts_with(p.name + "/")) tensors[name.substr(p.name.size() + 1)] = &tensor;
    verify_prompt(engine, p, tensors, o, report);
  }
  if (report.by_what.empty())
    throw FileError((folder / "forward.safetensors").string(),
                    "holds no tensor named <prompt>/logits, <prompt>/hidden.<i> or <prompt>/attn.<layer>");

  int64_t outside = 0;
  std::vector<std::string> order;
  for (const auto& [what, distance] : report.by_what) {
    outside += distance.outside;
    order.push_back(what);
  }
  std::sort(order.begin(), order.end(), before);
  const double kl = report.positions > 0 ? report.kl_sum / static_cast<double>(report.positions) : 0;
  if (o.model.json) {
    OrderedJson values = OrderedJson::array();
    for (const std::string& what : order) {
      const Distance& d = report.by_what[what];
      values.push_back({{"name", what},
                        {"hook", hook_for(what, engine.shape().n_layers)},
                        {"max", d.largest},
                        {"mean", d.sum / static_cast<double>(d.count)},
                        {"largest_reference", d.largest_reference},
                        {"count", d.count},
                        {"outside", d.outside}});
    }
    print_json({{"reference", o.reference},
                {"prompts", prompts.size()},
                {"within", outside == 0},
                {"absolute", o.absolute},
                {"relative", o.relative},
                {"values", values},
                {"kl_mean", kl},
                {"kl_max", report.kl_largest},
                {"positions", report.positions},
                {"same_top", report.same_top}});
  } else {
    print("{}\n", dim(fmt::format("{:<12}{:>12}{:>12}{:>14}{:>12}", "value", "largest", "mean", "of at most", "outside")));
    for (const std::string& what : order) {
      const Distance& d = report.by_what[what];
      print("{:<12}{:>12.3g}{:>12.3g}{:>14.5g}{:>12}\n", what, d.largest, d.sum / static_cast<double>(d.count),
            d.largest_reference, d.outside == 0 ? std::string("-") : fmt::format("{}", d.outside));
    }
    print("KL {:.3g} mean, {:.3g} largest; the likeliest token is the same at {} of {} positions\n", kl, report.kl_largest,
          report.same_top, report.positions);
  }
  if (outside > 0)
    throw RunError(
        fmt::format("{} numbers are further than {:g} + {:g} |reference| from the reference", outside, o.absolute, o.relative));
}

}  // namespace

Action define_verify(CLI::App& app) {
  auto o = std::make_shared<VerifyOptions>();
  app.add_option("--reference", o->reference,
                 "A folder with forward.safetensors and prompts.json (docs/numerics.md says how to make one)")
      ->type_name("DIR")
      ->required();
  add_number(app, "--absolute", o->absolute, 0, 1e9, "Allowed distance (default 2e-5) ...");
  add_number(app, "--relative", o->relative, 0, 1e9, "... plus this share of the reference's size (default 1e-4)");
  add_model_options(app, o->model);
  return [o] { verify(*o); };
}

}  // namespace vitrine::cli
