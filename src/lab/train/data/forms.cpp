#include "train/data/forms.h"

#include <algorithm>

#include "base/error.h"

namespace vitrine {
namespace {

std::string expected_forms(DataContent content) {
  std::string known;
  size_t n = 0;
  for (const DataForm& form : kDataForms)
    if (form.content == content) known += (n++ == 0 ? "" : ", or ") + std::string(form.expected);
  return (n > 1 ? "expected one of these forms: " : "expected ") + known;
}

}  // namespace

OrderedJson object_of(std::string_view json, DataContent content) {
  OrderedJson object;
  try {
    object = parse_ordered_json(json, "the JSON");
  } catch (const FileError& error) {
    throw InputError(std::string(error.what()) + "; " + expected_forms(content));
  }
  if (!object.is_object()) throw InputError("is " + std::string(object.type_name()) + "; " + expected_forms(content));
  return object;
}

const DataForm* find_form(const OrderedJson& object, DataContent content) {
  const auto fits = [&](const DataForm& form) {
    return form.content == content && std::all_of(std::begin(form.keys), std::end(form.keys),
                                                  [&](const char* key) { return key == nullptr || object.contains(key); });
  };
  const auto* const found = std::find_if(std::begin(kDataForms), std::end(kDataForms), fits);
  return found == std::end(kDataForms) ? nullptr : found;
}

std::string named_keys(const OrderedJson& object) {
  if (object.empty()) return "no key";
  std::string keys;
  for (const auto& [key, value] : object.items()) {
    if (keys.size() > 200) return keys + ", …";
    keys += (keys.empty() ? "the keys \"" : ", \"") + key + "\"";
  }
  return keys;
}

const DataForm& form_of(const OrderedJson& object, DataContent content) {
  if (const DataForm* const form = find_form(object, content)) return *form;
  throw InputError("has " + named_keys(object) + "; " + expected_forms(content));
}

std::optional<FirstObject> first_object(const std::vector<std::string>& files, InvalidText invalid) {
  for (const std::string& file : files) {
    TextReader reader(file, {.format = TextFormat::objects, .invalid = invalid});
    if (TextPiece piece; reader.next(piece))
      return FirstObject{std::move(piece.text),
                         file + (piece.member.empty() ? "" : ": " + piece.member) + " line " + std::to_string(piece.line)};
  }
  return {};
}

}  // namespace vitrine
