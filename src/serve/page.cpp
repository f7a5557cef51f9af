#include "serve/page.h"

#include <fmt/format.h>

#include "base/fnv.h"
#include "picture/page/embedded.h"
#include "serve/api_error.h"
#include "serve/endpoints.h"

namespace vitrine::serve {
namespace {

// The page tells its own policy, with the hashes of its script and style; a header holds before the first byte of the page, and
// alone can say that no other page may frame this one.
std::string policy_of(std::string_view page) {
  constexpr std::string_view kBefore = "http-equiv=\"Content-Security-Policy\" content=\"";
  const size_t found = page.find(kBefore);
  const std::string_view rest = found == std::string_view::npos ? std::string_view() : page.substr(found + kBefore.size());
  return std::string(rest.substr(0, rest.find('"'))) + "; frame-ancestors 'none'";
}

}  // namespace

http::Response page_response(const http::Request& request) {
  static const std::string_view text = embedded_text("web/dist/chat.html");
  static const std::string tag = fmt::format("\"{:016x}\"", fnv1a(text));
  static const std::string policy = policy_of(text);
  if (text.empty())
    throw ApiError(404, "not_found",
                   "this build has no web/dist/chat.html, the built page. Build it in web/ (npm ci && npm run build) and vitrine "
                   "again; the API answers without it");
  http::Response response;
  response.type = "text/html; charset=utf-8";
  response.headers = {
      {"ETag", tag}, {"Cache-Control", "no-cache"}, {"Content-Security-Policy", policy}, {"Referrer-Policy", "no-referrer"}};
  const std::string* known = request.header("If-None-Match");
  if (known != nullptr && (*known == "*" || known->find(tag) != std::string::npos)) {
    response.status = 304;
    response.type.clear();
  } else {
    response.body = text;
  }
  return response;
}

void page(Service&, const std::shared_ptr<http::Exchange>& exchange) { exchange->respond(page_response(exchange->request())); }

}  // namespace vitrine::serve
