// Recipes and models that nobody should write: refused by name before anything is read, or merged right. Never a crash, and
// never a result that lacks something without a word.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/safetensors.h"
#include "merge/output.h"
#include "merge/run.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

// A tensor of a model that is made here: its bytes are filled by its name.
struct Made {
  std::vector<int64_t> shape;
  DType dtype = DType::f32;
};
using MadeTensors = std::map<std::string, Made>;

MadeTensors with(MadeTensors tensors, const MadeTensors& more) {
  for (const auto& [name, made] : more) tensors[name] = made;
  return tensors;
}

const MadeTensors kTwoLayers = {{"model.embed_tokens.weight", {{6, 4}}},
                                {"model.layers.0.w", {{4, 4}}},
                                {"model.layers.1.w", {{4, 4}}},
                                {"model.norm.weight", {{4}}}};

constexpr const char* kTokenizer = R"({"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
  "post_processor": null, "decoder": null, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5},
  "merges": []}})";

class HostileMerge : public testing::Test {
 protected:
  // A model of a family that nobody knows; returns its folder. Numbers differ from tensor to tensor and from model to model.
  std::string model(const std::string& name, const MadeTensors& tensors, Json config = {}) {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<TensorToWrite> list;
    for (const auto& [tensor, made] : tensors) {
      size_t n = 1;
      for (const int64_t size : made.shape) n *= static_cast<size_t>(size);
      std::vector<std::byte>& data = bytes.emplace_back(row_bytes(made.dtype, n));
      for (size_t i = 0; i < n; ++i) {
        const float value = 0.25f + static_cast<float>((i * 7 + tensor.size() + name.back() % 5u) % 13) / 8;
        const auto whole = static_cast<int64_t>(i);
        if (made.dtype == DType::f32) std::memcpy(&data[i * 4], &value, 4);
        if (made.dtype == DType::i32 || made.dtype == DType::i64)
          std::memcpy(&data[i * row_bytes(made.dtype, 1)], &whole, row_bytes(made.dtype, 1));
      }
      list.push_back({tensor, made.dtype, made.shape, data.data()});
    }
    const std::string folder = scratch_ / name;
    fs::create_directories(folder);
    write_safetensors(folder + "/model.safetensors", list);
    const Json usual = {{"model_type", "strange"}, {"num_hidden_layers", 2}, {"vocab_size", 6}};
    for (const auto& [key, value] : usual.items())
      if (!config.contains(key)) config[key] = value;
    scratch_.write(name + "/config.json", config.dump());
    return folder;
  }
  std::string with_tokenizer(const std::string& folder, const std::string& text = kTokenizer) {
    scratch_.write(fs::path(folder).filename().string() + "/tokenizer.json", text);
    return folder;
  }

  static std::string linear(const std::vector<std::string>& models, const std::string& more = "") {
    std::string text = "merge_method: linear\nparameters: {weight: 1}\nmodels:\n";
    for (const std::string& model : models) text += "- model: " + model + "\n";
    return text + more;
  }
  static MergePlan plan_of(const std::string& yaml, const MergeOptions& options = {}) {
    return plan_merge(parse_merge_recipes(yaml, "r.yml").front(), options);
  }
  // Merges into `out` of the scratch folder; returns it.
  std::string merged(const std::string& yaml, const MergeOptions& options = {}) {
    const std::string out = scratch_ / "out";
    fs::remove_all(out);
    const MergePlan plan = plan_of(yaml, options);
    ThreadPool pool(2);
    write_merge(plan, merge_companions(plan, "out"), out, pool, {});
    return out;
  }
  static std::vector<float> values(const std::string& folder, const std::string& tensor) {
    const Checkpoint file = open_safetensors(folder);
    return golden_tensor(file, tensor).values;
  }
  // All problems of a plan in one text.
  static std::string problems(const std::string& yaml, const MergeOptions& options = {}) {
    std::string text;
    for (const std::string& problem : plan_of(yaml, options).problems) text += problem + "\n";
    return text;
  }
  static std::string notes(const std::string& yaml, const MergeOptions& options = {}) {
    std::string text;
    for (const std::string& note : plan_of(yaml, options).notes) text += note + "\n";
    return text;
  }

  Scratch scratch_;
};

