// A list of members becomes the struct's JSON.
#include "base/members.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <complex>
#include <map>

#include "base/json_of.h"

namespace vitrine {
namespace {

enum class Place : uint8_t { start, end };
const char* name_of(Place place) { return place == Place::start ? "start" : "end"; }

struct Likely {
  int32_t token = 0;
  float logprob = 0;

  double prob() const { return std::exp(static_cast<double>(logprob)); }
  VITRINE_MEMBERS(token, logprob, prob());
};

struct Kept : Likely {
  bool kept = false;

  VITRINE_MEMBERS(token, kept);
};

struct Whole {
  std::string name;
  std::vector<int32_t> tokens;
  std::optional<Likely> best;
  std::vector<Likely> top;
  std::optional<double> share;
  double lost = std::nan("");
  std::complex<double> value;
  std::array<int64_t, 2> range{};
  std::map<std::string, std::vector<bool>> by_name;
  Place place = Place::end;
  std::variant<Likely, std::string> either;

  VITRINE_MEMBERS(name, tokens, best, top, share, lost, value, range, by_name, place, either);
};

TEST(Members, HaveTheNamesOfTheList) {
  EXPECT_EQ(member_names<Likely>(), (std::array<std::string_view, 3>{"token", "logprob", "prob"}));
  EXPECT_EQ(member_names<Kept>(), (std::array<std::string_view, 2>{"token", "kept"}));
  static_assert(member_names<Whole>().size() == 11);
}

TEST(Members, BecomeJson) {
  Whole whole;
  whole.name = "a";
  whole.tokens = {2};
  whole.top = {{3, 0}};
  whole.value = {1, -1};
  whole.range = {4, 5};
  whole.by_name = {{"x", {true}}};
  EXPECT_EQ(json_of(whole).dump(),
            R"({"name":"a","tokens":[2],"best":null,"top":[{"token":3,"logprob":0.0,"prob":1.0}],"share":null,"lost":null,)"
            R"("value":[1.0,-1.0],"range":[4,5],"by_name":{"x":[true]},"place":"end",)"
            R"("either":{"token":0,"logprob":0.0,"prob":1.0}})");
}

TEST(Members, TokensHavePiecesWithASpeller) {
  const Speller piece = [](int32_t id) { return id == 2 ? std::optional<std::string>("two") : std::nullopt; };
  EXPECT_EQ(json_of(Kept{{2, 0}, true}, piece).dump(), R"({"token":2,"piece":"two","kept":true})");
  Whole whole;
  whole.tokens = {2, 7};
  whole.either = "word";
  const OrderedJson json = json_of(whole, piece);
  EXPECT_EQ(json["pieces"].dump(), R"(["two",null])");
  EXPECT_EQ(json["either"], "word");
}

}  // namespace
}  // namespace vitrine
