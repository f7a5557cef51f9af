// --shard and --join: the bytes of one run from the parts of several processes, of which some are killed.
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "cli/program.h"
#include "io/part_file.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

const std::string kLlama = golden_model("llama");  // a few thousand parameters
const std::string kRounded = std::string(VITRINE_GOLDEN) + "/gguf/llama_q8_0.gguf";
const std::string kFables = std::string(VITRINE_SOURCE) + "/examples/fables.txt";
using Words = std::vector<std::string>;

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A command that can be divided. Its input is in `scratch`.
struct Divided {
  const char* name;
  Words (*words)(const Scratch& scratch);  // without its output
  bool writes;                             // to --out; the result of others is the document of --json
};

// Rounds of 8 MiB count 48 bytes for each document.
std::string many_documents(const Scratch& scratch) {
  std::string text;
  for (int i = 0; i < 400'000; ++i) text += std::to_string(i % 97) + "\n";
  return scratch.write("numbers.txt", text);
}

std::string many_items(const Scratch& scratch) {
  std::string lines;
  for (int i = 0; i < 60; ++i) {
    const std::string name = "The old woman number " + std::to_string(i) + " went to the";
    lines +=
        OrderedJson{
            {"context", name}, {"choices", {" river.", " market with her goose.", " " + std::to_string(i * i)}}, {"gold", i % 3}}
            .dump() +
        "\n";
  }
  return scratch.write("items.jsonl", lines);
}

std::string long_text(const Scratch& scratch) {
  const std::string fables = read_file(kFables);
  return scratch.write("long.txt", fables + fables + fables);
}

const Divided kCommands[] = {
    {"perplexity",
     [](const Scratch&) {
       return Words{"eval", "perplexity", "--file", kFables, "--context", "128", "--per-token", "--model", kLlama, "--json"};
     },
     false},
    {"perplexities",  // of several models: the units of one come after those of another
     [](const Scratch&) {
       return Words{"eval",   "perplexity", "--file", kFables,   "--context", "128",   "--against",
                    kRounded, "--ensemble", kRounded, "--model", kLlama,      "--json"};
     },
     false},
    {"choices",
     [](const Scratch& s) {
       return Words{"eval", "choices", "--file", many_items(s), "--file", many_items(s), "--model", kLlama, "--json"};
     },
     false},
    {"compare",
     [](const Scratch&) {
       return Words{"eval", "compare", kRounded, "--model", kLlama, "--file", kFables, "--context", "32", "--json"};
     },
     false},
    {"imatrix", [](const Scratch& s) { return Words{"imatrix", "--file", long_text(s), "--context", "64", "--model", kLlama}; },
     true},
    {"collect",
     [](const Scratch&) {
       return Words{"collect",   kFables,   "--document",           "\\n\\n\\n", "--hooks", "resid_post.2", "--model",
                    kLlama,      "--hooks", "blocks.1.attn.hook_z", "--type",    "bf16",    "--shard-mb",   "1",
                    "--context", "64"};
     },
     true},
    {"data",
     [](const Scratch& s) { return Words{"data", many_documents(s), "--document", "\\n", "--valid", "0.1", "--seed", "3"}; },
     true},
};

OrderedJson without_timings(OrderedJson document) {
  if (document.is_object()) document.erase("timings");
  for (auto& value : document)
    if (value.is_structured()) value = without_timings(value);
  return document;
}

// The files below a path, or a path's own bytes.
std::map<std::string, std::string> content_of(const std::string& path) {
  std::map<std::string, std::string> content;
  if (fs::is_regular_file(path))
    content[""] = read_file(path);
  else
    for (const auto& entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file()) content[fs::relative(entry.path(), path).string()] = read_file(entry.path().string());
  return content;
}

// What a command leaves: its files, or its document.
class Runs {
 public:
  explicit Runs(const Divided& command) : command_(command), words_(command.words(scratch)) {}

  const Scratch scratch;
  const std::string parts = scratch / "parts";

  Words with(const std::string& out, const Words& more) const {
    return words_ + (command_.writes ? Words{"--out", scratch / out} : Words()) + more;
  }
  Outcome shard(int index) const { return vitrine(with("unused", {"--shard", std::to_string(index) + "/4", "--parts", parts})); }
  std::map<std::string, std::string> result(const std::string& out, const Words& more) const {
    const Outcome outcome = vitrine(with(out, more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    if (outcome.code != 0) return {};
    if (command_.writes) return content_of(scratch / out);
    return {{"", without_timings(OrderedJson::parse(outcome.out)).dump()}};
  }
  std::string part(int index) const { return part_path(parts, {index, 4}); }

 private:
  const Divided& command_;
  Words words_;
};

// Starts the program, and kills it when `reached` holds. False if it ended before that.
template <class F>
bool kill_when(const Words& arguments, F&& reached) {
  const pid_t child = ::fork();
  if (child == 0) {
    Words words = Words{VITRINE_PROGRAM} + arguments;
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const int null = ::open("/dev/null", O_RDWR);
    for (const int fd : {0, 1, 2}) ::dup2(null, fd);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  while (!reached()) {
    if (::waitpid(child, &status, WNOHANG) == child) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

class ShardedCommand : public testing::TestWithParam<Divided> {};

TEST_P(ShardedCommand, JoinsToTheBytesOfOneRunAfterAProcessIsKilled) {
  const Runs runs(GetParam());
  const auto expected = runs.result("one", {});
  for (const int index : {2, 0, 3}) {
    const Outcome outcome = runs.shard(index);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_FALSE(fs::exists(runs.scratch / "unused"));
  }
  EXPECT_CONTAINS(vitrine(runs.with("early", {"--join", runs.parts})).err, "shards 1/4 are missing");
  EXPECT_FALSE(fs::exists(runs.scratch / "early"));

  const Words second = runs.with("unused", {"--shard", "1/4", "--parts", runs.parts});
  const std::string unfinished = runs.part(1) + ".unfinished";
  int tries = 0;  // one that is faster than this loop runs again
  for (; tries < 100 && !kill_when(second, [&] { return fs::exists(unfinished); }); ++tries) fs::remove(runs.part(1));
  ASSERT_LT(tries, 100);
  EXPECT_FALSE(fs::exists(runs.part(1)));
  EXPECT_TRUE(fs::exists(unfinished));
  const Outcome continued = runs.shard(1);
  ASSERT_EQ(continued.code, 0) << continued.err;
  EXPECT_FALSE(fs::exists(unfinished));

  const std::string part = read_file(runs.part(2));
  const Outcome again = runs.shard(2);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(read_file(runs.part(2)), part);
  EXPECT_EQ(runs.result("joined", {"--join", runs.parts}), expected);
}

INSTANTIATE_TEST_SUITE_P(Every, ShardedCommand, testing::ValuesIn(kCommands),
                         [](const auto& command) { return std::string(command.param.name); });

TEST(Shard, PrintsWhatAPartDid) {
  const Scratch scratch;
  const std::string parts = scratch / "parts";
  const Words words = {"imatrix", "--file", kFables,   "--context", "64",      "--out", scratch / "x",
                       "--parts", parts,    "--shard", "0/4",       "--model", kLlama};
  const Outcome made = vitrine(words);
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_CONTAINS(made.out, part_path(parts, {0, 4}) + ": ");
  EXPECT_CONTAINS(made.out, "units computed, 0 found, of ");
  const Outcome again = vitrine(words);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_CONTAINS(again.err, "nothing was left to do: " + part_path(parts, {0, 4}) + " is complete");
  const Json document = vitrine(words + Words{"--json"}).json();
  EXPECT_EQ(document["part"], part_path(parts, {0, 4}));
  EXPECT_EQ(document["computed"], 0);
  EXPECT_EQ(document["was_complete"], true);
  EXPECT_GT(document["units"], document["found"]);
}

TEST(Shard, RefusesWrongFlags) {
  const Scratch scratch;
  const Words words = {"imatrix", "--file", kFables, "--context", "64", "--out", scratch / "x", "--model", kLlama};
  for (const char* shard : {"4/4", "-1/4", "1", "1/0", "a/4", "1/4x", "1/100000", "1/ 4", "", "/"})
    expect_refused(words + Words{"--parts", scratch / "parts", "--shard", shard}, {"--shard is", "expected I/N", "0/8 to 7/8"});
  expect_refused(words + Words{"--shard", "0/4"}, {"--shard requires --parts"});
  expect_refused(words + Words{"--parts", scratch / "parts"}, {"--parts requires --shard"});
  expect_refused(words + Words{"--parts", scratch / "parts", "--shard", "0/4", "--join", scratch / "parts"}, {"excludes"});
  expect_refused(words + Words{"--parts", scratch.write("file", "x"), "--shard", "0/4"}, {"file: cannot be made"});
  expect_refused(words + Words{"--join", scratch / "none"}, {"none: cannot be read"});
  expect_refused({"collect", kFables, "--hooks", "resid_post.1", "--out", scratch / "x", "--resume", "--join", scratch / "parts"},
                 {"--resume", "--join"});
}

TEST(Shard, RefusesToJoinPartsOfOtherRuns) {
  const Scratch scratch;
  const std::string parts = scratch / "parts", out = scratch / "matrix", text = long_text(scratch);
  const Words start = {"imatrix", "--out", out, "--model"}, words = start + Words{kLlama, "--file", text, "--context", "64"};
  const auto make = [&](const Words& one, const std::string& folder, const char* shard) {
    const Outcome made = vitrine(one + Words{"--parts", folder, "--shard", shard});
    ASSERT_EQ(made.code, 0) << made.err;
  };
  make(words, parts, "0/2");
  make(words, parts, "1/2");
  const Words join = {"--join", parts};
  expect_refused(start + Words{kLlama, "--file", text, "--context", "32"} + join,
                 {"part-00000-of-00002: was made with --context 64, this command line with --context 32"});
  expect_refused(words + Words{"--chunks", "8"} + join, {"with no --chunks, this command line with --chunks 8"});
  expect_refused(words + Words{"--exact"} + join, {"no --exact"});
  expect_refused(start + Words{kRounded, "--file", text, "--context", "64"} + join,
                 {"was made with model ", "this command line with model "});
  expect_refused(start + Words{kLlama, "--file", kFables, "--context", "64"} + join, {"was made from another text"});
  expect_refused(Words{"eval", "perplexity", "--file", text, "--context", "64", "--model", kLlama} + join,
                 {"was made with command imatrix, this command line with command eval perplexity"});
  const std::string path = part_path(parts, {1, 2}), whole = read_file(path);
  scratch.write("parts/part-00001-of-00002", whole.substr(0, whole.size() / 2));
  expect_refused(words + join, {path + ": is damaged", "Remove it"});
  fs::remove(path);
  const Outcome other_kernels = vitrine(words + Words{"--parts", parts, "--shard", "1/2"}, {"VITRINE_TARGET=reference"});
  ASSERT_EQ(other_kernels.code, 0) << other_kernels.err;
  expect_refused(words + join, {"with kernels reference", "VITRINE_TARGET"});
  EXPECT_FALSE(fs::exists(out));
}

TEST(Shard, APartOfOtherOptionsIsNotContinued) {
  const Scratch scratch;
  const std::string parts = scratch / "parts";
  const Words words = {"eval", "perplexity", "--file", kFables, "--model", kLlama, "--parts", parts, "--shard", "0/2"};
  ASSERT_EQ(vitrine(words + Words{"--context", "64"}).code, 0);
  expect_refused(words + Words{"--context", "32"}, {"part-00000-of-00002: was made with --context 64"});
  expect_refused(
      {"eval", "perplexity", "--file", kFables, "--context", "64", "--model", kLlama, "--parts", parts, "--shard", "0/3"},
      {"holds shard 0/2, and this is 0/3"});
  const std::string path = part_path(parts, {0, 2});
  fs::rename(path, path + ".unfinished");
  expect_refused(words + Words{"--context", "32"}, {"part-00000-of-00002.unfinished: was made with --context 64"});
  EXPECT_EQ(vitrine(words + Words{"--context", "64"}).code, 0);
}

TEST(Shard, PinnedThreadsMakeTheSameParts) {
  const Scratch scratch;
  const std::string parts = scratch / "parts";
  const Words words = {"eval", "perplexity", "--file", kFables, "--model", kLlama, "--context", "64", "--threads", "1"};
  const Outcome pinned = vitrine(words + Words{"--parts", parts, "--shard", "0/1", "--pin", "cores"});
  ASSERT_EQ(pinned.code, 0) << pinned.err;
  const Outcome joined = vitrine(words + Words{"--join", parts, "--json"});
  EXPECT_EQ(joined.code, 0) << joined.err;
}

// With the same pieces, which merge in another order.
TEST(Shard, RefusesPartsOfAnotherTokenizer) {
  const Scratch scratch;
  const std::string parts = scratch / "parts", from = golden_model("gpt2_a"), copy = copy_model(scratch, from);
  const auto words = [&](const std::string& tokenizer) {
    return Words{"data", kFables, "--out", scratch / "out", "--tokenizer", tokenizer};
  };
  const Outcome made = vitrine(words(from) + Words{"--parts", parts, "--shard", "0/1"});
  ASSERT_EQ(made.code, 0) << made.err;
  const Outcome same = vitrine(words(copy) + Words{"--join", parts});
  EXPECT_EQ(same.code, 0) << same.err;
  OrderedJson tokenizer = OrderedJson::parse(read_file(copy + "/tokenizer.json"));
  std::swap(tokenizer["model"]["merges"][0], tokenizer["model"]["merges"][1]);
  scratch.write("model/tokenizer.json", tokenizer.dump());
  expect_refused(words(copy) + Words{"--join", parts}, {"was made with tokenizer ", "this command line with tokenizer "});
  expect_refused(words(copy) + Words{"--parts", parts, "--shard", "0/1"}, {"was made with tokenizer "});
}

// What no run writes: a mask where there is none.
TEST(Shard, RefusesAPartWithOtherContent) {
  const Scratch scratch;
  const std::string parts = scratch / "parts", text = scratch.write("text.txt", "A short text.");
  const Words words = {"data", text, "--out", scratch / "out"};
  ASSERT_EQ(vitrine(words + Words{"--parts", parts, "--shard", "0/1"}).code, 0);
  const std::string path = part_path(parts, {0, 1});
  {
    const PartFile part = PartFile::open(path, /*complete=*/true);
    UnitBytes bytes;
    std::vector<std::vector<std::vector<int32_t>>> pieces = {{{1, 2, 3}}};
    std::vector<uint8_t> mask = {1};
    bytes.each(pieces, [&](auto& documents) {
      bytes.each(documents, [&](auto& ids) {
        bytes.values(ids);
        bytes.values(mask);
      });
    });
    PartWriter writer(part_path(scratch.path(), {0, 1}), {0, 1}, part.identity());
    writer.add(0, part.units()[0].key, bytes.written());
    writer.finish(part.total());
  }
  fs::rename(part_path(scratch.path(), {0, 1}), path);
  expect_refused(words + Words{"--join", parts}, {"the parts: a mask of 1 numbers; expected 0"});
}

}  // namespace
}  // namespace vitrine
