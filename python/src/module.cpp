// vitrine._vitrine: the library for Python, in numbers and plain containers. vitrine/model.py makes it pleasant.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "analysis.h"
#include "arrays.h"
#include "autoencoders.h"
#include "collecting.h"
#include "errors.h"
#include "generate/chat.h"
#include "generate/generate.h"
#include "generate/together.h"
#include "gradients.h"
#include "graphs.h"
#include "hooks.h"
#include "hooks/listening.h"
#include "hooks/partial_run.h"
#include "hooks/patched_runs.h"
#include "hooks/trace.h"
#include "inspect/attribution.h"
#include "inspect/weights.h"
#include "kernels/table.h"
#include "merging.h"
#include "model/adapter.h"
#include "model/config.h"
#include "model/layer_name.h"
#include "objects.h"
#include "ops/low_rank.h"
#include "saving.h"
#include "session.h"
#include "signals.h"
#include "text_stream.h"
#include "vitrine/version.h"
#include "weight_views.h"

namespace vitrine::python {
namespace {

using SharedSession = std::shared_ptr<Session>;

// A run without the interpreter's lock, with the model to itself and Python's hooks listening.
class Run {
 public:
  Run(Session& session, const HookCalls& calls)
      : running_(session), listener_(calls), listening_(session.engine.context(), listener_) {}

 private:
  nb::gil_scoped_release unlocked_;
  Running running_;
  PythonHooks listener_;
  Listening listening_;
};

struct TokenizerView {
  SharedSession session;
  const Tokenizer& get() const { return session->engine.tokenizer(); }
};

SharedSession open(const nb::bytes& path, const std::optional<nb::bytes>& adapter, int threads, bool f32, bool exact,
                   const std::string& cache_type_k, const std::string& cache_type_v) {
  const std::string model(path.c_str(), path.size());
  const std::string beside = adapter ? std::string(adapter->c_str(), adapter->size()) : std::string();
  const nb::gil_scoped_release unlocked;
  const EngineOptions options{
      .threads = threads,
      .numerics = {.f32 = f32, .exact = exact},
      .cache = {cache_type_named(cache_type_k, "cache_type_k"), cache_type_named(cache_type_v, "cache_type_v")}};
  OpenedModel opened = open_model(model);
  if (adapter) open_adapter(opened, beside);
  return std::make_shared<Session>(std::make_unique<Engine>(std::move(opened), options));
}

nb::dict describe(Session& session) {
  Engine& engine = session.engine;
  auto d = nb::cast<nb::dict>(python_of(engine.shape()));
  d["name"] = text(engine.name());
  d["parameters"] = parameter_count(*engine.opened().model);
  d["kernels"] = nb::cast(kernels().name);
  d["threads"] = engine.context().pool().threads();
  d["act_fn"] = activation_key(engine.shape().n_layers > 0 ? session.base().layer(0).activation : Activation::none);
  return d;
}

/// What a layer is made of, for those who compute with its weights.
nb::dict describe_layer(const Session& session, int64_t layer) {
  const Model& model = session.base();
  const LayerRecord& spec = model.layer(layer);
  nb::dict d;
  d["n_kv_heads"] = spec.n_kv_heads;
  d["head_dim"] = spec.head_dim;
  d["d_ff"] = spec.d_ff;
  d["keys_of"] = spec.keys_of;
  d["attention"] = spec.has_attention();
  d["gated_heads"] = spec.gated_heads;
  d["rms"] = spec.rms;
  d["norm_eps"] = spec.norm.eps;
  d["experts"] = spec.experts.has_value();
  d["norms_after"] = spec.norms_after;
  d["residual_scale"] = spec.residual_scale;
  d["mlp_scale"] = spec.mlp_scale;
  d["stream_scale"] = spec.stream_scale;
  d["per_layer"] = spec.per_layer_dim > 0;
  return d;
}

using Rows = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

Array rows_of(FloatVector values, int64_t rows, int64_t width) {
  Array batch = batch_of_one(std::move(values), {rows, width});
  return batch;
}

/// A norm of the model ("ln_final", "blocks.3.ln1") of every row of x [rows, d]: [1, rows, d].
Array normalized(Session& session, const nb::str& text, const Rows& x) {
  const std::string name = utf8(text);
  const auto rows = static_cast<int64_t>(x.shape(0)), width = static_cast<int64_t>(x.shape(1));
  FloatVector result(x.size());
  {
    const nb::gil_scoped_release unlocked;
    const Running running(session);
    const Model& model = session.base();
    const NamedWeights weights(model);
    const Vector *w = weights.find_vector(name + ".w"), *b = weights.find_vector(name + ".b");
    if (w == nullptr || model.shape().n_layers == 0) throw InputError("the model has no norm \"" + name + "\"");
    if (w->size != width)
      throw ShapeError("rows for " + name + " have " + std::to_string(width) + " numbers; expected " + std::to_string(w->size));
    const int64_t layer = std::max<int64_t>(0, split_layer(name).first);
    const LayerRecord& spec = model.layer(layer);
    NormSpec norm = spec.norm;
    for (const TensorLine& line : model.tensors())
      if (line.vector == w && line.layout.gguf_offset == 0) norm.offset = 0;
    Context& ctx = session.engine.context();
    const Tensor all(const_cast<float*>(x.data()), DType::f32, {rows, width});  // the norms only read it
    const auto frame = ctx.frame();
    static const Vector kNone;
    const bool biased = b != nullptr && *b;  // a LayerNorm may be without
    const Tensor y =
        biased || !spec.rms ? layer_norm(ctx, "norm", all, *w, biased ? *b : kNone, norm) : rms_norm(ctx, "norm", all, *w, norm);
    std::copy(y.data<float>(), y.data<float>() + y.count(), result.data());
  }
  return rows_of(std::move(result), rows, width);
}

/// Rows of the embedding, or of the head, for these tokens: [1, tokens, d_model], with the scale of each.
Array table_rows(Session& session, const Ids& ids, bool of_head) {
  const std::vector<int32_t> tokens = token_ids(numbers(ids));
  const Model& model = session.base();
  const Head head = model.head();
  const Weight& table = of_head ? *head.weight : NamedWeights(model).matrix("W_E");
  const double factor = of_head ? head.scale : model.shape().embedding_scale;
  FloatVector result(tokens.size() * static_cast<size_t>(table.in));
  {
    const nb::gil_scoped_release unlocked;
    const ReadingWeights reading(session);
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= table.out)
        throw InputError("token " + std::to_string(tokens[i]) + " is outside the vocabulary, 0 to " +
                         std::to_string(table.out - 1));
      float* const row = result.data() + i * static_cast<size_t>(table.in);
      for (int64_t j = 0; j < table.in; ++j) row[j] = table.at<float>(tokens[i], j);
      if (table.adapter != nullptr) add_merged(*table.adapter, tokens[i], row);
      for (int64_t j = 0; j < table.in; ++j) row[j] *= static_cast<float>(factor);
    }
  }
  return rows_of(std::move(result), static_cast<int64_t>(tokens.size()), table.in);
}

