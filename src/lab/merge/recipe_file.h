#pragma once
// The merges of one recipe file, in the order in which each comes after those whose results it uses.
#include <string>
#include <vector>

#include "merge/plan.h"
#include "merge/recipe.h"

namespace vitrine {

struct MergeStep {
  MergeRecipe recipe;              // models that are results of other merges are their directories
  std::string directory;           // where its result goes
  std::vector<std::string> needs;  // directories of other merges
  bool is_wanted = false;          // not a named merge that only others use
};

/// `out`: the directory of the merge without a name; those with one go to `parts`/<name>. One document alone needs no name and
/// goes to `out` all the same. Errors: UsageError for names that are no names of directories or that two merges have, for no
/// merge or several without a name, and for merges that need each other.
std::vector<MergeStep> merge_steps(std::vector<MergeRecipe> recipes, const std::string& out, const std::string& parts);

/// Whether the result of a named merge is there, made by this recipe as far as one can tell, and after the results that it uses:
/// then it need not be made again.
bool is_made(const MergeStep& step);

/// Whether nothing is left to do: every result is there, made by its recipe and after those that it uses. The wanted one must say
/// its recipe.
bool is_whole(const std::vector<MergeStep>& steps);

/// Plans each merge that is to be made, so that what is wrong with the last one is told before the first is made. Of one that
/// uses a result which is not there yet, only its method is looked up, and whether its other models are there. `lazy`: results
/// that are there are kept. Errors: as plan_merge and refuse_problems.
void check_merges(const std::vector<MergeStep>& steps, const MergeOptions& options, bool lazy);

/// The first directory that the step needs and that is not there; empty if there is none.
std::string first_missing(const MergeStep& step);

/// "5B", "500M", "100k", "123": bytes, as mergekit's writer counts them. Errors: UsageError beginning with `what`.
int64_t parse_shard_size(const std::string& text, const std::string& what);

}  // namespace vitrine
