// web/src/results.ts and python/vitrine/result_types.py have the types of the code's results, by their lists of members.
// VITRINE_WRITE_DOCS=1 in the environment writes them anew.
#include <gtest/gtest.h>

#include <complex>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "base/members.h"
#include "inspect/attribution.h"
#include "inspect/circuits.h"
#include "inspect/compare.h"
#include "inspect/parts.h"
#include "inspect/units.h"
#include "intervene/run.h"
#include "picture/data/study.h"
#include "train/one_step.h"

namespace vitrine {
namespace {

/// Of types that have one of their own; others are written where they are used.
template <class Language, class T>
std::string name_of_type;

struct TypeScript {
  static constexpr const char *kText = "string", *kBool = "boolean", *kInt = "number", *kFloat = "number";
  static std::string complex() { return "[number, number]"; }
  static std::string optional(const std::string& of) { return of + " | null"; }
  static std::string list(const std::string& of) { return of.ends_with("null") ? "(" + of + ")[]" : of + "[]"; }
  static std::string numbers(const std::string& of) { return list(of); }
  static std::string pair(const std::string& of, size_t n) {
    std::string all = of;
    for (size_t i = 1; i < n; ++i) all += ", " + of;
    return "[" + all + "]";
  }
  static std::string map(const std::string& of) { return "Record<string, " + of + ">"; }
  static std::string member(const std::string& name, const std::string& of) { return name + ": " + of + "; "; }
  static std::string inlined(const std::string& members) { return "{ " + members + "}"; }
  static std::string type(const std::string& name, const std::string& members) {
    return "\nexport interface " + name + " { " + members + "}\n";
  }
};

struct Python {
  static constexpr const char *kText = "str", *kBool = "bool", *kInt = "int", *kFloat = "float";
  static std::string complex() { return "complex"; }
  static std::string optional(const std::string& of) { return of + " | None"; }
  static std::string list(const std::string& of) { return "list[" + of + "]"; }
  static std::string numbers(const std::string& of) { return of == "complex" ? "Complexes" : "Doubles"; }
  static std::string pair(const std::string& of, size_t) { return list(of); }
  static std::string map(const std::string& of) { return "dict[str, " + of + "]"; }
  static std::string member(const std::string& name, const std::string& of) { return "    " + name + ": " + of + "\n"; }
  static std::string inlined(const std::string&) {
    ADD_FAILURE() << "a type needs a name";
    return "";
  }
  static std::string type(const std::string& name, const std::string& members) {
    return "\n\nclass " + name + "(TypedDict):\n" + members;
  }
};

template <class Language, class T>
std::string members_as();

template <class Language, class T>
std::string type_as() {
  if constexpr (Described<T>) {
    return name_of_type<Language, T>.empty() ? Language::inlined(members_as<Language, T>()) : name_of_type<Language, T>;
  } else if constexpr (requires(T value) { value.has_value(), *value; }) {
    return Language::optional(type_as<Language, typename T::value_type>());
  } else if constexpr (requires(T value) { value.real(), value.imag(); }) {
    return Language::complex();
  } else if constexpr (std::is_same_v<T, bool>) {
    return Language::kBool;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return std::is_integral_v<T> ? Language::kInt : Language::kFloat;
  } else if constexpr (std::is_enum_v<T> || std::is_convertible_v<T, std::string_view>) {
    return Language::kText;
  } else if constexpr (requires { typename T::mapped_type; }) {
    return Language::map(type_as<Language, typename T::mapped_type>());
  } else if constexpr (requires { std::tuple_size<T>::value; }) {
    return Language::pair(type_as<Language, typename T::value_type>(), std::tuple_size_v<T>);
  } else {
    using Value = typename T::value_type;
    const std::string of = type_as<Language, Value>();
    if constexpr (Described<Value> || std::is_integral_v<Value> || std::ranges::range<Value> ||
                  requires(Value value) { value.has_value(); }) {
      return Language::list(of);
    } else {
      return Language::numbers(of);
    }
  }
}

// Tokens have their pieces wherever these types are used.
template <class Language, class T>
std::string members_as() {
  static constexpr auto kNames = member_names<T>();
  std::string text;
  if constexpr (requires { T::kPicture; }) text += Language::member("picture", "\"" + std::string(T::kPicture) + "\"");
  [&]<size_t... i>(std::index_sequence<i...>) {
    const auto add = [&]<class Member>(std::string_view name) {
      text += Language::member(std::string(name), type_as<Language, Member>());
      const std::string piece = Language::optional(Language::kText);
      if (std::is_same_v<Member, int32_t> && name == "token") text += Language::member("piece", piece);
      if (std::is_same_v<Member, std::vector<int32_t>> && name == "tokens")
        text += Language::member("pieces", Language::list(piece));
    };
    (add.template operator()<std::remove_cvref_t<std::tuple_element_t<i, MembersOf<T>>>>(kNames[i]), ...);
  }(std::make_index_sequence<kNames.size()>());
  return text;
}

template <class Language>
class Types {
 public:
  explicit Types(std::string begin) : text_(std::move(begin)) {}
  /// A type comes after those that it uses.
  template <class T>
  Types& add(const char* name) {
    text_ += Language::type(name, members_as<Language, T>());
    name_of_type<Language, T> = name;
    return *this;
  }
  void expect_in(const std::string& file) const {
    const std::string path = std::string(VITRINE_SOURCE) + "/" + file;
    if (std::getenv("VITRINE_WRITE_DOCS") != nullptr) std::ofstream(path) << text_;
    std::ifstream in(path);
    const std::string page{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    EXPECT_EQ(text_, page) << "run this test with VITRINE_WRITE_DOCS=1";
  }

 private:
  std::string text_;
};

TEST(ResultTypes, OfThePagesAreThoseOfTheCode) {
  Types<TypeScript>(
      "// Written by the test ResultTypes.OfThePagesAreThoseOfTheCode from the lists of members (VITRINE_MEMBERS) in src.\n")
      .add<TokenLogprob>("TokenLogprob")
      .add<Prediction>("Prediction")
      .add<Composition>("Composition")
      .add<StreamDifference>("StreamDifference")
      .add<MetricValues>("MetricValues")
      .add<LensReading>("LensReading")
      .add<UnitWrites>("UnitWrites")
      .add<OneStep>("OneStep")
      .add<CircuitsData>("CircuitsData")
      .add<HeadsData>("HeadsData")
      .add<PatchData>("PatchData")
      .add<LossesData>("LossesData")
      .add<LayersData>("LayersData")
      .add<CurvesData>("CurvesData")
      .add<StudyHead>("StudyHead")
      .expect_in("web/src/results.ts");
}

TEST(ResultTypes, OfPythonAreThoseOfTheCode) {
  Types<Python>(
      "\"\"\"The types of results that are dicts. Written by the test ResultTypes.OfPythonAreThoseOfTheCode.\"\"\"\n\n"
      "from __future__ import annotations\n\nfrom typing import TypedDict\n\nfrom .arrays import Complexes, Doubles\n")
      .add<TokenLogprob>("TokenLogprob")
      .add<Spectrum>("Spectrum")
      .add<HeadSpectra>("HeadSpectra")
      .add<Composition>("Composition")
      .add<CircuitTable>("CircuitTable")
      .add<ComparedModel>("ComparedModel")
      .add<StreamDifference>("StreamDifference")
      .add<PredictionDifference>("PredictionDifference")
      .add<ModelComparison>("ModelComparison")
      .expect_in("python/vitrine/result_types.py");
}

}  // namespace
}  // namespace vitrine
