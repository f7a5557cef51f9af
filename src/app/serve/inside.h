#pragma once
// What the endpoints that look inside the model have in common. Each runs on the engine alone, between two steps of the streams.
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "http/exchange.h"
#include "intervene/intervene.h"
#include "intervene/recipe.h"
#include "runtime/token_json.h"
#include "serve/fields.h"
#include "serve/service.h"

namespace vitrine::serve {

/// Runs `work` with these adapters when its turn comes and returns when it is done; the request thread waits. Work for a client
/// that leaves, or that the server ends with, is stopped. Errors: what `work` throws; Stopped; as Scheduler::run; ApiError 429
/// with ServiceOptions::most_inside under way.
class InsideRun {
 public:
  InsideRun(Service& service, const std::shared_ptr<http::Exchange>& exchange, ScaledAdapters adapters);
  ~InsideRun();
  InsideRun(const InsideRun&) = delete;
  InsideRun& operator=(const InsideRun&) = delete;

  void operator()(const std::function<void(Engine&)>& work);
  /// True once the client has left: for work beside the engine.
  const std::atomic<bool>& gone() const { return *gone_; }

 private:
  Service& service_;
  const ScaledAdapters adapters_;
  const std::string owner_;
  const std::shared_ptr<std::atomic<bool>> gone_;
  bool begun_ = false;  // a part has run: the others run also while the server drains
};

/// One prompt as ids.
struct InsidePrompt {
  std::vector<int32_t> ids;
  std::optional<std::string> text;  // none: given as ids or messages
  bool special = true;              // BOS and EOS by the tokenizer's rule
};

/// prompt (text or ids) or messages, and add_special.
const std::vector<Field>& inside_prompt_fields();
/// The keys of a recipe after its prompt (docs/intervene.md), and all_positions.
const std::vector<Field>& recipe_fields();
/// The list `edits`: interventions of a recipe.
Field edits_field();
/// Errors: ApiError naming the field, for a prompt without a token and one that the context does not hold.
InsidePrompt read_prompt(Fields& fields, Service& service);
/// A prompt of a list of prompts. Errors: as read_prompt.
InsidePrompt read_one_prompt(const OrderedJson& prompt, bool special, Service& service, const std::string& field);

/// Puts the names of ignored fields in front of an answer's end.
void add_ignored(const Fields& fields, OrderedJson& json);

/// The list `edits` of a request, which is that of `interventions` in a recipe (docs/intervene.md), for a run of `ids`. Files are
/// not read. Nothing: null. To be called within InsideRun. Errors: ApiError 400 in the words of the recipe's reader.
std::unique_ptr<Interventions> planned_edits(Engine& engine, const OrderedJson* edits, const std::vector<int32_t>& ids);
/// Changes that a request may make: places of its interventions, and prompts that they take values from. All of them are planned
/// while streams wait.
inline constexpr size_t kMostChanges = 1024;
/// A recipe that reads no file and makes kMostChanges at most. Errors: ApiError 400 naming what does not.
void check_recipe(const Recipe& recipe);
/// Errors: ApiError 400 for a head that is a JSON number and could mean two heads, 1.1 and 1.10.
void refuse_head_numbers(const OrderedJson& json, int64_t n_heads, const std::string& key = {});

/// "vitrine picture logit-lens --json --tokens 2,651 --model M": a command line that gives the same numbers; null
/// where adapters act that --adapter cannot name: several, or another scale than 1. Its words are as a
/// shell reads them (shell_word). Without ids: no --tokens.
OrderedJson command_line(const Service& service, const std::vector<std::string>& words, const ScaledAdapters& adapters,
                         const std::vector<int32_t>& ids = {});
/// "vitrine trace --hooks pattern --out trace.safetensors …"
OrderedJson trace_command(const Service& service, const std::vector<std::string>& hooks, const ScaledAdapters& adapters,
                          const std::vector<int32_t>& ids);

}  // namespace vitrine::serve
