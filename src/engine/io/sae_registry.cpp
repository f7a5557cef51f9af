#include "io/sae_registry.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/nearest.h"
#include "io/yaml_reader.h"

namespace vitrine {
namespace {

// What `conversion_func` says of forms that read_sae reads: Gemma Scope's. Without it the files are SAELens's own.
constexpr std::array<std::string_view, 3> kReadable = {"gemma_2", "gemma_2_transcoder", "gemma_3"};

std::optional<YamlValue> under(const std::optional<YamlValue>& value, std::string_view key) {
  return value && value->is_object() ? value->find(key) : std::nullopt;
}

}  // namespace

RegisteredSae registered_sae(const std::string& registry, const std::string& release, const std::string& id) {
  const YamlValue releases = YamlValue::read(registry);
  if (!releases.is_object()) releases.fail("expected the releases of SAELens's pretrained_saes.yaml, by name");
  const std::optional<YamlValue> found = releases.find(release);
  if (!found) {
    std::vector<std::string> known;
    for (const auto& [name, value] : releases.members()) known.push_back(name);
    throw InputError("release \"" + release + "\" is not in " + registry + ", which has " + std::to_string(known.size()) +
                     "; the nearest name is \"" + nearest(release, known) + "\"");
  }
  std::optional<YamlValue> entry;
  std::vector<std::string> ids;
  for (const YamlValue& sae : found->at("saes", "the release's autoencoders").items()) {
    ids.push_back(sae.at("id", "the autoencoder's id").text());
    if (ids.back() == id) entry = sae;
  }
  if (!entry)
    throw InputError("release \"" + release + "\" has no id \"" + id + "\" among its " + std::to_string(ids.size()) +
                     "; the nearest is \"" + nearest(id, ids) + "\"");

  const std::optional<YamlValue> conversion = found->find("conversion_func"), overrides = found->find("config_overrides");
  const auto refuse = [&](const std::string& why) {
    throw InputError("\"" + release + ":" + id + "\" " + why +
                     ". SAELens can write it as the files that are read here: SAE.from_pretrained(release, "
                     "sae_id).save_model(FOLDER)");
  };
  if (conversion && std::ranges::find(kReadable, conversion->text()) == kReadable.end())
    refuse("has files in the form that SAELens names " + conversion->text() + ", which is not supported");
  if (entry->find("norm_scaling_factor"))
    refuse("is scaled by norm_scaling_factor, which is in the registry and not in its files");
  if (under(overrides, "normalize_activations")) refuse("has another normalize_activations in the registry than in its files");

  const std::optional<YamlValue> centered = under(under(overrides, "model_from_pretrained_kwargs"), "center_writing_weights");
  return {.name = found->at("repo_id", "OWNER/NAME of a repository").text() + ":" + entry->at("path", "a folder").text(),
          .centered = centered && centered->flag()};
}

}  // namespace vitrine