/// The head's scores of every row of x [rows, d_model], which a final norm has normalized: [1, rows, vocab_size].
Array unembedded(Session& session, const Rows& x, bool softcap) {
  const ModelShape& shape = session.engine.shape();
  const auto rows = static_cast<int64_t>(x.shape(0));
  if (static_cast<int64_t>(x.shape(1)) != shape.d_model)
    throw ShapeError("rows to be unembedded have " + std::to_string(x.shape(1)) + " numbers; expected d_model, " +
                     std::to_string(shape.d_model));
  FloatVector result;
  {
    const nb::gil_scoped_release unlocked;
    require_memory(static_cast<size_t>(rows * shape.vocab_size) * sizeof(float), 0, "These logits", "Unembed fewer rows");
    result.resize(static_cast<size_t>(rows * shape.vocab_size));
    const Running running(session);
    Context& ctx = session.engine.context();
    Head head = session.base().head();
    if (!softcap) head.softcap = 0;
    const Tensor all(const_cast<float*>(x.data()), DType::f32, {rows, shape.d_model});  // the head only reads it
    for (int64_t first = 0; first < rows; first += kLogitRows) {
      std::vector<int64_t> places(static_cast<size_t>(std::min(kLogitRows, rows - first)));
      std::iota(places.begin(), places.end(), first);
      const auto frame = ctx.frame();
      const Tensor z = logits(ctx, all, head, places);
      std::copy(z.data<float>(), z.data<float>() + z.count(), result.data() + first * shape.vocab_size);
    }
  }
  return rows_of(std::move(result), rows, shape.vocab_size);
}

/// A model that proposes tokens, whose weights nobody changes meanwhile.
class SessionDrafter final : public Drafter {
 public:
  SessionDrafter(Engine& target, const SharedSession& session, int64_t n_tokens)
      : session_(session), drafter_(target, std::shared_ptr<const Engine>(session, &session->engine), n_tokens) {}
  std::vector<int32_t> draft(std::span<const int32_t> text, int64_t most) override {
    const ReadingWeights reading(*session_);
    return drafter_.draft(text, most);
  }
  int64_t most_texts() const override { return drafter_.most_texts(); }

