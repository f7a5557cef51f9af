// docs/http-api.md has the tables of the code. VITRINE_WRITE_DOCS=1 in the environment writes them anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "generate/sampling_options.h"
#include "requests/request.h"
#include "serve/ollama.h"
#include "serve/routes.h"
#include "serve/sampling_fields.h"

namespace vitrine::serve {
namespace {

std::string cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, "\\");
  return text;
}

std::string endpoint_table() {
  std::string table = "| | |\n| --- | --- |\n";
  for (const Route& route : routes())
    table += "| `" + std::string(route.method) + " " + route.path + "` | " + route.summary +
             (route.open ? " Needs no key." : "") + " |\n";
  return table;
}

std::string request_table() {
  std::string table = "| request | answer |\n| --- | --- |\n";
  for (const Request& request : requests()) table += "| `" + std::string(request.name) + "` | " + cell(request.summary) + " |\n";
  return table;
}

// Without the fields that have tables of their own, unless it is one of those.
std::string field_table(const std::vector<Field>& fields, bool shared) {
  std::set<std::string> left_out;
  if (!shared)
    for (const std::vector<Field>* table : {&sampling_fields(), &foreign_fields()})
      for (const Field& field : *table) left_out.insert(field.name);
  std::string table = "| field | value | |\n| --- | --- | --- |\n";
  for (const Field& field : fields) {
    if (left_out.contains(field.name)) continue;
    std::string value, about = field.about;
    if (field.use == Use::honored) {
      value = expected(field) + (field.required ? "; required" : "");
    } else if (field.use == Use::ignored) {
      value = "ignored";
    } else {
      value = "refused";
      std::string harmless;
      for (const OrderedJson& each : OrderedJson::parse(field.harmless))
        harmless += (harmless.empty() ? "`" : ", `") + each.dump() + "`";
      if (!harmless.empty()) value += "; may be " + harmless;
    }
    table += "| `" + field.name + "` | " + cell(value) + " | " + cell(about) + " |\n";
  }
  return table;
}

std::string table_named(const std::string& name) {
  if (name == "endpoints") return endpoint_table();
  if (name == "requests") return request_table();
  if (name == "sampling") return field_table(sampling_fields(), true);
  if (name == "foreign") return field_table(foreign_fields(), true);
  if (name == "options") return field_table(ollama_option_fields(), false);
  for (const Route& route : routes())
    if (route.path == name && route.fields != nullptr) return field_table(route.fields(), false);
  ADD_FAILURE() << "the page has a table that is not known: " << name;
  return "";
}

TEST(Documentation, TablesAreThoseOfTheCode) {
  const std::string path = std::string(VITRINE_SOURCE) + "/docs/http-api.md";
  std::ifstream in(path);
  const std::string page{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  const std::string begin = "<!-- table: ", arrow = " -->\n", end = "<!-- end -->";
  std::string written;
  std::set<std::string> names;
  size_t at = 0;
  for (size_t found; (found = page.find(begin, at)) != std::string::npos;) {
    const size_t name_end = page.find(arrow, found);
    const std::string name = page.substr(found + begin.size(), name_end - found - begin.size());
    names.insert(name);
    written += page.substr(at, name_end + arrow.size() - at) + table_named(name);
    at = page.find(end, name_end);
    ASSERT_NE(at, std::string::npos) << name;
  }
  written += page.substr(at);
  if (std::getenv("VITRINE_WRITE_DOCS") != nullptr) std::ofstream(path) << written;
  EXPECT_EQ(written, page) << "run this test with VITRINE_WRITE_DOCS=1";
  for (const Route& route : routes()) {
    const std::string route_path = route.path;
    if (route.fields == nullptr || route_path == "/v1/messages/count_tokens" || std::string(route.summary) == "The same.")
      continue;
    EXPECT_TRUE(names.contains(route_path)) << route_path;
  }
}

// The page of `vitrine serve` makes its settings from the same table.
TEST(Documentation, SettingsOfThePageAreThoseOfTheCode) {
  const std::string path = std::string(VITRINE_SOURCE) + "/web/src/chat/sampling_options.ts";
  std::ifstream in(path);
  const std::string page{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::string written =
      "// Written by the test SettingsOfThePageAreThoseOfTheCode from src/engine/generate/sampling_options.cpp.\n\n"
      "export interface SamplingOption {\n  whole: boolean;\n  low: number;\n  high: number;\n  help: string;\n}\n\n"
      "export const samplingOptions = {\n";
  for (const SamplingOption& option : sampling_options())
    written += std::string("  ") + option.name + ": { whole: " + (option.is_whole() ? "true" : "false") +
               ", low: " + Json(option.low).dump() + ", high: " + Json(option.high).dump() +
               ", help: " + Json(std::string(option.help) + ".").dump() + " },\n";
  written += "} satisfies Record<string, SamplingOption>;\n";
  if (std::getenv("VITRINE_WRITE_DOCS") != nullptr) std::ofstream(path) << written;
  EXPECT_EQ(written, page) << "run this test with VITRINE_WRITE_DOCS=1";
}

TEST(Fields, NoTableNamesAFieldTwiceAndEveryFieldIsExplained) {
  for (const Route& route : routes()) {
    if (route.fields == nullptr) continue;
    std::set<std::string> names;
    for (const Field& field : route.fields()) {
      EXPECT_TRUE(names.insert(field.name).second) << route.path << " " << field.name;
      EXPECT_FALSE(field.about.empty()) << route.path << " " << field.name;
      if (field.use == Use::refused) {
        EXPECT_TRUE(OrderedJson::parse(field.harmless).is_array()) << field.name;
      }
    }
    for (const Field& field : route.fields())
      if (!field.same_as.empty()) {
        EXPECT_TRUE(names.contains(field.same_as)) << route.path << " " << field.name;
      }
  }
}

}  // namespace
}  // namespace vitrine::serve
