#include "cli/program.h"
#include "support/hub_server.h"

namespace vitrine {
namespace {

/// The program against a hub of our own that holds a small model, and the same as GGUF.
class PullCommand : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server_ = std::make_unique<HubServer>();
    for (const auto& file : std::filesystem::directory_iterator(golden_model("llama")))
      server_->add("ada/llama", file.path().filename().string(), read_file(file.path().string()));
    const std::string gguf = read_file(std::string(VITRINE_GOLDEN) + "/gguf/llama_q8_0.gguf");
    server_->add("ada/llama-GGUF", "llama-Q8_0.gguf", gguf);
    server_->add("ada/llama-GGUF", "llama-F16.gguf", gguf);
  }
  static void TearDownTestSuite() { server_.reset(); }
  void SetUp() override { ASSERT_TRUE(server_->runs()) << "tests of downloads need python3 and openssl"; }

  Outcome run(const std::vector<std::string>& arguments, std::vector<std::string> environment = {}) const {
    for (const std::string& variable : {"HF_ENDPOINT=" + server_->endpoint(), "SSL_CERT_FILE=" + server_->certificates(),
                                        "HF_HUB_CACHE=" + cache_.path(), "HF_HOME=" + cache_.path()})
      environment.push_back(variable);
    return vitrine(arguments, environment);
  }

  static std::unique_ptr<HubServer> server_;
  Scratch cache_;
};
std::unique_ptr<HubServer> PullCommand::server_;

