#include "cli/service_flags.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "base/mapped_file.h"
#include "cli/lora_option.h"
#include "cli/options.h"
#include "serve/tool_calls.h"

namespace vitrine::cli {

namespace {

std::vector<serve::AdapterToLoad> adapters_of(const ServiceFlags& flags) {
  std::vector<serve::AdapterToLoad> list;
  for (const std::string& word : flags.lora) {
    const LoraWord parsed = parse_lora(word);
    list.push_back({"", parsed.path, flags.lora_without_apply ? 0 : parsed.scale});
  }
  for (const std::string& word : flags.lora_modules) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == word.size())
      throw UsageError("--lora-modules is " + word + "; expected a name and a folder: french=adapters/french");
    list.push_back({word.substr(0, equals), word.substr(equals + 1), 0});
  }
  return list;
}

OrderedJson variables_of(const std::string& text) {
  OrderedJson json = OrderedJson::parse(text, nullptr, false);
  if (!json.is_object())
    throw UsageError("--chat-template-kwargs is " + text + R"(; expected an object of JSON, such as {"enable_thinking": false})");
  for (const char* taken : {"messages", "tools", "add_generation_prompt", "documents"})
    if (json.contains(taken))
      throw UsageError("--chat-template-kwargs has \"" + std::string(taken) + "\", which each request sets; leave it out");
  return json;
}

}  // namespace

SchedulerOptions ServiceFlags::scheduling(size_t keys) const {
  SchedulerOptions options;
  options.running = parallel;
  options.waiting = queue;
  // Of several clients none may fill the queue by itself.
  options.running_per_owner = streams_per_key >= 0 ? streams_per_key : keys > 1 ? (parallel + 1) / 2 : 0;
  options.waiting_per_owner = queue_per_key >= 0 ? queue_per_key : keys > 1 ? (queue + 1) / 2 : 0;
  options.prefill_rows = prefill_rows;
  options.cache_bytes = static_cast<size_t>(cache_mb) << 20;
  options.kept_bytes = static_cast<size_t>(prefix_mb) << 20;
  options.clear_pages = !slot_folder.empty();
  options.positions = context;
  return options;
}

serve::ServiceOptions ServiceFlags::service() const {
  serve::ServiceOptions options;
  options.name = name;
  options.aliases = aliases;
  options.any_model = any_model;
  options.strict_fields = strict_fields;
  options.share_prefixes = share_prefixes;
  options.slots = !no_slots;
  if (!slot_folder.empty() && !std::filesystem::is_directory(slot_folder))
    throw UsageError("--slot-save-path is " + slot_folder + ", which is no folder; make it first");
  options.slot_folder = slot_folder;
  options.metrics = !no_metrics;
  options.stuck_seconds = stuck_seconds;
  options.lookup = lookup;
  if (lookup > 0 && !draft.empty()) throw UsageError("--lookup and --draft contradict each other; give one of them.");
  if (draft_tokens > 0 && draft.empty()) throw UsageError("--draft-tokens needs --draft.");
  if (draft_tokens > 0) options.draft_tokens = draft_tokens;
  options.mask_seconds = mask_seconds;
  options.request_seconds = request_seconds;
  options.adapters = adapters_of(*this);
  options.adapter_limits = {.most = most_loras, .bytes = static_cast<size_t>(lora_mb) << 20, .folders = lora_folders};
  options.tool_parser = tool_parser;
  options.reasoning_format = reasoning_format;
  options.page = !no_page;
  if (!template_variables.empty()) options.template_variables = variables_of(template_variables);
  if (!template_path.empty()) options.chat_template = read_file(template_path, 1 << 20);
  return options;
}

std::vector<serve::ModelToServe> ServiceFlags::other_models() const {
  std::vector<serve::ModelToServe> list;
  for (const std::string& word : models) {
    const size_t equals = word.find('=');
    if (std::filesystem::is_directory(word) || equals == std::string::npos) {
      std::ranges::move(serve::models_in(word), std::back_inserter(list));
      continue;
    }
    if (equals == 0 || equals + 1 == word.size())
      throw UsageError("--models is " + word + "; expected a folder of models, or a name and a model: tales=models/tales9m");
    list.push_back({word.substr(0, equals), word.substr(equals + 1)});
  }
  return list;
}