// A header of an odd length puts the numbers at odd places, so that they are copied to memory: dropping the pages of that copy
// would make zeros of them.
TEST_F(HostileMerge, UnalignedTensorsAreReadTwice) {
  const std::string folder = scratch_ / "odd";
  constexpr size_t n = 64 * 64;
  std::string header = R"({"model.layers.0.w": {"dtype": "F32", "shape": [64, 64], "data_offsets": [0, 16384]}})";
  while (header.size() % 4 != 1) header += ' ';
  std::string file = raw(uint64_t{header.size()}) + header;
  for (size_t i = 0; i < n; ++i) file += raw(1 + static_cast<float>(i));
  scratch_.write("odd/model.safetensors", file);
  scratch_.write("odd/config.json", R"({"model_type": "strange", "num_hidden_layers": 1})");
  const std::string slice = "- sources: [{model: " + folder + ", layer_range: [0, 1]}]\n";
  const std::string out = merged("merge_method: passthrough\nslices:\n" + slice + slice + slice);
  const std::vector<float> first = values(folder, "model.layers.0.w");
  for (const char* layer : {"0", "1", "2"}) EXPECT_EQ(values(out, std::string("model.layers.") + layer + ".w"), first) << layer;
}

// "00" would be written as "0": it is a name like any other, and is kept.
TEST_F(HostileMerge, NumbersWithLeadingZerosAreNoLayers) {
  EXPECT_EQ(layer_name("model.layers.00.w").layer, -1);
  EXPECT_EQ(layer_name("model.layers.-0.w").layer, -1);
  EXPECT_EQ(layer_name("model.layers.0.w").layer, 0);
  EXPECT_EQ(layer_name("model.00.layers.7.w").stack, "model.00.layers");
  const std::string folder = model("a", with(kTwoLayers, {{"model.layers.01.w", {{3}}}, {"model.layers.1048577.w", {{3}}}}));
  const Checkpoint out = open_safetensors(merged(linear({folder})));
  EXPECT_EQ(out.tensors().size(), 6u);
  EXPECT_NE(out.find("model.layers.01.w"), nullptr);
}

TEST_F(HostileMerge, TokensNeedAMatrixWithARowForEach) {
  const std::string union_of = "tokenizer_source: union\n";
  const auto two = [&](const MadeTensors& more) {
    return linear({with_tokenizer(model("a", with(kTwoLayers, more))), with_tokenizer(model("b", with(kTwoLayers, more)))},
                  union_of);
  };
  EXPECT_EQ(problems(two({{"lm_head.weight", {{6, 4}}}})), "");
  EXPECT_CONTAINS(problems(two({{"lm_head.weight", {{2, 4}}}})),
                  "lm_head.weight is [2, 4] f32 in " + scratch_ / "a" + "; tokens are aligned in matrices of float numbers");
  EXPECT_CONTAINS(problems(two({{"lm_head.weight", {{6, 2, 2}}}})), "lm_head.weight is [6, 2, 2] f32");
  EXPECT_CONTAINS(problems(two({{"model.embed_tokens.weight", {{6}}}})), "model.embed_tokens.weight is [6] f32");
  EXPECT_CONTAINS(problems(two({{"model.embed_tokens.weight", {{6, 4}, DType::i32}}})),
                  "model.embed_tokens.weight is [6, 4] i32");
  EXPECT_CONTAINS(message_of<UsageError>([&] { plan_of(two({{"model.embed_tokens.weight", {{0, 4}}}})); }),
                  "the result would have no token. The embedding of " + scratch_ / "a" + " is [0, 4]");
  EXPECT_CONTAINS(message_of<UsageError>([&] { plan_of(two({{"model.embed_tokens.weight", {{}}}})); }), "no embedding is found");
  EXPECT_EQ(problems(two({{"model.embed_tokens.weight", {{6, 0}}}})), "");
}

// The first slice alone gives the embedding, and its model lacks a token.
TEST_F(HostileMerge, RowsOfTokensComeFromSourcesOfTheTensor) {
  std::string less = kTokenizer;
  less.replace(less.find(R"(, "f": 5)"), 8, "");
  const std::string a = with_tokenizer(model("a", kTwoLayers), less), b = with_tokenizer(model("b", kTwoLayers));
  const std::string yaml = "merge_method: passthrough\ntokenizer_source: union\nslices:\n- sources: [{model: " + a +
                           ", layer_range: [0, 1]}]\n- sources: [{model: " + b + ", layer_range: [1, 2]}]\n";
  EXPECT_CONTAINS(problems(yaml),
                  "model.embed_tokens.weight: the row of token \"f\" comes from " + b + ", which is no source of this tensor");
}

