#include "serve/page.h"

#include <fmt/format.h>

#include "base/fnv.h"
#include "picture/page/embedded.h"
#include "serve/api_error.h"
#include "serve/endpoints.h"

namespace vitrine::serve {
namespace {

// A page tells its own policy, with the hashes of its scripts and style; a header holds before the first byte of the page, and
// alone can say that no other page may frame this one.
std::string policy_of(std::string_view page) {
  constexpr std::string_view kBefore = "http-equiv=\"Content-Security-Policy\" content=\"";
  const size_t found = page.find(kBefore);
  const std::string_view rest = found == std::string_view::npos ? std::string_view() : page.substr(found + kBefore.size());
  return std::string(rest.substr(0, rest.find('"'))) + "; frame-ancestors 'none'";
}

std::string_view bundled(const std::string& name) {
  const std::string_view text = embedded_text(name);
  if (text.empty())
    throw ApiError(
        404, "not_found",
        "this build has no " + name +
            ", the built page. Build it in web/ (npm ci && npm run build) and vitrine again; the API answers without it");
  return text;
}

struct Page {
  std::string text, tag, policy;

  explicit Page(std::string of) : text(std::move(of)), tag(fmt::format("\"{:016x}\"", fnv1a(text))), policy(policy_of(text)) {}
};

// The page of `vitrine explain` behind a script that fetches its data; both were built together, so the hashes hold.
std::string walk_text() {
  std::string text(bundled("web/dist/explain.html"));
  for (const auto& [mark, name] : {std::pair("{{style}}", "web/dist/page.css"), std::pair("{{page}}", "web/dist/page.js")}) {
    const size_t at = text.find(mark);
    if (at == std::string::npos) throw ApiError(500, "internal_error", std::string("web/dist/explain.html has no ") + mark);
    text.replace(at, std::string_view(mark).size(), bundled(name));
  }
  return text;
}

void check_page(const Service& service) {
  if (!service.options().page) throw ApiError(404, "not_found", "this server was started without its page (--no-page)");
}

http::Response response_of(const Page& page, const http::Request& request) {
  http::Response response;
  response.type = "text/html; charset=utf-8";
  response.headers = {{"ETag", page.tag},
                      {"Cache-Control", "no-cache"},
                      {"Content-Security-Policy", page.policy},
                      {"Referrer-Policy", "no-referrer"}};
  const std::string* known = request.header("If-None-Match");
  if (known != nullptr && (*known == "*" || known->find(page.tag) != std::string::npos)) {
    response.status = 304;
    response.type.clear();
  } else {
    response.body = page.text;
  }
  return response;
}

}  // namespace

http::Response page_response(const http::Request& request) {
  static const Page page{std::string(bundled("web/dist/chat.html"))};
  return response_of(page, request);
}

http::Response walk_page_response(const http::Request& request) {
  static const Page page{walk_text()};
  return response_of(page, request);
}

void page(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  check_page(service);
  exchange->respond(page_response(exchange->request()));
}

void walk_page(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  check_page(service);
  exchange->respond(walk_page_response(exchange->request()));
}

}  // namespace vitrine::serve
