#include "io/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/nearest.h"
#include "base/plural.h"
#include "base/utf8.h"

namespace vitrine {

struct YamlValue::Node {
  enum class Kind : uint8_t { null, scalar, list, object };
  Kind kind = Kind::null;
  bool quoted = false, complete = false;
  const std::string* path = nullptr;                          // of the document that it was read from
  int line = 0;                                               // 0: it has no lines
  int height = 1;                                             // levels below and with this one
  size_t values = 1;                                          // below and with this one, those of aliases counted again
  std::string text;                                           // of a scalar
  std::vector<std::pair<std::string, const Node*>> children;  // keys are empty in a list
};

struct YamlValue::Document {
  std::string path;
  std::deque<Node> nodes;                                     // pointers into it stay valid
  std::vector<std::shared_ptr<const Document>> sources = {};  // whose nodes it refers to
};

namespace {

std::string listed(std::span<const std::string> words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + word;
  return list;
}

[[noreturn]] void fail_at(const std::string& path, int line, const std::string& problem) {
  throw FileError(line > 0 ? path + ":" + std::to_string(line) : path, problem);
}

constexpr size_t kMostDocuments = 256;

// Where the lists and objects begin whose end the parser has not seen.
class OpenBrackets final : public YAML::EventHandler {
 public:
  struct Stop {};  // thrown where reading on could not help
  // The innermost list or object.
  const YAML::Mark* last(char bracket) const {
    const auto found = std::find_if(open_.rbegin(), open_.rend(), [&](const auto& one) { return one.first == bracket; });
    return found == open_.rend() ? nullptr : &found->second;
  }

  // The parser may give empty documents without end.
  void OnDocumentStart(const YAML::Mark&) override {
    if (++documents_ > kMostDocuments) throw Stop();
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open('[', mark);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    open('{', mark);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  void open(char bracket, const YAML::Mark& mark) {
    open_.emplace_back(bracket, mark);
    if (open_.size() > kMostLevels) throw Stop();  // the parser calls itself for every level
  }

  static constexpr size_t kMostLevels = 256;
  std::vector<std::pair<char, YAML::Mark>> open_;
  size_t documents_ = 0;
};

// Throws the FileError of text that is no YAML; returns if what is wrong with it is none of the parser's errors.
void refuse_bad_yaml(const std::string& text, const std::string& where) {
  OpenBrackets brackets;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(brackets)) {
    }
  } catch (const OpenBrackets::Stop&) {
    return;
  } catch (const YAML::Exception& error) {
    const bool list = error.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW, object = error.msg == YAML::ErrorMsg::END_OF_MAP_FLOW;
    if (const YAML::Mark* begin = list || object ? brackets.last(list ? '[' : '{') : nullptr)
      fail_at(where, begin->line + 1,
              "is not valid YAML at column " + std::to_string(begin->column + 1) + ": the " +
                  (list ? "list that begins there with \"[\" does not end; expected \"]\""
                        : "object that begins there with \"{\" does not end; expected \"}\""));
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1, column = error.mark.is_null() ? 1 : error.mark.column + 1;
    fail_at(where, line, "is not valid YAML at column " + std::to_string(column) + ": " + error.msg);
  }
}

}  // namespace

/// Builds the document from the parser's events and refuses it as soon as it is beyond the limits. An alias is the same node
/// again; its values count again, so that a few nested aliases cannot stand for a billion values.
class YamlBuilder final : public YAML::EventHandler {
 public:
  using Node = YamlValue::Node;
  YamlBuilder(YamlValue::Document& document, const YamlLimits& limits) : document_(document), limits_(limits) {}

  const Node* root() const { return root_; }
  int first_line() const { return first_line_; }
  /// Whether it refused a key that is no text. The parser also gives such keys where a list or an object does not end.
  bool refused_key() const { return refused_key_; }