// A folder of tokenizer files gives the vocabulary, the merged models the rows.
TEST_F(HostileMerge, TheTokenizerOfAModelThatIsNotMerged) {
  const std::string a = with_tokenizer(model("a", kTwoLayers)), b = with_tokenizer(model("b", kTwoLayers));
  std::string three = kTokenizer;
  three.replace(three.find("{\"a\": 0"), three.find("},\n") - three.find("{\"a\": 0"), R"({"f": 0, "new": 1, "b": 2)");
  scratch_.write("t/tokenizer.json", three);
  const std::string out = merged(linear({a, b}, "tokenizer_source: " + scratch_ / "t" + "\n"));
  EXPECT_EQ(read_json(out + "/config.json")["vocab_size"], 3);
  EXPECT_EQ(read_file(out + "/tokenizer.json"), three);
  const std::string name = "model.embed_tokens.weight";
  const std::vector<float> x = values(a, name), y = values(b, name), z = values(out, name);
  ASSERT_EQ(z.size(), 12u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(z[i], (x[20 + i] + y[20 + i]) / 2);  // "f"
    EXPECT_EQ(z[4 + i], 0);                        // nobody has it
    EXPECT_EQ(z[8 + i], (x[4 + i] + y[4 + i]) / 2);
  }
  EXPECT_CONTAINS(message_of<UsageError>([&] { plan_of(linear({a, b}, "tokenizer_source: Union\n")); }),
                  "\"tokenizer_source\": expected union, base or a model. Union: is neither a file nor a directory");
  // Its tokenizer alone, not its rows.
  EXPECT_CONTAINS(
      message_of<UsageError>([&] {
        plan_of(linear({a, b}, "tokenizer: {source: base, tokens: {f: {force: true, source: " + scratch_ / "t" + "}}}\n"));
      }),
      "which is none of the models that are merged");
}

TEST_F(HostileMerge, RowsOfOtherTokensAreNoted) {
  std::string swapped = kTokenizer, longer = kTokenizer;
  swapped.replace(swapped.find("\"e\": 4, \"f\": 5"), 14, "\"f\": 4, \"e\": 5");
  longer.replace(longer.find("\"e\": 4, \"f\": 5"), 14, "\"e\": 4");
  const std::string a = with_tokenizer(model("a", kTwoLayers)), b = with_tokenizer(model("b", kTwoLayers), swapped),
                    c = with_tokenizer(model("c", kTwoLayers), longer), d = with_tokenizer(model("d", kTwoLayers), "broken");
  EXPECT_EQ(notes(linear({a, d, b})), a + " and " + b +
                                          " have other tokens for 2 ids: 4 is \"e\" and \"f\". Rows are merged by id; " +
                                          "tokenizer_source aligns the tokens\n");
  EXPECT_EQ(notes(linear({a, c, d, model("e", kTwoLayers)})), "");  // a row of padding; what cannot be read
}

TEST_F(HostileMerge, FiltersThatFitNothingAreNoted) {
  const std::string a = model("a", kTwoLayers);
  const auto filtered = [&](const std::string& filter) {
    return notes("merge_method: linear\nmodels: [{model: " + a + ", parameters: {weight: [{filter: " + filter +
                 ", value: 0.5}, {value: 1}]}}]\n");
  };
  EXPECT_CONTAINS(filtered("selfattn"), "no tensor has \"selfattn\" in its name; the filter has no effect\n");
  EXPECT_EQ(filtered("norm"), "");
  EXPECT_EQ(filtered("'*'"), "");
}

TEST_F(HostileMerge, WholeNumbersMustBeOfOneType) {
  const auto buffer = [&](const std::string& name, DType dtype) {
    return model(name, with(kTwoLayers, {{"ids", {{4}, dtype}}}));
  };
  const std::string a = buffer("a", DType::i32), b = buffer("b", DType::i64), c = buffer("c", DType::f32),
                    d = buffer("d", DType::i32);
  EXPECT_CONTAINS(problems(linear({a, b})), "ids is i32 in " + a + " and i64 in " + b + "; whole numbers are copied");
  EXPECT_CONTAINS(problems(linear({a, c})), "ids is i32 in " + a + " and f32 in " + c);
  EXPECT_CONTAINS(problems(linear({c, a})), "ids is f32 in " + c + " and i32 in " + a);
  EXPECT_EQ(values(merged(linear({a, d})), "ids"), (std::vector<float>{0, 1, 2, 3}));
}

