// POST /slots/{id}: the cache of the slot's last text is saved, restored or erased.
#include "serve/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "base/fnv.h"
#include "base/stopwatch.h"
#include "io/atomic_file.h"
#include "model/fingerprint.h"
#include "serve/endpoints.h"
#include "serve/slot_file.h"

namespace vitrine::serve {
namespace {

constexpr size_t kMostName = 200;  // bytes

int64_t slot_of(const std::string& path) {
  const std::string_view word = std::string_view(path).substr(std::string_view("/slots/").size());
  int64_t slot = -1;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), slot);
  if (error != std::errc() || end != word.data() + word.size())
    throw invalid("id_slot", "the slot is \"" + std::string(word) + "\"; expected a number, as in /slots/0?action=save");
  return slot;
}

std::string file_name(const Fields& fields) {
  const std::optional<std::string> name = fields.text("filename");
  if (!name) throw invalid("filename", "\"filename\" is missing; expected a name", "missing_required_parameter");
  const bool plain = !name->empty() && name->size() <= kMostName && name->front() != '.' &&
                     name->find_first_of("/\\:") == std::string::npos &&
                     std::ranges::none_of(*name, [](unsigned char c) { return c < ' ' || c == 0x7f; });
  if (!plain)
    throw invalid("filename", "\"filename\" is " + json_text(*name) +
                                  "; expected a name of 1 to 200 bytes without /, \\ and :, and without a point in front");
  return *name;
}

// Each owner's files are in a folder of their own, so that none reads or replaces another's.
std::filesystem::path folder_of(const Service& service, const std::string& owner) {
  const std::filesystem::path folder = service.options().slot_folder;
  return service.options().share_prefixes ? folder : folder / hexadecimal(fnv1a(owner));
}

std::string settings_of(const Service& service) {
  const CacheTypes types = service.engine().decoding_types();
  const Numerics numerics = service.numerics();
  return fmt::format("--cache-type-k {} --cache-type-v {}{}{}", name_of(types.keys), name_of(types.values),
                     numerics.f32 ? " --compute f32" : "", numerics.exact ? " --exact" : "");
}

SlotOrigin origin_of(Service& service, const std::string& owner, const Fields& fields) {
  if (service.engine().opened().adapter != nullptr)
    throw unsupported("",
                      "this server runs with --adapter, and files of slots say nothing of that; serve a merged copy of the "
                      "model (vitrine convert)");
  return {service.model_fingerprint(), settings_of(service), service.prefix_scope(owner, fields.text("cache_salt").value_or(""))};
}

SlotText text_of(Service& service, const std::string& owner, int64_t slot) {
  std::optional<SlotText> text = service.slot_texts().find(owner, slot);
  if (!text)
    throw invalid("id_slot",
                  fmt::format("no text has ended in slot {} of this key or address; send one with \"id_slot\": {}", slot, slot));
  return *std::move(text);
}

void save_slot(Service& service, const std::shared_ptr<http::Exchange>& exchange, const Fields& fields, int64_t slot) {
  const std::string &owner = exchange->request().owner, name = file_name(fields);
  SlotText text = text_of(service, owner, slot);
  if (text.adapted)
    throw unsupported("id_slot", "the text of this slot was made with LoRA adapters, and files of slots say nothing of those");
  const Stopwatch watch;
  SlotOrigin origin = origin_of(service, owner, fields);
  if (text.scope != origin.scope)
    throw invalid("cache_salt", "the text of this slot was sent with another \"cache_salt\"; give the same one");
  const std::filesystem::path folder = folder_of(service, owner);
  std::filesystem::create_directory(folder);
  AtomicFile file(folder / name);
  SlotWriter::Written written;
  auto writer = std::make_shared<SlotWriter>(file, written, std::move(origin), std::move(text.tokens), text.prompt);
  std::function<bool(const KeptSequences&)> part = [writer = std::move(writer)](const KeptSequences& kept) {
    return writer->next(kept);
  };
  service.scheduler().run_on_kept(std::move(part), owner).get();
  file.finish();
  exchange->respond(json_response({{"id_slot", slot},
                                   {"filename", name},
                                   {"n_saved", written.tokens},
                                   {"n_written", written.bytes},
                                   {"timings", {{"save_ms", watch.ms()}}}},
                                  fields));
}

