// The table of pictures, and documents of one or all of them.
#include "picture/data/document.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/nearest.h"
#include "base/shell_word.h"
#include "model/abilities.h"
#include "picture/data/studio.h"
#include "vitrine/version.h"

namespace vitrine {

// One builder per picture: present(…) with the picture's own fields, tables and charts, or absent(…).
PictureJson data_of_dot_product(Studio&);
PictureJson data_of_tokens(Studio&);
PictureJson data_of_merges(Studio&);
PictureJson data_of_splits(Studio&);
PictureJson data_of_embedding_cosine(Studio&);
PictureJson data_of_embedding_neighbors(Studio&);
PictureJson data_of_position_vectors(Studio&);
PictureJson data_of_embedding_rescaling(Studio&);
PictureJson data_of_update_scale(Studio&);
PictureJson data_of_residual_scale(Studio&);
PictureJson data_of_layer_norm(Studio&);
PictureJson data_of_norm_statistics(Studio&);
PictureJson data_of_head_grouping(Studio&);
PictureJson data_of_softmax(Studio&);
PictureJson data_of_attention(Studio&);
PictureJson data_of_soft_cap(Studio&);
PictureJson data_of_rope_rotation(Studio&);
PictureJson data_of_rope_wavelengths(Studio&);
PictureJson data_of_query_length(Studio&);
PictureJson data_of_activation_curves(Studio&);
PictureJson data_of_mlp_surfaces(Studio&);
PictureJson data_of_experts(Studio&);
PictureJson data_of_expert_load(Studio&);
PictureJson data_of_final_norm(Studio&);
PictureJson data_of_next_tokens(Studio&);
PictureJson data_of_logit_lens(Studio&);
PictureJson data_of_logit_attribution(Studio&);
PictureJson data_of_input_attribution(Studio&);
PictureJson data_of_reach(Studio&);
PictureJson data_of_gradient_norms(Studio&);
PictureJson data_of_gradient_hooks(Studio&);
PictureJson data_of_interpolation(Studio&);
PictureJson data_of_task_vectors(Studio&);
PictureJson data_of_norm_steps(Studio&);
PictureJson data_of_head_parameters(Studio&);
PictureJson data_of_causal_mask(Studio&);
PictureJson data_of_word_order(Studio&);
PictureJson data_of_token_loss(Studio&);
PictureJson data_of_vocabulary_growth(Studio&);
PictureJson data_of_sampling_rules(Studio&);
PictureJson data_of_beam_search(Studio&);
PictureJson data_of_training_film(Studio&);

namespace {

// Where a picture's numbers come from: this run, the model alone, a toy that shows a principle. kToy | kRun: both.
constexpr uint32_t kRun = 1, kModel = 2, kToy = 4;
constexpr bool kWide = true;

struct Entry {
  PictureInfo info;
  uint32_t needs;  // of the observed run
  PictureJson (*data)(Studio&);
  uint32_t made = kRun;
  bool wide = false;  // on the page; the data may say otherwise
};

constexpr std::array kEntries = {
    Entry{{"dot-product", "The dot product", "Lines around a point and their dot products with one of them"},
          0,
          data_of_dot_product,
          kToy},
    Entry{{"tokens", "Tokens", "The prompt cut into pieces, with the bytes each stands for"}, 0, data_of_tokens},
    Entry{{"merges", "Merges", "How pairs were joined, one after the other, until the tokens were there"},
          0,
          data_of_merges,
          kRun,
          kWide},
    Entry{
        {"splits", "Other splits", "Other ways to cut the same string, with the model's probability of each"}, 0, data_of_splits},
    Entry{{"embedding-cosine", "Likeness of embeddings", "Cosines of chosen tokens' embeddings"},
          0,
          data_of_embedding_cosine,
          kModel},
    Entry{{"embedding-neighbors", "Sums of embeddings", "The tokens nearest to king - man + woman"},
          0,
          data_of_embedding_neighbors,
          kModel},
    Entry{{"position-vectors", "Position vectors", "Cosines of the vectors that mark positions, where a model adds such"},
          kNeedEmbeddings,
          data_of_position_vectors},
    Entry{{"embedding-rescaling", "Rescaling the embeddings",
           "The first layer's update scales with and without the embedding's factor"},
          kNeedStream,
          data_of_embedding_rescaling},
    Entry{{"update-scale", "Update scales", "How much each attention and MLP changes the residual stream"},
          kNeedStream,
          data_of_update_scale},
    Entry{{"residual-scale", "Scale of the stream", "Standard deviation of the stream per sub-layer, with and without the norms"},
          kNeedStream,
          data_of_residual_scale,
          kRun | kToy},
    Entry{{"layer-norm", "What a norm does", "A vector of two numbers without its mean, scaled, weighted, shifted"},
          0,
          data_of_layer_norm,
          kToy,
          kWide},
    Entry{{"norm-statistics", "In and out of each norm", "Mean, deviation and root mean square entering and leaving each norm"},
          kNeedNorms,
          data_of_norm_statistics},
    Entry{
        {"head-grouping", "Heads and their groups", "Which query heads share keys and values"}, 0, data_of_head_grouping, kModel},
    Entry{{"softmax", "From scores to weights", "One row of attention scores and the weights they become"},
          kNeedScores,
          data_of_softmax,
          kToy | kRun},
    Entry{{"attention", "Attention weights", "Who looks where: every head of every layer"},
          kNeedPatterns,
          data_of_attention,
          kRun,
          kWide},
    Entry{{"soft-cap", "Soft caps", "The curve of a soft cap, and the share of scores it changes"},
          kNeedScores | kNeedLogits,
          data_of_soft_cap,
          kToy | kRun},
    Entry{{"rope-rotation", "Turned vectors", "One vector as rotary positions turn it"}, 0, data_of_rope_rotation, kToy},
    Entry{{"rope-wavelengths", "Wavelengths", "After how many positions each pair of components has turned once"},
          0,
          data_of_rope_wavelengths,
          kModel},
    Entry{{"query-length", "Lengths of the queries", "Length of query vectors by head and wavelength, any layer"},
          kNeedQueries,
          data_of_query_length,
          kRun,
          kWide},
    Entry{{"activation-curves", "Activations", "ReLU, GELU and SiLU, and how many units are active"},
          kNeedHidden,
          data_of_activation_curves,
          kToy | kRun},
    Entry{{"mlp-surfaces", "What an MLP can bend", "A toy MLP over two inputs: linear, ReLU, ReGLU, GeGLU"},
          0,
          data_of_mlp_surfaces,
          kToy,
          kWide},
    Entry{{"experts", "Which token went to which expert",
           "The experts of every token in every layer, with weights and the router's probabilities"},
          kNeedExperts,
          data_of_experts,
          kRun,
          kWide},
    Entry{{"expert-load", "Load of the experts", "How many of the prompt's tokens each expert gets, beside an even load"},
          kNeedExperts,
          data_of_expert_load},
    Entry{{"final-norm", "The final norm", "Root mean square of each token before and after the final norm"},
          kNeedNorms,
          data_of_final_norm},
    Entry{{"next-tokens", "What could come next", "The ten most likely next tokens after every position"},
          kNeedLogits,
          data_of_next_tokens,
          kRun,
          kWide},
    Entry{{"logit-lens", "Predictions on the way", "What the model would predict after each layer"},
          0,
          data_of_logit_lens,
          kRun,
          kWide},
    Entry{{"logit-attribution", "Who wrote the answer", "A logit as a sum over heads and MLPs"},
          kNeedLogits,
          data_of_logit_attribution},
    Entry{{"input-attribution", "What the answer owes to each token", "Gradients of the prediction at the prompt's embeddings"},
          0,
          data_of_input_attribution},
    Entry{{"reach", "Reach and cache", "Which positions each layer sees, and what the cache keeps"}, 0, data_of_reach, kModel},
    Entry{{"gradient-norms", "What training sees",
           "The gradient that reaches each layer, with and without the norms, and its parameters"},
          0,
          data_of_gradient_norms},
    Entry{{"gradient-hooks", "The gradient at any hook", "Length of the gradient at a hook of your choice, by layer and token"},
          0,
          data_of_gradient_hooks,
          kRun,
          kWide},
    Entry{{"interpolation", "Between two rows of weights", "What lies between two rows of a weight matrix: averages and SLERP"},
          0,
          data_of_interpolation,
          kModel,
          kWide},
    Entry{{"task-vectors", "Task vectors", "Differences from a starting point, merged, and the way back to it (LITI)"},
          0,
          data_of_task_vectors,
          kModel},
    Entry{{"vocabulary-growth", "The vocabulary grows", "A passage cut by ever more of the tokenizer's pairs"}, 0, data_of_vocabulary_growth, kModel, kWide},
    Entry{{"word-order", "Words in another order", "The prediction with the words reversed, and with positions switched off"}, 0, data_of_word_order},
    Entry{{"norm-steps", "A norm, step by step", "The first norm at work on the last token: mean, deviation, weight, bias"}, 0, data_of_norm_steps},
    Entry{{"head-parameters", "The parameters of one head", "W_Q, W_K, W_V and W_O of one head with their biases"}, 0, data_of_head_parameters, kModel},
    Entry{{"causal-mask", "The causal mask", "Attention of one head with the mask, and what it would be without"}, 0, data_of_causal_mask, kRun, kWide},
    Entry{{"token-loss", "Loss and its gradient", "What each token of the prompt costs, and p − 1 at the logits"}, kNeedLogits, data_of_token_loss},
    Entry{{"training-film", "A training run", "Loss, samples, attention and embeddings of a run, checkpoint by checkpoint"}, 0, data_of_training_film, kModel, kWide},
    Entry{{"sampling-rules", "Rules of sampling", "One distribution under greedy, temperature, top-k, top-p, min-p and typical"}, 0, data_of_sampling_rules, kRun, kWide},
    Entry{{"beam-search", "Beam search", "The tree of continuations that a beam search looks at, with their sums"}, 0, data_of_beam_search, kRun, kWide},
};

const Entry& entry_of(std::string_view name) {
  for (const Entry& entry : kEntries)
    if (name == entry.info.name) return entry;
  std::vector<std::string> names;
  for (const Entry& entry : kEntries) names.emplace_back(entry.info.name);
  throw UsageError("there is no picture \"" + std::string(name) + "\". Did you mean \"" + nearest(name, names) +
                   "\"? `vitrine picture --list` shows them all");
}

// More options may stand in front of it; behind a text that begins with - they would be taken for texts.
std::string shell_of(const PicturePrompt& prompt) {
  std::string line;
  if (prompt.text) {
    line = (prompt.text->starts_with('-') ? "-- " : "") + shell_word(*prompt.text);
  } else {
    line = "--tokens ";
    for (size_t i = 0; i < prompt.ids.size(); ++i) line += (i > 0 ? "," : "") + std::to_string(prompt.ids[i]);
  }
  std::string options;
  if (prompt.text && !prompt.special) options += " --no-special";
  if (!prompt.model.empty()) options += " --model " + shell_word(prompt.model);
  if (!prompt.adapter.empty()) options += " --adapter " + shell_word(prompt.adapter);
  const std::string compute = prompt.compute == "auto" ? "" : "--compute " + prompt.compute + " ";
  if (options.empty()) return compute + line;
  return compute + (prompt.text && prompt.text->starts_with('-') ? options.substr(1) + " " + line : line + options);
}

PictureJson tokens_of(const Studio& studio) {
  PictureJson tokens = PictureJson::array();
  for (size_t i = 0; i < studio.prompt.ids.size(); ++i) {
    const int32_t id = studio.prompt.ids[i];
    const std::optional<std::string> piece = studio.spelled() ? studio.engine.piece(id) : std::nullopt;
    PictureJson offsets = nullptr;
    if (studio.prompt.text && i < studio.prompt.pieces.size())
      offsets = {studio.prompt.pieces[i].begin, studio.prompt.pieces[i].end};
    tokens.push_back({{"id", id},
                      {"piece", piece ? PictureJson(*piece) : PictureJson(nullptr)},
                      {"offsets", offsets},
                      {"control", piece && studio.engine.tokenizer().is_control(id)}});
  }
  return tokens;
}

PictureJson picture_of(const Entry& entry, Studio& studio) {
  PictureJson picture = {{"name", entry.info.name}, {"title", entry.info.title}};
  const PictureJson data = entry.data(studio);
  if (data.at("available").get<bool>()) {
    picture["made"] = PictureJson::array();
    for (const auto& [of, word] : {std::pair{kToy, "toy"}, std::pair{kRun, "run"}, std::pair{kModel, "model"}})
      if ((entry.made & of) != 0) picture["made"].push_back(word);
    picture["wide"] = entry.wide;
  }
  for (const auto& [key, value] : data.items()) picture[key] = value;
  return picture;
}

// The middle layer, or the nearest one behind or before it that has attention.
int64_t middle_layer(const ModelFacts& facts) {
  const int64_t middle = facts.shape.n_layers / 2;
  for (int64_t layer = middle; layer < facts.shape.n_layers; ++layer)
    if (facts.attends(layer)) return layer;
  for (int64_t layer = middle; layer > 0; --layer)
    if (facts.attends(layer)) return layer;
  return facts.attention_layer;
}

void require_attention(const ModelFacts& facts, const std::string& name) {
  if (facts.conv_layers.size() == static_cast<size_t>(facts.shape.n_layers))
    throw InputError(name + " has no layer with attention, which the pictures are about");
}

ObserveOptions observe_options(const PictureOptions& options, const ModelFacts& facts, uint32_t needs) {
  ObserveOptions observe;
  observe.needs = needs;
  observe.row_layer = options.layer.value_or(middle_layer(facts));
  observe.row_head = options.head.value_or(0);
  observe.row_target = options.position.value_or(-1);
  observe.memory = options.memory;
  return observe;
}

PictureJson document_of(Studio& studio, PictureJson made, PictureJson steps) {
  PictureJson pieces = PictureJson::object();
  for (const int32_t id : studio.prompt.ids) studio.mention(id);
  for (const int32_t id : studio.mentioned)
    if (const auto piece = studio.spelled() ? studio.engine.piece(id) : std::nullopt) pieces[std::to_string(id)] = *piece;
  return {{"format", 2},
          {"version", version()},
          {"model", to_json(studio.facts, studio.prompt.model, studio.prompt.adapter)},
          {"prompt",
           {{"text", studio.prompt.text ? PictureJson(*studio.prompt.text) : PictureJson(nullptr)},
            {"ids", studio.prompt.ids},
            {"special", studio.prompt.special},
            {"shell", shell_of(studio.prompt)}}},
          {"tokens", tokens_of(studio)},
          {"pieces", std::move(pieces)},
          {"steps", std::move(steps)},
          {"pictures", std::move(made)}};
}

}  // namespace

const std::vector<PictureInfo>& pictures() {
  static const std::vector<PictureInfo> list = [] {
    std::vector<PictureInfo> infos;
    for (const Entry& entry : kEntries) infos.push_back(entry.info);
    return infos;
  }();
  return list;
}

void check_picture_name(std::string_view name) { entry_of(name); }

PictureJson picture_document(Engine& engine, const PicturePrompt& prompt, std::string_view name, const PictureOptions& options) {
  return pictures_document(engine, prompt, std::vector<std::string>{std::string(name)}, options);
}

PictureJson pictures_document(Engine& engine, const PicturePrompt& prompt, std::span<const std::string> names,
                              const PictureOptions& options) {
  return DocumentRuns(engine, prompt, options, {names.begin(), names.end()}).take();
}

struct DocumentRuns::Made {
  PicturePrompt prompt;
  PictureOptions options;
  std::vector<const Entry*> entries;
  uint32_t needs = 0;
  StepMaker steps;
  Studio studio;
  PictureJson pictures = PictureJson::object(), walk = PictureJson::array();
  size_t calls = 0;