// A projector of numbered parts stands before "model.layers" in the alphabet; a file may hold a layer that predicts further
// ahead, which the configuration does not count.
TEST_F(HostileMerge, WholeModelsKeepTheirNumberOfLayers) {
  const MadeTensors parts = {{"adapter.0.weight", {{4}}}}, ahead = {{"model.layers.2.w", {{4, 4}}}};
  for (const MadeTensors& more : {parts, ahead}) {
    const std::string a = model("a", with(kTwoLayers, more)), b = model("b", with(kTwoLayers, more));
    EXPECT_EQ(read_json(merged(linear({a, b})) + "/config.json")["num_hidden_layers"], 2);
  }
  const std::string a = model("a", with(kTwoLayers, parts));
  const auto slices = [&](const std::string& name, const std::string& others) {
    return "merge_method: passthrough\nmodules:\n  " + name + ":\n    slices:\n    - sources: [{model: " + a +
           ", layer_range: [0, 1]}]\n" + others;
  };
  EXPECT_EQ(plan_of(slices("model", "")).config["num_hidden_layers"], 1);
  EXPECT_EQ(plan_of(slices("adapter", "  model:\n    models: [{model: " + a + "}]\n")).config["num_hidden_layers"], 2);
}

TEST_F(HostileMerge, SaysThatLayersAreNotCounted) {
  for (const Json& number : {Json("2"), Json(-1), Json(nullptr), Json(1e9), Json::array({2})}) {
    const std::string a = model("a", kTwoLayers, {{"num_hidden_layers", number}});
    const std::string slice = "- sources: [{model: " + a + ", layer_range: [0, 2]}]\n",
                      yaml = "merge_method: passthrough\nslices:\n" + slice + slice;
    EXPECT_CONTAINS(notes(yaml), "the configuration of " + a + " does not count the layers of model.layers");
    EXPECT_EQ(plan_of(yaml).config["num_hidden_layers"], number);
  }
}

TEST_F(HostileMerge, SaysWhatIsInNoModule) {
  const MadeTensors two = with(kTwoLayers, {{"lm_head.weight", {{6, 4}}}, {"other.layers.0.w", {{4}}}});
  const std::string a = model("a", two);
  const std::string yaml = "merge_method: passthrough\nmodules:\n  model:\n    models: [{model: " + a + "}]\n";
  EXPECT_CONTAINS(notes(yaml), "2 tensors in no module of the recipe, left out of the result: lm_head.weight, other.layers.0.w");
  EXPECT_EQ(notes(linear({a})), "");
}

// A tied model's file may hold the output matrix all the same; merged with another one, it is no copy of the embedding any more.
TEST_F(HostileMerge, AMergedOutputMatrixIsRead) {
  const MadeTensors two = with(kTwoLayers, {{"lm_head.weight", {{6, 4}}}});
  const std::string tied = model("a", two, {{"tie_word_embeddings", true}}),
                    b = model("b", two, {{"tie_word_embeddings", false}}),
                    also_tied = model("c", two, {{"tie_word_embeddings", true}});
  EXPECT_EQ(plan_of(linear({tied, b})).config["tie_word_embeddings"], false);
  EXPECT_EQ(plan_of(linear({b, tied})).config["tie_word_embeddings"], false);
  EXPECT_EQ(plan_of(linear({tied, also_tied})).config["tie_word_embeddings"], true);
}