  void OnDocumentStart(const YAML::Mark& mark) override { first_line_ = mark.line + 1; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { leaf(mark, Node::Kind::null, anchor); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const Node* node = anchors_.at(anchor);
    if (!node->complete) fail_at(document_.path, mark.line + 1, "is an alias of a value that contains it");
    attach(node, mark.line + 1);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    refuse_tag(mark, tag);
    if (expects_key()) {
      key_ = value;
      has_key_ = true;
      if (value == "<<" && tag != "!") merges_.back() = true;
      if (!seen_.back().insert(value).second)
        fail_at(document_.path, mark.line + 1, "has the key \"" + value + "\" twice in one object; remove one of them");
      return;
    }
    Node& node = leaf(mark, Node::Kind::scalar, anchor);
    node.text = value;
    node.quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, Node::Kind::list);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, Node::Kind::object);
  }
  void OnMapEnd() override { end(); }

 private:
  bool expects_key() const { return !open_.empty() && open_.back()->kind == Node::Kind::object && !has_key_; }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag != "?" && tag != "!" && !tag.empty())
      fail_at(document_.path, mark.line + 1, "has the tag " + tag + "; expected none");
  }
  [[noreturn]] void refuse_key(int line) {
    refused_key_ = true;
    fail_at(document_.path, line, "has a key that is no text; expected a name");
  }
  Node& make(const YAML::Mark& mark, Node::Kind kind, YAML::anchor_t anchor) {
    if (expects_key()) refuse_key(mark.line + 1);
    Node& node = document_.nodes.emplace_back();
    node.kind = kind;
    node.path = &document_.path;
    node.line = mark.line + 1;
    if (anchor != 0) anchors_[anchor] = &node;
    return node;
  }
  Node& leaf(const YAML::Mark& mark, Node::Kind kind, YAML::anchor_t anchor) {
    Node& node = make(mark, kind, anchor);
    node.complete = true;
    attach(&node, node.line);
    return node;
  }
  void begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node::Kind kind) {
    refuse_tag(mark, tag);
    Node& node = make(mark, kind, anchor);
    keys_.push_back(std::exchange(key_, {}));
    had_key_.push_back(std::exchange(has_key_, false));
    open_.push_back(&node);
    seen_.emplace_back();
    merges_.push_back(false);
    check_depth(1, node.line);
  }
  void end() {
    Node* node = open_.back();
    node->complete = true;
    open_.pop_back();
    if (merges_.back()) merge_keys(*node, seen_.back());
    seen_.pop_back();
    merges_.pop_back();
    key_ = std::move(keys_.back());
    has_key_ = had_key_.back();
    keys_.pop_back();
    had_key_.pop_back();
    values_ -= node->values - 1;  // counted one by one; attach counts them with the node
    attach(node, node->line);
  }
  void attach(const Node* node, int line) {
    if (expects_key()) refuse_key(line);
    values_ += node->values;
    if (values_ > limits_.values)
      fail_at(document_.path, line,
              "brings the file beyond " + std::to_string(limits_.values) + " values, aliases counted each time");
    check_depth(node->height, line);
    if (open_.empty()) {
      root_ = node;
      return;
    }
    Node* parent = open_.back();
    parent->children.emplace_back(parent->kind == Node::Kind::object ? key_ : std::string(), node);
    parent->values += node->values;
    parent->height = std::max(parent->height, node->height + 1);
    has_key_ = false;
  }
  // YAML 1.1's merge key: what "<<" refers to, an object or a list of them, gives the keys that the object itself lacks; of a
  // list the first that has a key counts.
  void merge_keys(Node& node, std::unordered_set<std::string>& seen) const {
    std::vector<std::pair<std::string, const Node*>> inherited, own;
    const auto inherit = [&](const Node& from, int line) {
      if (from.kind != Node::Kind::object)
        fail_at(document_.path, line, "has a \"<<\" that is no object; expected one, or a list of objects");
      for (const auto& child : from.children)
        if (seen.insert(child.first).second) inherited.push_back(child);
    };
    for (const auto& [key, child] : node.children) {
      if (key != "<<") {
        own.emplace_back(key, child);
      } else if (child->kind == Node::Kind::list) {
        for (const auto& [none, one] : child->children) inherit(*one, child->line);
      } else {
        inherit(*child, child->line);
      }
    }
    node.children = std::move(inherited);
    node.children.insert(node.children.end(), own.begin(), own.end());
  }
  void check_depth(int height, int line) const {
    if (static_cast<int>(open_.size()) + height > limits_.depth + 1)
      fail_at(document_.path, line, "nests deeper than " + std::to_string(limits_.depth) + " levels");
  }

  YamlValue::Document& document_;
  YamlLimits limits_;
  std::map<YAML::anchor_t, Node*> anchors_;
  std::vector<Node*> open_;                            // lists and objects whose end has not come
  std::vector<std::unordered_set<std::string>> seen_;  // the keys of each
  std::vector<bool> merges_;                           // whether "<<" is one of them
  std::string key_;                                    // of the value that comes next, in the innermost object
  bool has_key_ = false;
  std::vector<std::string> keys_;  // key_ and has_key_ of the objects around it
  std::vector<bool> had_key_;
  size_t values_ = 0;
  bool refused_key_ = false;
  int first_line_ = 1;
  const Node* root_ = nullptr;
};

