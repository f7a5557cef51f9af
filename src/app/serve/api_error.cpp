#include "serve/api_error.h"

#include <cmath>

#include "base/error.h"
#include "http/work_budget.h"
#include "ops/stopping.h"
#include "schedule/scheduler.h"

namespace vitrine::serve {

ApiError unsupported(const std::string& field, const std::string& message) {
  return {501, "not_supported_error", message, field};
}

void check_admin(const http::Request& request) {
  if (request.admin) return;
  throw ApiError(403, "permission_denied",
                 "the key \"" + request.owner + "\" may not use " + request.path +
                     "; in the file of --api-key-file its role is user, and this needs admin");
}

std::string error_type(int status, ErrorForm form) {
  const bool anthropic = form == ErrorForm::anthropic;
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 413: return anthropic ? "request_too_large" : "invalid_request_error";
    case 429: return "rate_limit_error";
    case 501: return anthropic ? "invalid_request_error" : "not_supported_error";
    case 503: return anthropic ? "overloaded_error" : "unavailable_error";
    default: break;
  }
  if (status < 500) return "invalid_request_error";
  return anthropic ? "api_error" : "server_error";
}

OrderedJson error_json(const ApiError& error, ErrorForm form) {
  if (form == ErrorForm::ollama) return {{"error", error.what()}};
  const std::string type = error_type(error.status, form);
  if (form == ErrorForm::anthropic) return {{"type", "error"}, {"error", {{"type", type}, {"message", error.what()}}}};
  OrderedJson json = {{"message", error.what()},
                      {"type", type},
                      {"param", error.param.empty() ? OrderedJson(nullptr) : OrderedJson(error.param)},
                      {"code", error.code},
                      {"status", error.status}};
  json.update(error.more);
  return {{"error", std::move(json)}};
}

http::Response error_response(const ApiError& error, ErrorForm form) {
  const bool full = form == ErrorForm::ollama && error.status == 429;
  http::Response response = json_response(error_json(error, form), full ? 503 : error.status);
  if (error.retry_after > 0)
    response.headers.emplace_back("Retry-After", std::to_string(std::lround(std::ceil(error.retry_after))));
  return response;
}

ApiError api_error(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const ApiError& e) {
    return e;
  } catch (const http::OverBudget& e) {
    ApiError over(e.never_fits ? 413 : 503, e.never_fits ? "request_too_large" : "busy", e.what());
    over.retry_after = e.never_fits ? 0 : 1;
    return over;
  } catch (const QueueFull& e) {
    ApiError full(429, "queue_full", e.what());
    full.retry_after = e.seconds;
    return full;
  } catch (const Draining& e) {
    return {503, "draining", e.what()};
  } catch (const Stopped&) {
    return {499, "cancelled", "the client has left"};
  } catch (const RequestError& e) {
    return {400, e.code, e.what(), e.field};
  } catch (const InputError& e) {
    return {400, "invalid_value", e.what()};
  } catch (const RunError& e) {
    return {500, "run_failed", e.what()};
  } catch (const std::bad_alloc&) {
    return {500, "out_of_memory", "there is not enough memory for this request"};
  } catch (...) {
    return {500, "internal_error", "this request met an error inside the server"};
  }
}

ErrorForm error_form(const std::string& path) {
  if (path.starts_with("/api/")) return ErrorForm::ollama;
  return path.starts_with("/v1/messages") ? ErrorForm::anthropic : ErrorForm::openai;
}

std::string http_error_body(const std::string& path, int status, const std::string& code, const std::string& message) {
  return json_text(error_json(ApiError(status, code, message), error_form(path)));
}

http::Response json_response(const OrderedJson& json, int status) {
  http::Response response;
  response.status = status;
  response.body = json_text(json);
  return response;
}

http::Response json_response(OrderedJson json, const Fields& fields) {
  fields.add_ignored(json);
  return json_response(json);
}

}  // namespace vitrine::serve
