// Several clients of one server: what one of them does must neither show to another nor take what the other needs.
#include "support.h"

namespace vitrine::serve {
namespace {

const std::vector<http::ApiKey> kKeys = {{"alice", "a-key"}, {"bob", "b-key"}};

OrderedJson secret_prompt() {
  return {{"prompt", "The password of the old king is river stone and nobody else in the whole land may ever know it"},
          {"max_tokens", 1},
          {"temperature", 0}};
}

/// Tokens of the prompt that were found in the cache.
int64_t cached(const Served& served, const std::string& key, const std::string& path = "/v1/completions",
               const OrderedJson& request = secret_prompt()) {
  const Reply reply = served.ask("POST", path, request.dump(), key);
  EXPECT_EQ(reply.status, 200) << reply.body;
  const OrderedJson json = reply.json();
  if (path == "/completion") return json["timings"]["cache_n"].get<int64_t>();
  return json["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
}

TEST(Tenants, APrefixIsCachedForItsKeyAlone) {
  const Served served({}, std::string(VITRINE_SOURCE) + "/models/tales9m", {}, kKeys);
  EXPECT_EQ(cached(served, "a-key"), 0);
  EXPECT_EQ(cached(served, "b-key"), 0) << "bob learns what alice sent";
  EXPECT_GE(cached(served, "a-key"), 16);
  EXPECT_GE(cached(served, "b-key"), 16);
  EXPECT_GE(cached(served, "b-key", "/completion", {{"prompt", secret_prompt()["prompt"]}, {"n_predict", 1}}), 16);
}

TEST(Tenants, ASaltSeparatesThePrefixesOfAKey) {
  const Served served({}, std::string(VITRINE_SOURCE) + "/models/tales9m", {}, kKeys);
  OrderedJson salted = secret_prompt();
  salted["cache_salt"] = "user 1";
  EXPECT_EQ(cached(served, "a-key", "/v1/completions", salted), 0);
  EXPECT_EQ(cached(served, "a-key"), 0);
  EXPECT_EQ(cached(served, "b-key", "/v1/completions", salted), 0) << "a salt that was guessed opens nothing of others";
  EXPECT_GE(cached(served, "a-key", "/v1/completions", salted), 16);
  salted["cache_salt"] = "user 2";
  EXPECT_EQ(cached(served, "a-key", "/v1/completions", salted), 0);
  for (const std::string& wrong : {std::string(), std::string(257, 'x')}) {
    salted["cache_salt"] = wrong;
    expect_error(served.ask("POST", "/v1/completions", salted.dump(), "a-key"), 400, "cache_salt", "expected 1 to 256");
  }
}

TEST(Tenants, AServerMaySharePrefixesAmongAll) {
  ServiceOptions options;
  options.share_prefixes = true;
  const Served served(options, std::string(VITRINE_SOURCE) + "/models/tales9m", {}, kKeys);
  EXPECT_EQ(cached(served, "a-key"), 0);
  EXPECT_GE(cached(served, "b-key"), 16);
}

}  // namespace
}  // namespace vitrine::serve