 private:
  SharedSession session_;
  ModelDrafter drafter_;
};

/// Keys and values of the tokens that ran, for those that follow.
class Past {
 public:
  explicit Past(SharedSession session)
      : session_(std::move(session)), cache_(session_->engine.make_cache(0)), sequence_(cache_->sequence()) {}
  int64_t length() const { return sequence_.length(); }
  void truncate(int64_t length) {  // not while a run reads it
    const nb::gil_scoped_release unlocked;
    const Running running(*session_);
    sequence_.truncate(length);
  }
  const SharedSession& session() const { return session_; }
  CacheSequence& sequence() { return sequence_; }

 private:
  SharedSession session_;
  std::unique_ptr<KvCache> cache_;
  CacheSequence sequence_;
};

/// Runs of a prompt with one place changed at a time.
class Patched {
 public:
  Patched(SharedSession session, std::vector<int32_t> ids) : session_(std::move(session)) {
    const nb::gil_scoped_release unlocked;
    const Running running(*session_);
    runs_.emplace(session_->engine, std::move(ids));
  }
  /// heads: of each patch, or -1 for the whole row. values [patch, numbers of a place].
  Array run(const nb::str& hook, const std::vector<int64_t>& positions, const std::vector<int64_t>& heads, const Rows& values) {
    const std::string name = utf8(hook);
    if (positions.size() != values.shape(0) || heads.size() != positions.size())
      throw ShapeError("there are " + std::to_string(values.shape(0)) + " values and " + std::to_string(heads.size()) +
                       " heads for " + std::to_string(positions.size()) + " positions; expected as many of each");
    std::vector<Patch> patches;
    for (size_t i = 0; i < positions.size(); ++i)
      patches.push_back({positions[i], heads[i], {values.data() + i * values.shape(1), values.shape(1)}});
    FloatVector found;
    {
      const nb::gil_scoped_release unlocked;
      const Running running(*session_);
      found = runs_->run(name, patches);
    }
    const int64_t vocab = session_->engine.shape().vocab_size, rows = std::ssize(found) / vocab;
    return array_of(std::move(found), {rows, vocab});
  }

 private:
  SharedSession session_;
  std::optional<PatchedRuns> runs_;
};

std::vector<std::string> find_hooks(const Session& session, const nb::str& request) {
  const HookQuery query = parse_hook_query(utf8(request));
  std::vector<std::string> names;
  for (const Capture& capture : plan_captures(session.model(), std::span(&query, 1), 1)) names.push_back(capture.name);
  return names;
}

/// (values by hook name, losses of every row's tokens but the first, one behind the other)
nb::tuple run(Session& session, const Ids& ids, const std::vector<int64_t>& lengths, const std::vector<nb::str>& names,
              const HookCalls& hooks, bool allow_nan, bool losses, int64_t start_layer, const std::optional<Rows>& stream,
              Past* past) {
  const std::vector<std::vector<int32_t>> rows = rows_of_ids(ids, lengths);
  if (past != nullptr && past->session().get() != &session)
    throw InputError("the keys and values are those of another model; make them with this one's kv_cache()");
  PartialRun request;
  request.hooks = utf8(names);
  request.edited = {hooks.names.begin(), hooks.names.end()};
  request.refuse_nan = !allow_nan;
  request.losses = losses;
  request.start_layer = start_layer;
  if (stream) request.stream = {stream->data(), stream->size()};
  if (past != nullptr) request.behind = &past->sequence();
  PartialResult result;
  {
    const nb::gil_scoped_release unlocked;
    const Running running(session);
    PythonHooks listener(hooks, allow_nan);
    request.edits = &listener;
    request.before_step = [&](const Step& step) { listener.expect(step); };
    result = run_partly(session.engine, rows, request);
  }
  nb::dict values;
  for (const std::string& name : result.order) {
    Recorder::Value& value = result.values.find(name)->second;
    values[name.c_str()] = array_of(std::move(value.values), value.shape);
  }
  const auto scored = std::ssize(result.losses);
  return nb::make_tuple(values, array_of(FloatVector(result.losses.begin(), result.losses.end()), {scored}));
}

nb::object attribute_prompt(Session& session, const Ids& ids, std::optional<int32_t> token, std::optional<int32_t> against,
                            bool from_zero, int64_t steps) {
  const std::vector<int32_t> tokens = token_ids(numbers(ids));
  Attribution found;
  {
    const nb::gil_scoped_release unlocked;
    const Running running(session);
    found =
        attribute(session.engine, tokens,
                  {.token = token, .against = against, .baseline = from_zero ? Baseline::zero : Baseline::mean, .steps = steps},
                  check_signals);
  }
  return python_of(found);
}

