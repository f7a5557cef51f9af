#include "hub/pull.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>

#include "hub/headers.h"
#include "io/gguf.h"
#include "io/huggingface.h"
#include "io/safetensors.h"
#include "support/hub_server.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

const std::string kId = "ada/model";
constexpr const char* kCommit = HubServer::kCommit;

/// One server for all tests; each has a cache of its own and begins with a hub on which nothing goes wrong.
class Pull : public testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<HubServer>(); }
  static void TearDownTestSuite() { server_.reset(); }

  void SetUp() override {
    ASSERT_TRUE(server_->runs()) << "tests of downloads need python3 and openssl";
    server_->plan(Json::object());
    server_->forget();
    settings_.endpoint = server_->endpoint();
    settings_.certificates = server_->certificates();
    settings_.cache = cache_.path();
    settings_.first_wait = 0.01;
    settings_.piece_bytes = 64 << 10;
    settings_.connections = 4;
    static bool filled = false;
    if (filled) return;
    filled = true;
    for (const auto& [name, content] : files()) server_->add(kId, name, content);
  }

  static std::vector<std::pair<std::string, std::string>> files() {
    return {{"config.json", "{\"model_type\": \"llama\"}"},
            {"tokenizer.json", std::string(3000, ' ') + "{}"},
            {"model.safetensors", random_content(1 << 20)},
            {"README.md", "not needed"},
            {"original/consolidated.safetensors", random_content(5000, 2)}};
  }
  static std::string content_of(const std::string& name) {
    for (const auto& [file, content] : files())
      if (file == name) return content;
    return "";
  }

  PullResult fetch(const std::string& name = kId, const std::string& revision = "main") const {
    return pull(read_pull_name(name, revision), settings_);
  }
  template <class E = InputError>
  std::string message(const std::string& name = kId, const std::string& revision = "main") const {
    return message_of<E>([&] { fetch(name, revision); });
  }
  std::string folder(const std::string& id = kId) const {
    std::string name = id;
    name.replace(name.find('/'), 1, "--");
    return cache_ / ("models--" + name);
  }
  std::string snapshot(const std::string& id = kId) const { return folder(id) + "/snapshots/" + kCommit; }
  std::string weights_etag() const { return fs::path(fs::read_symlink(snapshot() + "/model.safetensors")).filename().string(); }

  void expect_whole() const {
    for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"})
      EXPECT_EQ(read_file(snapshot() + "/" + name), content_of(name)) << name;
    EXPECT_EQ(read_file(folder() + "/refs/main"), kCommit);
    for (const auto& entry : fs::directory_iterator(folder() + "/blobs"))
      EXPECT_NE(entry.path().extension(), ".incomplete") << entry.path();
  }
  /// Nothing that a program could take for the model.
  void expect_nothing() const {
    EXPECT_FALSE(fs::exists(snapshot() + "/model.safetensors"));
    EXPECT_FALSE(fs::exists(folder() + "/refs/main"));
  }
  static size_t count(const char* at, const char* method, const std::string& part) {
    const std::vector<Json> all = server_->requests();
    return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const Json& request) {
      return request.at("at") == at && request.at("method") == method &&
             request.at("path").get<std::string>().find(part) != std::string::npos;
    }));
  }

  static std::unique_ptr<HubServer> server_;
  Scratch cache_;
  HubSettings settings_;
};
std::unique_ptr<HubServer> Pull::server_;

