// Slots saved and restored: a text goes on in another run of the server as if it had never ended.
#include <filesystem>
#include <fstream>

#include "model/adapter.h"
#include "support.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine::serve {
namespace {

class Slots : public testing::Test {
 protected:
  const Scratch folder;

  std::unique_ptr<Served> start(const std::string& model, std::vector<http::ApiKey> keys = {}) const {
    ServiceOptions options;
    options.slot_folder = folder.path();
    return std::make_unique<Served>(options, model, SchedulerOptions{.clear_pages = true}, std::move(keys));
  }
  static std::string tales() { return std::string(VITRINE_SOURCE) + "/models/tales9m"; }
  static Reply act(const Served& served, const std::string& path, const OrderedJson& body, const std::string& key = "") {
    return served.ask("POST", path, body.is_null() ? "" : body.dump(), key);
  }
  static OrderedJson text(const Served& served, const std::vector<int32_t>& prompt, OrderedJson more = OrderedJson::object(),
                          const std::string& key = "") {
    OrderedJson request = {
        {"prompt", prompt}, {"n_predict", 12}, {"temperature", 0}, {"return_tokens", true}, {"ignore_eos", true}};
    request.update(more);
    const Reply reply = served.ask("POST", "/completion", request.dump(), key);
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.json();
  }
  std::filesystem::path only_file() const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path()))
      if (entry.is_regular_file()) return entry.path();
    return {};
  }
};

std::vector<int32_t> tokens_of(int n) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back(3 + i * 7 % 60);
  return ids;
}

std::vector<int32_t> with(std::vector<int32_t> prompt, const OrderedJson& made) {
  for (const OrderedJson& id : made["tokens"]) prompt.push_back(id.get<int32_t>());
  return prompt;
}

// Layers that keep all positions, that have a window beyond which the prompt goes, and that carry a state.
TEST_F(Slots, ATextGoesOnInAnotherRun) {
  for (const char* name : {"llama", "gemma2", "gemma3", "qwen3_5"}) {
    SCOPED_TRACE(name);
    const std::string model = Golden::open(name).model();
    const std::vector<int32_t> prompt = tokens_of(40);
    std::vector<int32_t> whole;
    OrderedJson expected;
    {
      const auto served = start(model);
      whole = with(prompt, text(*served, prompt, {{"id_slot", 3}}));
      const Reply saved = act(*served, "/slots/3?action=save", {{"filename", "tale.bin"}});
      ASSERT_EQ(saved.status, 200) << saved.body;
      EXPECT_EQ(saved.json()["id_slot"], 3);
      EXPECT_EQ(saved.json()["filename"], "tale.bin");
      EXPECT_EQ(saved.json()["n_saved"], whole.size() - 1);  // the last token is not read
      EXPECT_EQ(saved.json()["n_written"], std::filesystem::file_size(only_file()));
      EXPECT_GE(saved.json()["timings"]["save_ms"], 0);
      whole.push_back(5);
      expected = text(*served, whole);
    }
    const auto served = start(model);
    const Reply restored = act(*served, "/slots/0?action=restore", {{"filename", "tale.bin"}});
    ASSERT_EQ(restored.status, 200) << restored.body;
    EXPECT_EQ(restored.json()["n_restored"], whole.size() - 2);
    EXPECT_EQ(restored.json()["n_read"], std::filesystem::file_size(only_file()));
    const OrderedJson json = text(*served, whole);
    EXPECT_EQ(json["timings"]["cache_n"], whole.size() - 2);
    EXPECT_EQ(json["tokens"], expected["tokens"]);
    EXPECT_EQ(json["tokens"], OrderedJson(served->greedy(whole, 12, {.ignore_eos = true}).tokens));
  }
}

TEST_F(Slots, ErasedOnesAreReadAgain) {
  const auto served = start(tales());
  const std::vector<int32_t> prompt = tokens_of(30);
  const std::vector<int32_t> whole = with(prompt, text(*served, prompt));
  EXPECT_GT(text(*served, prompt)["timings"]["cache_n"], 0);
  const Reply erased = act(*served, "/slots/0?action=erase", nullptr);
  EXPECT_EQ(erased.json()["n_erased"], whole.size() - 1) << erased.body;
  EXPECT_EQ(text(*served, prompt)["timings"]["cache_n"], 0);
  EXPECT_EQ(act(*served, "/slots/7?action=erase", nullptr).json()["n_erased"], 0);
}

TEST_F(Slots, BelongToTheirKeys) {
  const auto served = start(tales(), {{"alice", "a-key"}, {"bob", "b-key"}});
  const std::vector<int32_t> prompt = tokens_of(30);
  text(*served, prompt, {{"cache_salt", "sea"}}, "a-key");
  expect_error(act(*served, "/slots/0?action=save", {{"filename", "a"}}, "b-key"), 400, "id_slot", "no text has ended in slot 0");
  expect_error(act(*served, "/slots/0?action=save", {{"filename", "a"}}, "a-key"), 400, "cache_salt", "the same one");
  EXPECT_EQ(act(*served, "/slots/0?action=save", {{"filename", "a"}, {"cache_salt", "sea"}}, "a-key").status, 200);
  expect_error(act(*served, "/slots/0?action=restore", {{"filename", "a"}, {"cache_salt", "sea"}}, "b-key"), 400, "",
               "is not here");
  expect_error(act(*served, "/slots/0?action=restore", {{"filename", "a"}}, "a-key"), 400, "", "belongs to another");
  EXPECT_EQ(act(*served, "/slots/0?action=erase", nullptr, "a-key").json()["n_erased"], 41);
  EXPECT_EQ(act(*served, "/slots/0?action=restore", {{"filename", "a"}, {"cache_salt", "sea"}}, "a-key").status, 200);
  EXPECT_EQ(text(*served, prompt, {{"cache_salt", "sea"}}, "b-key")["timings"]["cache_n"], 0);
  EXPECT_EQ(text(*served, prompt, {{"cache_salt", "sea"}}, "a-key")["timings"]["cache_n"], 29);
}

