// The table of pictures, and documents of one or all of them.
#include "picture/data/document.h"

#include <algorithm>

#include "base/error.h"
#include "base/nearest.h"
#include "base/shell_word.h"
#include "model/abilities.h"
#include "picture/data/entry.h"
#include "picture/data/studio.h"
#include "vitrine/version.h"

namespace vitrine {

namespace {

const std::vector<PictureEntry>& entries() {
  static const std::vector<PictureEntry> all = [] {
    std::vector<PictureEntry> joined;
    for (const auto& chapter : {next_word_pictures(), gpt2_pictures(), heads_pictures(), gemma2_pictures(), trainable_pictures()})
      joined.insert(joined.end(), chapter.begin(), chapter.end());
    return joined;
  }();
  return all;
}

const PictureEntry& entry_of(std::string_view name) {
  for (const PictureEntry& entry : entries())
    if (name == entry.info.name) return entry;
  std::vector<std::string> names;
  for (const PictureEntry& entry : entries()) names.emplace_back(entry.info.name);
  throw UsageError("there is no picture \"" + std::string(name) + "\". Did you mean \"" + nearest(name, names) +
                   "\"? `vitrine picture --list` shows them all");
}

// More options may stand in front of it; behind a text that begins with - they would be taken for texts.
std::string shell_of(const PicturePrompt& prompt) {
  std::string line;
  if (!prompt.text && prompt.ids.empty()) return "--config " + shell_word(prompt.model);
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

PictureJson picture_of(const PictureEntry& entry, Studio& studio) {
  PictureJson picture = {{"name", entry.info.name}, {"title", entry.info.title}};
  const PictureJson data = entry.data(studio);
  if (data.at("available").get<bool>()) {
    picture["made"] = PictureJson::array();
    for (const auto& [of, word] : {std::pair{kToy, "toy"}, std::pair{kRun, "run"}, std::pair{kModel, "model"},
                                   std::pair{kLog, "log"}, std::pair{kSizes, "sizes"}})
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

bool has_weights(const Model& model) { return static_cast<bool>(*model.head().weight); }

// Errors: InputError for a picture that reads weights or runs the model, if it has none.
void require_weights(const Engine& engine, const PictureEntry& entry) {
  if (entry.without_weights || has_weights(engine.model())) return;
  std::string others;
  for (const PictureEntry& other : entries())
    if (other.without_weights) others += (others.empty() ? "" : ", ") + std::string(other.info.name);
  throw InputError(fmt::format("{} is a configuration without weights, which the picture {} needs; these do without: {}",
                               engine.name(), entry.info.name, others));
}

ObserveOptions observe_options(const PictureOptions& options, const ModelFacts& facts, uint32_t needs) {
  ObserveOptions observe;
  observe.needs = needs;
  observe.row_layer = options.layer.value_or(middle_layer(facts));
  observe.row_head = options.head.value_or(0);
  observe.row_target = options.position.value_or(-1);
  observe.memory = options.memory;
  observe.edits = options.edits;
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
    for (const PictureEntry& entry : entries()) infos.push_back(entry.info);
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
  std::vector<const PictureEntry*> entries;
  uint32_t needs = 0;
  StepMaker steps;
  Studio studio;
  PictureJson about, pictures = PictureJson::object(), walk = PictureJson::array();
  size_t calls = 0;

  Made(Engine& engine, PicturePrompt of, PictureOptions chosen)
      : prompt(std::move(of)), options(std::move(chosen)), studio{engine, prompt, options, facts_of(engine), {}, {}} {}
};

DocumentRuns::DocumentRuns(Engine& engine, PicturePrompt prompt, PictureOptions options, std::vector<std::string> names,
                           StepMaker steps, PictureJson about) {
  require_causal(engine.model(), engine.name(), "A picture");  // patterns are drawn below the diagonal
  std::vector<const PictureEntry*> chosen;
  uint32_t needs = 0;
  for (const std::string& name : names) {
    const PictureEntry& entry = entry_of(name);
    if ((entry.needs & kNeedNorms) != 0 || name == "residual-scale")  // which look for the family's norms
      require_family_form(engine.model(), engine.name(), fmt::format("The picture {}", name));
    if (name == "update-scale" || name == "embedding-rescaling")  // which compare what is added with the stream
      require_residual(engine.model(), engine.name(), fmt::format("The picture {}", name));
    require_weights(engine, entry);
    if ((entry.needs & (kNeedStream | kNeedHidden)) != 0)  // which have a place for each layer's MLP
      require_mlp(engine.model(), engine.name(), fmt::format("The picture {}", name));
    chosen.push_back(&entry);
    needs |= entry.needs;
  }
  if (names.empty()) {
    for (const PictureEntry& entry : entries())
      if (entry.without_weights || has_weights(engine.model())) chosen.push_back(&entry);
    needs = kNeedAll;
  }
  made_ = std::make_unique<Made>(engine, std::move(prompt), std::move(options));
  made_->entries = std::move(chosen);
  made_->needs = needs;
  made_->steps = std::move(steps);
  made_->about = std::move(about);
  require_attention(engine.model(), engine.name(), "A picture");
  require_present(*engine.model().head().weight);
}

DocumentRuns::~DocumentRuns() = default;
DocumentRuns::DocumentRuns(DocumentRuns&&) noexcept = default;
DocumentRuns& DocumentRuns::operator=(DocumentRuns&&) noexcept = default;

bool DocumentRuns::done() const { return made_->calls == made_->entries.size() + (made_->steps ? 2 : 1); }

void DocumentRuns::next() {
  Made& m = *made_;
  if (m.calls == 0) {
    if (has_weights(m.studio.engine.model()))
      m.studio.seen = observe(m.studio.engine, m.prompt.ids, m.studio.facts, observe_options(m.options, m.studio.facts, m.needs));
  } else if (m.calls <= m.entries.size()) {
    const PictureEntry& entry = *m.entries[m.calls - 1];
    m.pictures[entry.info.name] = picture_of(entry, m.studio);
  } else {
    m.walk = m.steps(m.studio, m.pictures);
  }
  ++m.calls;
}

PictureJson DocumentRuns::take() && {
  while (!done()) next();
  PictureJson document = document_of(made_->studio, std::move(made_->pictures), std::move(made_->walk));
  document.update(made_->about);
  return document;
}

}  // namespace vitrine