YamlValue YamlValue::read(const std::string& path, const YamlLimits& limits) {
  return parse(read_file(path, limits.bytes), path, limits);
}

std::vector<YamlValue> YamlValue::parse_documents(const std::string& text, const std::string& where, const YamlLimits& limits,
                                                  size_t most) {
  if (text.size() > limits.bytes)
    throw FileError(where, "has " + std::to_string(text.size()) + " bytes; expected at most " + std::to_string(limits.bytes));
  // The parser would put U+FFFD where bytes are no text, and a prompt would silently be another.
  if (const size_t valid = valid_utf8_prefix(text); valid < text.size())
    fail_at(where, 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(valid), '\n')),
            "holds bytes that are not UTF-8; save the file as UTF-8");
  std::vector<YamlValue> documents;
  bool refused_key = false;
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    for (size_t read = 0;; ++read) {
      auto document = std::make_shared<Document>();
      document->path = where;
      YamlBuilder builder(*document, limits);
      try {
        if (!parser.HandleNextDocument(builder)) break;
      } catch (const FileError&) {
        refused_key = builder.refused_key();
        throw;
      }
      if (read >= most)
        fail_at(where, builder.first_line(),
                most == 1 ? "begins a second document; expected one in a file"
                          : "begins document " + std::to_string(most + 1) + "; expected at most " + std::to_string(most));
      if (const Node* root = builder.root(); root != nullptr && root->kind != Node::Kind::null)
        documents.push_back({std::move(document), root, ""});
    }
  } catch (const YAML::Exception& error) {
    refuse_bad_yaml(text, where);
    fail_at(where, 1, "is not valid YAML: " + error.msg);
  } catch (const FileError&) {
    if (refused_key) refuse_bad_yaml(text, where);
    throw;
  }
  return documents;
}

YamlValue YamlValue::parse(const std::string& text, const std::string& where, const YamlLimits& limits) {
  std::vector<YamlValue> documents = parse_documents(text, where, limits, 1);
  if (!documents.empty()) return documents.front();
  auto document = std::make_shared<Document>();
  document->path = where;
  Node& empty = document->nodes.emplace_back();
  empty.path = &document->path;
  empty.line = 1;
  return {std::move(document), &empty, ""};
}

std::vector<YamlValue> YamlValue::parse_all(const std::string& text, const std::string& where, const YamlLimits& limits) {
  return parse_documents(text, where, limits, kMostDocuments);
}

int YamlValue::line() const { return node_->line; }
bool YamlValue::is_null() const { return node_->kind == Node::Kind::null; }
bool YamlValue::is_scalar() const { return node_->kind == Node::Kind::scalar; }
bool YamlValue::is_list() const { return node_->kind == Node::Kind::list; }
bool YamlValue::is_object() const { return node_->kind == Node::Kind::object; }
bool YamlValue::is_quoted() const { return node_->quoted; }

