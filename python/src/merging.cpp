#include "merging.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "arrays.h"
#include "base/error.h"
#include "merge/output.h"
#include "merge/plan_json.h"
#include "merge/recipe_file.h"
#include "merge/run.h"
#include "session.h"
#include "signals.h"

namespace vitrine::python {
namespace {

namespace fs = std::filesystem;

struct MergeRequest {
  std::string path, text;  // of a recipe: one of the two
  MergeOptions options;
  WriteOptions write;
  int threads = 0;

  std::vector<MergeRecipe> recipes() const {
    if (!path.empty()) return read_merge_recipes(path);
    try {
      return parse_merge_recipes(text, "the recipe");
    } catch (const FileError& e) {  // there is no file
      throw InputError(e.what());
    }
  }
};

std::string chosen_path(const nb::bytes& path) { return {path.c_str(), path.size()}; }

MergeRequest request(const nb::bytes& path, const nb::str& text, bool resume, bool force, uint64_t random_seed,
                     int64_t shard_bytes, const std::optional<std::string>& shard_size, bool allow_missing, bool allow_nan,
                     bool allow_crimes, int threads) {
  MergeRequest made;
  made.path = chosen_path(path);
  made.text = utf8(text);
  made.options.random_seed = random_seed;
  made.options.shard_bytes = shard_size ? parse_shard_size(*shard_size, "out_shard_size") : shard_bytes;
  made.options.allow_missing = allow_missing;
  made.options.allow_nan = allow_nan;
  made.options.allow_crimes = allow_crimes;
  made.write = {.resume = resume, .replace = force};
  made.threads = threads;
  return made;
}

// Ctrl-C ends a merge between two tensors; what was written of a directory stays for resume.
void watch_merge(const MergeProgress&) { check_signals(); }

void write(const MergeStep& step, const MergeRequest& r, ThreadPool& pool) {
  const MergePlan plan = plan_merge(step.recipe, r.options);
  refuse_problems(plan);
  const std::string title = fs::path(step.directory).lexically_normal().filename().string();
  write_merge(plan, merge_companions(plan, title.empty() ? "merge" : title), step.directory, pool, r.write, watch_merge);
}

// All merges but the last, which is the one that is wanted or needs no other's result.
MergeStep write_parts(const MergeRequest& r, const std::string& out, const std::string& parts, ThreadPool& pool) {
  std::optional<MergeStep> wanted;
  std::vector<MergeStep> steps = merge_steps(r.recipes(), out, parts);
  if (steps.size() > 1) check_merges(steps, r.options, true);
  for (MergeStep& step : steps) {
    if (step.is_wanted) {
      wanted = std::move(step);
      continue;
    }
    if (is_made(step)) continue;
    fs::create_directories(parts);
    write(step, r, pool);
  }
  VITRINE_CHECK(wanted.has_value(), "merge_steps refuses a file without a merge that is wanted");
  return *std::move(wanted);
}

void merge_to_directory(const MergeRequest& r, const nb::bytes& out) {
  const std::string directory = chosen_path(out);
  const nb::gil_scoped_release unlocked;
  const std::string parts = directory + ".parts";
  if (r.write.resume && !r.write.replace && is_whole(merge_steps(r.recipes(), directory, parts))) return;
  check_merge_directory(directory, r.write.replace);
  ThreadPool pool(r.threads);
  write(write_parts(r, directory, parts, pool), r, pool);
}

std::shared_ptr<Session> merge_to_memory(const MergeRequest& r, const nb::bytes& scratch) {
  const std::string parts = chosen_path(scratch);
  const nb::gil_scoped_release unlocked;
  std::optional<MergeStep> step;
  {
    ThreadPool pool(r.threads);
    step = write_parts(r, "", parts, pool);
  }
  return std::make_shared<Session>(merge_in_memory(plan_merge(step->recipe, r.options), {.threads = r.threads}, watch_merge));
}

nb::str plan(const MergeRequest& r) {
  std::string document;
  {
    const nb::gil_scoped_release unlocked;
    std::vector<MergeRecipe> recipes = r.recipes();
    if (recipes.size() > 1)
      throw UsageError(recipes.front().path + " holds " + std::to_string(recipes.size()) +
                       " merges, which are planned when those before them are there; plan one at a time");
    const ThreadPool pool(r.threads);
    document = plan_json(plan_merge(recipes.front(), r.options), pool.threads()).dump();
  }
  return text(document);
}

}  // namespace

void bind_merge(nb::module_& m) {
  nb::class_<MergeRequest>(m, "MergeRequest", "A recipe, as a path or as text, and how it is done.")
      .def(nb::new_(&request), nb::kw_only(), nb::arg("path"), nb::arg("text"), nb::arg("resume"), nb::arg("force"),
           nb::arg("random_seed"), nb::arg("shard_bytes"), nb::arg("shard_size").none(), nb::arg("allow_missing"),
           nb::arg("allow_nan"), nb::arg("allow_crimes"), nb::arg("threads"))
      .def("to_directory", &merge_to_directory, nb::arg("out"))
      .def("to_memory", &merge_to_memory, nb::arg("scratch"), "scratch: a folder that is not needed afterwards.")
      .def("plan", &plan, "The plan as JSON.");
}

}  // namespace vitrine::python