void restore_slot(Service& service, const std::shared_ptr<http::Exchange>& exchange, const Fields& fields, int64_t slot) {
  const std::string &owner = exchange->request().owner, name = file_name(fields);
  const Stopwatch watch;
  const SlotOrigin origin = origin_of(service, owner, fields);
  auto reader = std::make_shared<SlotReader>(folder_of(service, owner) / name, name, origin, service.engine(),
                                             service.scheduler().positions());
  const SlotText text{reader->tokens(), reader->prompt(), origin.scope, false};
  const uint64_t bytes = reader->bytes();
  std::function<bool(const KeptSequences&)> part = [reader = std::move(reader)](const KeptSequences& kept) {
    return reader->next(kept);
  };
  service.scheduler().run_on_kept(std::move(part), owner).get();
  service.slot_texts().remember(owner, slot, text);
  exchange->respond(json_response({{"id_slot", slot},
                                   {"filename", name},
                                   {"n_restored", text.tokens.size()},
                                   {"n_read", bytes},
                                   {"timings", {{"restore_ms", watch.ms()}}}},
                                  fields));
}

void erase_slot(Service& service, const std::shared_ptr<http::Exchange>& exchange, const Fields& fields, int64_t slot) {
  for (const char* other : {"filename", "cache_salt"})
    if (fields.has(other)) throw invalid(other, "\"" + std::string(other) + "\" does not go together with erase; leave it out");
  const std::string& owner = exchange->request().owner;
  int64_t erased = 0;
  if (const std::optional<SlotText> text = service.slot_texts().find(owner, slot); text && !text->adapted)
    service.scheduler()
        .run_on_kept(
            [&erased, &text](const KeptSequences& kept) {
              erased = kept.prefixes.forget(text->tokens, {{}, text->scope});
              return false;
            },
            owner)
        .get();
  service.slot_texts().forget(owner, slot);
  exchange->respond(json_response({{"id_slot", slot}, {"n_erased", erased}}, fields));
}

}  // namespace

void check_slot(const Service& service, int64_t slot, const std::string& field) {
  const int64_t slots = service.scheduling().running;
  if (slot < 0 || slot >= slots)
    throw invalid(field, fmt::format("the slot is {}; this server has 0 to {} (--parallel)", slot, slots - 1));
}

const std::vector<Field>& slot_fields() {
  static const std::vector<Field> table = {
      model_field(),
      {"filename", type::text, "Name of the file, in the folder of --slot-save-path; not with erase.", Use::honored},
      {"cache_salt", type::text, "The one that the text was sent with.", Use::honored}};
  return table;
}

void slot_action(Service& service, const std::shared_ptr<http::Exchange>& exchange) {
  if (service.options().slot_folder.empty())
    throw unsupported("", "this server saves no slots; start it with --slot-save-path FOLDER");
  const http::Request& request = exchange->request();
  const Fields fields(request.body.empty() ? "{}" : request.body, slot_fields(), service.options().strict_fields);
  service.model_named(fields.text("model"));
  const int64_t slot = slot_of(request.path);
  check_slot(service, slot, "id_slot");
  const std::string* const action = request.parameter("action");
  const std::string word = action == nullptr ? "" : *action;
  if (word == "save") return save_slot(service, exchange, fields, slot);
  if (word == "restore") return restore_slot(service, exchange, fields, slot);
  if (word == "erase") return erase_slot(service, exchange, fields, slot);
  throw invalid("action", "the action is \"" + word + "\"; expected save, restore or erase, as in /slots/0?action=save");
}

}  // namespace vitrine::serve