TEST_F(HostileMerge, WhereAResultCannotGo) {
  const std::string a = model("models/a", kTwoLayers), b = model("b", kTwoLayers);
  const MergePlan plan = plan_of(linear({a, b}));
  ThreadPool pool(1);
  const auto refusal = [&](const std::string& out) {
    return message_of<InputError>([&] { write_merge(plan, {}, out, pool, {.replace = true}); });
  };
  const fs::path before = fs::current_path();
  fs::create_directories(scratch_ / "inside/one");
  fs::current_path(scratch_ / "inside");
  for (const char* out : {".", "./", "..", "../..", "one/..", "/"})
    EXPECT_CONTAINS(refusal(out), std::string(out) + " is the working directory, or one around it");
  fs::current_path(before);
  // What lies beside the models would go with them.
  scratch_.write("models/notes", "kept");
  scratch_.write("models/config.json", "{}");
  EXPECT_CONTAINS(refusal(scratch_ / "models"), "cannot be replaced: " + a + ", which is merged, lies in it");
  EXPECT_CONTAINS(refusal(scratch_ / "models/."), "cannot be replaced");
  EXPECT_CONTAINS(refusal(scratch_.link("link", scratch_ / "models") + "/../models"), "cannot be replaced");
  EXPECT_EQ(read_file(scratch_ / "models/notes"), "kept");
  fs::create_directories(scratch_ / "files");
  fs::copy_file(std::string(VITRINE_GOLDEN) + "/gguf/llama.gguf", scratch_ / "files/llama.gguf");
  scratch_.write("files/config.json", "{}");
  const MergePlan of_file = plan_of(linear({scratch_ / "files/llama.gguf"}));
  EXPECT_CONTAINS(message_of<InputError>([&] { write_merge(of_file, {}, scratch_ / "files", pool, {.replace = true}); }),
                  "cannot be replaced: " + scratch_ / "files/llama.gguf");
  for (const auto& entry : fs::recursive_directory_iterator(scratch_.path()))
    EXPECT_EQ(entry.path().string().find(".merging"), std::string::npos) << entry.path();
  // An input itself may be replaced: its weights stay mapped until the result is whole.
  const std::vector<float> mine = values(a, "model.layers.1.w"), its = values(b, "model.layers.1.w");
  write_merge(plan, {}, a, pool, {.replace = true});
  const std::vector<float> mean = values(a, "model.layers.1.w");
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_EQ(mean[i], (mine[i] + its[i]) / 2);
  EXPECT_EQ(read_file(scratch_ / "models/notes"), "kept");
}

// A link is replaced, not what it points at.
TEST_F(HostileMerge, ALinkAsOut) {
  const MergePlan plan = plan_of(linear({model("a", kTwoLayers)}));
  ThreadPool pool(1);
  scratch_.write("behind/mine", "kept");
  for (const char* target : {"behind", "nothing"}) {
    const std::string out = scratch_.link(std::string("to-") + target, scratch_ / target);
    EXPECT_CONTAINS(message_of<InputError>([&] { write_merge(plan, {}, out, pool, {}); }), "is there already");
    write_merge(plan, {}, out, pool, {.replace = true});
    EXPECT_FALSE(fs::is_symlink(out));
    EXPECT_TRUE(fs::exists(out + "/model.safetensors"));
  }
  EXPECT_EQ(read_file(scratch_ / "behind/mine"), "kept");
}

// Somebody else may have put it there; a new run would remove what it points at.
TEST_F(HostileMerge, ALinkWhereTheResultIsWritten) {
  const MergePlan plan = plan_of(linear({model("a", kTwoLayers)}));
  ThreadPool pool(1);
  scratch_.write("behind/mine", "kept");
  scratch_.link(".merging-out", scratch_ / "behind");
  EXPECT_CONTAINS(message_of<InputError>([&] { write_merge(plan, {}, scratch_ / "out", pool, {}); }),
                  scratch_ / ".merging-out" + ", where " + scratch_ / "out" + " is to be written, is a link");
  EXPECT_EQ(read_file(scratch_ / "behind/mine"), "kept");
}

struct KilledWrite {};

// A name may hold anything: the journal must not take "a" for done because of "a\nb".
TEST_F(HostileMerge, NamesWithNewLinesAreResumed) {
  const std::string folder =
      model("a", {{"x\nmodel.z\n", {{4}}}, {"model.z", {{4}}}, {"\n", {{4}}}, {"model.embed_tokens.weight", {{6, 4}}}});
  const std::string yaml =
      linear({folder,
              model("b", {{"x\nmodel.z\n", {{4}}}, {"model.z", {{4}}}, {"\n", {{4}}}, {"model.embed_tokens.weight", {{6, 4}}}})});
  const MergePlan plan = plan_of(yaml);
  const std::string whole = read_file(merged(yaml) + "/model.safetensors");
  ThreadPool pool(1);
  for (size_t stop = 1; stop <= plan.tensors.size(); ++stop) {
    const std::string out = scratch_ / ("resumed" + std::to_string(stop));
    size_t seen = 0;
    EXPECT_THROW(write_merge(plan, {}, out, pool, {},
                             [&](const MergeProgress&) {
                               if (++seen == stop) throw KilledWrite();
                             }),
                 KilledWrite);
    EXPECT_EQ(write_merge(plan, {}, out, pool, {.resume = true}), stop);
    EXPECT_EQ(read_file(out + "/model.safetensors"), whole) << stop;
  }
}