std::string piece_of(const Engine& engine, int32_t token) {  // models may have more rows than their tokenizer has pieces
  const bool named = engine.has_tokenizer() && token < engine.tokenizer().vocab_size();
  return named ? engine.tokenizer().piece(token) : std::string();
}

nb::list predict(Session& session, const Ids& ids, int64_t top, bool all_positions, const HookCalls& hooks) {
  const std::vector<int32_t> tokens = token_ids(numbers(ids));
  if (top < 1) throw InputError("top is " + std::to_string(top) + "; expected at least 1 token");
  std::vector<Prediction> predictions;
  {
    const Run running(session, hooks);
    predictions = session.engine.predict(tokens, std::min(top, session.engine.shape().vocab_size), all_positions);
  }
  nb::list result;
  for (const Prediction& prediction : predictions) {
    nb::list most_likely;
    for (const TokenLogprob& next : prediction.top)
      most_likely.append(nb::make_tuple(next.token, text(piece_of(session.engine, next.token)), next.logprob));
    result.append(nb::make_tuple(prediction.position, most_likely));
  }
  return result;
}

/// A conversation by the model's chat template, or by `source`: its text and its ids.
nb::tuple chat(const Session& session, const nb::str& messages, const nb::str& tools, const nb::str& variables, bool answer,
               const nb::str& begun, const std::optional<nb::str>& source) {
  const Conversation conversation{.messages = OrderedJson::parse(utf8(messages)),
                                  .tools = OrderedJson::parse(utf8(tools)),
                                  .variables = OrderedJson::parse(utf8(variables)),
                                  .answer = answer,
                                  .begun = utf8(begun)};
  const ChatFormat format(session.engine, source ? std::optional(utf8(*source)) : std::nullopt, "chat_template");
  const Rendered rendered = format.rendered(conversation);
  return nb::make_tuple(text(rendered.text), format.ids_of(rendered));
}

nb::tuple generate_text(Session& session, const Ids& ids, const GenerateOptions& options, const HookCalls& hooks) {
  const std::vector<int32_t> tokens = token_ids(numbers(ids));
  Generation made;
  {
    const Run running(session, hooks);
    made = generate(session.engine, tokens, options);
  }
  return nb::make_tuple(text(made.text), made.tokens, made.logprobs, made.finish_reason);
}

nb::list generate_texts(Session& session, const Ids& ids, const std::vector<int64_t>& lengths, const GenerateOptions& options) {
  const std::vector<std::vector<int32_t>> prompts = rows_of_ids(ids, lengths);
  const HookCalls none;
  std::vector<Generation> made;
  {
    const Run running(session, none);
    made = generate_together(session.engine, prompts, options);
  }
  nb::list result;
  for (const Generation& one : made) result.append(nb::make_tuple(text(one.text), one.tokens, one.logprobs, one.finish_reason));
  return result;
}

nb::list beam_hypotheses(Session& session, const Ids& ids, const BeamOptions& options) {
  const std::vector<int32_t> tokens = token_ids(numbers(ids));
  const HookCalls none;
  std::vector<Hypothesis> found;
  {
    const Run running(session, none);
    found = generate_beams(session.engine, tokens, options);
  }
  const auto spelled = [&](const Hypothesis& hypothesis) {
    return session.engine.has_tokenizer() ? session.engine.text_behind(tokens, without_end(hypothesis, options.eos)) : "";
  };
  nb::list result;
  for (const Hypothesis& hypothesis : found)
    result.append(nb::make_tuple(text(spelled(hypothesis)), hypothesis.tokens, hypothesis.score));
  return result;
}

/// A grammar for the vocabulary of the session that compiled it.
struct CompiledGrammar {
  std::shared_ptr<const Constraint> constraint;
};

GenerateOptions generate_options(int64_t max_tokens, const std::map<std::string, double>& numbers,
                                 const std::optional<std::vector<nb::str>>& breakers,
                                 std::vector<std::pair<int32_t, double>> logit_bias, uint64_t seed,
                                 const std::vector<nb::str>& stops, std::vector<int32_t> eos, bool ignore_eos,
                                 std::shared_ptr<Drafter> drafter, const CompiledGrammar* grammar) {
  GenerateOptions options;
  options.max_tokens = max_tokens;
  for (const auto& [name, value] : numbers) {
    const SamplingOption* option = find_sampling_option(name);
    if (option == nullptr) throw UsageError("\"" + name + "\" is no sampling option");
    option->set(options.sampling, value);
  }
  if (breakers) options.sampling.dry_sequence_breakers = utf8(*breakers);
  options.sampling.logit_bias = std::move(logit_bias);
  options.sampling.seed = seed;
  options.stops = utf8(stops);
  options.eos = std::move(eos);
  options.ignore_eos = ignore_eos;
  options.drafter = std::move(drafter);
  if (grammar != nullptr) options.constraint = grammar->constraint;
  return options;
}

