#pragma once
// What can be asked of a model, read off its record: next tokens, and logits of any vector of its residual stream.
#include <cstdint>
#include <string>

namespace vitrine {

class Model;

/// Whether each position sees itself and earlier ones alone. False: attention goes in both directions, so what comes later
/// changes every position, nothing of a text can be cached, and logits are of the token that stands at a position, not of the
/// next one.
bool is_causal(const Model& model);
/// Whether its logits are of the next token: a causal model, or one that was trained on next tokens without its mask
/// ("vitrine_causal": false), which sees them.
bool predicts_next(const Model& model);
/// Errors: InputError for a model that does not. what: "Training on next tokens", the beginning of the message.
void require_next_token(const Model& model, const std::string& name, const std::string& what);
/// Errors: InputError for a model in both directions. what: "A KV cache", the beginning of the message; name: the model's.
void require_causal(const Model& model, const std::string& name, const std::string& what);

/// Errors: InputError, beginning with `name`, for a model whose experts are drawn at random in training (SparseMixer), which is
/// not done here.
void require_trainable(const Model& model, const std::string& name);

/// Whether any layer has attention.
bool has_attention(const Model& model);
/// Errors: InputError for a model without. what: "A circuit", the beginning of the message; name: the model's.
void require_attention(const Model& model, const std::string& name, const std::string& what);

/// Whether the layer's MLP reads the stream that its attention reads, so that attention's output is not part of it and the layer
/// has no hook_resid_mid (GPT-NeoX, GPT-J).
bool is_parallel(const Model& model, int64_t layer);

/// Errors: InputError if more than a norm and one matrix lie between the residual stream and the logits.
void require_plain_head(const Model& model, const std::string& name, const std::string& what);

}  // namespace vitrine