TEST_F(Pull, BringsWhatARunNeeds) {
  const PullResult result = fetch();
  EXPECT_EQ(result.commit, kCommit);
  EXPECT_EQ(result.path, snapshot());
  EXPECT_EQ(result.files.size(), 3u);
  EXPECT_EQ(result.fetched(), result.bytes());
  expect_whole();
  EXPECT_FALSE(fs::exists(snapshot() + "/README.md"));
  EXPECT_FALSE(fs::exists(snapshot() + "/original"));
  EXPECT_EQ(fs::read_symlink(snapshot() + "/config.json").string().substr(0, 12), "../../blobs/");
  EXPECT_GE(count("storage", "GET", "model.safetensors"), 16u);  // pieces
  EXPECT_EQ(count("hub", "HEAD", "model.safetensors"), 1u);

  server_->forget();
  EXPECT_EQ(fetch().fetched(), 0u);
  EXPECT_EQ(count("storage", "GET", ""), 0u);
  EXPECT_EQ(count("hub", "HEAD", ""), 0u);
}

TEST_F(Pull, TellsHowFarItIs) {
  PullProgress last;
  uint64_t before = 0;
  pull(read_pull_name(kId, "main"), settings_, [&](const PullProgress& now) {
    EXPECT_GE(now.arrived, before);
    EXPECT_LE(now.arrived, now.total);
    before = now.arrived;
    last = now;
  });
  EXPECT_EQ(last.arrived, last.total);
  EXPECT_EQ(last.total, content_of("config.json").size() + content_of("tokenizer.json").size() + (1 << 20));
}

