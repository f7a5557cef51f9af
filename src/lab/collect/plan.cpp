#include "collect/plan.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/fnv.h"
#include "collect/contexts.h"
#include "hooks/hooks.h"
#include "ops/recorder.h"

namespace vitrine {
namespace {

namespace fs = std::filesystem;

std::vector<ActivationManifest::Hook> hooks_of(const Engine& engine, const std::vector<std::string>& requests, int64_t context) {
  if (requests.empty()) throw InputError("no hooks are named; for instance blocks.3.hook_resid_post");
  std::vector<HookQuery> queries;
  for (const std::string& request : requests) queries.push_back(parse_hook_query(request));
  std::vector<ActivationManifest::Hook> hooks;
  for (const Capture& capture : plan_captures(engine.model(), queries, context)) {
    if (!capture.request.whole())
      throw InputError(capture.name + " is asked for in part; collect writes whole values, so leave [heads=…,positions=…] away");
    if (heads_first(capture.name) || capture.shape.empty() || capture.shape[0] != context)
      throw InputError(capture.name + " has the shape " + shape_text(capture.shape) +
                       "; collect writes a row for each token. `vitrine trace` writes such values of one prompt");
    if (capture.name == "hook_logits")
      throw InputError(
          "hook_logits cannot be collected: collect blocks.*.hook_resid_post or ln_final.hook_normalized, from which "
          "logits can be computed");
    hooks.push_back({capture.name, {capture.shape.begin() + 1, capture.shape.end()}});
  }
  return hooks;
}

}  // namespace

ActivationManifest plan_collection(const Engine& engine, const CollectOptions& o) {
  ActivationManifest m;
  const ContextForm form = context_form(engine, o.context, o.special);
  m.context = form.length;
  m.lead = form.lead;
  if (o.type != DType::f32 && o.type != DType::f16 && o.type != DType::bf16)
    throw UsageError("activations are stored as f32, f16 or bf16, not as " + std::string(name_of(o.type)));
  m.model = last_of_name(engine);
  m.type = o.type;
  m.max_tokens = o.max_tokens;
  m.checksum = kFnvOfNothing;
  m.hooks = hooks_of(engine, o.hooks, m.context);
  m.shard_tokens = std::max<uint64_t>(o.shard_bytes / m.bytes_per_token(), static_cast<uint64_t>(m.context));
  return m;
}

void refuse_to_resume(const std::string& out, const std::string& what) {
  throw InputError(out + ": was made " + what + ". Resume with what it was begun with, or name another folder");
}

ActivationManifest begun_collection(const std::string& out, const ActivationManifest& planned) {
  ActivationManifest m = read_activation_manifest(out);
  if (m.hooks != planned.hooks) refuse_to_resume(out, "with other hooks");
  if (m.type != planned.type) refuse_to_resume(out, "as " + std::string(name_of(m.type)));
  if (m.context != planned.context) refuse_to_resume(out, "with contexts of " + std::to_string(m.context) + " tokens");
  if (m.lead != planned.lead) refuse_to_resume(out, "with another token in front of contexts");
  if (m.max_tokens != planned.max_tokens) refuse_to_resume(out, "with a limit of " + std::to_string(m.max_tokens) + " tokens");
  if (m.shard_tokens != planned.shard_tokens)
    refuse_to_resume(out, "with shards of " + std::to_string(m.shard_tokens) + " tokens");
  return m;
}

void make_collection_folder(const std::string& out, bool resume) {
  std::error_code error;
  if (fs::exists(out, error) && !fs::is_directory(out, error)) throw InputError(out + ": is a file; activations are a folder");
  if (!resume && fs::exists(out, error) && !fs::is_empty(out, error))
    throw InputError(out + ": exists and holds something. Name another folder, or resume the run that made it");
  if (resume && !fs::exists(fs::path(out) / kActivationManifest, error))
    throw InputError(out + ": holds no run to resume; leave resume away to begin one");
  fs::create_directories(out, error);
  if (error) throw InputError(out + ": cannot be made: " + error.message());
}

}  // namespace vitrine
