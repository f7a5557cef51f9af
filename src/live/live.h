#pragma once
// The engine of a live page: one opened model that answers requests in JSON, in the forms of the HTTP API (docs/http-api.md), so
// that a page asks a WebAssembly module or a server in the same words.
#include <memory>
#include <string>
#include <string_view>

#include "engine/engine.h"

namespace vitrine {

class Live {
 public:
  /// model: as Engine. Errors: as Engine.
  explicit Live(std::string_view model, const EngineOptions& options = {});

  /// The answer to a request, an object in JSON. Never throws: what went wrong is {"error": {"message": …}}.
  ///
  /// Every request names its prompt: "prompt" is a text or a list of ids; "add_special" (default true): BOS by the tokenizer's
  /// rule. document  every picture and step of the walk-through (web/src/data.ts); "layer", "head", "position" as `vitrine
  /// picture`;
  ///           "gradients": false leaves out what runs the model backward; "pictures": only these, without steps
  /// next      {tokens, pieces, next: [{token, piece, logprob, kept}], left}: the "top" likeliest next tokens, with the
  ///           probability of each under "temperature", "top_k", "top_p", "min_p" (0: cut), and how many of all tokens are left;
  ///           "edits": changes to the model, as the list interventions of docs/intervene.md
  /// generate  {text, tokens, logprobs, finish_reason}: "max_tokens" new tokens; the sampling fields of next, "seed", "edits"
  /// inspect   {tokens, pieces, hooks: [{name, shape, values}]}: as POST /v1/inspect, of "hooks", "edits"
  /// patch     as POST /v1/patch: a recipe of `vitrine intervene`
  /// train     as `vitrine train --one-step --json`: one step of gradient descent on "prompt" followed by "target", at "rate"
  std::string answer(std::string_view request, std::string_view body);

 private:
  std::string model_;
  Engine engine_;
};

}  // namespace vitrine