CompiledGrammar compile_grammar(Session& session, const std::string& kind, const nb::str& text) {
  const std::map<std::string, GrammarKind> kinds = {{"json_schema", GrammarKind::json_schema},
                                                    {"regex", GrammarKind::regex},
                                                    {"gbnf", GrammarKind::gbnf},
                                                    {"lark", GrammarKind::lark}};
  const Grammar grammar{.kind = kinds.at(kind), .text = utf8(text), .source = kind == "gbnf" ? "grammar" : kind};
  const nb::gil_scoped_release released;
  return {session.compile(grammar)};
}

BeamOptions beam_options(int n_beams, int n_return, int64_t max_tokens, double length_penalty, std::optional<bool> early_stopping,
                         std::vector<int32_t> eos) {
  BeamOptions options;
  options.n_beams = n_beams;
  options.n_return = n_return;
  options.max_new_tokens = max_tokens;
  options.length_penalty = length_penalty;
  options.early_stopping = !early_stopping ? EarlyStopping::never : *early_stopping ? EarlyStopping::yes : EarlyStopping::no;
  options.eos = std::move(eos);
  return options;
}

Special special_of(const std::string& name) {
  if (name == "file") return Special::as_file;
  if (name == "text") return Special::text;
  if (name == "parse") return Special::parse;
  throw InputError("special is \"" + name + "\"; expected \"file\", \"text\" or \"parse\"");
}

void bind_tokenizer(nb::module_& m) {
  nb::class_<TokenizerView>(m, "Tokenizer", "The tokenizer that belongs to a model.")
      .def(
          "encode",
          [](const TokenizerView& t, const nb::str& text, bool add_special, const std::string& special) {
            return t.get().encode(utf8(text), add_special, special_of(special));
          },
          nb::arg("text"), nb::kw_only(), nb::arg("add_special") = true, nb::arg("special") = "file",
          "The ids of a text. add_special puts BOS and EOS where the tokenizer's file says so; special says whether control\n"
          "tokens spelled out in the text become their ids: \"text\" never, \"parse\" always, \"file\" as its reference library.")
      .def(
          "decode",
          [](const TokenizerView& t, const nb::sequence& ids, bool skip_special) {
            return text(t.get().decode(token_ids(ids), skip_special));
          },
          nb::arg("ids"), nb::kw_only(), nb::arg("skip_special") = false,
          nb::sig("def decode(self, ids: collections.abc.Sequence[int] | numpy.typing.NDArray[numpy.integer], *, skip_special: "
                  "bool = False) -> str"),
          "The text of ids; bytes that are not UTF-8 become U+FFFD. skip_special leaves control tokens out.")
      .def(
          "pieces",
          [](const TokenizerView& t, const nb::sequence& ids) {
            nb::list pieces;
            for (const int32_t id : token_ids(ids)) pieces.append(text(t.get().piece(id)));
            return pieces;
          },
          nb::arg("ids"),
          nb::sig("def pieces(self, ids: collections.abc.Sequence[int] | numpy.typing.NDArray[numpy.integer]) -> list[str]"),
          "The tokens as the vocabulary spells them.")
      .def(
          "find", [](const TokenizerView& t, const nb::str& piece) { return t.get().find(utf8(piece)); }, nb::arg("piece"),
          "The id of a token as the vocabulary spells it, or None.")
      .def(
          "single_token", [](const TokenizerView& t, const nb::str& text) { return single_token(t.get(), utf8(text)); },
          nb::arg("text"), "The id of the one token that continues a text with `text`; also a token as the vocabulary spells it.")
      .def_prop_ro("vocab_size", [](const TokenizerView& t) { return t.get().vocab_size(); })
      .def_prop_ro("bos", [](const TokenizerView& t) { return t.get().bos(); })
      .def_prop_ro("eos", [](const TokenizerView& t) { return t.get().eos(); })
      .def_prop_ro(
          "adds_bos", [](const TokenizerView& t) { return t.get().adds_bos(); }, "Whether encode puts BOS in front.")
      .def_prop_ro("description", [](const TokenizerView& t) { return text(t.get().description()); });
}