std::string YamlValue::where() const {
  return *node_->path + (node_->line > 0 ? ":" + std::to_string(node_->line) : "") +
         (field_.empty() ? "" : ": \"" + field_ + "\"");
}

void YamlValue::fail(const std::string& problem) const {
  constexpr size_t kLongest = 60;
  std::string found;
  switch (node_->kind) {
    case Node::Kind::null: found = "empty"; break;
    case Node::Kind::list: found = "a list of " + std::to_string(node_->children.size()); break;
    case Node::Kind::object: found = "an object of " + plural(node_->children.size(), "key"); break;
    case Node::Kind::scalar:
      found = node_->text.size() > kLongest ? node_->text.substr(0, kLongest - 3) + "..." : node_->text;
      found = "\"" + found + "\"";
  }
  fail_at(*node_->path, node_->line,
          (field_.empty() ? "the document" : "\"" + field_ + "\"") + (" is " + found) + "; " + problem);
}

std::string YamlValue::text() const {
  if (!is_scalar()) fail("expected a text");
  return node_->text;
}

std::optional<int64_t> YamlValue::as_whole() const {
  if (!is_scalar() || is_quoted()) return {};
  const std::string& text = node_->text;
  const char* const first = text.data() + (text.starts_with('+') ? 1 : 0);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

int64_t YamlValue::whole(int64_t low, int64_t high) const {
  const std::optional<int64_t> value = as_whole();
  if (!value || *value < low || *value > high)
    fail("expected a whole number from " + std::to_string(low) + " to " + std::to_string(high));
  return *value;
}

std::optional<double> YamlValue::as_number() const {
  if (!is_scalar() || is_quoted()) return {};
  const std::string& text = node_->text;
  const char* const first = text.data() + (text.starts_with('+') ? 1 : 0);
  double value = 0;
  const auto [end, error] = std::from_chars(first, text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

double YamlValue::number() const {
  const std::optional<double> value = as_number();
  if (!value) fail("expected a number");
  return *value;
}

bool YamlValue::flag() const {
  if (!is_scalar() || is_quoted() || (node_->text != "true" && node_->text != "false")) fail("expected true or false");
  return node_->text == "true";
}

std::vector<YamlValue> YamlValue::items() const {
  if (is_null()) return {};
  if (!is_list()) return {*this};
  std::vector<YamlValue> values;
  values.reserve(node_->children.size());
  for (size_t i = 0; i < node_->children.size(); ++i)
    values.push_back({document_, node_->children[i].second, field_ + "[" + std::to_string(i) + "]"});
  return values;
}

void YamlValue::require_object() const {
  if (!is_object()) fail("expected an object of named values");
}

YamlValue YamlValue::member(const std::string& name, const Node* child) const {
  return {document_, child, (field_.empty() ? "" : field_ + ".") + name};
}

std::optional<YamlValue> YamlValue::find(std::string_view key) const {
  require_object();
  for (const auto& [name, child] : node_->children)
    if (name == key && child->kind != Node::Kind::null) return member(name, child);
  return {};
}

YamlValue YamlValue::at(std::string_view key, const char* expected) const {
  if (auto value = find(key)) return *std::move(value);
  fail_at(
      *node_->path, node_->line,
      (field_.empty() ? "the document" : "\"" + field_ + "\"") + (" lacks \"" + std::string(key)) + "\"; expected " + expected);
}

std::vector<std::pair<std::string, YamlValue>> YamlValue::members() const {
  require_object();
  std::vector<std::pair<std::string, YamlValue>> all;
  all.reserve(node_->children.size());
  for (const auto& [name, child] : node_->children) all.emplace_back(name, member(name, child));
  return all;
}

void YamlValue::allow(std::span<const std::string> known) const {
  require_object();
  for (const auto& [name, child] : node_->children) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string meant = meant_by(name, known);
    fail_at(*child->path, child->line,
            "\"" + (field_.empty() ? "" : field_ + ".") + name + "\" is not known. " +
                (meant.empty() ? "" : "Did you mean \"" + meant + "\"? ") + "Here can stand: " + listed(known));
  }
}

size_t YamlValue::one_of(std::span<const std::string> words) const {
  const std::string found = text();
  const auto at = std::find(words.begin(), words.end(), found);
  if (at != words.end()) return static_cast<size_t>(at - words.begin());
  const std::string meant = meant_by(found, words);
  fail((meant.empty() ? "expected one of " : "did you mean \"" + meant + "\"? Expected one of ") + listed(words));
}

// Objects of both are made anew; all other nodes are shared.
const YamlValue::Node* YamlValue::merge_nodes(const Node* base, const Node* changes, Document& into) {
  if (base->kind != Node::Kind::object || changes->kind != Node::Kind::object) return changes;
  Node& merged = into.nodes.emplace_back();
  merged.kind = Node::Kind::object;
  merged.path = changes->line > 0 ? changes->path : base->path;
  merged.line = changes->line > 0 ? changes->line : base->line;
  std::unordered_map<std::string_view, const Node*> changed;
  for (const auto& [key, child] : changes->children) changed.emplace(key, child);
  for (const auto& [key, child] : base->children) {
    const auto change = changed.find(key);
    if (change == changed.end()) {
      merged.children.emplace_back(key, child);
      continue;
    }
    if (change->second->kind != Node::Kind::null) merged.children.emplace_back(key, merge_nodes(child, change->second, into));
    changed.erase(change);
  }
  for (const auto& [key, child] : changes->children)
    if (changed.contains(key)) merged.children.emplace_back(key, child);
  return &merged;
}

YamlValue YamlValue::merged_with(const YamlValue& changes) const {
  require_object();
  changes.require_object();
  auto document = std::make_shared<Document>(Document{document_->path, {}, {document_, changes.document_}});
  const Node* root = merge_nodes(node_, changes.node_, *document);
  return {std::move(document), root, field_};
}

YamlValue YamlValue::without(std::string_view key) const {
  require_object();
  auto document = std::make_shared<Document>(Document{document_->path, {*node_}, {document_}});
  Node& node = document->nodes.front();
  std::erase_if(node.children, [&](const auto& child) { return child.first == key; });
  return {std::move(document), &node, field_};
}

YamlValue YamlValue::nested_in(const std::string& keys) const {
  auto document = std::make_shared<Document>(Document{document_->path, {}, {document_}});
  const Node* inner = node_;
  for (size_t end = keys.size();;) {
    const size_t dot = keys.rfind('.', end - 1), begin = end == 0 || dot == std::string::npos ? 0 : dot + 1;
    if (begin == end) fail("expected keys with dots between them before it, such as optimizer.lr, not \"" + keys + "\"");
    Node& outer = document->nodes.emplace_back();
    outer.kind = Node::Kind::object;
    outer.path = node_->path;
    outer.line = node_->line;
    outer.children.emplace_back(keys.substr(begin, end - begin), inner);
    inner = &outer;
    if (begin == 0) break;
    end = begin - 1;
  }
  return {std::move(document), inner, ""};
}

YamlValue YamlValue::setting(const std::string& text, const std::string& where) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw FileError(where, "\"" + text + "\" is not a setting; expected KEY=VALUE, such as optimizer.lr=1e-3");
  const YamlValue value = parse(text.substr(equals + 1), where + " " + text.substr(0, equals));
  auto document = std::make_shared<Document>(Document{where, {}, {}});
  const auto copy = [&](const auto& again, const Node& from) -> const Node* {
    Node& node = document->nodes.emplace_back(from);
    node.path = &document->path;
    node.line = 0;
    for (auto& [key, child] : node.children) child = again(again, *child);
    return &node;
  };
  const Node* const root = copy(copy, *value.node_);
  return YamlValue(std::move(document), root, text.substr(0, equals)).nested_in(text.substr(0, equals));
}

std::string yaml_quoted(std::string_view text) {
  // JSON's strings are YAML's double-quoted scalars.
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace vitrine
