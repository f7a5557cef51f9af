#include "serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <random>

#include "base/fnv.h"
#include "model/fingerprint.h"
#include "vitrine/version.h"

namespace vitrine::serve {
namespace {

constexpr int64_t kDraftReads = 256;  // tokens of a prompt between two steps

// Service::chat_is_plain(). BOS comes by the tokenizer's rule.
constexpr const char* kPlainTemplate =
    "{% for message in messages %}{{ message.content }}"
    "{% if not loop.last or add_generation_prompt %}{{ '\\n\\n' }}{% endif %}{% endfor %}";

// Of the tensors' names, shapes and first bytes: enough to tell one model from another, and quick.
std::string fingerprint_of(const Engine& engine) {
  uint64_t hash = fnv1a(engine.shape().family);
  for (const auto& [name, tensor] : engine.opened().checkpoint.tensors()) {
    hash = fnv1a(name, hash);
    for (const int64_t size : tensor.shape) hash = fnv1a(std::to_string(size), hash);
    hash = fnv1a({reinterpret_cast<const std::byte*>(tensor.data), std::min<size_t>(tensor.bytes, 64)}, hash);
  }
  return fmt::format("vitrine-{}-{:016x}", version(), hash);
}

std::optional<ChatFormat> chat_of(const Engine& engine, const std::optional<std::string>& source, bool plain) {
  if (!engine.has_tokenizer()) return {};
  if (plain) return std::optional<ChatFormat>(std::in_place, engine, kPlainTemplate, "the plain chat template");
  return std::optional<ChatFormat>(std::in_place, engine, source, "the chat template that was given");
}

std::unique_ptr<AdapterList> adapters_of(const Engine& engine, const std::string& name, const ServiceOptions& options) {
  std::vector<std::string> taken = options.aliases;
  taken.insert(taken.end(), {name, name + ".gguf", engine.name()});
  auto list = std::make_unique<AdapterList>(engine.opened(), options.adapter_limits, std::move(taken));
  for (const AdapterToLoad& adapter : options.adapters) list->load(adapter);
  return list;
}

}  // namespace

Service::Service(Engine& engine, const SchedulerOptions& scheduling, ServiceOptions options)
    : engine_(engine),
      scheduling_(scheduling),
      options_(std::move(options)),
      name_(options_.name.empty() ? last_part(engine.name()) : options_.name),
      fingerprint_(fingerprint_of(engine)),
      started_(std::time(nullptr)),
      chat_is_plain_(!options_.chat_template && !chat_template_of(engine.opened())),
      chat_(chat_of(engine, options_.chat_template, chat_is_plain_)),
      chat_reads_tools_(chat_ && chat_->reads_tools()),
      adapters_(adapters_of(engine, name_, options_)),
      end_tokens_(engine.end_tokens()),
      draft_(options_.draft == nullptr
                 ? nullptr
                 : std::make_shared<const ModelDrafter>(engine, options_.draft, options_.draft_tokens, kDraftReads)),
      scheduler_(std::make_shared<Scheduler>(engine, scheduling)) {
  if (options_.quotas == nullptr) options_.quotas = std::make_shared<Quotas>(std::vector<KeyQuota>());
  if (options_.lookup > 0 || options_.draft != nullptr) check_goes_back(engine);
}

const GrammarCompiler& Service::grammars() const {
  std::call_once(grammars_once_,
                 [this] { grammars_ = std::make_unique<GrammarCompiler>(engine_.tokenizer(), engine_.shape().vocab_size); });
  return *grammars_;
}

std::shared_ptr<Drafter> Service::drafter(int64_t drafts) const {
  if (drafts <= 0) return nullptr;
  if (draft_ != nullptr) return draft_->another(drafts);
  return std::make_shared<LookupDrafter>(drafts);
}

uint64_t Service::model_fingerprint() {
  std::call_once(fingerprint_once_, [this] { model_fingerprint_ = vitrine::fingerprint_of(engine_.opened()); });
  return model_fingerprint_;
}

std::string Service::model_named(const std::optional<std::string>& wanted) const {
  if (!wanted || wanted->empty()) return name_;
  if (adapters_->named(*wanted)) return *wanted;
  if (options_.any_model) return *wanted;
  if (*wanted == name_ || *wanted + ".gguf" == name_ || *wanted == engine_.name() ||
      std::find(options_.aliases.begin(), options_.aliases.end(), *wanted) != options_.aliases.end())
    return name_;
  throw ApiError(404, "model_not_found",
                 "the model \"" + *wanted + "\" is not here; this server runs \"" + name_ +
                     "\". --alias gives it another name, --any-model every name; adapters are loaded with --lora-modules",
                 "model");
}

void Service::count_tokens(http::Exchange& exchange, int64_t prompt, int64_t made) {
  exchange.count_tokens(prompt, made);
  if (options_.requests != nullptr) options_.requests->used_tokens(exchange.request().owner, name_, prompt, made);
}

// Owners have no line feed: they are words of a file of keys, or addresses.
std::string Service::prefix_scope(const std::string& owner, const std::string& salt) const {
  return (options_.share_prefixes ? "" : owner) + "\n" + salt;
}

std::string last_part(const std::string& name) {
  std::filesystem::path path = name;
  if (path.filename().empty()) path = path.parent_path();
  const std::string last = path.filename().string();
  return last.empty() || last == "." || last == ".." ? name : last;
}

std::string random_id(const std::string& prefix) {
  static constexpr char kLetters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string id = prefix;
  for (int i = 0; i < 24; ++i) id += kLetters[random() % 62];
  return id;
}

}  // namespace vitrine::serve
