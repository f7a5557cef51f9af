// The parts that need no server.
#include <gtest/gtest.h>

#include <cstdlib>

#include "hub/client.h"
#include "hub/digest.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

// Git's own names: printf 'test content\n' | git hash-object --stdin; and of nothing. FIPS 180-2, B.1.
TEST(Digest, NamesContentsAsGitAndGitLfsDo) {
  const auto of = [](const std::string& text, size_t digits) {
    Digest digest(std::string(digits, '0'), text.size());
    for (const char& c : text) digest.add(std::as_bytes(std::span(&c, 1)));
    return digest.finish();
  };
  EXPECT_EQ(of("test content\n", 40), "d670460b4b4aece5915caf5c68d12f560a9fe3e4");
  EXPECT_EQ(of("", 40), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
  EXPECT_EQ(of("abc", 64), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_CONTAINS(message_of<UsageError>([] { Digest("abc", 3); }), "\"abc\" is no hash");
}

TEST(Urls, TellWhatMayShareAToken) {
  EXPECT_EQ(origin_of("https://Hub.example/a/b?c=https://x"), "https://hub.example:443");
  EXPECT_EQ(origin_of("http://hub.example:80/"), "http://hub.example:80");
  EXPECT_NE(origin_of("https://hub.example:8443"), origin_of("https://hub.example"));
  EXPECT_NE(origin_of("https://hub.example.evil.example"), origin_of("https://hub.example"));
  EXPECT_EQ(origin_of("https://hub.example@evil.example/"), "https://evil.example:443");
  for (const std::string url : {"", "x", "/a", "https://", "file:///etc/passwd", "https://a b/"})
    EXPECT_THROW(origin_of(url), InputError) << url;
  EXPECT_EQ(redirect_target("https://hub.example/a/b?c=d", "/x"), "https://hub.example/x");
  EXPECT_EQ(redirect_target("https://hub.example/a/b", "c"), "https://hub.example/a/c");
  EXPECT_EQ(redirect_target("https://hub.example/a", "//cdn.example/x"), "https://cdn.example/x");
  EXPECT_EQ(url_escaped("a b/ü#?.x", true), "a%20b/%C3%BC%23%3F.x");
  EXPECT_EQ(url_escaped("refs/pr/1", false), "refs%2Fpr%2F1");
}

TEST(FileList, FindsTheNextPage) {
  EXPECT_EQ(next_page("<https://a/x?cursor=1>; rel=\"next\""), "https://a/x?cursor=1");
  EXPECT_EQ(next_page("<https://a/0>; rel=\"first\", <https://a/2>; rel=\"next\""), "https://a/2");
  for (const std::string link : {"", "<", "<https://a/0>; rel=\"first\"", "https://a; rel=\"next\""})
    EXPECT_EQ(next_page(link), "") << link;
}

TEST(Repeating, WaitsAsAsked) {
  HubSettings settings;
  HttpResponse response;
  EXPECT_EQ(wait_before(settings, response, 1), 0.5);
  EXPECT_EQ(wait_before(settings, response, 3), 2);
  EXPECT_EQ(wait_before(settings, response, 30), 60);
  response.status = 429;
  response.headers["ratelimit"] = "\"api\";r=0;t=7";
  EXPECT_EQ(wait_before(settings, response, 1), 7);
  response.headers["retry-after"] = "3";
  EXPECT_EQ(wait_before(settings, response, 1), 3);
  response.headers["retry-after"] = "86400";
  EXPECT_EQ(wait_before(settings, response, 1), 60);
  response.headers["retry-after"] = "Fri, 31 Dec 1999 23:59:59 GMT";
  EXPECT_EQ(wait_before(settings, response, 1), 0.5);
}

TEST(HubSettings, FollowTheEnvironment) {
  const Scratch home;
  const char* const names[] = {
      "HF_ENDPOINT",         "HF_TOKEN",      "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",      "HF_HOME",
      "HF_HUB_CACHE",        "SSL_CERT_FILE", "CURL_CA_BUNDLE",         "REQUESTS_CA_BUNDLE", "HF_HUB_OFFLINE",
      "TRANSFORMERS_OFFLINE"};
  std::vector<std::pair<std::string, std::string>> before;
  for (const char* name : names) {
    if (const char* value = std::getenv(name)) before.emplace_back(name, value);
    ::unsetenv(name);
  }
  ::setenv("HF_HOME", home.path().c_str(), 1);
  EXPECT_EQ(hub_settings().endpoint, "https://huggingface.co");
  EXPECT_EQ(hub_settings().token, "");
  EXPECT_EQ(hub_settings().cache, home / "hub");
  EXPECT_FALSE(hub_settings().offline);
  home.write("token", " hf_file\n");
  EXPECT_EQ(hub_settings().token, "hf_file");
  EXPECT_EQ(hub_settings().token_source, home / "token");
  ::setenv("HF_TOKEN", "hf_variable", 1);
  ::setenv("HF_ENDPOINT", "https://mirror.example/", 1);
  ::setenv("HF_HUB_OFFLINE", "true", 1);
  ::setenv("SSL_CERT_FILE", "/certs.pem", 1);
  EXPECT_EQ(hub_settings().token, "hf_variable");
  EXPECT_EQ(hub_settings().endpoint, "https://mirror.example");
  EXPECT_EQ(hub_settings().certificates, "/certs.pem");
  EXPECT_TRUE(hub_settings().offline);
  ::setenv("HF_ENDPOINT", "mirror.example", 1);
  EXPECT_EQ(message_of<InputError>([] { hub_settings(); }),
            "HF_ENDPOINT is \"mirror.example\"; expected a URL such as https://huggingface.co");
  ::setenv("HF_ENDPOINT", "https://mirror.example", 1);
  ::setenv("HF_TOKEN", "hf\r\nX-Evil: 1", 1);
  EXPECT_CONTAINS(message_of<InputError>([] { hub_settings(); }),
                  "the token from HF_TOKEN holds a space or a character that no token has");
  for (const char* name : names) ::unsetenv(name);
  for (const auto& [name, value] : before) ::setenv(name.c_str(), value.c_str(), 1);
}

}  // namespace
}  // namespace vitrine
