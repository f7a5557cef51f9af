#pragma once
// What the endpoints of Ollama's API have in common.
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "requests/fields.h"
#include "serve/service.h"

namespace vitrine::serve {

/// A name with Ollama's usual tag: "tales9m:latest".
std::string ollama_name(const std::string& name);
/// The model that a request names, with that tag or without: the name of Service::model_named. Errors: ApiError 404 in the words
/// that Ollama's clients look for.
std::string ollama_model(const Service& service, const std::optional<std::string>& wanted);

/// The name without one ":latest" behind it.
std::string without_ollama_tag(const std::string& name);

/// Whether the chat template shows reasoning.
bool ollama_thinks(const Service& service);

Field ollama_keep_alive_field();
/// The members of `options` of texts: Ollama's, and all of sampling_fields().
const std::vector<Field>& ollama_option_fields();

/// As Ollama tells times; at least 1, because clients divide by them.
int64_t ollama_nanoseconds(double milliseconds);
int64_t ollama_nanoseconds_since(std::chrono::steady_clock::time_point begin);

}  // namespace vitrine::serve