void bind_options(nb::module_& m) {
  nb::class_<HookCalls>(m, "HookCalls", "Hook names in full, and call(name, value, position) for each of them.")
      .def(
          "__init__",
          [](HookCalls* self, const std::set<std::string>& names, nb::object call, nb::object backward) {
            new (self) HookCalls{{names.begin(), names.end()}, std::move(call), std::move(backward)};
          },
          nb::arg("names"), nb::arg("call").none(), nb::arg("backward") = nb::none());
  nb::class_<CompiledGrammar>(m, "CompiledGrammar", "What a text conforms to, for the session that made it.");
  nb::class_<Drafter>(m, "Drafter", "Proposes tokens to the session that made it.");
  nb::class_<GenerateOptions>(m, "GenerateOptions", "How Session.generate and stream continue a prompt.")
      .def(nb::new_(&generate_options), nb::kw_only(), nb::arg("max_tokens"), nb::arg("numbers"), nb::arg("breakers").none(),
           nb::arg("logit_bias"), nb::arg("seed"), nb::arg("stops"), nb::arg("eos"), nb::arg("ignore_eos"),
           nb::arg("drafter").none(), nb::arg("grammar").none());
  m.def(
      "sampling_options",
      [] {
        std::vector<std::tuple<std::string, bool, std::string>> rows;
        for (const SamplingOption& option : sampling_options()) rows.emplace_back(option.name, option.is_whole(), option.help);
        return rows;
      },
      "Name, whether it is whole, and what it does, of each number that chooses tokens.");
  nb::class_<BeamOptions>(m, "BeamOptions", "How Session.beams continues a prompt. early_stopping None: never.")
      .def(nb::new_(&beam_options), nb::kw_only(), nb::arg("n_beams"), nb::arg("n_return"), nb::arg("max_tokens"),
           nb::arg("length_penalty"), nb::arg("early_stopping").none(), nb::arg("eos"));
}

