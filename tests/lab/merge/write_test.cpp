// How a merge is written: whole or not at all, resumed to the same bytes, on any number of threads.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/mapped_file.h"
#include "io/safetensors.h"
#include "merge/output.h"
#include "merge/report.h"
#include "merge/run.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;
const std::string kTiny = std::string(VITRINE_GOLDEN) + "/merging/tiny_llama/";

std::string two_models(const std::string& method, const std::string& more) {
  return "merge_method: " + method + "\nbase_model: " + kTiny + "base\nmodels:\n- model: " + kTiny + "ft1\n- model: " + kTiny +
         "ft2\n" + more;
}

MergePlan plan_of(const std::string& yaml, const MergeOptions& options = {}) {
  return plan_merge(parse_merge_recipes(yaml, "recipe.yml").front(), options);
}

std::string weights_of(const std::string& folder) { return read_file(folder + "/model.safetensors"); }

std::string merged(const MergePlan& plan, const std::string& out, int threads = 2) {
  ThreadPool pool(threads);
  write_merge(plan, {}, out, pool, {});
  return weights_of(out);
}

struct Stop {};  // as if the process ended there

void stop_after(const MergePlan& plan, const std::string& out, int tensors) {
  ThreadPool pool(2);
  int seen = 0;
  EXPECT_THROW(write_merge(plan, {}, out, pool, {},
                           [&](const MergeProgress&) {
                             if (++seen == tensors) throw Stop();
                           }),
               Stop);
}

const std::string kTies = "parameters: {weight: 0.5, density: 0.4}\n";

TEST(WriteMerge, IsResumedToTheSameBytes) {
  const Scratch scratch;
  const MergePlan plan = plan_of(two_models("dare_ties", kTies));
  const std::string whole = merged(plan, scratch / "whole"), out = scratch / "out";
  for (const int tensors : {1, 7, static_cast<int>(plan.tensors.size())}) {
    fs::remove_all(out);
    stop_after(plan, out, tensors);
    EXPECT_FALSE(fs::exists(out));
    ThreadPool pool(1);
    EXPECT_EQ(write_merge(plan, {}, out, pool, {.resume = true}), static_cast<size_t>(tensors));
    EXPECT_EQ(weights_of(out), whole) << tensors;
    EXPECT_FALSE(fs::exists(scratch / ".merging-out"));
    EXPECT_FALSE(fs::exists(out + "/journal"));
  }
}

TEST(WriteMerge, ATornLineOfTheJournalIsNotTrusted) {
  const Scratch scratch;
  const MergePlan plan = plan_of(two_models("linear", "parameters: {weight: 0.5}\n"));
  const std::string whole = merged(plan, scratch / "whole"), out = scratch / "out";
  stop_after(plan, out, 3);
  std::ofstream(scratch / ".merging-out/config.json.tmp.7.1") << "half of it";
  std::ofstream(scratch / ".merging-out/journal", std::ios::app) << plan.tensors[3].name.substr(0, 5);
  ThreadPool pool(1);
  EXPECT_EQ(write_merge(plan, {}, out, pool, {.resume = true}), 3u);
  EXPECT_EQ(weights_of(out), whole);
  EXPECT_FALSE(fs::exists(out + "/config.json.tmp.7.1"));
}

TEST(WriteMerge, AnotherRecipeIsNotResumed) {
  const Scratch scratch;
  const std::string out = scratch / "out";
  stop_after(plan_of(two_models("linear", "parameters: {weight: 0.5}\n")), out, 3);
  const MergePlan other = plan_of(two_models("linear", "parameters: {weight: 0.25}\n"));
  ThreadPool pool(1);
  EXPECT_THROW(write_merge(other, {}, out, pool, {.resume = true}), UsageError);
  const std::string fresh = merged(other, scratch / "fresh");
  EXPECT_EQ(write_merge(other, {}, out, pool, {}), 0u);  // begins anew
  EXPECT_EQ(weights_of(out), fresh);
}

TEST(WriteMerge, RefusesADirectoryThatIsThereUnlessTold) {
  const Scratch scratch;
  const MergePlan plan = plan_of(two_models("linear", "parameters: {weight: 0.5}\n"));
  const std::string out = scratch / "out";
  fs::create_directories(out);
  std::ofstream(out + "/mine") << "kept";
  ThreadPool pool(1);
  EXPECT_THROW(write_merge(plan, {}, out, pool, {}), InputError);
  EXPECT_EQ(read_file(out + "/mine"), "kept");
  std::ofstream(out + "/config.json") << "{}";
  write_merge(plan, {}, out, pool, {.replace = true});
  EXPECT_FALSE(fs::exists(out + "/mine"));
  EXPECT_TRUE(fs::exists(out + "/model.safetensors"));
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch.path()), fs::directory_iterator()), 1);
}

