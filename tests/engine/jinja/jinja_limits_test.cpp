// What a hostile template may not do: use up time, memory or stack, or keep what it made.
#include <gtest/gtest.h>

#include "base/error.h"
#include "jinja/jinja.h"

namespace vitrine {
namespace {

jinja::Limits small_limits() {
  jinja::Limits limits;
  limits.work = 1 << 26;
  limits.made_bytes = 1 << 24;
  limits.string_bytes = 1 << 20;
  return limits;
}

std::string problem_of(const std::string& source) {
  RenderOptions options;
  options.limits = small_limits();
  try {
    return "no error: " + Template(source).render(OrderedJson::object(), OrderedJson::object(), options).text.substr(0, 100);
  } catch (const InputError& e) {
    const std::string message = e.what();
    return message.substr(message.find(": ") + 2);
  }
}

const std::string kLong = "the template makes a text longer than 1048576 bytes";
const std::string kMemory = "the template makes more than 16777216 bytes of text and lists";
const std::string kSteps = "the template takes too many steps; does one of its loops run over far too much?";
const std::string kDeep = "the template nests deeper than 600 levels";
const std::string kDeepValue = "the template builds a value nested deeper than 200 levels";

TEST(JinjaLimits, TextsThatDouble) {
  EXPECT_EQ(problem_of("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"), kLong);
  EXPECT_EQ(problem_of("{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"), kLong);
  EXPECT_EQ(problem_of("{{ 'x' * 1000000000000 }}"), kLong);
  EXPECT_EQ(problem_of("{{ 'xy' * 9223372036854775807 }}"), kLong);
  EXPECT_EQ(problem_of("{{ 'xyz' * 9223372036854775807 }}"), "the template makes a text that is far too long");
  EXPECT_EQ(problem_of("{{ ('x' * 100000)|replace('x', 'y' * 100000) }}"), kLong);
  EXPECT_EQ(problem_of("{{ (['y' * 100000] * 100)|join('x' * 100000) }}"), kLong);
  EXPECT_EQ(problem_of("{{ 'a'.center(99999999999) }}"), kLong);
  EXPECT_EQ(problem_of("{{ 'a'.zfill(9223372036854775807) }}"), kLong);
  EXPECT_EQ(problem_of("{{ 'a\n'|indent(99999999999, true) }}"), kLong);
  EXPECT_EQ(problem_of("{{ '%999999999999d' % 1 }}"), "a format asks for a width beyond 1000000");
  EXPECT_EQ(problem_of("{{ '{:.999f}'.format(1.5) }}"), "a format asks for more than 200 digits");
  EXPECT_EQ(problem_of("{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}"), kLong);
}

TEST(JinjaLimits, ListsThatGrow) {
  EXPECT_EQ(problem_of("{{ [1] * 100000000000 }}"), kMemory);
  EXPECT_EQ(problem_of("{{ [1, 2] * 9223372036854775807 }}"), "the template makes a list that is far too long");
  EXPECT_EQ(problem_of("{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}"),
            kMemory);
  EXPECT_EQ(problem_of("{{ range(100001) }}"), "range() is longer than 100000");
  EXPECT_EQ(problem_of("{{ [1]|batch(9223372036854775807, 0)|list }}"), kMemory);
}

TEST(JinjaLimits, LoopsThatTakeForever) {
  EXPECT_EQ(problem_of("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"), kMemory);
  EXPECT_EQ(problem_of("{% for i in range(100000) %}{% if ('a' * 1000000).strip() %}{% endif %}{% endfor %}"), kMemory);
  EXPECT_EQ(problem_of("{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% if 'b' in s %}{% endif %}{% endfor %}"),
            kSteps);
}

TEST(JinjaLimits, NestingAndRecursion) {
  EXPECT_EQ(problem_of("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"), kDeep);
  const auto nested = [](const std::string& open, const std::string& middle, const std::string& close, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += open;
    text += middle;
    for (int i = 0; i < times; ++i) text += close;
    return text;
  };
  const std::string parse_depth = "the template nests deeper than 300 levels",
                    tree_depth = "an expression nests deeper than 150 levels";
  EXPECT_EQ(problem_of("{{ " + nested("(", "1", ")", 10000) + " }}"), parse_depth);
  EXPECT_EQ(problem_of("{{ " + nested("[", "1", "]", 10000) + " }}"), parse_depth);
  EXPECT_EQ(problem_of("{{ " + nested("-", "1", "", 10000) + " }}"), parse_depth);
  EXPECT_EQ(problem_of("{{ " + nested("not ", "1", "", 10000) + " }}"), parse_depth);
  EXPECT_EQ(problem_of(nested("{% if 1 %}", "x", "{% endif %}", 10000)), parse_depth);
  EXPECT_EQ(problem_of("{% set " + nested("(", "a", ")", 10000) + " = 1 %}"), parse_depth);
  EXPECT_EQ(problem_of("{{ 1" + nested("+1", "", "", 10000) + " }}"), tree_depth);
  EXPECT_EQ(problem_of("{{ 1" + nested("|string", "", "", 10000) + " }}"), tree_depth);
  EXPECT_EQ(problem_of("{{ x" + nested(".x", "", "", 10000) + " }}"), tree_depth);
  EXPECT_EQ(problem_of("{{ 1" + nested(" if 1 else 1", "", "", 10000) + " }}"), parse_depth);
  EXPECT_EQ(problem_of("{{ 1" + nested("~1", "", "", 1000) + " }}").substr(0, 20), "no error: 1111111111");  // one flat node
}

TEST(JinjaLimits, ValuesThatNest) {
  const auto wrap = [](const std::string& value) {
    return problem_of("{% set ns = namespace(x=1) %}{% for i in range(100000) %}{% set ns.x = " + value + " %}{% endfor %}");
  };
  EXPECT_EQ(wrap("[ns.x]"), kDeepValue);
  EXPECT_EQ(wrap("(ns.x,)"), kDeepValue);
  EXPECT_EQ(wrap("{'a': ns.x}"), kDeepValue);
  EXPECT_EQ(wrap("{'a': ns.x}.items()"), kDeepValue);
  EXPECT_EQ(wrap("[1]|map('default', ns.x)"), kDeepValue);
  EXPECT_EQ(wrap("[1]|select('eq', ns.x)"), kDeepValue);
  EXPECT_EQ(wrap("[ns.x].index"), kDeepValue);
  // A value that holds itself twice has an exponential spelling.
  EXPECT_EQ(
      problem_of("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}"),
      kSteps);
  EXPECT_EQ(
      problem_of(
          "{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% set ns.y = [ns.y, ns.y] "
          "%}{% endfor %}{{ ns.x == ns.y }}"),
      kSteps);
}

// Under the address sanitizer these tests show that nothing is leaked and that chains of any length come apart.
TEST(JinjaLimits, CirclesAndChainsComeApart) {
  const std::string done = "no error: done";
  EXPECT_EQ(problem_of("{% set ns = namespace() %}{% set ns.x = ns %}{% set ns.y = [ns] %}done"), done);
  EXPECT_EQ(problem_of("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}"), kDeep);
  EXPECT_EQ(problem_of("{% set ns = namespace() %}{% set ns.x = ns %}{{ ns|tojson }}"),
            "a value of type Namespace cannot be written as JSON");
  EXPECT_EQ(
      problem_of("{% set ns = namespace(x=1) %}{% for i in range(20000) %}{% set ns.x = namespace(a=ns.x) %}{% endfor %}done"),
      done);
  EXPECT_EQ(problem_of("{% macro f() %}{% endmacro %}{% set g = f %}done"), done);
  EXPECT_EQ(problem_of("{% set ns = namespace(m=1) %}{% for i in range(5000) %}{% set old = ns.m %}{% macro f() %}{{ old }}{% "
                       "endmacro %}{% set "
                       "ns.m = f %}{% endfor %}done"),
            done);
  EXPECT_EQ(problem_of("{% set ns = namespace(l=1) %}{% for i in range(5000) %}{% for x in [ns.l] %}{% set ns.l = loop %}{% "
                       "endfor %}{% endfor "
                       "%}done"),
            done);
  EXPECT_EQ(problem_of("{% for x in [1] %}{% if loop.changed(loop) %}{% endif %}{% endfor %}done"), done);
  EXPECT_EQ(
      problem_of("{% set ns = namespace() %}{% for x in [1, 2] %}{% set ns.f = loop.changed %}{% endfor %}{{ ns.f(ns.f) }}"),
      "no error: True");
  EXPECT_EQ(problem_of("{% set ns = namespace() %}{% set ns.g = [ns]|map('default', ns) %}done"), done);
}

TEST(JinjaLimits, OrdinaryConversationsStayFarBelow) {
  OrderedJson messages = OrderedJson::array();
  for (int i = 0; i < 2000; ++i)
    messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", std::string(1000, 'x')}});
  const Template chat("{% for m in messages %}{{ '<' + m.role + '>' + m.content|trim + '\n' }}{% endfor %}");
  EXPECT_EQ(chat.render({{"messages", messages}}).text.size(), 2000u * 1001 + 1000u * (6 + 11));
}

}  // namespace
}  // namespace vitrine