void bind_model(nb::module_& m) {
  nb::class_<TextStream>(m, "TextStream", "Text as it is written, a piece at a time. What it has so far can be read at any time.")
      .def(
          "__iter__", [](nb::handle self) { return nb::borrow(self); }, nb::sig("def __iter__(self) -> TextStream"))
      .def("__next__",
           [](TextStream& stream) {
             std::optional<std::string> piece;
             {
               const nb::gil_scoped_release unlocked;
               piece = stream.next();
             }
             if (!piece) throw nb::stop_iteration();
             return text(*piece);
           })
      .def_prop_ro("tokens", &TextStream::tokens, "The new tokens, with the end token that was taken.")
      .def_prop_ro("logprobs", &TextStream::logprobs,
                   "Natural logarithm of each token's probability, from the unmodified logits.")
      .def_prop_ro("finish_reason", &TextStream::finish_reason,
                   "\"\" until the end; \"stop\": end token or stop string; \"length\"; \"error\" after an exception.");

  nb::class_<Past>(m, "Past", "Keys and values of the tokens that ran.")
      .def_prop_ro("length", &Past::length)
      .def("truncate", &Past::truncate, nb::arg("length"));

  nb::class_<WeightReading>(m, "WeightReading", "Reads one parameter; nobody changes weights between begin and end.")
      .def("begin", &WeightReading::begin, nb::sig("def begin(self) -> numpy.typing.NDArray[numpy.float32]"))
      .def("end", &WeightReading::end);

  nb::class_<WeightEdit>(m, "WeightEdit", "Writes one parameter; no run takes place between begin and end.")
      .def("begin", &WeightEdit::begin, nb::sig("def begin(self) -> numpy.typing.NDArray[numpy.float32]"))
      .def("end", &WeightEdit::end, nb::arg("succeeded"));

  nb::class_<Patched>(m, "PatchedRuns", "Runs of a prompt with one place of a hook changed at a time.")
      .def("run", &Patched::run, nb::arg("hook"), nb::arg("positions"), nb::arg("heads"), nb::arg("values"),
           nb::sig(
               "def run(self, hook: str, positions: collections.abc.Sequence[int], heads: collections.abc.Sequence[int], values: "
               "numpy.typing.NDArray[numpy.float32]) -> numpy.typing.NDArray[numpy.float32]"));

  nb::class_<Session> session(m, "Session", "An opened model.");
  bind_analysis(session);
  bind_gradients(session);
  bind_graph_calls(session);
  bind_collecting(session);
  bind_splicing(session);
  session
      .def(nb::new_(&open), nb::arg("model"), nb::kw_only(), nb::arg("adapter").none(), nb::arg("threads"), nb::arg("f32"),
           nb::arg("exact"), nb::arg("cache_type_k") = "f32", nb::arg("cache_type_v") = "f32")
      .def("describe", &describe, nb::sig("def describe(self) -> dict[str, typing.Any]"))
      .def("describe_layer", &describe_layer, nb::arg("layer"),
           nb::sig("def describe_layer(self, layer: int) -> dict[str, typing.Any]"))
      .def("normalized", &normalized, nb::arg("name"), nb::arg("rows"),
           nb::sig("def normalized(self, name: str, rows: numpy.typing.NDArray[numpy.float32]) -> "
                   "numpy.typing.NDArray[numpy.float32]"))
      .def("unembedded", &unembedded, nb::arg("rows"), nb::arg("softcap"),
           nb::sig("def unembedded(self, rows: numpy.typing.NDArray[numpy.float32], softcap: bool) -> "
                   "numpy.typing.NDArray[numpy.float32]"))
      .def("table_rows", &table_rows, nb::arg("ids"), nb::arg("of_head"),
           nb::sig("def table_rows(self, ids: numpy.typing.NDArray[numpy.int64], of_head: bool) -> "
                   "numpy.typing.NDArray[numpy.float32]"))
      .def("past", [](const SharedSession& s) { return std::make_unique<Past>(s); })
      .def(
          "can_patch_in_parts",
          [](Session& s, const nb::str& hook, int64_t rows) {
            const std::string name = utf8(hook);
            const nb::gil_scoped_release unlocked;
            const Running running(s);
            return PatchedRuns::possible(s.engine, name, rows);
          },
          nb::arg("hook"), nb::arg("rows"))
      .def(
          "patched_runs",
          [](const SharedSession& s, const Ids& ids) { return std::make_unique<Patched>(s, token_ids(numbers(ids))); },
          nb::arg("ids"), nb::sig("def patched_runs(self, ids: numpy.typing.NDArray[numpy.int64]) -> PatchedRuns"))
      .def_prop_ro("hook_names", [](const Session& s) { return s.model().hook_names(); })
      .def("find_hooks", &find_hooks, nb::arg("request"))
      .def(
          "hook_shape",
          [](const Session& s, const nb::str& name, int64_t rows) { return hook_shape(s.model(), utf8(name), rows); },
          nb::arg("name"), nb::arg("rows"))
      .def_prop_ro("tokenizer",
                   [](const SharedSession& s) {
                     s->engine.tokenizer();  // throws if there is none
                     return TokenizerView{s};
                   })
      .def(
          "prompt_ids",
          [](const Session& s, const nb::str& prompt, bool add_special) {
            return s.engine.prompt_ids(utf8(prompt), add_special);
          },
          nb::arg("text"), nb::arg("add_special"))
      .def(
          "piece", [](const Session& s, int32_t token) { return text(piece_of(s.engine, token)); }, nb::arg("token"))
      .def("chat", &chat, nb::arg("messages"), nb::arg("tools"), nb::arg("variables"), nb::arg("answer"), nb::arg("begun"),
           nb::arg("template").none(),
           nb::sig("def chat(self, messages: str, tools: str, variables: str, answer: bool, begun: str, template: str | None) -> "
                   "tuple[str, list[int]]"))
      .def_prop_ro("end_tokens", [](const Session& s) { return s.engine.end_tokens(); })
      .def("run", &run, nb::arg("ids"), nb::arg("lengths"), nb::arg("requests"), nb::arg("hooks"), nb::kw_only(),
           nb::arg("allow_nan"), nb::arg("losses"), nb::arg("start_layer"), nb::arg("stream").none(), nb::arg("past").none(),
           nb::sig("def run(self, ids: numpy.typing.NDArray[numpy.int64], lengths: collections.abc.Sequence[int], requests: "
                   "collections.abc.Sequence[str], hooks: HookCalls, *, allow_nan: bool, losses: bool, start_layer: int, stream: "
                   "numpy.typing.NDArray[numpy.float32] | None, past: Past | None) -> "
                   "tuple[dict[str, numpy.typing.NDArray[numpy.float32]], numpy.typing.NDArray[numpy.float32]]"))
      .def("attribute", &attribute_prompt, nb::arg("ids"), nb::arg("token").none(), nb::arg("against").none(),
           nb::arg("from_zero"), nb::arg("steps"),
           nb::sig(
               "def attribute(self, ids: numpy.typing.NDArray[numpy.int64], token: int | None, against: int | None, from_zero: "
               "bool, steps: int) -> dict[str, typing.Any]"))
      .def(
          "predict", &predict, nb::arg("ids"), nb::arg("top"), nb::arg("all_positions"), nb::arg("hooks"),
          nb::sig("def predict(self, ids: numpy.typing.NDArray[numpy.int64], top: int, all_positions: bool, hooks: HookCalls) -> "
                  "list[tuple[int, list[tuple[int, str, float]]]]"))
      .def("generate", &generate_text, nb::arg("ids"), nb::arg("options"), nb::arg("hooks"),
           nb::sig("def generate(self, ids: numpy.typing.NDArray[numpy.int64], options: GenerateOptions, hooks: HookCalls) -> "
                   "tuple[str, list[int], list[float], str]"))
      .def("generate_together", &generate_texts, nb::arg("ids"), nb::arg("lengths"), nb::arg("options"),
           nb::sig("def generate_together(self, ids: numpy.typing.NDArray[numpy.int64], lengths: collections.abc.Sequence[int], "
                   "options: GenerateOptions) -> list[tuple[str, list[int], list[float], str]]"))
      .def(
          "stream",
          [](const SharedSession& s, const Ids& ids, const GenerateOptions& options, const HookCalls& hooks) {
            return std::make_unique<TextStream>(s, token_ids(numbers(ids)), options, hooks);
          },
          nb::arg("ids"), nb::arg("options"), nb::arg("hooks"),
          nb::sig("def stream(self, ids: numpy.typing.NDArray[numpy.int64], options: GenerateOptions, hooks: HookCalls) -> "
                  "TextStream"))
      .def("compile_grammar", &compile_grammar, nb::arg("kind"), nb::arg("text"))
      .def(
          "lookup_drafter",
          [](const Session&, int64_t n_tokens) -> std::shared_ptr<Drafter> { return std::make_shared<LookupDrafter>(n_tokens); },
          nb::arg("n_tokens"))
      .def(
          "model_drafter",
          [](Session& s, const SharedSession& draft, int64_t n_tokens) -> std::shared_ptr<Drafter> {
            return std::make_shared<SessionDrafter>(s.engine, draft, n_tokens);
          },
          nb::arg("draft"), nb::arg("n_tokens"))
      .def("beams", &beam_hypotheses, nb::arg("ids"), nb::arg("options"),
           nb::sig("def beams(self, ids: numpy.typing.NDArray[numpy.int64], options: BeamOptions) -> list[tuple[str, list[int], "
                   "float]]"))
      .def_prop_ro("weight_names", &weight_names)
      .def("weight", &weight, nb::arg("name"), nb::arg("raw"),
           nb::sig("def weight(self, name: str, raw: bool) -> numpy.typing.NDArray[numpy.float32]"))
      .def("weight_shape", &weight_shape, nb::arg("name"))
      .def(
          "read", [](const SharedSession& s, const nb::str& name) { return std::make_unique<WeightReading>(s, name); },
          nb::arg("name"))
      .def(
          "edit", [](const SharedSession& s, const nb::str& name) { return std::make_unique<WeightEdit>(s, name); },
          nb::arg("name"))
      .def_prop_ro("edited",
                   [](Session& s) {
                     const nb::gil_scoped_release unlocked;
                     const ReadingWeights reading(s);
                     return !s.edited.empty();
                   })
      .def("encode_weights", &encode_weights, nb::arg("names").none())
      .def(
          "copy_edits",
          [](Session& s, Session& other) {
            const nb::gil_scoped_release unlocked;
            const ChangingWeights changing(s);
            const Running of_other(other);
            s.edited.copy(s.base(), other.edited, other.base());
          },
          nb::arg("other"), "Of another session of the same files.")
      .def("save", &save, nb::arg("out"), nb::arg("dtype"));
}

}  // namespace

NB_MODULE(_vitrine, m) {
  m.doc() = "vitrine's library in numbers and plain containers; import vitrine instead.";
  m.attr("version") = version();
  m.def(
      "hook_alias",
      [](const std::string& name, const std::optional<std::vector<std::string>>& hook_names) {
        return hook_names ? hook_alias(name, *hook_names) : hook_alias(name);
      },
      nb::arg("name"), nb::arg("hook_names") = nb::none(),
      "What a name stands for in a model with these hooks, as a pattern (\"pattern.3\": \"blocks.3.attn.hook_pattern\"), or "
      "None; "
      "without hook_names, of an alias that means the same in every model.");
  register_errors();
  bind_tokenizer(m);
  bind_options(m);
  bind_model(m);
  bind_merge(m);
  bind_autoencoders(m);
  bind_graphs(m);
}

}  // namespace vitrine::python
