#pragma once
// Requests as spans of OpenTelemetry, in the JSON of its protocol: https://opentelemetry.io/docs/specs/otlp/
#include <functional>
#include <span>
#include <string>

#include "http/access_entry.h"

namespace vitrine::telemetry {

/// The route of a path, as serve/routes.h has it; null: none.
using RouteOf = std::function<const char*(const std::string& path)>;

/// The body of a POST to /v1/traces. Attributes have the names of OpenTelemetry's semantic conventions: http.*, url.path,
/// gen_ai.* for the model and the tokens, error.type for a status from 500 on.
std::string spans_json(std::span<const http::AccessEntry> requests, const std::string& service, const RouteOf& route_of);

}  // namespace vitrine::telemetry