// Tokenizers decide which rows are merged, as the weights do what is in them.
TEST_F(HostileMerge, AnotherTokenizerIsNotResumed) {
  const std::string a = with_tokenizer(model("a", kTwoLayers)), b = with_tokenizer(model("b", kTwoLayers));
  const std::string yaml = linear({a, b}, "tokenizer_source: union\n"), out = scratch_ / "out";
  ThreadPool pool(1);
  EXPECT_THROW(write_merge(plan_of(yaml), {}, out, pool, {}, [](const MergeProgress&) { throw KilledWrite(); }), KilledWrite);
  std::string swapped = kTokenizer;
  swapped.replace(swapped.find("\"e\": 4, \"f\": 5"), 14, "\"f\": 4, \"e\": 5");
  with_tokenizer(b, swapped);
  const MergePlan other = plan_of(yaml);
  EXPECT_CONTAINS(message_of<UsageError>([&] { write_merge(other, {}, out, pool, {.resume = true}); }),
                  "was begun with another recipe");
}

TEST_F(HostileMerge, AResumedRunMeasuresAllTensors) {
  const MergePlan plan = plan_of(linear({model("a", kTwoLayers), model("b", kTwoLayers)}));
  const std::string out = scratch_ / "out";
  ThreadPool pool(1);
  size_t seen = 0;
  EXPECT_THROW(write_merge(plan, {}, out, pool, {},
                           [&](const MergeProgress&) {
                             if (++seen == 2) throw KilledWrite();
                           }),
               KilledWrite);
  size_t measured = 0;
  EXPECT_EQ(write_merge(plan, {}, out, pool, {.resume = true}, {}, [&](size_t, const TensorMeasure&) { ++measured; }), 2u);
  EXPECT_EQ(measured, plan.tensors.size());
}

TEST_F(HostileMerge, ParametersBeyondAllReason) {
  const std::string a = model("a", kTwoLayers), b = model("b", kTwoLayers), c = model("c", kTwoLayers);
  const auto refusal = [&](const std::string& method, const std::string& parameters) {
    return message_of<UsageError>([&] {
      merged("merge_method: " + method + "\nbase_model: " + a + "\nparameters: {" + parameters + "}\nmodels: [{model: " + b +
             "}]\n");
    });
  };
  const auto finite = [&](const std::string& method, const std::string& parameters) {
    merged("merge_method: " + method + "\nbase_model: " + a + "\nparameters: {" + parameters + "}\nmodels: [{model: " + b +
           "}]\n");
  };
  for (const char* value : {".nan", ".inf", "-.inf", "1e999", "nan", "0x1p3"})
    EXPECT_CONTAINS(refusal("slerp", std::string("t: ") + value), "expected a number");
  for (const char* value : {"1e300", "-1", "1e18"})
    EXPECT_CONTAINS(refusal("karcher", std::string("max_iter: ") + value), "expected 0 to 1000000");
  EXPECT_CONTAINS(refusal("karcher", "max_iter: 1.5"), "expected a whole number");
  EXPECT_CONTAINS(refusal("della", "weight: 1, density: 0.5, epsilon: -3"), "expected density - epsilon and density + epsilon");
  EXPECT_CONTAINS(refusal("dare_ties", "weight: 1, density: -0.5"), "expected 0 or more");
  EXPECT_EQ(refusal("ema", "mu: -1"),
            "r.yml:1: \"merge_method\" is ema: model.embed_tokens.weight: mu is -1.000000; expected 0 to 1");
  EXPECT_FALSE(fs::exists(scratch_ / ".merging-out"));
  finite("karcher", "tol: 0, max_iter: 100");
  finite("karcher", "tol: -1");
  finite("ramplus_tl", "alpha: -1, r: -3");
  finite("ties", "weight: 1, density: -3");
  finite("breadcrumbs", "weight: 1, density: 0.5, gamma: -3");
  finite("breadcrumbs", "weight: 1, density: 0.5, gamma: 1e300");
  finite("breadcrumbs", "weight: 1, density: 1e-300, gamma: 0");
  finite("sce", "select_topk: -1e300");
  finite("nearswap", "t: -1");
  finite("slerp", "t: 1e300");
}