// --force replaces models, not other people's files.
TEST(WriteMerge, ReplacesNoForeignFiles) {
  const Scratch scratch;
  const MergePlan plan = plan_of(two_models("linear", "parameters: {weight: 0.5}\n"));
  ThreadPool pool(1);
  const auto refusal = [&](const std::string& out) {
    return message_of<InputError>([&] { write_merge(plan, {}, out, pool, {.replace = true}); });
  };
  const std::string out = scratch / "out", file = scratch.write("file", "kept");
  for (const char* name : {"a.txt", "b.txt", "c.txt", "d.txt"}) scratch.write(std::string("out/") + name, "kept");
  EXPECT_EQ(refusal(out + "/"),
            out +
                "/ is there already, and is not the directory of a model: it holds a.txt, b.txt, c.txt, …, and neither "
                "config.json, mergekit_config.yml nor a .safetensors file. --force does not remove other files; name another "
                "directory, or empty this one");
  EXPECT_EQ(refusal(file), file +
                               " is there already, and is a file. --force replaces only the directory of a model; name another "
                               "place, or remove the file");
  EXPECT_EQ(read_file(out + "/d.txt"), "kept");
  EXPECT_EQ(read_file(file), "kept");
  for (const char* name : {"config.json", "mergekit_config.yml", "adapter_model.safetensors"}) {
    const std::string model = scratch / (std::string("of-") + name);
    scratch.write(std::string("of-") + name + "/" + name, "{}");
    write_merge(plan, {}, model, pool, {.replace = true});
    EXPECT_TRUE(fs::exists(model + "/model.safetensors"));
  }
}

TEST(WriteMerge, AnEmptyDirectoryMayBeThere) {
  const Scratch scratch;
  fs::create_directories(scratch / "out");
  EXPECT_FALSE(merged(plan_of(two_models("linear", "parameters: {weight: 0.5}\n")), scratch / "out").empty());
}

// The card goes where nobody knows the paths of this machine.
TEST(WriteMerge, TheCardNamesTheModels) {
  const Scratch scratch;
  const std::string cached = scratch / "models--owner--its--name/snapshots/0123";
  fs::create_directories(fs::path(cached).parent_path());
  fs::create_directory_symlink(kTiny + "ft2", cached);
  const MergePlan plan = plan_of("merge_method: linear\nparameters: {weight: 1}\nmodels:\n- model: " + kTiny +
                                 "ft1/\n- model: " + kTiny + "base\n- model: " + cached + "\n");
  EXPECT_TRUE(merge_companions(plan, "out")
                  .at("README.md")
                  .starts_with("---\nbase_model:\n- \"ft1\"\n- \"base\"\n- \"owner/its--name\"\nlibrary_name: transformers\n"))
      << merge_companions(plan, "out").at("README.md");
}

// Gemma 2 tells layers with a window by their place, if its configuration does not list them.
TEST(WriteMerge, LayersKeepTheirWindows) {
  const Scratch scratch;
  const std::string folder = scratch / "model";
  fs::create_directories(folder);
  const std::string from = std::string(VITRINE_GOLDEN) + "/merging/tiny_gemma2/ft1/";
  fs::copy_file(from + "model.safetensors", folder + "/model.safetensors");
  Json config = read_json(from + "config.json");
  config.erase("layer_types");
  std::ofstream(folder + "/config.json") << config.dump();
  const auto whole = model_from_config(resolve_model(folder));
  ASSERT_NE(whole->layer(0).attention.window, whole->layer(1).attention.window);
  const std::string yaml = "merge_method: passthrough\nslices:\n- sources: [{model: " + folder +
                           ", layer_range: [0, 1]}]\n- sources: [{model: " + folder + ", layer_range: [0, 2]}]\n";
  ThreadPool pool(1);
  write_merge(plan_of(yaml), {}, scratch / "out", pool, {});
  const OpenedModel stacked = open_model(scratch / "out");
  EXPECT_EQ(stacked.model->shape().n_layers, 3);
  EXPECT_EQ(stacked.model->layer(0).attention.window, whole->layer(0).attention.window);
  EXPECT_EQ(stacked.model->layer(1).attention.window, whole->layer(0).attention.window);
  EXPECT_EQ(stacked.model->layer(2).attention.window, whole->layer(1).attention.window);
}

TEST(WriteMerge, ThreadsChangeNoBit) {
  const Scratch scratch;
  for (const char* method : {"slerp_task_vectors", "ties", "della", "sce", "karcher", "multislerp"}) {
    const MergePlan plan = plan_of(two_models(method, kTies));
    EXPECT_EQ(merged(plan, scratch / (std::string(method) + "1"), 1), merged(plan, scratch / (std::string(method) + "3"), 3))
        << method;
  }
}

