// The public library over Engine: vitrine/vitrine.h.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "generate/generate.h"
#include "hooks/trace.h"
#include "kernels/table.h"
#include "vitrine/vitrine.h"

namespace vitrine {
namespace {

// Calls the edits of a hook on a copy of its value, which then flows on.
class Edits final : public Listener {
 public:
  // Errors: InputError for a name that fits no hook.
  Edits(const Model& model, const std::vector<HookEdit>& edits) {
    for (const HookEdit& edit : edits) {
      const HookQuery query = parse_hook_query(edit.hook);
      if (query.heads || query.positions)
        throw InputError("the edit of \"" + edit.hook +
                         "\" names slices; an edit sees the whole value and changes what it wants");
      if (!edit.change) throw InputError("the edit of \"" + edit.hook + "\" has no function to call");
      Edit& known = edits_.emplace_back();
      known.change = &edit.change;
      for (const Capture& capture : plan_captures(model, std::span(&query, 1), 1)) known.hooks.insert(capture.name);
    }
  }
  bool empty() const { return edits_.empty(); }

  bool wants(std::string_view name) const override {
    return std::any_of(edits_.begin(), edits_.end(), [&](const Edit& edit) { return edit.hooks.contains(name); });
  }
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override {
    const Tensor changed = ctx.empty(value.shape());
    std::memcpy(changed.raw(), value.raw(), value.bytes());
    std::vector<std::int64_t> shape;
    for (int i = 0; i < value.shape().rank(); ++i) shape.push_back(value.dim(i));
    const HookView view{name, ctx.listening_position(), shape, {changed.data<float>(), static_cast<size_t>(changed.count())}};
    for (const Edit& edit : edits_)
      if (edit.hooks.contains(name)) (*edit.change)(view);
    return changed;
  }

 private:
  struct Edit {
    std::set<std::string, std::less<>> hooks;
    const std::function<void(const HookView&)>* change = nullptr;
  };
  std::vector<Edit> edits_;
};

// The edits listen while this lives.
class Editing {
 public:
  Editing(Context& ctx, Edits& edits) : ctx_(ctx) {
    if (!edits.empty()) ctx_.listen(&edits);
  }
  ~Editing() { ctx_.listen(nullptr); }
  Editing(const Editing&) = delete;
  Editing& operator=(const Editing&) = delete;

 private:
  Context& ctx_;
};

GenerateOptions engine_options(const Engine& engine, const GenerationOptions& o) {
  GenerateOptions options;
  options.max_tokens = o.max_tokens;
  options.sampling = o.sampling;
  options.stops = o.stops;
  options.eos = o.end_tokens ? *o.end_tokens : engine.end_tokens();
  return options;
}

}  // namespace

double NextToken::probability() const { return std::exp(static_cast<double>(logprob)); }

struct LanguageModel::State {
  State(std::string_view model, const OpenOptions& options)
      : engine(model, {.threads = options.threads,
                       .numerics = {.f32 = options.compute_f32, .exact = options.exact},
                       .cache = {cache_type_named(options.cache_type_k, "cache_type_k"),
                                 cache_type_named(options.cache_type_v, "cache_type_v")}}) {}

