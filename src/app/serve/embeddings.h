#pragma once
// Vectors of texts, for every endpoint that answers with them.
#include <functional>
#include <memory>
#include <vector>

#include "http/exchange.h"
#include "requests/fields.h"
#include "serve/service.h"

namespace vitrine::serve {

/// Puts the next text's vector into the answer.
using AddEmbedding = std::function<void(OrderedJson& json, const std::vector<float>& embedding)>;

/// Answers with `json`, to which `add` gave the vector [d_model] of each input in turn. Errors: as Scheduler::run; later ones are
/// answered in `form`.
void answer_embeddings(Service& service, const std::shared_ptr<http::Exchange>& exchange,
                       std::vector<std::vector<int32_t>> inputs, ScaledAdapters adapters, OrderedJson json, AddEmbedding add,
                       ErrorForm form);

/// Errors: RequestError for more texts in `input` than one request may have.
void check_embedded_texts(size_t count);
/// Errors: RequestError where `dimensions` is not the width of the model's vectors.
void check_width(const Fields& fields, const Engine& engine);

}  // namespace vitrine::serve
