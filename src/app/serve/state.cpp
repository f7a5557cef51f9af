// GET /props and /slots: what runs, as llama.cpp's clients ask for it.
#include "serve/endpoints.h"
#include "serve/native_sampling.h"
#include "vitrine/version.h"

namespace vitrine::serve {

void props(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  GenerateOptions defaults;
  defaults.sampling = native_sampling();
  defaults.max_tokens = -1;
  defaults.eos = service.end_tokens();
  const Engine& engine = service.engine();
  const Tokenizer* tokenizer = engine.has_tokenizer() ? &engine.tokenizer() : nullptr;
  const auto named = [&](std::optional<int32_t> id) { return id ? tokenizer->piece(*id) : std::string(); };
  exchange->respond(json_response({{"default_generation_settings",
                                    {{"id", 0},
                                     {"id_task", -1},
                                     {"n_ctx", service.scheduler().positions()},
                                     {"is_processing", false},
                                     {"params", settings_json(defaults, false)}}},
                                   {"total_slots", service.scheduling().running},
                                   {"model_alias", service.name()},
                                   {"model_path", service.shown_path()},
                                   {"modalities", {{"vision", false}, {"audio", false}}},
                                   {"chat_template", service.chat_template()},
                                   {"chat_template_reads_tools", service.chat_reads_tools()},
                                   {"bos_token", tokenizer == nullptr ? "" : named(tokenizer->bos())},
                                   {"eos_token", tokenizer == nullptr ? "" : named(tokenizer->eos())},
                                   {"end_token_ids", service.end_tokens()},
                                   {"build_info", std::string("vitrine ") + version()},
                                   {"system_fingerprint", service.fingerprint()},
                                   {"is_sleeping", false}}));
}

void slots(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  if (!service.options().slots) throw unsupported("", "this server was started without /slots");
  const SchedulerStats stats = service.scheduler().stats();
  const int64_t all = service.scheduling().running;
  if (exchange->request().parameter("fail_on_no_slot") != nullptr && stats.running >= all)
    throw ApiError(503, "no_slot", "all " + std::to_string(all) + " streams run");
  OrderedJson list = OrderedJson::array();
  for (int64_t i = 0; i < all; ++i) {
    OrderedJson slot = {{"id", i}, {"n_ctx", service.scheduler().positions()}, {"is_processing", false}};
    if (i < std::ssize(stats.streams)) {
      const StreamStats& stream = stats.streams[static_cast<size_t>(i)];
      slot["is_processing"] = true;
      slot["id_task"] = stream.ticket;
      slot["n_prompt_tokens"] = stream.prompt_tokens;
      slot["n_prompt_tokens_cache"] = stream.cached_tokens;
      slot["n_prompt_tokens_processed"] = stream.read_tokens;
      slot["seconds"] = stream.seconds;
      slot["next_token"] = {
          {"n_decoded", stream.new_tokens}, {"n_remain", stream.most_tokens - stream.new_tokens}, {"has_next_token", true}};
    }
    list.push_back(std::move(slot));
  }
  exchange->respond(json_response(list));
}

}  // namespace vitrine::serve