// The rest of a file's last block of positions had what another text had left there.
TEST_F(Slots, AFileHoldsNothingOfOtherTexts) {
  const auto file_behind = [&](const std::vector<int32_t>& other) {
    const auto served = start(tales());
    if (!other.empty()) {
      text(*served, other);
      EXPECT_GT(act(*served, "/slots/0?action=erase", nullptr).json()["n_erased"], 0);
    }
    text(*served, tokens_of(30));
    EXPECT_EQ(act(*served, "/slots/0?action=save", {{"filename", "a"}}).status, 200);
    return read_file(only_file());
  };
  EXPECT_TRUE(file_behind({}) == file_behind(tokens_of(200)));
}

// The keys and values of a text depend on the adapter, which the fingerprint of the model's files does not show.
TEST_F(Slots, AServerWithAnAdapterSavesNone) {
  const auto served = start(Golden::open("gpt2_a").model());
  text(*served, tokens_of(30));
  open_adapter(served->engine.opened(), std::string(VITRINE_GOLDEN) + "/lora/gpt2_a/adapter");
  for (const char* action : {"save", "restore"})
    expect_error(act(*served, std::string("/slots/0?action=") + action, {{"filename", "a"}}), 501, "", "runs with --adapter");
  EXPECT_TRUE(only_file().empty());
}

TEST_F(Slots, RefusalsNameTheField) {
  const auto served = start(tales());
  text(*served, tokens_of(30));
  for (const char* name : {"", "../a", "a/b", "..", ".a", "a\\b", "a:b", "a\nb"})
    for (const char* action : {"save", "restore"})
      expect_error(act(*served, std::string("/slots/0?action=") + action, {{"filename", name}}), 400, "filename",
                   "expected a name");
  expect_error(act(*served, "/slots/0?action=save", OrderedJson::object()), 400, "filename", "missing");
  expect_error(act(*served, "/slots/0?action=sing", {{"filename", "a"}}), 400, "action", "expected save, restore or erase");
  expect_error(act(*served, "/slots/0", {{"filename", "a"}}), 400, "action", "save");
  expect_error(act(*served, "/slots/64?action=save", {{"filename", "a"}}), 400, "id_slot", "0 to 63");
  expect_error(act(*served, "/slots/x?action=save", {{"filename", "a"}}), 400, "id_slot", "expected a number");
  expect_error(act(*served, "/slots/9?action=save", {{"filename", "a"}}), 400, "id_slot", "no text has ended in slot 9");
  expect_error(act(*served, "/slots/0?action=restore", {{"filename", "a"}}), 400, "", "\"a\" is not here");
  expect_error(served->post("/completion", {{"prompt", {5}}, {"n_predict", 1}, {"id_slot", 64}}), 400, "id_slot", "0 to 63");
  EXPECT_TRUE(only_file().empty());
  const Served without;
  expect_error(act(without, "/slots/0?action=save", {{"filename", "a"}}), 501, "", "--slot-save-path FOLDER");
}

// Whatever stands in a file: it is refused by name, and nothing of it is used.
TEST_F(Slots, DamagedFilesAreRefused) {
  const std::vector<int32_t> prompt = tokens_of(30);
  {
    const auto served = start(Golden::open("llama").model());
    text(*served, prompt);
    ASSERT_EQ(act(*served, "/slots/0?action=save", {{"filename", "a"}}).status, 200);
    const Reply other = act(*start(Golden::open("gemma2").model()), "/slots/0?action=restore", {{"filename", "a"}});
    expect_error(other, 400, "", "another model");
  }
  const std::filesystem::path path = only_file();
  const std::string good = read_file(path);
  const auto served = start(Golden::open("llama").model());
  const auto refused = [&](std::string bytes, const std::string& what) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    expect_error(act(*served, "/slots/0?action=restore", {{"filename", "a"}}), 400, "", what);
  };
  refused("", "shorter than the head");
  refused(good.substr(0, good.size() - 8), "its head promises");
  refused(good + "12345678", "its head promises");
  const auto changed = [&](size_t at, uint64_t number) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &number, sizeof number);
    return bytes;
  };
  refused(changed(0, 7), "not a slot file");
  refused(changed(16, 7), "another model");
  for (const uint64_t number : {uint64_t{4097}, uint64_t{1} << 63, ~uint64_t{0}})
    for (const size_t at : {24, 32, 40, 48, 56}) refused(changed(at, number), "");
  for (size_t at = 0; at + 8 <= good.size(); at += std::max<size_t>(good.size() / 97 / 8 * 8, 8)) {
    uint64_t word;
    std::memcpy(&word, good.data() + at, 8);
    refused(changed(at, word ^ 0x100), "");
  }
  EXPECT_EQ(text(*served, prompt)["timings"]["cache_n"], 0);
  std::ofstream(path, std::ios::binary | std::ios::trunc) << good;
  EXPECT_EQ(act(*served, "/slots/0?action=restore", {{"filename", "a"}}).status, 200);
}

}  // namespace
}  // namespace vitrine::serve
