#include "cli/merge_preview.h"

#include <memory>
#include <optional>

#include "base/error.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/session.h"
#include "generate/generate.h"
#include "merge/evaluate.h"
#include "merge/run.h"
#include "model/adapter.h"

namespace vitrine::cli {
namespace {

struct Previewed {
  std::string name, continuation;
  OrderedJson top;     // most likely next tokens
  std::string likely;  // the same as text
  std::optional<TextLoss> loss;
};

Previewed look_at(Engine& engine, const std::string& name, const PreviewOptions& o, const std::string& text) {
  Previewed seen;
  seen.name = name;
  const std::vector<int32_t> ids = engine.tokenizer().encode(o.prompt);
  if (ids.empty()) throw UsageError("--prompt has no token; give a longer one");
  const Prediction next = engine.predict(ids, std::min(o.top, engine.shape().vocab_size), false).back();
  seen.top = json_of(next.top, speller_of(engine));
  for (const TokenLogprob& one : next.top)
    seen.likely += (seen.likely.empty() ? "" : "  ") + shown_piece(engine, one.token) + " " + percent(one.prob());
  GenerateOptions options;
  options.max_tokens = o.max_tokens;
  seen.continuation = generate(engine, ids, options).text;
  if (!text.empty()) seen.loss = text_loss(engine, text);
  return seen;
}

std::unique_ptr<Engine> open_parent(const MergeInput& input, const EngineOptions& options) {
  OpenedModel opened = open_model(input.reference().path);
  if (!input.reference().adapter.empty()) open_adapter(opened, locate_model(input.reference().adapter));
  return std::make_unique<Engine>(std::move(opened), options);
}

void print_table(const std::vector<Previewed>& all, const PreviewOptions& o) {
  for (const Previewed& one : all) {
    print("{}\n", bold(one.name));
    if (one.loss)
      print("  perplexity {:.4f} ({} tokens, windows of {})\n", one.loss->perplexity(), grouped(one.loss->tokens),
            one.loss->window);
    print("  next: {}\n  {}{}\n\n", one.likely, o.prompt, visible(one.continuation));
  }
}

void print_document(const std::vector<Previewed>& all, const PreviewOptions& o) {
  OrderedJson models = OrderedJson::array();
  for (const Previewed& one : all) {
    OrderedJson model = {{"model", one.name}, {"top", one.top}, {"continuation", one.continuation}};
    if (one.loss) model.update(json_of(*one.loss));
    models.push_back(std::move(model));
  }
  print_json({{"prompt", o.prompt}, {"models", models}});
}

}  // namespace

void preview_merge(const MergePlan& plan, const PreviewOptions& o) {
  const std::string text = o.text.empty() ? "" : read_text(o.text);
  const EngineOptions options = {.threads = o.threads};
  std::vector<Previewed> all;
  for (const auto& input : plan.inputs) all.push_back(look_at(*open_parent(*input, options), input->name(), o, text));
  all.push_back(look_at(*merge_in_memory(plan, options), "the merge", o, text));
  if (o.json) return print_document(all, o);
  print_table(all, o);
}

}  // namespace vitrine::cli
