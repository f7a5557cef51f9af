#include "cli/service_flags.h"

#include "base/mapped_file.h"
#include "cli/options.h"

namespace vitrine::cli {

SchedulerOptions ServiceFlags::scheduling(size_t keys) const {
  SchedulerOptions options;
  options.running = parallel;
  options.waiting = queue;
  // Of several clients none may fill the queue by itself.
  options.waiting_per_owner = queue_per_key >= 0 ? queue_per_key : keys > 1 ? (queue + 1) / 2 : 0;
  options.prefill_rows = prefill_rows;
  options.cache_bytes = static_cast<size_t>(cache_mb) << 20;
  options.kept_bytes = static_cast<size_t>(prefix_mb) << 20;
  options.positions = context;
  return options;
}

serve::ServiceOptions ServiceFlags::service() const {
  serve::ServiceOptions options;
  options.name = name;
  options.aliases = aliases;
  options.any_model = any_model;
  options.strict_fields = strict_fields;
  options.slots = !no_slots;
  options.metrics = !no_metrics;
  if (!template_path.empty()) options.chat_template = read_file(template_path, 1 << 20);
  return options;
}

void add_service_flags(CLI::App& app, ServiceFlags& flags) {
  app.add_option("--name", flags.name, "What answers call the model; default: the last part of --model")
      ->type_name("NAME")
      ->check(not_empty());
  app.add_option("--alias", flags.aliases, "Another name that requests may use, or several with commas. May be repeated")
      ->type_name("NAME")
      ->delimiter(',')
      ->expected(1)
      ->take_all();
  app.add_flag("--any-model", flags.any_model, "Requests may name any model, and are answered under that name");
  app.add_flag("--strict-fields", flags.strict_fields, "Refuse unknown fields instead of naming them in the answer");
  app.add_option("--template", flags.template_path, "A Jinja template in the place of the model's own")
      ->type_name("FILE")
      ->check(not_empty());
  add_count(app, "--parallel", flags.parallel, 1, 65536, "Streams that run at once (default 64)");
  add_count(app, "--queue", flags.queue, 1, 1 << 20, "Streams that may wait; more are told to come back, 429 (default 512)");
  add_count(app, "--queue-per-key", flags.queue_per_key, 0, 1 << 20,
            "Streams of one key or address that may wait; 0: no limit of their own (default: half of --queue with several keys, "
            "else 0)");
  add_count(app, "--prefill-rows", flags.prefill_rows, 0, 65536,
            "Prompt tokens in a step beside running streams; 0 (default): as many as keep their pauses short");
  add_count(app, "--cache-mb", flags.cache_mb, 0, int64_t{1} << 30,
            "Keys and values in MiB, of running streams and of kept prefixes; 0 (default): half of free memory");
  add_count(app, "--prefix-mb", flags.prefix_mb, 0, int64_t{1} << 30,
            "Prefixes of ended streams are given up while more MiB of keys and values are in use; 0 (default): --cache-mb");
  add_count(app, "--context", flags.context, 0, int64_t{1} << 31, "Positions of a stream at most; 0 (default): the model's");
  app.add_flag("--no-slots", flags.no_slots, "GET /slots answers 501");
  app.add_flag("--no-metrics", flags.no_metrics, "GET /metrics answers 501");
}

}  // namespace vitrine::cli
