#pragma once
// YAML written by people (recipes, configurations), as a typed view that names file, line and field in every error.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vitrine {

/// Limits of a document. They bound time and memory whatever the file says: aliases are copied, and every copy counts.
struct YamlLimits {
  size_t bytes = size_t{4} << 20;
  int depth = 32;
  size_t values = size_t{1} << 18;
};

/// One value of a document: a scalar, a list, an object of named values, or nothing (null). Cheap to copy; copies keep the
/// document alive. YAML 1.2's core schema: null, ~ and an empty value are null; true and false are flags; what is in quotes is
/// always text. Tags and several documents in one file are refused, as is a key that appears twice. "<<" is YAML 1.1's merge key.
///
/// Every error is a FileError: "<file>:<line>: "<field>" is <found>; expected …". Fields read "interventions[2].head".
class YamlValue {
 public:
  /// Errors: FileError for a file that cannot be read or is beyond the limits, and for bad YAML with line and column.
  static YamlValue read(const std::string& path, const YamlLimits& limits = {});
  /// The same for text; `where` is named in errors.
  static YamlValue parse(const std::string& text, const std::string& where, const YamlLimits& limits = {});
  /// The documents of a file that may have several, in order; those that are empty are left out. The limits are of each.
  static std::vector<YamlValue> parse_all(const std::string& text, const std::string& where, const YamlLimits& limits = {});
  /// What "optimizer.lr=1e-3" says: a value in YAML, nested_in() its keys. Errors in it name `where`, such as "--set", and no
  /// line.
  static YamlValue setting(const std::string& text, const std::string& where);
  /// An object that has this value under keys with dots between them: {optimizer: {lr: 1e-3}} of 1e-3 and "optimizer.lr".
  YamlValue nested_in(const std::string& keys) const;
  /// This object with `changes`, an object, over it: objects within both are merged, null removes a key that is here, and any
  /// other value replaces what is here. Every value is still named by the file and the line that it comes from.
  YamlValue merged_with(const YamlValue& changes) const;
  /// This object without a key.
  YamlValue without(std::string_view key) const;

  bool is_null() const;
  bool is_scalar() const;
  bool is_list() const;
  bool is_object() const;
  bool is_quoted() const;  // a scalar in quotes: text even if it looks like a number

  /// A scalar as it is written, without its quotes.
  std::string text() const;
  /// Which of `words` a scalar is. Errors: if it is none, with the one that was likely meant, and all of them.
  size_t one_of(std::span<const std::string> words) const;
  /// A whole number in [low, high].
  int64_t whole(int64_t low, int64_t high) const;
  std::optional<int64_t> as_whole() const;  // nothing if it is none
  /// A finite number.
  double number() const;
  std::optional<double> as_number() const;  // nothing if it is none
  bool flag() const;
  /// The values of a list; a value that is no list counts as a list of one, null as an empty one.
  std::vector<YamlValue> items() const;

  /// The value under a key of an object; nothing if it is absent or null.
  std::optional<YamlValue> find(std::string_view key) const;
  /// The value under a key. Errors: absent, with `expected` saying what should be there.
  YamlValue at(std::string_view key, const char* expected) const;
  /// Keys and values of an object in order, those that are null included.
  std::vector<std::pair<std::string, YamlValue>> members() const;
  /// Errors: for the first key that is none of `known`, with the one that was likely meant, and all of them.
  void allow(std::span<const std::string> known) const;

  int line() const;  // of the text, from 1; 0: of a setting
  /// "recipe.yaml:7: "interventions[2].head"": where this value stands, for messages of those who use it later.
  std::string where() const;
  /// Throws FileError: this value is what it is, and that is a problem: "<where> is <found>; <problem>".
  [[noreturn]] void fail(const std::string& problem) const;

 private:
  friend class YamlBuilder;
  struct Node;
  struct Document;
  YamlValue(std::shared_ptr<const Document> document, const Node* node, std::string field)
      : document_(std::move(document)), node_(node), field_(std::move(field)) {}
  static std::vector<YamlValue> parse_documents(const std::string& text, const std::string& where, const YamlLimits& limits,
                                                size_t most);
  static const Node* merge_nodes(const Node* base, const Node* changes, Document& into);
  void require_object() const;
  YamlValue member(const std::string& name, const Node* child) const;

  std::shared_ptr<const Document> document_;
  const Node* node_;
  std::string field_;  // empty: the document itself
};

/// `text` as a YAML scalar in double quotes, which reads back as the same text.
std::string yaml_quoted(std::string_view text);

}  // namespace vitrine
