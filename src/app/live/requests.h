#pragma once
// What a live page may ask, whoever's engine answers: that of a WebAssembly module, or a server's, which others use, too.
#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "runtime/engine.h"

namespace vitrine {

/// The model that answers.
struct LiveModel {
  const Engine& engine;  // read at any time: tokenizer, shapes
  std::string name;      // of its files, as open_model takes it; pages show it
  /// Runs a piece of work on the engine, now or when its turn comes, and returns when it is done. Requests run in pieces (a
  /// picture, a token), between which the engine may do other things.
  std::function<void(const std::function<void(Engine&)>&)> run;
  int threads = 0;                          // of a step of training, which has an engine of its own; 0: the cores
  const std::atomic<bool>* gone = nullptr;  // ends such a step once it is true
};

/// The answer to a request, an object in JSON, in the forms of the HTTP API (docs/http-api.md).
///
/// Every request names its prompt: "prompt" is a text or a list of ids; "add_special" (default true): BOS by the tokenizer's
/// rule.
///
/// document  every picture and step of the walk-through (web/src/data.ts); "layer", "head", "position": of pictures of one;
///           "gradients": false leaves out what runs the model backward; "pictures": only these, without steps
/// next      {tokens, pieces, next: [{token, piece, logprob, kept}], left}: the "top" most likely next tokens, with the
///           probability of each under the sampling options (0: cut), and how many of all tokens are left;
///           "edits": changes to the model, as the list interventions of docs/intervene.md
/// generate  {text, tokens, logprobs, finish_reason}: "max_tokens" new tokens; the sampling options, "seed", "edits"
/// inspect   {tokens, pieces, hooks: [{name, shape, values}]}: as POST /v1/inspect, of "hooks", "edits"
/// units     as `vitrine units --json`: the "units" most active of "layer" at "position", and what each writes: "top" tokens at
///           either end
/// patch     as POST /v1/patch: a recipe of `vitrine intervene`
/// train     as `vitrine train --one-step --json`: one step of gradient descent on "prompt" followed by "target", at "rate", on
///           a copy of the weights
/// Errors: UsageError for an unknown request and for a field of another kind; what the functions behind the requests throw.
std::string live_answer(const LiveModel& model, std::string_view request, const OrderedJson& body);

}  // namespace vitrine
