#pragma once
// The flags of `vitrine serve` that are the API's and the scheduler's.
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "schedule/scheduler.h"
#include "serve/served_models.h"

namespace vitrine::cli {

struct ServiceFlags {
  std::string name, template_path, template_variables, slot_folder, draft, tool_parser = "auto", reasoning_format = "auto";
  std::vector<std::string> aliases;
  bool any_model = false, strict_fields = false, share_prefixes = false, no_slots = false, no_metrics = false, no_page = false;
  int64_t parallel = 64, queue = 512, prefill_rows = 0, cache_mb = 0, prefix_mb = 0, context = 0, lookup = 0, draft_tokens = 0;
  int64_t queue_per_key = -1, streams_per_key = -1;  // -1: not given
  double mask_seconds = 10, request_seconds = 0, stuck_seconds = 600;

  std::vector<std::string> lora, lora_modules, lora_folders;
  std::vector<std::string> models;
  int64_t most_models = 0;
  double keep_alive = -1;
  bool lora_without_apply = false;
  int64_t most_loras = 16, lora_mb = 1024;

  /// `keys`: of clients, which are as many owners of streams.
  SchedulerOptions scheduling(size_t keys) const;
  /// Errors: FileError of the template; UsageError for an adapter that is not named as it should be, and for
  /// template_variables that are no object of JSON.
  serve::ServiceOptions service() const;
  /// Those of --models. Errors: FileError of a folder; UsageError for a word that is none and names no model.
  std::vector<serve::ModelToServe> other_models() const;
};

void add_service_flags(CLI::App& app, ServiceFlags& flags);

}  // namespace vitrine::cli
