#pragma once
// Requests to a server that has several models: which of them answers.
#include <memory>

#include "http/exchange.h"
#include "serve/served_models.h"

namespace vitrine::serve {

/// Answers as answer(Service&) of the model that the request names: the field "model" of its body, the parameter "model" of its
/// path, or the name in /v1/models/{id}; without one, the first model. A model that is not loaded is loaded, and its request
/// waits. Lists, metrics and health tell of all models. A name that no model has is 404.
void answer(ServedModels& models, const std::shared_ptr<http::Exchange>& exchange);

}  // namespace vitrine::serve
