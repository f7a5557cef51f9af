#pragma once
// What tells of all models of a server: lists, metrics, health.
#include <ctime>
#include <span>
#include <vector>

#include "base/json.h"
#include "http/message.h"
#include "serve/served_models.h"

namespace vitrine::serve {

/// The list of a server that has this model alone.
std::vector<ServedModel> only(Service& service);

OrderedJson models_json(std::span<const ServedModel> models);
OrderedJson ollama_tags_json(std::span<const ServedModel> models);
OrderedJson ollama_ps_json(std::span<const ServedModel> models);
/// Of GET /metrics; several models have the label "model". `requests` may be null.
http::Response metrics_response(std::span<const ServedModel> models, std::time_t started, const RequestMetrics* requests);
/// Of GET /health. Errors: ApiError 503 if one of those that are loaded drains or is stuck.
OrderedJson health_json(std::span<const ServedModel> models);
/// Of GET /ready. Errors: the same if one drains or its queue is full.
OrderedJson ready_json(std::span<const ServedModel> models);

}  // namespace vitrine::serve
