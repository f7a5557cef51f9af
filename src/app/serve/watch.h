#pragma once
// The fields edits and inspect of endpoints that generate: what is changed and what is shown while their texts are made.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "hooks/hooks.h"
#include "intervene/intervene.h"
#include "requests/fields.h"
#include "serve/answer.h"
#include "serve/inside.h"

namespace vitrine::serve {

/// edits and inspect.
const std::vector<Field>& watch_fields();

/// What else the request asks for.
struct WatchedTexts {
  std::vector<std::vector<int32_t>> prompts;
  size_t choices = 1;               // of each
  std::string choices_field = "n";  // which says so
  int64_t max_tokens = 0;
  bool streamed = false;
  bool scored = false;  // the prompt's tokens have log-probabilities
  std::string max_tokens_field = "max_tokens";
};

class Watch {
 public:
  /// Reads watch_fields(). Nothing is planned and nothing runs if the request has neither. Errors: ApiError 400 as /v1/inspect
  /// and /v1/steer have them; for hooks of several texts, and for more numbers than an answer holds; 429 as InsideRun.
  Watch(const Fields& fields, Service& service, const std::shared_ptr<http::Exchange>& exchange, const WatchedTexts& texts);

  /// Of Work::listener, for a text behind prompt number `prompt`. May outlive the watch.
  std::function<std::shared_ptr<Listener>()> listener(size_t prompt) const;

  bool inspects() const { return !requests_.empty(); }
  /// `json` as text, with what was seen at its end if that was asked for: "inspect": {tokens, pieces, command, hooks}, where
  /// tokens are those that the model read. For a text that has ended.
  std::string text_with_values(const OrderedJson& json, const Choice& choice) const;

 private:
  struct Seen;
  void plan_captures_of(Engine& engine, const WatchedTexts& texts);

  Service& service_;
  ScaledAdapters adapters_;
  std::vector<std::string> hooks_;             // as the request names them
  std::vector<HookRequest> requests_;          // what they are
  std::vector<std::vector<ValueEdit>> edits_;  // for each prompt; none: there are no edits
  std::shared_ptr<InsideRun> place_;           // among those that look inside, as long as values are held
  std::shared_ptr<std::shared_ptr<Seen>> seen_;
};

}  // namespace vitrine::serve