TEST_F(Pull, PlansWithoutFetching) {
  PullRequest request = read_pull_name(kId, "main");
  request.only_plan = true;
  EXPECT_EQ(pull(request, settings_).files.size(), 3u);
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(Pull, TakesOneFileABranchOrACommit) {
  EXPECT_EQ(fetch(kId + ":original/consolidated.safetensors").path, snapshot() + "/original/consolidated.safetensors");
  EXPECT_EQ(read_file(snapshot() + "/original/consolidated.safetensors"), content_of("original/consolidated.safetensors"));
  fs::remove_all(folder());
  EXPECT_EQ(fetch(kId, kCommit).commit, kCommit);
  EXPECT_FALSE(fs::exists(folder() + "/refs/main"));
  EXPECT_EQ(message(kId, "v2"), kId + ": has no revision \"v2\"; --revision takes a branch, a tag or a commit. " +
                                    server_->endpoint() + "/ada/model/tree/main shows them");
  EXPECT_EQ(message(kId, "../../x"),
            "the revision \"../../x\" cannot be one; expected the name of a branch or a tag, or a commit");
}

TEST_F(Pull, ReadsTheListInPages) {
  server_->plan({{"page", 2}});
  fetch();
  expect_whole();
  EXPECT_GE(count("hub", "GET", "/tree/"), 3u);
  server_->plan({{"next", "https://localhost:1/api/models/x"}});
  EXPECT_CONTAINS(message(), "is no further page of the list of files");
}

TEST_F(Pull, SendsTheTokenToTheHubOnly) {
  settings_.token = "hf_secret";
  settings_.token_source = "HF_TOKEN";
  server_->plan({{"token", "hf_secret"}});
  fetch();
  expect_whole();
  for (const Json& request : server_->requests())
    EXPECT_EQ(request.at("authorization"), request.at("at") == "hub" ? "Bearer hf_secret" : "") << request.dump();
}

TEST_F(Pull, ExplainsWhatItMayNotRead) {
  server_->plan({{"token", "hf_secret"}, {"private", true}});
  EXPECT_EQ(message(), kId + ": is not at " + server_->endpoint() +
                           ", or is private. Is the name right? A private one needs a token: set HF_TOKEN to one from " +
                           server_->endpoint() + "/settings/tokens");
  server_->plan({{"token", "hf_secret"}});
  EXPECT_EQ(message(), kId + ": is gated. Accept its terms at " + server_->endpoint() +
                           "/ada/model in a browser; then set HF_TOKEN to a token from " + server_->endpoint() +
                           "/settings/tokens, or run `hf auth login`");
  settings_.token = "hf_wrong";
  settings_.token_source = "/home/ada/.cache/huggingface/token";
  EXPECT_EQ(message(), "the token from /home/ada/.cache/huggingface/token is not accepted by " + server_->endpoint() +
                           " (status 401: Invalid credentials in Authorization header). Make a new one at " +
                           server_->endpoint() + "/settings/tokens, or unset it: public models need none");
  settings_.token = "hf_secret";
  server_->plan({{"token", "hf_secret"}, {"gated", true}});
  EXPECT_CONTAINS(message(),
                  "/ada/model in a browser. The token from /home/ada/.cache/huggingface/token must be one of that account");
  server_->plan(Json::object());
  EXPECT_CONTAINS(message("ada/nothing"), "ada/nothing: is not at");
  EXPECT_CONTAINS(message("ada/nothing"), "does not give access to it");
  EXPECT_CONTAINS(message(kId + ":nothing.bin"),
                  "has no file \"nothing.bin\" and no folder of that name at revision main, and no GGUF files");
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(Pull, RepeatsWhatMayPass) {
  server_->plan(
      {{"answers",
        {{{"path", "/api/"}, {"status", 503}, {"times", 2}},
         {{"path", "/resolve/"}, {"status", 429}, {"times", 1}, {"headers", {{"Retry-After", "0"}}}},
         {{"path", "/store/"}, {"status", 500}, {"times", 3}},
         {{"path", "/store/"}, {"status", 403}, {"times", 1}}}},  // the signed address has expired
       {"drops", {{{"path", "/store/"}, {"after", 1000}, {"times", 5}}, {{"path", "/tree/"}, {"after", 10}, {"times", 1}}}}});
  fetch();
  expect_whole();
  EXPECT_EQ(count("hub", "HEAD", "model.safetensors"), 3u);  // 429, the address, a new address
}

TEST_F(Pull, GivesUpInTheEndAndGoesOnLater) {
  server_->plan(
      {{"drops", {{{"path", "/store/"}, {"after", 30000}, {"times", 3}}, {{"path", "/store/"}, {"after", 0}, {"times", 1000}}}}});
  EXPECT_CONTAINS(message<RunError>(), "cannot be fetched from https://localhost:");
  expect_nothing();
  server_->plan({{"answers", {{{"path", "/api/"}, {"status", 429}, {"times", 1000}, {"headers", {{"Retry-After", "0"}}}}}}});
  EXPECT_CONTAINS(message<RunError>(), "allows no more requests for now (status 429)");
  server_->plan(Json::object());
  fetch();
  expect_whole();
}

TEST_F(Pull, GoesOnBehindWhatIsThere) {
  fetch();
  const std::string etag = weights_etag(), whole = content_of("model.safetensors");
  const auto leave = [&](const std::string& beginning) {
    fs::remove(folder() + "/blobs/" + etag);
    cache_.write("models--ada--model/blobs/" + etag + ".incomplete", beginning);
    server_->forget();
  };
  leave(whole.substr(0, 1000000));
  EXPECT_EQ(fetch().fetched(), whole.size() - 1000000);
  expect_whole();
  EXPECT_EQ(count("storage", "GET", "model.safetensors"), 1u);
  leave(whole);  // stopped between the last byte and the name
  fetch();
  expect_whole();
  EXPECT_EQ(count("storage", "GET", ""), 0u);
  leave(random_content(900000, 7));  // of something else: all of it is fetched again
  fetch();
  expect_whole();
  leave(whole + "more");
  fetch();
  expect_whole();
}

TEST_F(Pull, ManagesWithoutRanges) {
  server_->plan({{"no_ranges", true},
                 {"answers", {{{"path", "/store/ada/model/"}, {"status", 503}, {"times", 6}}}},
                 {"drops", {{{"path", "/store/ada/model/"}, {"after", 300000}, {"times", 1}}}}});
  fetch();
  expect_whole();
}

TEST_F(Pull, KeepsNoWrongContent) {
  for (const char* name : {"model.safetensors", "config.json"}) {
    std::string wrong = content_of(name);
    std::fill(wrong.begin(), wrong.end(), 'x');
    server_->plan({{"content", {{name, wrong}}}});
    const std::string text = message<RunError>();
    EXPECT_CONTAINS(text, std::string("the content of ") + name + " that came has the hash ");
    EXPECT_CONTAINS(text, "It was thrown away");
    expect_nothing();
    for (const auto& blob : fs::directory_iterator(folder() + "/blobs"))
      EXPECT_NE(read_file(blob.path().string()).front(), 'x') << blob.path();
    fs::remove_all(folder());
  }
}

TEST_F(Pull, KeepsNothingOfAWrongSize) {
  for (const size_t bytes : {size_t{900000}, size_t{1200000}}) {
    server_->plan({{"content", {{"model.safetensors", std::string(bytes, 'x')}}}});
    const std::string text = message<RunError>();
    EXPECT_CONTAINS(text, "the answer has the range \"bytes ");
    EXPECT_CONTAINS(text, "/" + std::to_string(bytes) + "\"; expected \"bytes ");
    expect_nothing();
  }
  server_->plan({{"content", {{"config.json", "{}"}}}});
  EXPECT_CONTAINS(message<RunError>(), "the answer has 2 bytes; the list of files says 23");
  server_->plan({{"linked", {{"X-Linked-Size", "17"}}}});
  EXPECT_CONTAINS(message(), "is announced with 17 bytes; the list of files says 3002");
  server_->plan({{"linked", {{"X-Linked-Etag", "\"abc\""}}}});
  EXPECT_CONTAINS(message(), "is announced with the hash abc; the list of files says");
}

TEST_F(Pull, RefusesNamesThatLeaveTheCache) {
  const std::string hash(40, 'a');
  for (const std::string name : {"../evil", "/etc/passwd", "a/../../b", "..", "a\\..\\b", "a//b", "", "a/.", "x\n", "C:\\x"}) {
    server_->plan({{"tree_more", {{{"type", "file"}, {"path", name}, {"size", 3}, {"oid", hash}}}}});
    EXPECT_CONTAINS(message(), "nothing of this repository is fetched") << name;
  }
  EXPECT_FALSE(fs::exists(folder()));
}

TEST_F(Pull, RefusesAListThatCannotBe) {
  const std::string hash(40, 'a');
  const auto with = [&](const Json& entry) { server_->plan({{"tree_more", {entry}}}); };
  with({{"type", "file"}, {"path", "config.json"}, {"size", 3}, {"oid", hash}});
  EXPECT_CONTAINS(message(), "lists config.json twice");
  with({{"type", "file"}, {"path", "x"}, {"size", -3}, {"oid", hash}});
  EXPECT_CONTAINS(message(), "lists x without a size that a file can have");
  with({{"type", "file"}, {"path", "x"}, {"size", 3}, {"oid", "../../x"}});
  EXPECT_CONTAINS(message(), "lists x with the hash \"../../x\"; expected 40 hexadecimal digits (a Git blob)");
  with({{"type", "file"}, {"path", "x"}, {"size", 3}, {"oid", hash}, {"lfs", {{"oid", hash}, {"size", 3}}}});
  EXPECT_CONTAINS(message(), "expected 64 hexadecimal digits (SHA-256)");
  server_->plan({{"sha", "../../x"}});
  EXPECT_CONTAINS(message(), "does not name a commit");
  server_->plan({{"info", "<html>"}});
  EXPECT_CONTAINS(message(), "/revision/main");
  server_->plan({{"storage", "http://localhost:1"}});
  EXPECT_CONTAINS(message(), "which is not encrypted; the hub is");
}

TEST_F(Pull, LooksAtTheDiskFirst) {
  server_->plan({{"tree",
                  {{{"type", "file"},
                    {"path", "model.safetensors"},
                    {"size", 1},
                    {"oid", std::string(40, 'a')},
                    {"lfs", {{"oid", std::string(64, 'a')}, {"size", uint64_t{1} << 49}}}}}}});
  EXPECT_CONTAINS(message<RunError>(), "512.0 TiB are to be fetched");
  EXPECT_CONTAINS(message<RunError>(), "Nothing was fetched. HF_HUB_CACHE names another folder");
  EXPECT_EQ(count("storage", "GET", ""), 0u);
}

TEST_F(Pull, ReadsShardsFromTheIndex) {
  const std::string id = "ada/shards";
  server_->add(id, "config.json", "{}");
  server_->add(id, "model.safetensors.index.json",
               R"({"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors", "c": "m-1.safetensors"}})");
  server_->add(id, "m-1.safetensors", random_content(2000, 3));
  server_->add(id, "m-2.safetensors", random_content(2000, 4));
  server_->add(id, "m-3.safetensors", random_content(2000, 5));
  EXPECT_EQ(fetch(id).files.size(), 4u);
  EXPECT_TRUE(fs::exists(snapshot(id) + "/m-2.safetensors"));
  EXPECT_FALSE(fs::exists(snapshot(id) + "/m-3.safetensors"));
  server_->add("ada/lost", "model.safetensors.index.json", R"({"weight_map": {"a": "../m.safetensors"}})");
  EXPECT_CONTAINS(message("ada/lost"), "names the file \"../m.safetensors\", which ada/lost does not have");
}

TEST_F(Pull, ChoosesGgufByType) {
  const std::string id = "ada/model-GGUF";
  for (const char* name : {"model-Q4_K_M.gguf", "model-Q8_0.gguf", "mmproj-model-f16.gguf", "BF16/model-BF16-00001-of-00002.gguf",
                           "BF16/model-BF16-00002-of-00002.gguf"})
    server_->add(id, name, random_content(1500, static_cast<uint32_t>(std::strlen(name))));
  EXPECT_EQ(fetch(id + ":q4_k_m").path, snapshot(id) + "/model-Q4_K_M.gguf");
  const PullResult split = fetch(id + ":BF16");
  EXPECT_EQ(split.path, snapshot(id) + "/BF16/model-BF16-00001-of-00002.gguf");
  EXPECT_EQ(split.files.size(), 2u);
  EXPECT_EQ(message(id), id + ": has several GGUF files; name one:\n  vitrine pull ada/model-GGUF:BF16    2.9 KiB\n"
                              "  vitrine pull ada/model-GGUF:Q4_K_M    1.5 KiB\n  vitrine pull ada/model-GGUF:Q8_0    1.5 KiB");
  EXPECT_CONTAINS(message(id + ":Q5_K_M"), "has neither a file \"Q5_K_M\" nor GGUF weights of that type. There are:");
  server_->add("ada/old", "pytorch_model.bin", "x");
  EXPECT_CONTAINS(message("ada/old"), "has no weights that vitrine reads (safetensors or GGUF); it has pytorch_model.bin");
}

TEST_F(Pull, AFolderOfAnAutoencoder) {
  const std::string id = "ada/scope-res", name = id + ":layer_1/width_20";
  const auto file = [](const char* part) { return read_file(std::string(VITRINE_GOLDEN) + "/sae/runs/standard/" + part); };
  server_->add(id, "layer_1/width_20/cfg.json", file("cfg.json"));
  server_->add(id, "layer_1/width_20/sae_weights.safetensors", file("sae_weights.safetensors"));
  server_->add(id, "layer_1/width_20/more/notes.txt", "x");
  server_->add(id, "layer_1/width_200/cfg.json", "{}");
  const PullResult pulled = fetch(name);
  EXPECT_EQ(pulled.path, snapshot(id) + "/layer_1/width_20");
  EXPECT_EQ(pulled.files.size(), 2u);
  EXPECT_EQ(locate_folder(name, settings_.cache), pulled.path);
  EXPECT_FALSE(locate_folder("layer_1/width_20", settings_.cache).has_value());
  EXPECT_THROW(locate_folder(id + ":layer_2", settings_.cache), FileError);
  EXPECT_THROW(locate_folder(id + ":../..", settings_.cache), FileError);
  EXPECT_CONTAINS(message(id + ":layer_2"), "has no file \"layer_2\" and no folder of that name");
}

TEST_F(Pull, ReadsHeadersAlone) {
  const std::string header = R"({"a": {"dtype": "BF16", "shape": [1024, 1024], "data_offsets": [0, 2097152]}})";
  server_->add("ada/large", "config.json", "{}");
  server_->add("ada/large", "tokenizer.json", std::string(5000, ' '));
  server_->add("ada/large", "model.safetensors", raw(uint64_t{header.size()}) + header + random_content(2 << 20));
  const HeaderFolder large(read_pull_name("ada/large", "main"), settings_);
  EXPECT_EQ(open_safetensors(large.path()).find("a")->bytes, 2097152u);
  EXPECT_EQ(large.left_out(), "tokenizer.json");
  EXPECT_EQ(large.fetched(), (256u << 10) + 2);
  EXPECT_FALSE(fs::exists(folder("ada/large")));

  std::string gguf = "GGUF" + raw(uint32_t{3}) + raw(uint64_t{0}) + raw(uint64_t{1}) + raw(uint64_t{6}) + "tokens" +
                     raw(uint32_t{9}) + raw(uint32_t{8}) + raw(uint64_t{60000});
  for (int i = 0; i < 60000; ++i) gguf += raw(uint64_t{7}) + std::to_string(1000000 + i);
  server_->add("ada/vocabulary", "m-Q8_0.gguf", gguf + random_content(4 << 20));
  const HeaderFolder vocabulary(read_pull_name("ada/vocabulary:Q8_0", "main"), settings_);
  EXPECT_EQ(open_gguf(vocabulary.path()).metadata.strings("tokens").back(), "1059999");
  EXPECT_EQ(vocabulary.fetched(), 1u << 20);
  EXPECT_EQ(vocabulary.bytes(), gguf.size() + (4 << 20));
}

TEST_F(Pull, LetsOneWorkAtATime) {
  fetch();
  fs::remove(folder() + "/blobs/" + weights_etag());
  {
    const int held = ::open(folder().c_str(), O_RDONLY | O_DIRECTORY);
    ASSERT_EQ(::flock(held, LOCK_EX), 0);
    EXPECT_EQ(message<UsageError>(), kId + " is being pulled by another process; wait for it, or stop it");
    ::close(held);
  }
  const std::string lock = cache_ / (".locks/models--ada--model/" + weights_etag() + ".lock");
  const int held = ::open(lock.c_str(), O_RDWR);
  ASSERT_EQ(::flock(held, LOCK_EX), 0);
  EXPECT_CONTAINS(message<UsageError>(), "model.safetensors is being downloaded by another program");
  ::close(held);
  fetch();
  expect_whole();
}

TEST_F(Pull, SaysWhenThereIsNoHub) {
  settings_.endpoint = "https://localhost:1";
  EXPECT_CONTAINS(message<RunError>(), "cannot be reached");
  settings_.endpoint = server_->endpoint();
  settings_.certificates = "/etc/ssl/certs/ca-certificates.crt";
  EXPECT_CONTAINS(message<RunError>(), "is not trusted");
  settings_.offline = true;
  EXPECT_CONTAINS(message(), "HF_HUB_OFFLINE is set");
  for (const std::string name : {"", "a/b/c", "../x", "a b", "ada/model:", "-x/y", "a--b"})
    EXPECT_CONTAINS(message_of<InputError>([&] { read_pull_name(name, "main"); }), "is not the name of a model on a hub");
}

}  // namespace
}  // namespace vitrine
