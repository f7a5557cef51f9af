#pragma once
// The API: one table of routes, and what happens to a request.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "serve/endpoints.h"

namespace vitrine::serve {

struct Route {
  const char* method;
  const char* path;  // "/v1/models/{id}": the last part may be anything
  Handle handle;
  const char* summary;
  std::function<const std::vector<Field>&()> fields = nullptr;  // of the body
  ErrorForm form = ErrorForm::openai;
  bool open = false;   // needs no key
  bool quick = false;  // is answered also while all request threads are busy
  bool list = false;   // the body is a list of objects with these fields
  bool admin = false;  // for keys that may manage the server
};

const std::vector<Route>& routes();

/// Answers a request: a handler of routes() does, or an error: 404 for a path that is not there, 405 with Allow for a method that
/// its path does not have, 415 for a body that is not JSON.
void answer(Service& service, const std::shared_ptr<http::Exchange>& exchange);

/// The path of the route that a request's path belongs to: "/v1/models/{id}". Null: there is none.
const char* route_of(const std::string& path);

/// The paths of routes that need no key.
std::vector<std::string> open_paths();
/// The paths of routes that are quick.
std::vector<std::string> quick_paths();

}  // namespace vitrine::serve
