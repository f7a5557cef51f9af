#include "cli/shard_flags.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/plural.h"
#include "cli/lora_option.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/version.h"
#include "kernels/table.h"
#include "model/fingerprint.h"
#include "vitrine/version.h"

namespace vitrine::cli {
namespace {

// Flags whose value changes no unit, or is compared by content: the weights' fingerprint, the units' keys.
constexpr const char* kNotCompared[] = {"--shard",    "--parts",     "--join", "--out",      "--json",        "--threads",
                                        "--model",    "--against",   "--file", "--data",     "--valid-files", "--tokenizer",
                                        "--ensemble", "--per-token", "--load", "--template", "--show-items",  "--pin"};

WorkShard shard_of(const std::string& text) {
  const size_t slash = text.find('/');
  WorkShard shard{-1, 0};
  if (slash != std::string::npos) {
    const char *const middle = text.data() + slash, *const end = text.data() + text.size();
    const auto index = std::from_chars(text.data(), middle, shard.index);
    const auto count = std::from_chars(middle + 1, end, shard.count);
    if (index.ec != std::errc() || index.ptr != middle || count.ec != std::errc() || count.ptr != end) shard = {-1, 0};
  }
  if (shard.count < 1 || shard.count > WorkShard::kMost || shard.index < 0 || shard.index >= shard.count)
    throw UsageError("--shard is \"" + text + "\"; expected I/N, where I counts from 0 to N - 1 and N is at most " +
                     std::to_string(WorkShard::kMost) + ": 0/8 to 7/8 for eight processes.");
  return shard;
}

// Of the files of --adapter and --lora, whose paths may differ.
std::string adapter_sum(const CLI::Option& option) {
  uint64_t sum = 0;
  for (const std::string& word : option.results()) {
    const std::string folder = option.get_name() == "--lora" ? parse_lora(word).path : word;
    for (const char* file : {"/adapter_config.json", "/adapter_model.safetensors"})
      sum = add_to_fingerprint(sum, MappedFile::open(folder + file).bytes());
  }
  return hexadecimal(sum);
}

WorkIdentity identity_of(const ShardFlags& flags, const std::vector<const Engine*>& engines,
                         std::vector<std::pair<std::string, std::string>> also) {
  WorkIdentity identity;
  auto& made_from = identity.made_from;
  made_from = {{"command", flags.app->get_name()}, {"vitrine", std::string(version()) + " " + commit()}};
  const CLI::App* const group = flags.app->get_parent();  // `eval` of `eval choices`; of other commands the program
  if (group != nullptr && group->get_parent() != nullptr) made_from[0].second = group->get_name() + " " + made_from[0].second;
  for (size_t i = 0; i < engines.size(); ++i)
    made_from.emplace_back(i == 0 ? "model" : "model number " + std::to_string(i + 1),
                           hexadecimal(fingerprint_of(engines[i]->opened())));
  if (!engines.empty()) identity.machine.emplace_back("kernels", kernels().name);
  for (const CLI::Option* option : flags.app->get_options()) {
    const std::string name = option->get_name();
    const bool compared = std::find(std::begin(kNotCompared), std::end(kNotCompared), name) == std::end(kNotCompared);
    if (option->count() == 0 || !compared || !name.starts_with("--")) continue;
    if (name == "--adapter" || name == "--lora") made_from.emplace_back(name + " file", adapter_sum(*option));
    if (name == "--adapter") continue;
    std::string value;
    for (const std::string& word : option->results()) value += (value.empty() ? "" : " ") + word;
    made_from.emplace_back(name, value);
  }
  made_from.insert(made_from.end(), also.begin(), also.end());
  return identity;
}

}  // namespace

void add_shard_flags(CLI::App& app, ShardFlags& flags) {
  flags.app = &app;
  CLI::Option* const shard =
      app.add_option("--shard", flags.shard,
                     "Compute only part I of N, I from 0 to N - 1, and write it to --parts: --shard $SLURM_ARRAY_TASK_ID/8")
          ->type_name("I/N");
  CLI::Option* const parts = app.add_option("--parts", flags.parts, "The folder of the parts, the same for all --shard")
                                 ->type_name("FOLDER")
                                 ->check(not_empty());
  app.add_option("--join", flags.join, "Compute nothing: read the complete parts in this folder, and write what one run would")
      ->type_name("FOLDER")
      ->check(not_empty())
      ->excludes(shard)
      ->excludes(parts);
  shard->needs(parts);
  parts->needs(shard);
}

SharedWork shared_work(const ShardFlags& flags, const std::vector<const Engine*>& engines,
                       std::vector<std::pair<std::string, std::string>> also) {
  if (flags.shard.empty() && flags.join.empty() && flags.app->get_option("--shard")->count() == 0) return SharedWork::alone();
  if (!flags.join.empty()) return SharedWork::join(flags.join, identity_of(flags, engines, std::move(also)));
  const WorkShard shard = shard_of(flags.shard);
  SharedWork work = SharedWork::shard(flags.parts, shard, identity_of(flags, engines, std::move(also)));
  if (work.was_complete()) log("{} is complete already; its text is compared", work.path());
  return work;
}

bool finish_part(SharedWork& work, bool json) {
  work.finish();
  if (work.gives_all()) return false;
  if (json) {
    print_json({{"part", work.path()},
                {"units", work.units()},
                {"computed", work.computed()},
                {"found", work.found()},
                {"was_complete", work.was_complete()}});
    return true;
  }
  const auto units = [](uint64_t n) { return plural(grouped(static_cast<int64_t>(n)), "unit"); };
  if (work.was_complete())
    log("nothing was left to do: {} is complete", work.path());
  else
    print("{}: {} computed, {} found, of {} in all parts\n", work.path(), units(work.computed()), work.found(), work.units());
  return true;
}

}  // namespace vitrine::cli
