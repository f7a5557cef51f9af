#pragma once
// --shard, --parts and --join: one command's work, divided among processes.
#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "io/shared_work.h"
#include "runtime/engine.h"

namespace vitrine::cli {

struct ShardFlags {
  std::string shard, parts, join;
  const CLI::App* app = nullptr;  // the command they were added to
};
/// Call it after the command's other flags are added.
void add_shard_flags(CLI::App& app, ShardFlags& flags);

/// The work as the flags divide it; all of it without them. Parts belong together if they were made by one program from models
/// with the same weights and with the same flags, apart from those that name models, texts and outputs or change only what is
/// shown. engines: that the command runs. also: what else results depend on, by name. Errors: UsageError for a shard that is not
/// I/N; as SharedWork.
SharedWork shared_work(const ShardFlags& flags, const std::vector<const Engine*>& engines,
                       std::vector<std::pair<std::string, std::string>> also = {});

/// After the last unit: completes the work, and of a part prints what was done. Returns whether it was a part: then there are no
/// results to print.
bool finish_part(SharedWork& work, bool json);

}  // namespace vitrine::cli