  Made(Engine& engine, PicturePrompt of, PictureOptions chosen)
      : prompt(std::move(of)), options(std::move(chosen)), studio{engine, prompt, options, facts_of(engine), {}, {}} {}
};

DocumentRuns::DocumentRuns(Engine& engine, PicturePrompt prompt, PictureOptions options, std::vector<std::string> names,
                           StepMaker steps) {
  require_causal(engine.model(), engine.name(), "A picture");  // patterns are drawn below the diagonal
  std::vector<const Entry*> entries;
  uint32_t needs = 0;
  for (const std::string& name : names) {
    const Entry& entry = entry_of(name);
    if ((entry.needs & kNeedNorms) != 0 || name == "residual-scale")  // which look for the family's norms
      require_family_form(engine.model(), engine.name(), fmt::format("The picture {}", name));
    if (name == "update-scale" || name == "embedding-rescaling")  // which compare what is added with the stream
      require_residual(engine.model(), engine.name(), fmt::format("The picture {}", name));
    entries.push_back(&entry);
    needs |= entry.needs;
  }
  if (names.empty()) {
    for (const Entry& entry : kEntries) entries.push_back(&entry);
    needs = kNeedAll;
  }
  made_ = std::make_unique<Made>(engine, std::move(prompt), std::move(options));
  made_->entries = std::move(entries);
  made_->needs = needs;
  made_->steps = std::move(steps);
  require_attention(made_->studio.facts, engine.name());
}

DocumentRuns::~DocumentRuns() = default;
DocumentRuns::DocumentRuns(DocumentRuns&&) noexcept = default;
DocumentRuns& DocumentRuns::operator=(DocumentRuns&&) noexcept = default;

bool DocumentRuns::done() const { return made_->calls == made_->entries.size() + (made_->steps ? 2 : 1); }

void DocumentRuns::next() {
  Made& m = *made_;
  if (m.calls == 0) {
    m.studio.seen = observe(m.studio.engine, m.prompt.ids, m.studio.facts, observe_options(m.options, m.studio.facts, m.needs));
  } else if (m.calls <= m.entries.size()) {
    const Entry& entry = *m.entries[m.calls - 1];
    m.pictures[entry.info.name] = picture_of(entry, m.studio);
  } else {
    m.walk = m.steps(m.studio, m.pictures);
  }
  ++m.calls;
}

PictureJson DocumentRuns::take() && {
  while (!done()) next();
  return document_of(made_->studio, std::move(made_->pictures), std::move(made_->walk));
}

}  // namespace vitrine
