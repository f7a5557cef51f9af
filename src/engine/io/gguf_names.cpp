#include "io/gguf_names.h"

#include <algorithm>
#include <cctype>

namespace vitrine {
namespace {

constexpr std::string_view kEnding = ".gguf";

std::string upper(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), [](unsigned char c) { return std::toupper(c); });
  return result;
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// What a name says of parts: "m-00002-of-00003" is part 2 of 3 of "m".
struct Part {
  std::string_view stem;
  int number = 1, of = 1;
};

Part part_of_name(std::string_view stem) {
  constexpr size_t kDigits = 5, kLength = 2 * kDigits + 5;  // -00002-of-00003
  if (stem.size() <= kLength) return {stem};
  const std::string_view tail = stem.substr(stem.size() - kLength);
  const std::string_view number = tail.substr(1, kDigits), of = tail.substr(kLength - kDigits);
  if (tail.front() != '-' || tail.substr(1 + kDigits, 4) != "-of-" || !all_digits(number) || !all_digits(of)) return {stem};
  return {stem.substr(0, stem.size() - kLength), std::stoi(std::string(number)), std::stoi(std::string(of))};
}

/// Whether a word is a type of weights, or a mixture of them, as llama.cpp and those who publish its files name them.
bool is_type(const std::string& word) {
  if (word == "F32" || word == "F16" || word == "BF16" || word == "FP16" || word == "MXFP4" || word == "MXFP4_MOE") return true;
  size_t at = word.starts_with("IQ") || word.starts_with("TQ") ? 2 : word.starts_with("Q") ? 1 : word.size();
  if (at >= word.size() || word[at] < '0' || word[at] > '9') return false;
  return at + 1 == word.size() || word[at + 1] == '_';
}

/// The last part of a stem that is a type: after "-" or ".", with "UD-" before it. The underscores belong to the type.
std::string type_of(std::string_view stem) {
  const std::string text = upper(stem.substr(stem.rfind('/') == std::string_view::npos ? 0 : stem.rfind('/') + 1));
  for (size_t end = text.size(); end > 0;) {
    const size_t cut = text.find_last_of("-.", end - 1);
    const size_t begin = cut == std::string::npos ? 0 : cut + 1;
    const std::string word = text.substr(begin, end - begin);
    if (is_type(word)) {
      const size_t from = begin >= 3 && text.compare(begin - 3, 3, "UD-") == 0 ? begin - 3 : begin;
      return std::string(stem.substr(stem.size() - text.size() + from, end - from));
    }
    if (cut == std::string::npos) break;
    end = cut;
  }
  return "";
}

bool goes_beside_a_model(std::string_view name) {
  const std::string file = upper(name.substr(name.rfind('/') == std::string_view::npos ? 0 : name.rfind('/') + 1));
  return file.starts_with("MMPROJ") || file.find("IMATRIX") != std::string::npos;
}

}  // namespace

std::vector<GgufModel> gguf_models(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());  // parts follow each other in their order
  std::vector<GgufModel> models;
  std::vector<std::string> stems;  // of models
  for (const std::string& name : names) {
    if (!name.ends_with(kEnding) || goes_beside_a_model(name)) continue;
    const Part part = part_of_name(std::string_view(name).substr(0, name.size() - kEnding.size()));
    if (part.of > 1 && !models.empty() && stems.back() == part.stem && models.back().parts == part.of) {
      models.back().files.push_back(name);
      continue;
    }
    models.push_back({.type = type_of(part.stem), .files = {name}, .parts = part.of});
    stems.emplace_back(part.stem);
  }
  return models;
}

std::vector<GgufModel> of_type(const std::vector<GgufModel>& models, std::string_view type) {
  const std::string wanted = upper(type);
  for (const std::string& spelled : {wanted, "UD-" + wanted}) {
    std::vector<GgufModel> found;
    std::copy_if(models.begin(), models.end(), std::back_inserter(found),
                 [&](const GgufModel& model) { return upper(model.type) == spelled; });
    if (!found.empty()) return found;
  }
  return {};
}

std::string types_text(const std::vector<GgufModel>& models) {
  std::vector<std::string> types;
  for (const GgufModel& model : models)
    if (!model.type.empty() && std::find(types.begin(), types.end(), model.type) == types.end()) types.push_back(model.type);
  std::string text;
  for (const std::string& type : types) text += (text.empty() ? "" : ", ") + type;
  return text;
}

}  // namespace vitrine