TEST(WriteMerge, TheSeedDecidesOverRandomMasks) {
  const Scratch scratch;
  const std::string yaml = two_models("dare_linear", kTies);
  const std::string a = merged(plan_of(yaml, {.random_seed = 1}), scratch / "a"),
                    b = merged(plan_of(yaml, {.random_seed = 1}), scratch / "b"),
                    c = merged(plan_of(yaml, {.random_seed = 2}), scratch / "c");
  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

// A copy of a model with some numbers of one tensor changed.
std::string changed_model(const Scratch& scratch, const std::string& name, float value) {
  const std::string folder = scratch / "changed";
  fs::create_directories(folder);
  fs::copy_file(kTiny + "ft1/config.json", folder + "/config.json");
  const Checkpoint from = open_safetensors(kTiny + "ft1");
  std::vector<TensorToWrite> tensors;
  std::vector<float> values;
  for (const auto& [key, tensor] : from.tensors()) {
    tensors.push_back({key, tensor.dtype, tensor.shape, tensor.data});
    if (key != name) continue;
    values = as_floats(tensor).values;
    values[5] = value;
    tensors.back().data = values.data();
  }
  write_safetensors(folder + "/model.safetensors", tensors);
  return folder;
}

TEST(WriteMerge, RefusesNotANumberByNameUnlessTold) {
  const Scratch scratch;
  const std::string tensor = "model.layers.1.mlp.up_proj.weight";
  for (const float bad : {std::nanf(""), HUGE_VALF}) {
    fs::remove_all(scratch / "changed");
    const std::string yaml =
        "merge_method: linear\nparameters: {weight: 1}\nmodels:\n- model: " + changed_model(scratch, tensor, bad) +
        "\n- model: " + kTiny + "ft2\n";
    ThreadPool pool(2);
    try {
      write_merge(plan_of(yaml), {}, scratch / "out", pool, {});
      ADD_FAILURE() << "merged";
    } catch (const RunError& error) {
      EXPECT_NE(std::string(error.what()).find(tensor), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("changed"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("element 5"), std::string::npos) << error.what();
    }
    EXPECT_FALSE(fs::exists(scratch / "out"));
    EXPECT_FALSE(fs::exists(scratch / ".merging-out"));
    fs::remove_all(scratch / "told");
    write_merge(plan_of(yaml, {.allow_nan = true}), {}, scratch / "told", pool, {});
    EXPECT_FALSE(std::isfinite(as_floats(*open_safetensors(scratch / "told").find(tensor)).values[5]));
  }
}

TEST(WriteMerge, MeasuresWhatItDoes) {
  const MergePlan plan = plan_of(two_models("ties", kTies));
  MergeReporter reporter(plan);
  ThreadPool pool(2);
  measure_merge(plan, pool, [&](size_t i, const TensorMeasure& m) { reporter.add(i, m); });
  const MergeReport report = reporter.report();
  EXPECT_EQ(report.tensors.size(), plan.tensors.size());
  const Checkpoint base = open_safetensors(kTiny + "base"), a = open_safetensors(kTiny + "ft1"),
                   b = open_safetensors(kTiny + "ft2");
  for (const MergeTensorReport& tensor : report.tensors) {
    SCOPED_TRACE(tensor.name);
    const auto x = as_floats(*a.find(tensor.name)), y = as_floats(*b.find(tensor.name)), z = as_floats(*base.find(tensor.name));
    double xx = 0, xy = 0, yy = 0, conflicts = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double p = static_cast<double>(x.values[i]) - static_cast<double>(z.values[i]),
                   q = static_cast<double>(y.values[i]) - static_cast<double>(z.values[i]);
      xx += p * p, xy += p * q, yy += q * q;
      conflicts += p * q < 0;
    }
    EXPECT_NEAR(tensor.norms[0], std::sqrt(xx), 1e-5 * std::sqrt(xx));
    EXPECT_NEAR(tensor.cosines[0], xy / std::sqrt(xx * yy), 1e-5);
    EXPECT_NEAR(tensor.angle, std::acos(xy / std::sqrt(xx * yy)), 1e-4);
    EXPECT_NEAR(tensor.sign_conflict, conflicts / static_cast<double>(x.size()), 1e-9);
    EXPECT_GT(tensor.result_distance, 0);
    EXPECT_NEAR(tensor.kept[0], 0.4, 0.15);  // of what changed; a density of 0.4 counts what did not change, too
  }
}

TEST(MergeInMemory, GivesTheModelThatWouldBeWritten) {
  const Scratch scratch;
  const MergePlan plan = plan_of(two_models("ties", kTies));
  merged(plan, scratch / "out");
  const std::vector<int32_t> ids = {3, 9, 4};
  const auto in_memory = merge_in_memory(plan, {.threads = 1}),
             written = std::make_unique<Engine>(scratch / "out", EngineOptions{.threads = 1});
  const auto a = in_memory->predict(ids, 5, false), b = written->predict(ids, 5, false);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(a[0].top[i].token, b[0].top[i].token);
    EXPECT_EQ(a[0].top[i].logprob, b[0].top[i].logprob);
  }
}

}  // namespace
}  // namespace vitrine
