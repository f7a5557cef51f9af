#include "picture/data/designs.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/error.h"
#include "picture/data/shipped_text.h"

namespace vitrine {
namespace {

constexpr std::string_view kDesignFolder = "models/designs/";

std::string file_of(std::string_view design) { return std::string(kDesignFolder) + std::string(design) + ".json"; }

Json embedded_json(const std::string& name) {
  const std::string_view text = shipped_text(name);
  VITRINE_CHECK(!text.empty(), "models/designs are compiled in");
  return Json::parse(text);
}

int64_t& part_of(std::string_view name, ByPart& parts) {
  const auto within = [&](std::string_view part) { return name.find(part) != name.npos; };
  if (name.starts_with("W_E") || name == "W_pos" || name == "W_type") return parts.embedding;
  if (within(".attn.") || within(".conv.") || within(".delta.") || within(".ssm.")) return parts.mixers;
  if (within(".mlp.") || within("per_layer")) return parts.mlps;
  if (name == "W_U" || name == "b_U") return parts.head;
  return parts.norms;
}

}  // namespace

const std::vector<Design>& designs() {
  static const std::vector<Design> list = [] {
    std::vector<Design> all;
    for (const Json& entry : embedded_json(std::string(kDesignFolder) + "index.json"))
      all.push_back({entry.at("name"), entry.at("title"), entry.at("year"), entry.at("source")});
    return all;
  }();
  return list;
}

OpenedModel open_design(const Design& design) {
  OpenedModel opened;
  opened.files.name = design.name;
  opened.files.directory = kDesignFolder.substr(0, kDesignFolder.size() - 1);
  opened.files.config_path = file_of(design.name);
  opened.files.config = embedded_json(opened.files.config_path);
  opened.model = model_from_config(opened.files);
  return opened;
}

OpenedModel open_configuration(std::string_view name) {
  const auto design = std::find_if(designs().begin(), designs().end(), [&](const Design& d) { return d.name == name; });
  std::error_code not_there;
  const bool is_there = std::filesystem::exists(name, not_there);
  if (design != designs().end() && !is_there) return open_design(*design);  // a file of that name comes first
  OpenedModel opened;
  try {
    opened.files = resolve_model(name);
  } catch (const FileError& error) {
    if (is_there) throw;  // the file was found: the error says what is wrong with it
    std::string names;
    for (const Design& d : designs()) names += (names.empty() ? "" : ", ") + d.name;
    throw InputError(std::string(error.what()) + ". Designs that need no file: " + names);
  }
  opened.model = model_from_config(opened.files);
  return opened;
}

ByPart parameters_by_part(const Model& model) {
  ByPart parts;
  for (const TensorLine& line : model.tensors())
    if (!line.layout.constant) part_of(line.ours, parts) += line.out.size * std::max<int64_t>(line.in.size, 1);
  return parts;
}

TokenCost token_cost(const Model& model, int64_t position) {
  std::map<const Weight*, std::string_view> names;
  for (const TensorLine& line : model.tensors())
    if (line.weight != nullptr) names[line.weight] = line.ours;
  TokenCost cost;
  cost.position = position;
  for (const OpRecord& op : record_step(model, {.position = position, .cached = true}).ops) {
    if (op.multiply_adds == 0) continue;
    if (op.weights.empty()) {
      cost.scores += op.multiply_adds;
      continue;
    }
    const std::string_view name = names.at(op.weights.front());
    (name == "W_E" ? cost.products.head : part_of(name, cost.products)) += op.multiply_adds;  // a tied head is the embedding
  }
  return cost;
}

int64_t cache_bytes_16(const Model& model, int64_t positions) {
  int64_t numbers = 0;
  for (const CacheLayer& layer : model.cache_layers()) {
    const int64_t kept = layer.window == kNoWindow ? positions : std::min(positions, layer.window);
    numbers += kept * layer.n_kv_heads * (layer.head_dim + layer.v_dim) + layer.state;
  }
  return 2 * numbers;
}

}  // namespace vitrine