void add_service_flags(CLI::App& app, ServiceFlags& flags) {
  app.add_option("--name", flags.name, "The model's name in answers; default: the last part of --model")
      ->type_name("NAME")
      ->check(not_empty());
  app.add_option("--alias", flags.aliases, "Another name that requests may use, or several separated by commas. May be repeated")
      ->type_name("NAME")
      ->delimiter(',')
      ->expected(1)
      ->take_all();
  app.add_option(
         "--models", flags.models,
         "More models, which requests choose by name and which are loaded then: those in FOLDER (subfolders with a "
         "config.json and .gguf files), or one by a name of its own. May be repeated. The first model is that of --model, or "
         "without it the first of these. SIGHUP looks through FOLDER again")
      ->type_name("FOLDER|NAME=MODEL")
      ->expected(1)
      ->take_all()
      ->check(not_empty());
  add_count(app, "--models-max", flags.most_models, 0, 1 << 16,
            "Models that are loaded at once; the one that was used least recently makes room. 0 (default): as memory allows");
  app.add_option("--keep-alive", flags.keep_alive,
                 "Unload a model after so many seconds without a request; negative (default): when others need the room")
      ->type_name("SECONDS")
      ->check(CLI::Range(-1e9, 1e9));
  app.add_flag("--any-model", flags.any_model, "Accept any model name in requests, and use it in the answer");
  app.add_flag("--strict-fields", flags.strict_fields, "Refuse unknown fields instead of listing them in the answer");
  app.add_option("--template", flags.template_path, "A Jinja template instead of the model's own")
      ->type_name("FILE")
      ->check(not_empty());
  app.add_option(
         "--chat-template-kwargs", flags.template_variables,
         "Variables of the template for requests that do not set them, as an object of JSON: {\"enable_thinking\": false}")
      ->type_name("JSON")
      ->check(not_empty());
  app.add_option("--tool-parser", flags.tool_parser,
                 "How the model writes calls of tools: auto (default, by its chat template), " + serve::tool_form_names())
      ->type_name("NAME")
      ->check([](const std::string& name) {
        return name == "auto" || serve::tool_form_named(name)
                   ? ""
                   : name + " is no parser; expected auto, " + serve::tool_form_names();
      });
  app.add_option("--reasoning-format", flags.reasoning_format,
                 "How it marks reasoning: auto (default, by its chat template), none (it stays in the content), " +
                     serve::reasoning_format_names())
      ->type_name("NAME")
      ->check([](const std::string& name) {
        return serve::reasoning_syntax_named(name, "")
                   ? ""
                   : name + " is no format; expected auto, none, " + serve::reasoning_format_names();
      });
  add_count(app, "--parallel", flags.parallel, 1, 65536, "Sequences generated at once (default 64)");
  add_count(app, "--max-streams-per-key", flags.streams_per_key, 0, 65536,
            "Sequences of one key or address generated at once; 0: no separate limit (default: half of --parallel with several "
            "keys, otherwise 0)");
  add_count(app, "--queue", flags.queue, 1, 1 << 20, "Sequences that may wait; further ones get 429 (default 512)");
  add_count(app, "--queue-per-key", flags.queue_per_key, 0, 1 << 20,
            "Waiting sequences of one key or address; 0: no separate limit (default: half of --queue with several keys, "
            "otherwise 0)");
  add_number(app, "--request-timeout", flags.request_seconds, 0, 86400,
             "Seconds for the texts of a request; later ones end with the error timeout. 0 (default): no limit");
  add_number(app, "--mask-seconds", flags.mask_seconds, 0, 86400,
             "Seconds of a processor to find the tokens that a grammar or schema allows, for one text (default 10); 0: no limit");
  add_count(app, "--prefill-rows", flags.prefill_rows, 0, 65536,
            "Prompt tokens in a step beside running sequences; 0 (default): as many as keep their delays short");
  add_count(app, "--cache-mb", flags.cache_mb, 0, int64_t{1} << 30,
            "KV cache in MiB, for running sequences and cached prefixes; 0 (default): half of free memory");
  add_count(app, "--prefix-mb", flags.prefix_mb, 0, int64_t{1} << 30,
            "Evict cached prefixes while the KV cache uses more MiB than this; 0 (default): --cache-mb");
  app.add_flag("--share-prefixes", flags.share_prefixes,
               "Share cached prefixes among all keys and addresses. Clients can then find out which prompts others sent");
  add_count(app, "--context", flags.context, 0, int64_t{1} << 31, "Context length of a sequence; 0 (default): the model's");
  add_count(app, "--lookup", flags.lookup, 0, kMostDrafts,
            "Draft up to N tokens per step by prompt lookup in requests without the field (default 0: none)");
  app.add_option(
         "--draft", flags.draft,
         "A much smaller model of the same vocabulary, which drafts tokens that the first model verifies in one step while "
         "few sequences run. The output is the same")
      ->type_name("MODEL")
      ->check(not_empty());
  add_count(app, "--draft-tokens", flags.draft_tokens, 1, kMostDrafts,
            "With --draft: tokens to draft for each step in requests without the field (default " +
                std::to_string(kDefaultDrafts) + ")");
  app.add_option("--lora", flags.lora,
                 "The folder of a LoRA adapter for requests that choose none, and after a colon its scale (default 1). May be "
                 "repeated")
      ->type_name("FOLDER[:SCALE]")
      ->expected(1)
      ->take_all()
      ->check(not_empty());
  app.add_flag("--lora-init-without-apply", flags.lora_without_apply,
               "Load the adapters of --lora with scale 0: requests must choose them");
  app.add_option("--lora-modules", flags.lora_modules,
                 "A LoRA adapter that requests choose by this name, as model or in lora. May be repeated")
      ->type_name("NAME=FOLDER")
      ->take_all()
      ->check(not_empty());
  app.add_option("--lora-folder", flags.lora_folders, "Let requests load adapters from below this folder. May be repeated")
      ->type_name("FOLDER")
      ->expected(1)
      ->take_all()
      ->check(not_empty());
  add_count(app, "--max-loras", flags.most_loras, 0, 1 << 16, "Adapters that may be loaded at once (default 16)");
  add_count(app, "--lora-mb", flags.lora_mb, 0, int64_t{1} << 30, "MiB of their weights, as f32 (default 1024)");
  app.add_flag("--no-slots", flags.no_slots, "GET /slots returns 501");
  app.add_option("--slot-save-path", flags.slot_folder,
                 "Let POST /slots/{id} save the keys and values of texts to files in this folder, and restore them")
      ->type_name("FOLDER")
      ->check(not_empty());
  app.add_flag("--no-metrics", flags.no_metrics, "GET /metrics returns 501");
  app.add_flag("--no-page", flags.no_page, "The web pages at / and /explain return 404");
  app.add_option(
         "--stuck-seconds", flags.stuck_seconds,
         "GET /health returns 503, and systemd's watchdog is not notified, while a step of the model or a job takes longer; 0: "
         "never (default 600)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e9));
}

}  // namespace vitrine::cli
