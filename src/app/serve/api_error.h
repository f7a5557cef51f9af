#pragma once
// Errors as clients of the API see them: a status, and a body in the form that OpenAI's, Anthropic's or Ollama's clients read.
#include <exception>
#include <stdexcept>
#include <string>

#include "http/message.h"
#include "requests/fields.h"

namespace vitrine::serve {

/// Ends a request with this answer.
struct ApiError : std::runtime_error {
  ApiError(int status_code, std::string error_code, const std::string& message, std::string field = {})
      : std::runtime_error(message), status(status_code), code(std::move(error_code)), param(std::move(field)) {}
  int status;
  std::string code;                          // "invalid_value"
  std::string param;                         // the field of the request that is wrong; empty: none
  double retry_after = 0;                    // seconds; 0: not told
  OrderedJson more = OrderedJson::object();  // further members of the error in OpenAI's form
};

/// 501 for what this server does not do.
ApiError unsupported(const std::string& field, const std::string& message);

/// Errors: ApiError 403 for a key that may not manage the server.
void check_admin(const http::Request& request);

enum class ErrorForm { openai, anthropic, ollama };
/// The form that clients of a path expect.
ErrorForm error_form(const std::string& path);

/// "invalid_request_error" for 400: the word for the kind of error.
std::string error_type(int status, ErrorForm form = ErrorForm::openai);
/// {"error": {message, type, param, code, status}}, {"type": "error", "error": {type, message}}, or {"error": message}.
OrderedJson error_json(const ApiError& error, ErrorForm form = ErrorForm::openai);
/// Ollama answers 503 where its queue is full, not 429.
http::Response error_response(const ApiError& error, ErrorForm form = ErrorForm::openai);

/// What an exception means to a client: InputError is 400, a full queue 429, a server that drains 503, the rest 500. What is not
/// one of vitrine's own errors is not told.
ApiError api_error(const std::exception_ptr& error);

/// The body of an error that the HTTP server answers itself (http::ServerOptions::error_body).
std::string http_error_body(const std::string& path, int status, const std::string& code, const std::string& message);

http::Response json_response(const OrderedJson& json, int status = 200);
/// With the names of ignored fields.
http::Response json_response(OrderedJson json, const Fields& fields);

}  // namespace vitrine::serve
