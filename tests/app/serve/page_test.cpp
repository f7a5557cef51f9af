// GET /: the page, its policy and its ETag.
#include "serve/page.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "serve/routes.h"

namespace vitrine::serve {
namespace {

std::string header(const http::Response& response, const std::string& name) {
  for (const auto& [key, value] : response.headers)
    if (key == name) return value;
  return "";
}

TEST(Page, IsOneFileWithAPolicyThatAllowsItsOwnScriptAlone) {
  const http::Response page = page_response({});
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.type, "text/html; charset=utf-8");
  EXPECT_TRUE(page.body.starts_with("<!doctype html>")) << page.body.substr(0, 80);
  EXPECT_EQ(page.body.find("<script src"), std::string::npos);
  EXPECT_EQ(page.body.find("<link rel=\"stylesheet"), std::string::npos);
  const std::string policy = header(page, "Content-Security-Policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; script-src 'sha256-")) << policy;
  EXPECT_EQ(policy.find("unsafe"), std::string::npos) << policy;
  EXPECT_NE(policy.find("; connect-src 'self';"), std::string::npos) << policy;
  EXPECT_TRUE(policy.ends_with("; frame-ancestors 'none'")) << policy;
  // The page's own policy says the same.
  EXPECT_NE(page.body.find("content=\"" + policy.substr(0, policy.find("; frame-ancestors")) + "\""), std::string::npos);
}

http::Request request_with(const std::string& name, const std::string& value) {
  http::Request request;
  request.headers.emplace_back(name, value);
  return request;
}

TEST(Page, IsNotSentAgainToWhoHasIt) {
  const std::string tag = header(page_response({}), "ETag");
  ASSERT_EQ(tag.size(), 18U);
  for (const std::string& known : {tag, "W/" + tag, "\"other\", " + tag, std::string("*")}) {
    const http::Response page = page_response(request_with("if-none-match", known));
    EXPECT_EQ(page.status, 304) << known;
    EXPECT_EQ(page.body, "");
    EXPECT_EQ(header(page, "ETag"), tag);
  }
  EXPECT_EQ(page_response(request_with("If-None-Match", "\"other\"")).status, 200);
}

TEST(Page, NeedsNoKeyBecauseItAsksForOne) {
  const std::vector<std::string> open = open_paths();
  EXPECT_NE(std::find(open.begin(), open.end(), "/"), open.end());
}

}  // namespace
}  // namespace vitrine::serve