// DELLA sorts each row by magnitude: NaN is no reason to sort beyond its end.
TEST_F(HostileMerge, NotANumberIsSorted) {
  const std::string a = model("a", {{"model.layers.0.w", {{3, 1000}}}}), b = model("b", {{"model.layers.0.w", {{3, 1000}}}});
  std::vector<float> numbers(3000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i % 3 == 0 ? std::nanf("") : static_cast<float>(i * 37 % 101);
  write_safetensors(b + "/model.safetensors", {{"model.layers.0.w", DType::f32, {3, 1000}, numbers.data()}});
  for (const char* method : {"della", "della_linear", "ties", "breadcrumbs", "dare_ties", "sce", "arcee_fusion", "ram"})
    merged(std::string("merge_method: ") + method + "\nbase_model: " + a +
               "\nparameters: {weight: 1, density: 0.5}\nmodels: [{model: " + b + "}]\n",
           {.allow_nan = true});
}

TEST_F(HostileMerge, SaysWhatHasNoEffect) {
  const std::string a = model("a", kTwoLayers);
  const std::string said =
      notes("merge_method: passthrough\nparameters: {weihgt: 1, scael: 2}\nslices:\n- sources: [{model: {model: " + a +
            ", override_architecture: X}, layer_range: [0, 2]}]\n  residual_weight: 0.5\n");
  EXPECT_CONTAINS(said, "r.yml:4: \"slices[0].sources[0].model.override_architecture\" has no effect");
  EXPECT_CONTAINS(said, "r.yml:5: \"slices[0].residual_weight\" has no effect");
  EXPECT_CONTAINS(said, "the parameter \"weihgt\" has no effect");
  EXPECT_CONTAINS(said, "did you mean scale?");
}

// Errors of a recipe name the file, the line, the field, what is there and what was expected.
TEST_F(HostileMerge, RecipesThatAreRefused) {
  const std::string a = model("a", kTwoLayers);
  const auto refusal = [&](const std::string& yaml) { return message_of<InputError>([&] { plan_of(yaml); }); };
  const auto slices = [&](const std::string& range) {
    return "merge_method: passthrough\nslices:\n- sources: [{model: " + a + ", layer_range: " + range + "}]\n";
  };
  EXPECT_CONTAINS(refusal(slices("[0, 99999999999999999999]")),
                  "r.yml:3: \"slices[0].sources[0].layer_range[1]\" is \"99999999999999999999\"; expected a whole number");
  EXPECT_CONTAINS(refusal(slices("[-1, 2]")), "layer_range[0]\" is \"-1\"; expected a whole number from 0");
  EXPECT_CONTAINS(refusal(slices("[0, 60000]")), "asks for layers 0 to 59999; " + a + " has 2 layers");
  EXPECT_CONTAINS(refusal(slices("[2, 1]")), "expected an end after the first layer");
  EXPECT_CONTAINS(refusal(slices("[1, 1]")), "expected an end after the first layer");
  EXPECT_CONTAINS(refusal(slices("[0]")), "is a list of 1; expected [first, end]");
  EXPECT_CONTAINS(refusal(slices("7")), "expected [first, end]");
  EXPECT_CONTAINS(refusal(linear({a, a})), "is named twice");
  EXPECT_CONTAINS(refusal(linear({a}) + "merge_method: slerp\n"), "has the key \"merge_method\" twice");
  EXPECT_CONTAINS(refusal(linear({a}, "dtype: int8\n")), "\"dtype\" is \"int8\"; expected float32, bfloat16 or float16");
  EXPECT_CONTAINS(refusal(linear({a}, "base_modle: x\n")), "Did you mean \"base_model\"?");
  EXPECT_CONTAINS(refusal("merge_method: linear\nmodels: &m\n- model: " + a + "\n- *m\n"),
                  "is an alias of a value that contains it");
  EXPECT_CONTAINS(refusal("&r\nmerge_method: linear\nmodels: *r\n"), "is an alias of a value that contains it");
  EXPECT_CONTAINS(refusal("merge_method: linear\nmodels: []\n"), "expected a list of models");
  EXPECT_CONTAINS(refusal("merge_method: linear\nmodels:\n- model: ''\n"), "expected a model");
  EXPECT_CONTAINS(refusal("merge_method: linear\nmodels:\n- model: +x\n"), "expected a model, or a model and one adapter");
  EXPECT_CONTAINS(refusal(linear({scratch_ / "nowhere"})), "does not exist");
  EXPECT_CONTAINS(refusal("- 1\n- 2\n"), "the document is a list of 2; expected a merge");
  EXPECT_CONTAINS(refusal("merge_method: linear\n"), "expected exactly one of \"models\", \"slices\" and \"modules\"");
  EXPECT_CONTAINS(message_of([&] { parse_merge_recipes("", "r.yml"); }), "is empty");
  EXPECT_CONTAINS(message_of([&] { parse_merge_recipes("merge_method: \xff\n", "r.yml"); }), "not UTF-8");
  std::string bomb = "a0: &a0 [1,1,1,1,1,1,1,1]\n";
  for (int i = 1; i < 12; ++i) {
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [";
    for (int k = 0; k < 8; ++k) bomb += "*a" + std::to_string(i - 1) + ",";
    bomb += "]\n";
  }
  EXPECT_CONTAINS(message_of([&] { parse_merge_recipes(bomb, "r.yml"); }), "values, aliases counted each time");
}

TEST_F(HostileMerge, ShardsOutsideTheFolderAreRefused) {
  const std::string a = model("a", kTwoLayers), b = model("b", kTwoLayers);
  for (const char* shard : {"../a/model.safetensors", "..", "/etc/passwd", ""}) {
    fs::remove(b + "/model.safetensors");
    scratch_.write("b/model.safetensors.index.json", Json{{"weight_map", {{"model.norm.weight", shard}}}}.dump());
    EXPECT_CONTAINS(message_of([&] { plan_of(linear({a, b})); }), "model.safetensors.index.json");
  }
}

TEST_F(HostileMerge, ShapesOfEveryRank) {
  MadeTensors tensors = kTwoLayers;
  tensors["scalar"] = {{}};
  tensors["model.layers.0.nothing"] = {{0, 4}};
  tensors["model.layers.0.flat"] = {{4, 0}};
  tensors["model.layers.0.five"] = {{2, 1, 3, 2, 2}};
  tensors["model.layers.1.one"] = {{1}};
  const std::string a = model("a", tensors), b = model("b", tensors), c = model("c", tensors);
  const auto each = [](const std::string& method) {
    return method == "slerp" || method == "nearswap" ? "t: 0.5"
           : method == "ema"                         ? "mu: 0.5"
           : method == "liti"                        ? "eta: 0.5"
                                                     : "weight: 0.5";
  };
  for (const MergeMethod& method : merge_methods()) {
    SCOPED_TRACE(method.name);
    const std::string name = method.name;
    if (name == "passthrough") continue;
    const bool two = method.most == 2 || method.most_others == 1;
    std::string yaml = "merge_method: " + name + "\nparameters: {" + each(name) + "}\nmodels:\n- model: " + b + "\n";
    if (!two) yaml += "- model: " + c + "\n";
    if (method.base != MergeMethod::Base::ignored) yaml += "base_model: " + a + "\n";
    const Checkpoint out = open_safetensors(merged(yaml));
    EXPECT_EQ(out.tensors().size(), tensors.size());
    for (const auto& [tensor, made] : tensors) EXPECT_EQ(out.find(tensor)->shape, made.shape) << tensor;
  }
}

TEST_F(HostileMerge, TokenizersThatAreNone) {
  const std::string a = with_tokenizer(model("a", kTwoLayers)), b = model("b", kTwoLayers);
  const auto refusal = [&](const std::string& text) {
    with_tokenizer(b, text);
    return message_of<InputError>([&] { plan_of(linear({a, b}, "tokenizer_source: union\n")); });
  };
  for (const char* text :
       {"", "{", "[]", "null", "{}", R"({"model": 3})", R"({"model": {"type": "BPE"}})",
        R"({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})",
        R"({"model": {"type": "BPE", "vocab": {"a": 4000000000}, "merges": []}})",
        R"({"model": {"type": "BPE", "vocab": [], "merges": []}})",
        R"({"added_tokens": [{"id": 2000000000, "content": "x"}], "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})"})
    EXPECT_CONTAINS(refusal(text), "tokenizer.json") << text;
  with_tokenizer(b);
  for (const char* config : {"[]", "{", R"({"added_tokens_decoder": {"x": {"content": "<x>"}}})",
                             R"({"added_tokens_decoder": {"99999999999999999999": {"content": "<x>"}}})"}) {
    scratch_.write("b/tokenizer_config.json", config);
    EXPECT_CONTAINS(message_of<InputError>([&] { plan_of(linear({a, b}, "tokenizer_source: union\n")); }),
                    "tokenizer_config.json")
        << config;
  }
}

}  // namespace
}  // namespace vitrine
