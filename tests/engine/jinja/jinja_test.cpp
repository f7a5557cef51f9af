#include "jinja/jinja.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/error.h"

namespace vitrine {
namespace {

const std::string kFolder = std::string(VITRINE_GOLDEN) + "/jinja/";

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string message_of(const std::string& source, const OrderedJson& variables = OrderedJson::object(),
                       const RenderOptions& options = {}) {
  try {
    return "no error: " + Template(source).render(variables, {}, options).text;
  } catch (const InputError& e) {
    return e.what();
  }
}

std::string render(const std::string& source, const OrderedJson& variables = OrderedJson::object()) {
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
    const std::string source =
        in_file ? read_text(kFolder + "templates/" + entry["file"].get<std::string>()) : entry["template"].get<std::string>();
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

TEST(Jinja, MistakesInTheSourceNameTheirLine) {
  EXPECT_EQ(message_of("a\n\n{% if x %}b"),
            "chat template, line 3: expected 'elif' or 'else' or 'endif', found the end of the template");
  EXPECT_EQ(message_of("{{ x"), "chat template, line 1: the tag is never closed; expected }}");
  EXPECT_EQ(message_of("{{ (x"), "chat template, line 1: the tag is never closed; expected ')'");
  EXPECT_EQ(message_of("\n{{ x) }}"), "chat template, line 2: unexpected ')'");
  EXPECT_EQ(message_of("{{ 'x }}"), "chat template, line 1: a string is never closed; expected '");
  EXPECT_EQ(message_of("{# x"), "chat template, line 1: a comment is never closed; expected #}");
  EXPECT_EQ(message_of("{% raw %}x"), "chat template, line 1: {% raw %} is never closed; expected {% endraw %}");
  EXPECT_EQ(message_of("\n{{ x ? }}"), "chat template, line 2: unexpected character '?'");
  EXPECT_EQ(message_of("{{ }}"), "chat template, line 1: expected an expression, found '}}'");
  EXPECT_EQ(message_of("{{ 99999999999999999999 }}"),
            "chat template, line 1: the number 99999999999999999999 does not fit in 64 bits");
  EXPECT_EQ(message_of("{% break %}"), "chat template, line 1: 'break' outside of a loop");
  EXPECT_EQ(message_of("a\n{% include 'x' %}"),
            "chat template, line 2: the tag 'include' is unknown here; known tags: if, for, set, macro, call, filter, with, "
            "print, break, "
            "continue, generation, raw");
  EXPECT_EQ(message_of("{% for x in y recursive %}{% endfor %}"),
            "chat template, line 1: 'for ... recursive' is not supported; use a macro that calls itself");
  EXPECT_EQ(message_of("ab\n\xFF"), "chat template, line 2: the source is not valid UTF-8 at byte 3");
}

TEST(Jinja, FailuresWhileRunningNameTheirLine) {
  EXPECT_EQ(message_of("\n\n{{ x.y }}"), "chat template, line 3: 'x' is undefined");
  EXPECT_EQ(message_of("\n{{ d.x.y }}", {{"d", OrderedJson::object()}}),
            "chat template, line 2: 'dict object' has no attribute 'x'");
  EXPECT_EQ(message_of("{% for i in [1] %}\n{{ 1 + 'a' }}\n{% endfor %}"),
            "chat template, line 2: unsupported operand types for +: 'int' and 'str'");
  EXPECT_EQ(message_of("\n{{ raise_exception('No system role') }}"),
            "chat template, line 2, refuses the conversation: No system role");
  EXPECT_EQ(message_of("{{ 'a' is lovely }}").substr(0, 72),
            "chat template, line 1: the test 'lovely' is unknown; known tests: !=, <,");
  EXPECT_EQ(message_of("{{ 'a'|pprint }}").substr(0, 78),
            "chat template, line 1: the filter 'pprint' is unknown; known filters: abs, att");
  EXPECT_EQ(message_of("{{ [].append(1) }}"),
            "chat template, line 1: 'append' would change a list, which templates may not do; collect values in a namespace() by "
            "adding "
            "lists");
  EXPECT_EQ(message_of("{{ 9223372036854775807 + 1 }}"), "chat template, line 1: an integer does not fit in 64 bits");
  EXPECT_EQ(message_of("{{ x }}", OrderedJson{{"x", uint64_t{1} << 63}}),
            "chat template, line 1: the number 9223372036854775808 does not fit in 64 bits");
  try {
    Template("{{ x( }}", "chat template of tiny");
    FAIL();
  } catch (const InputError& e) {
    EXPECT_TRUE(std::string(e.what()).starts_with("chat template of tiny, line 1: ")) << e.what();
  }
}

TEST(Jinja, StrictTemplatesMissNothing) {
  const auto strict = [](const std::string& source) {
    try {
      return Template(source).render({{"d", {{"a", 0}}}, {"none", nullptr}}, {}, {.strict = true}).text;
    } catch (const InputError& e) {
      return std::string(e.what());
    }
  };
  EXPECT_EQ(strict("{% if none %}x{% elif d.a %}y{% else %}{{ d.a }}{% endif %}"), "0");
  EXPECT_EQ(strict("{{ x }}"), "chat template, line 1: 'x' is undefined");
  EXPECT_EQ(strict("\n{% if x %}{% endif %}"), "chat template, line 2: 'x' is undefined");
  EXPECT_EQ(strict("{{ d.b or 1 }}"), "chat template, line 1: 'dict object' has no attribute 'b'");
  EXPECT_EQ(strict("{{ 1 if d.a }}"), "chat template, line 1: the inline if-expression is false and has no else");
  EXPECT_EQ(strict("{% macro m(a) %}{% endmacro %}{{ m() }}"), "chat template, line 1: parameter 'a' was not provided");
}

TEST(Jinja, KeysKeepTheOrderTheyCameIn) {
  EXPECT_EQ(render("{{ d|tojson }}", OrderedJson::parse(R"({"d": {"z": 1, "a": 2, "m": {"y": 1, "b": 2}}})")),
            R"({"z": 1, "a": 2, "m": {"y": 1, "b": 2}})");
}

TEST(Jinja, TheSameTemplateRendersManyTimes) {
  const Template chat(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ m }}{% endfor %}{{ ns.n }}");
  EXPECT_EQ(chat.render({{"messages", {"a", "b"}}}).text, "ab2");
  EXPECT_EQ(chat.render({{"messages", {"c"}}}).text, "c1");
  EXPECT_EQ(chat.render({{"messages", {"a"}}}, {{"messages", {"trusted"}}}).text, "trusted1");
}

// The bytes that came from the conversation, one piece per span.
std::vector<std::string> input_parts(const std::string& source, const OrderedJson& input,
                                     const OrderedJson& trusted = OrderedJson::object()) {
  const Rendered rendered = Template(source).render(input, trusted);
  std::vector<std::string> parts;
  for (const TextSpan& span : rendered.input) parts.push_back(rendered.text.substr(span.begin, span.end - span.begin));
  return parts;
}

TEST(JinjaInput, IsFollowedThroughTheTemplate) {
  using Parts = std::vector<std::string>;
  const OrderedJson m = {{"x", " a<b>c "}, {"y", "Y"}, {"l", {"p", "q"}}};
  EXPECT_EQ(input_parts("<s>{{ x }}</s>{{ y }}", m), (Parts{" a<b>c ", "Y"}));
  EXPECT_EQ(input_parts("{{ '<s>' + x|trim + '</s>' }}", m), (Parts{"a<b>c"}));
  EXPECT_EQ(input_parts("{{ '<s>' ~ x.strip() ~ y ~ '</s>' }}", m), (Parts{"a<b>cY"}));  // neighbors are one part
  EXPECT_EQ(input_parts("{{ x.split('<')[1] }}|{{ x[1:3] }}|{{ x[::2] }}", m), (Parts{"b>c ", "a<", " <> "}));
  EXPECT_EQ(input_parts("{{ x.replace('<b>', '<s>') }}", m), (Parts{" a", "c "}));
  EXPECT_EQ(input_parts("{{ l|join(', ') }}", m), (Parts{"p", "q"}));
  EXPECT_EQ(input_parts("{{ x|upper }}", m), (Parts{" A<B>C "}));
  EXPECT_EQ(input_parts("{{ {'k': x}|tojson }}", m), (Parts{"\" a<b>c \""}));
  EXPECT_EQ(input_parts("{{ '%s and %s' % (y, '<s>') }}{{ '{}-{}'.format('<s>', y) }}", m), (Parts{"Y", "Y"}));
  EXPECT_EQ(input_parts("{% set t %}<s>{{ y }}{% endset %}{{ t }}{% filter replace('Y', 'Z') %}<s>{{ y }}{% endfilter %}", m),
            (Parts{"Y"}));
  EXPECT_EQ(input_parts("{% macro f(a) %}[{{ a }}]{% endmacro %}{{ f(y) }}{{ f('<s>') }}", m), (Parts{"Y"}));
  EXPECT_EQ(input_parts("{{ '<s>'|upper }}{{ 1 + 1 }}{{ l|length }}", m), (Parts{}));
  EXPECT_EQ(input_parts("{{ bos_token }}{{ y }}", m, {{"bos_token", "<s>"}}), (Parts{"Y"}));
  EXPECT_EQ(input_parts("{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", {{"d", {{"key", "<s>"}}}}),
            (Parts{"key", "<s>"}));
}

}  // namespace
}  // namespace vitrine