  Engine engine;
};

LanguageModel::LanguageModel(std::string_view model, const OpenOptions& options) {
  if (options.threads < 0) throw InputError("threads is " + std::to_string(options.threads) + "; expected 0 (all cores) or more");
  state_ = std::make_unique<State>(model, options);
}
LanguageModel::~LanguageModel() = default;
LanguageModel::LanguageModel(LanguageModel&&) noexcept = default;
LanguageModel& LanguageModel::operator=(LanguageModel&&) noexcept = default;

ModelDescription LanguageModel::description() const {
  Engine& engine = state_->engine;
  const ModelShape& s = engine.shape();
  ModelDescription d;
  d.name = engine.name();
  d.family = s.family;
  d.n_layers = s.n_layers;
  d.d_model = s.d_model;
  d.n_heads = s.n_heads;
  d.n_kv_heads = s.n_kv_heads;
  d.head_dim = s.head_dim;
  d.d_ff = s.d_ff;
  d.vocab_size = s.vocab_size;
  d.context_length = s.context_length;
  d.parameters = parameter_count(*engine.opened().model);
  d.tied = s.tied;
  if (engine.has_tokenizer()) d.tokenizer = engine.tokenizer().description();
  d.kernels = kernels().name;
  d.hooks = engine.model().hook_names();
  return d;
}

std::vector<std::int32_t> LanguageModel::tokenize(std::string_view text, bool add_special) const {
  return state_->engine.tokenizer().encode(text, add_special);
}

std::string LanguageModel::detokenize(std::span<const std::int32_t> tokens) const {
  return state_->engine.tokenizer().decode(tokens);
}

std::vector<NextTokens> LanguageModel::predict(std::string_view text, const PredictOptions& options) {
  return predict(state_->engine.prompt_ids(text), options);
}

std::vector<NextTokens> LanguageModel::predict(std::span<const std::int32_t> tokens, const PredictOptions& options) {
  Engine& engine = state_->engine;
  if (options.top < 1) throw InputError("top is " + std::to_string(options.top) + "; expected at least 1 token");
  Edits edits(engine.model(), options.edits);
  const Editing editing(engine.context(), edits);
  const std::int64_t top = std::min(options.top, engine.shape().vocab_size);
  std::vector<NextTokens> result;
  for (const Prediction& prediction : engine.predict(tokens, top, options.all_positions)) {
    NextTokens& next = result.emplace_back();
    next.position = prediction.position;
    for (const TokenLogprob& entry : prediction.top)
      next.top.push_back({entry.token, engine.piece(entry.token).value_or(""), entry.logprob});
  }
  return result;
}

GeneratedText LanguageModel::generate(std::string_view text, const GenerationOptions& options) {
  return generate(state_->engine.prompt_ids(text), options);
}

GeneratedText LanguageModel::generate(std::span<const std::int32_t> tokens, const GenerationOptions& options) {
  Engine& engine = state_->engine;
  Edits edits(engine.model(), options.edits);
  const Editing editing(engine.context(), edits);
  GenerateOptions how = engine_options(engine, options);
  if (options.lookup != 0 && options.draft != nullptr) throw InputError("lookup and draft are both set; set one of them");
  if (options.lookup != 0) how.drafter = std::make_shared<LookupDrafter>(options.lookup);
  if (options.draft != nullptr) {
    const std::shared_ptr<const Engine> draft(std::shared_ptr<void>(), &options.draft->state_->engine);  // the caller's
    how.drafter = std::make_shared<ModelDrafter>(engine, draft, options.draft_tokens);
  }
  Generation made = vitrine::generate(engine, tokens, how, options.on_text);
  return {std::move(made.text),          std::move(made.tokens),      std::move(made.logprobs),
          std::move(made.finish_reason), made.timings.drafted_tokens, made.timings.accepted_tokens};
}

std::map<std::string, HookValue> LanguageModel::trace(std::string_view text, const std::vector<std::string>& hooks,
                                                      const std::vector<HookEdit>& edits) {
  return trace(state_->engine.prompt_ids(text), hooks, edits);
}

std::map<std::string, HookValue> LanguageModel::trace(std::span<const std::int32_t> tokens, const std::vector<std::string>& hooks,
                                                      const std::vector<HookEdit>& edits) {
  Engine& engine = state_->engine;
  Edits changes(engine.model(), edits);
  Recorder recorder = trace_to_memory(engine, tokens, hooks, changes.empty() ? nullptr : &changes);
  std::map<std::string, HookValue> result;
  for (auto& [name, value] : std::move(recorder).take_values()) result[name] = {std::move(value.shape), std::move(value.values)};
  return result;
}

}  // namespace vitrine