TEST_F(PullCommand, MakesAnIdAModel) {
  Outcome outcome = run({"predict", "--model", "ada/llama", "--tokens", "1,2"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "download it with `vitrine pull ada/llama`");
  const Json planned = run({"pull", "ada/llama", "--dry-run", "--json"}).json();
  EXPECT_EQ(planned.at("bytes_to_fetch"), planned.at("bytes"));
  const Json pulled = run({"pull", "ada/llama", "--json"}).json();
  EXPECT_EQ(pulled.at("bytes_fetched"), planned.at("bytes"));
  EXPECT_EQ(pulled.at("path"), cache_ / ("models--ada--llama/snapshots/" + std::string(HubServer::kCommit)));
  EXPECT_EQ(pulled.at("commit"), HubServer::kCommit);
  outcome = run({"predict", "--model", "ada/llama", "--tokens", "1,2", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  outcome = run({"pull", "ada/llama"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_CONTAINS(outcome.out, "in the cache");
  EXPECT_CONTAINS(outcome.out, "ada/llama is complete: ");
}

TEST_F(PullCommand, FindsGgufByItsType) {
  Outcome outcome = run({"pull", "ada/llama-GGUF"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "\n  vitrine pull ada/llama-GGUF:F16 ");
  EXPECT_EQ(run({"pull", "ada/llama-GGUF:Q8_0"}).code, 0);
  EXPECT_EQ(run({"info", "--model", "ada/llama-GGUF", "--json"}).json().at("family"), "llama");  // the only one in the cache
  EXPECT_EQ(run({"pull", "ada/llama-GGUF:F16"}).code, 0);
  for (const std::string name : {"ada/llama-GGUF:Q8_0", "ada/llama-GGUF:f16", "ada/llama-GGUF:llama-Q8_0.gguf"})
    EXPECT_EQ(run({"info", "--model", name, "--json"}).json().at("family"), "llama") << name;
  outcome = run({"info", "--model", "ada/llama-GGUF"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "means several models in the cache; name one:\n  ada/llama-GGUF:llama-F16.gguf");
  outcome = run({"info", "--model", "ada/llama-GGUF:Q4_0"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "which has F16, Q8_0 of this repository. Download it with `vitrine pull ada/llama-GGUF:Q4_0`");
}

TEST_F(PullCommand, InfoReadsHeadersFromTheHub) {
  for (const std::string name : {"ada/llama", "ada/llama-GGUF:Q8_0"}) {
    Json there = run({"info", "--model", name, "--hub", "--json"}).json();
    EXPECT_CONTAINS(there.at("path").get<std::string>(), server_->endpoint() + "/ada/llama");
    EXPECT_FALSE(std::filesystem::exists(cache_ / (name == "ada/llama" ? "models--ada--llama" : "models--ada--llama-GGUF")));
    ASSERT_EQ(run({"pull", name}).code, 0);
    Json here = run({"info", "--model", name, "--json"}).json();
    for (Json* info : {&there, &here})
      for (const char* key : {"path", "tokenizer", "no_tokenizer"}) info->erase(key);
    for (Json* info : {&there, &here})  // the vocabulary's memory is known where its file is
      for (const char* key : {"bytes", "working"}) info->at("run").erase(key);
    EXPECT_TRUE(there == here) << there << "\n" << here;
  }
  const Outcome outcome = run({"info", "--model", "ada/nothing", "--hub"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "ada/nothing: is not at");
}

TEST_F(PullCommand, TakesNamesOfSaelens) {
  const std::string golden = std::string(VITRINE_GOLDEN) + "/sae/standard";
  for (const auto& file : std::filesystem::directory_iterator(golden))
    server_->add("ada/saes", "layer_0/" + file.path().filename().string(), read_file(file.path().string()));
  cache_.write("saes.yaml",
               "small-res:\n  repo_id: ada/saes\n  model: gpt2\n  config_overrides:\n    model_from_pretrained_kwargs: "
               "{center_writing_weights: true}\n  saes: [{id: blocks.0.hook_resid_pre, path: layer_0}]\n");
  const std::vector<std::string> registry = {"--sae-registry", cache_ / "saes.yaml"};
  const auto pull = [&](const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"pull", name};
    arguments.insert(arguments.end(), registry.begin(), registry.end());
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  };
  EXPECT_EQ(pull("small-res:blocks.0.hook_resid_pre", {"--json"}).json().at("name"), "ada/saes:layer_0");
  Outcome outcome = pull("small-res:blocks.0.hook_resid_pre");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_CONTAINS(outcome.out, "small-res:blocks.0.hook_resid_pre is ada/saes:layer_0\n");
  EXPECT_CONTAINS(outcome.out, "ada/saes:layer_0 is complete: ");
  EXPECT_CONTAINS(outcome.err, "a residual stream without its mean");
  outcome = pull("small-res:blocks.1.hook_resid_pre");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "the nearest is \"blocks.0.hook_resid_pre\"");
  outcome = pull("small-res");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "expected RELEASE:ID");
  outcome = run({"pull", "small-res:blocks.0.hook_resid_pre"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "--sae-registry");
  outcome = run({"features", "--sae", "small-res:blocks.0.hook_resid_pre", "Once"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "Is it SAELens's RELEASE:ID?");
}

TEST_F(PullCommand, SaysWhatIsWrong) {
  Outcome outcome = run({"pull", "ada/llama"}, {"HF_HUB_OFFLINE=1"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "HF_HUB_OFFLINE is set");
  EXPECT_EQ(run({"pull", "not a name"}).code, 2);
  EXPECT_EQ(run({"pull", "ada/nothing"}).code, 2);
  outcome = run({"pull", "ada/llama"}, {"HF_TOKEN=hf secret"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_CONTAINS(outcome.err, "the token from HF_TOKEN holds a space");
  EXPECT_EQ(outcome.err.find("hf secret"), std::string::npos);
}

TEST_F(PullCommand, ReadsTheTokenFile) {
  cache_.write("token", "hf_from_the_file\n");
  server_->forget();
  EXPECT_EQ(run({"pull", "ada/llama"}).code, 0);
  for (const Json& request : server_->requests())
    EXPECT_EQ(request.at("authorization"), request.at("at") == "hub" ? "Bearer hf_from_the_file" : "");
}

}  // namespace
}  // namespace vitrine
