#include "generate/jinja.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"

namespace vitrine {
namespace {

const std::string kFolder = std::string(VITRINE_GOLDEN) + "/generate/";

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

[[maybe_unused]] std::string message_of(const std::string& source, const OrderedJson& variables = OrderedJson::object(),
                       const RenderOptions& options = {}) {
  try {
    return "no error: " + Template(source).render(variables, {}, options).text;
  } catch (const InputError& e) {
    return e.what();
  }
}

[[maybe_unused]] std::string render(const std::string& source, const OrderedJson& variables = OrderedJson::object()) {
  return Template(source).render(variables).text;
}

TEST(JinjaGolden, EqualsJinja2AsTransformersSetsItUp) {
  const OrderedJson golden = OrderedJson::parse(read_text(kFolder + "jinja.json"));
  RenderOptions options;
  options.now = std::tm{};
  const auto now = golden["now"].get<std::vector<int>>();
  options.now->tm_year = now[0] - 1900;
  options.now->tm_mon = now[1] - 1;
  options.now->tm_mday = now[2];
  options.now->tm_hour = now[3];
  options.now->tm_min = now[4];
  options.now->tm_sec = now[5];
  options.now->tm_isdst = -1;
  std::mktime(&*options.now);  // fills in the weekday
  size_t results = 0, errors = 0;
  for (const auto& entry : golden["cases"]) {
    const bool in_file = entry.contains("file");
    const std::string source = in_file ? read_text(kFolder + "templates/" + entry["file"].get<std::string>()) : entry["template"].get<std::string>();
    for (const auto& [name, expected] : entry["results"].items()) {
      const std::string where = (in_file ? entry["file"].get<std::string>() : source) + " with " + name;
      std::string got, error;
      try {
        got = Template(source).render(golden["variables"][name], {}, options).text;
      } catch (const InputError& e) {
        error = e.what();
      }
      ++results;
      if (expected.contains("text")) {
        EXPECT_EQ(error, "") << where;
        EXPECT_EQ(got, expected["text"].get<std::string>()) << where;
        continue;
      }
      ++errors;
      EXPECT_NE(error, "") << where << "\nrendered: " << got << "\nexpected: " << expected;
      if (expected["error"] == "refused")
        EXPECT_TRUE(error.ends_with(", refuses the conversation: " + expected["message"].get<std::string>())) << error;
      else
        EXPECT_EQ(error.find("refuses"), std::string::npos) << where;
    }
  }
  EXPECT_GT(results, 1000u);
  EXPECT_GT(errors, 100u);
}

}  // namespace
}  // namespace vitrine
