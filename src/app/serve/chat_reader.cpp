#include "serve/chat_reader.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/json.h"
#include "serve/api_error.h"

namespace vitrine::serve {
namespace {

using Kind = SaidPart::Kind;

constexpr std::string_view kSpaces = " \t\r\n";
constexpr size_t kMostHead = 1024;  // bytes in front of a call's arguments

constexpr std::string_view kChannel = "<|channel|>", kStart = "<|start|>", kMessage = "<|message|>";
// DeepSeek's, around a call within the block of them.
constexpr std::string_view kDeepCall = "<｜tool▁call▁begin｜>", kDeepName = "<｜tool▁sep｜>", kDeepEnd = "<｜tool▁call▁end｜>";
// What ends one of Harmony's messages.
constexpr std::string_view kMessageEnds[] = {"<|end|>", "<|call|>", "<|return|>"};

size_t count_spaces(std::string_view text) { return std::min(text.find_first_not_of(kSpaces), text.size()); }

bool in_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' || c == '/'; }

/// A place in a text that may go on.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}
  size_t at() const { return at_; }
  /// More text may change what was found.
  bool cut() const { return cut_; }
  void spaces() {
    at_ += count_spaces(rest());
    cut_ |= rest().empty();
  }
  bool take(std::string_view literal) {
    if (!rest().starts_with(literal)) {
      cut_ |= literal.starts_with(rest());
      return false;
    }
    at_ += literal.size();
    return true;
  }
  bool sees(char c) const { return rest().starts_with(c); }
  std::string_view name() {
    const std::string_view from = rest();
    const size_t size = static_cast<size_t>(std::ranges::find_if_not(from, in_name) - from.begin());
    cut_ |= size == from.size();
    at_ += size;
    return from.substr(0, size);
  }
  /// Up to `end`, which is read, too; nothing where it does not come.
  std::optional<std::string_view> up_to(char end) {
    const std::string_view from = rest();
    const size_t size = from.find(end);
    cut_ |= size == std::string_view::npos;
    if (size == std::string_view::npos) return {};
    at_ += size + 1;
    return from.substr(0, size);
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }
  std::string_view text_;
  size_t at_ = 0;
  bool cut_ = false;
};

enum class HeadKind : uint8_t { none, cut, whole, envelope, json, gemma, python, tags };

/// What stands in front of a call's arguments.
struct Head {
  HeadKind kind = HeadKind::none;
  std::string name;
  size_t used = 0;  // bytes of it; whole: up to the object
  bool list = false;
};

// {"name": "…", "arguments": {: the usual order of an object, which can be read as it comes.
Head object_head(Cursor cursor, bool list) {
  Head head{HeadKind::none, "", cursor.at(), list};
  const auto found = [&](HeadKind kind) {
    head.kind = kind;
    return head;
  };
  cursor.take("{");
  for (;;) {
    cursor.spaces();
    if (!cursor.take("\"")) return found(cursor.cut() ? HeadKind::cut : HeadKind::none);
    const std::optional<std::string_view> key = cursor.up_to('"');
    if (!key) return found(HeadKind::cut);
    cursor.spaces();
    if (!cursor.take(":")) return found(cursor.cut() ? HeadKind::cut : HeadKind::none);
    cursor.spaces();
    const bool named = !head.name.empty();
    if (named && (*key == "arguments" || *key == "parameters")) {
      if (cursor.sees('{')) {
        head.used = cursor.at();
        return found(HeadKind::envelope);
      }
      return found(cursor.cut() ? HeadKind::cut : HeadKind::whole);
    }
    if (named || *key == "function" || *key == "arguments" || *key == "parameters") return found(HeadKind::whole);
    if (*key != "name" && *key != "type" && *key != "id") return head;
    if (!cursor.take("\"")) return found(cursor.cut() ? HeadKind::cut : HeadKind::none);
    const std::optional<std::string_view> value = cursor.up_to('"');
    if (!value) return found(HeadKind::cut);
    if (value->find('\\') != std::string_view::npos) return found(HeadKind::whole);
    if (*key == "name") head.name = *value;
    cursor.spaces();
    if (cursor.take("}")) return found(HeadKind::whole);
    if (!cursor.take(",")) return found(cursor.cut() ? HeadKind::cut : HeadKind::none);
  }
}

Head read_head(std::string_view text, bool list) {
  Cursor cursor(text);
  const auto found = [&](HeadKind kind, std::string_view name = {}) {
    if (kind == HeadKind::none && cursor.cut()) kind = HeadKind::cut;
    return Head{kind, std::string(name), cursor.at(), list};
  };
  cursor.spaces();
  if (!list) cursor.take("functools");
  if (!list && cursor.take("[")) {
    list = true;
    cursor.spaces();
  }
  if (cursor.sees('{')) return object_head(cursor, list);
  if (cursor.take("<function=")) {
    const std::optional<std::string_view> name = cursor.up_to('>');
    return found(name ? HeadKind::tags : HeadKind::none, name.value_or(""));
  }
  if (cursor.take("call:")) {
    const std::string_view name = cursor.name();
    cursor.spaces();
    return found(cursor.sees('{') ? HeadKind::gemma : HeadKind::none, name);
  }
  if (cursor.take(kDeepCall)) {  // name<sep>{…}, or function<sep>name and the arguments in a fence
    std::string_view name = cursor.name();
    if (!cursor.take(kDeepName)) return found(HeadKind::none);
    cursor.spaces();
    if (!cursor.sees('{')) {
      name = cursor.name();
      cursor.spaces();
      cursor.take("```json");
      cursor.spaces();
    }
    return found(cursor.sees('{') && !name.empty() ? HeadKind::json : HeadKind::none, name);
  }
  std::string_view name = cursor.name();
  if (cursor.sees('(')) {
    if (name.ends_with(".call")) name.remove_suffix(5);
    return found(HeadKind::python, name);
  }
  if (list) return found(HeadKind::none);
  if (cursor.take("[CALL_ID]")) cursor.name();
  cursor.take("[ARGS]");
  cursor.spaces();
  if (const Cursor before = cursor; !name.empty() && (cursor.take("<arg_key>") || cursor.take("</tool_call>"))) {
    cursor = before;  // GLM: the tags are the arguments'
    return found(HeadKind::tags, name);
  }
  return found(cursor.sees('{') && !name.empty() ? HeadKind::json : HeadKind::none, name);
}

// {"name": …, "arguments" or "parameters": {…} or "{…}"}, perhaps within "function"
std::optional<ToolCall> call_of(const OrderedJson& json) {
  if (const auto inner = json.find("function"); inner != json.end() && inner->is_object()) return call_of(*inner);
  auto name = json.find("name");
  if (name == json.end()) name = json.find("function");
  if (name == json.end() || !name->is_string()) return {};
  auto arguments = json.find("arguments");
  if (arguments == json.end()) arguments = json.find("parameters");
  ToolCall call{name->get<std::string>(), "{}", true};
  if (arguments == json.end() || arguments->is_null()) return call;
  if (arguments->is_string()) {
    const std::optional<OrderedJson> inner = parsed_object(arguments->get_ref<const std::string&>());
    if (!inner) return {};
    call.arguments = json_text(*inner);
    return call;
  }
  if (!arguments->is_object()) return {};
  call.arguments = json_text(*arguments);
  return call;
}

}  // namespace

ChatReader::ChatReader(ChatReaderOptions options) : options_(std::move(options)), syntax_(tool_syntax(options_.form)) {
  if (options_.harmony)
    state_ = State::header;
  else if (options_.in_reasoning && options_.reasoning != nullptr)
    state_ = State::reasoning;
  was_reasoning_ = options_.reasoning == nullptr;
}

std::vector<SaidPart> ChatReader::read(std::string_view more) {
  buffer_ += more;
  return run(false);
}

std::vector<SaidPart> ChatReader::end() { return run(true); }

std::vector<SaidPart> ChatReader::run(bool ended) {
  while (step(ended) == Step::on) {
  }
  buffer_.erase(0, std::exchange(at_, 0));
  if (ended) give(Kind::content, std::exchange(blanks_, {}));
  return std::exchange(parts_, {});
}

ChatReader::Step ChatReader::step(bool ended) {
  switch (state_) {
    case State::start: return start(ended);
    case State::content: return content(ended);
    case State::reasoning: return reasoning(ended);
    case State::head: return head(ended);
    case State::whole: return whole(ended);
    case State::arguments: return arguments(ended);
    case State::tail: return tail(ended);
    case State::after: return after(ended);
    case State::header: return header(ended);
    case State::message: return message(ended);
  }
  return Step::wait;
}

void ChatReader::give(Kind kind, std::string_view text) {
  if (text.empty() && (kind == Kind::content || kind == Kind::reasoning || kind == Kind::arguments)) return;
  switch (kind) {
    case Kind::content: said_.content += text; break;
    case Kind::reasoning: said_.reasoning += text; break;
    case Kind::call: said_.calls.push_back({std::string(text), "", false}); break;
    case Kind::arguments: said_.calls.back().arguments += text; break;
    case Kind::call_end: break;
  }
  const bool joins = kind == Kind::content || kind == Kind::reasoning || kind == Kind::arguments;
  if (joins && !parts_.empty() && parts_.back().kind == kind)
    parts_.back().text += text;
  else
    parts_.push_back({kind, std::string(text)});
}

// Blanks at its end wait for what follows.
void ChatReader::give_content(std::string_view text) {
  const size_t size = text.find_last_not_of(kSpaces) + 1;
  if (size > 0) give(Kind::content, std::exchange(blanks_, {}) + std::string(text.substr(0, size)));
  blanks_ += text.substr(size);
}

const OrderedJson* ChatReader::tool(std::string_view name) const {
  if (!options_.tools.is_array()) return nullptr;
  for (const OrderedJson& tool : options_.tools)
    if (tool["function"]["name"] == name) return &tool["function"];
  return nullptr;
}

// Reasoning, and calls without a marker, stand at the beginning.
ChatReader::Step ChatReader::start(bool ended) {
  const size_t blank = count_spaces(rest());
  const std::string_view text = rest().substr(blank);
  if (!was_reasoning_) {
    const std::string_view marker = options_.reasoning->begin;
    if (text.starts_with(marker)) {
      at_ += blank + marker.size();
      state_ = State::reasoning;
      return Step::on;
    }
    if (marker.starts_with(text) && !ended) return Step::wait;
  } else if (options_.reasoning != nullptr) {
    at_ += blank;  // behind reasoning
  }
  if (text.empty() && !ended) return Step::wait;
  state_ = State::content;
  if (options_.tools.is_array() && !text.empty() && syntax_.bare.find(text[0]) != std::string_view::npos) {
    blanks_ = rest().substr(0, text.data() - rest().data());
    at_ += blanks_.size();
    state_ = State::head;
  }
  return Step::on;
}

ChatReader::Step ChatReader::reasoning(bool ended) {
  if (fresh_) {
    at_ += count_spaces(rest());
    if (rest().empty()) return Step::wait;
    // The marker may stand in the prompt and in the text as well.
    const std::string_view begin = options_.reasoning->begin;
    if (options_.in_reasoning && rest().starts_with(begin))
      at_ += begin.size();
    else if (options_.in_reasoning && begin.starts_with(rest()) && !ended)
      return Step::wait;
    options_.in_reasoning = false;
    at_ += count_spaces(rest());
    if (rest().empty()) return Step::wait;
    fresh_ = false;
  }
  const std::string_view marker = options_.reasoning->end, text = rest();
  const size_t end = text.find(marker);
  std::string_view part = text.substr(0, end);
  if (end == std::string_view::npos && !ended) {
    part.remove_suffix(begun_at_end(text, marker));
    part = part.substr(0, part.find_last_not_of(kSpaces) + 1);
  }
  const size_t read = part.size();
  if (end != std::string_view::npos) part = part.substr(0, part.find_last_not_of(kSpaces) + 1);
  give(Kind::reasoning, part);
  at_ += read;
  if (end == std::string_view::npos) return Step::wait;
  at_ += marker.size();
  was_reasoning_ = true;
  state_ = State::start;
  return Step::on;
}

ChatReader::Step ChatReader::content(bool ended) {
  const std::string_view text = rest();
  if (text.empty()) return Step::wait;
  if (!options_.tools.is_array()) {
    give(Kind::content, text);
    at_ = buffer_.size();
    return Step::wait;
  }
  const size_t begin = text.find(syntax_.begin),
               inside = syntax_.inside.empty() ? std::string_view::npos : text.find(syntax_.inside);
  if (const size_t first = std::min(begin, inside); first != std::string_view::npos) {
    give_content(text.substr(0, first));
    at_ += first;
    if (first == begin) {
      at_ += syntax_.begin.size();
      markers_ = syntax_.begin;
      block_ = true;
    } else {
      inside_ = syntax_.inside.size();
    }
    state_ = State::head;
    return Step::on;
  }
  const size_t held = ended ? 0 : std::max(begun_at_end(text, syntax_.begin), begun_at_end(text, syntax_.inside));
  give_content(text.substr(0, text.size() - held));
  at_ = buffer_.size() - held;
  return Step::wait;
}

ChatReader::Step ChatReader::no_call() {
  give_content(std::exchange(markers_, {}));
  give_content(rest().substr(0, inside_));
  at_ += std::exchange(inside_, 0);
  block_ = list_ = false;
  state_ = State::content;
  return Step::on;
}

ChatReader::Step ChatReader::head(bool ended) {
  const Head head = read_head(rest(), list_);
  if (head.kind == HeadKind::cut && !ended && rest().size() < kMostHead) return Step::wait;
  if (head.kind == HeadKind::none || head.kind == HeadKind::cut) return no_call();
  const bool list = std::exchange(list_, head.list);
  if (head.kind == HeadKind::whole) {
    markers_ += rest().substr(0, head.used);
    at_ += head.used;
    inside_ = 0;
    scanned_ = 0;
    object_.emplace(ArgumentForm::json);
    state_ = State::whole;
    return Step::on;
  }
  const OrderedJson* function = tool(head.name);
  if (function == nullptr) {
    list_ = list;
    return no_call();
  }
  envelope_ = head.kind == HeadKind::envelope;
  tags_.reset();
  object_.reset();
  if (head.kind == HeadKind::tags)
    tags_.emplace(function->value("parameters", OrderedJson::object()));
  else
    object_.emplace(head.kind == HeadKind::gemma    ? ArgumentForm::gemma
                    : head.kind == HeadKind::python ? ArgumentForm::python
                                                    : ArgumentForm::json);
  return begin_call(head.name, head.used, State::arguments);
}

ChatReader::Step ChatReader::begin_call(const std::string& name, size_t used, State next) {
  blanks_.clear();
  markers_.clear();
  inside_ = 0;
  at_ += used;
  give(Kind::call, name);
  state_ = next;
  return Step::on;
}

void ChatReader::end_call(bool complete, State next) {
  said_.calls.back().complete = complete;
  parts_.push_back({Kind::call_end, "", complete});
  state_ = next;
}

// An object whose name comes late, or whose arguments are a string: it must be read to its end.
ChatReader::Step ChatReader::whole(bool ended) {
  std::string_view text = rest().substr(scanned_);
  std::string json;
  const Reading reading = object_->read(text, json);
  scanned_ = rest().size() - text.size();
  if (reading == Reading::open && !ended) return Step::wait;
  const std::optional<OrderedJson> object = reading == Reading::done ? parsed_object(rest().substr(0, scanned_)) : std::nullopt;
  const std::optional<ToolCall> call = object ? call_of(*object) : std::nullopt;
  if (!call || tool(call->name) == nullptr) return no_call();
  begin_call(call->name, scanned_, State::after);
  give(Kind::arguments, call->arguments);
  end_call(true, State::after);
  return Step::on;
}

ChatReader::Step ChatReader::arguments(bool ended) {
  std::string_view text = rest();
  std::string json;
  const Reading reading = object_ ? object_->read(text, json) : tags_->read(text, json);
  at_ = buffer_.size() - text.size();
  give(Kind::arguments, json);
  if (reading == Reading::done) {
    end_call(true, options_.harmony ? State::message : envelope_ ? State::tail : State::after);
    if (envelope_) object_ = BracketArguments::rest_of_object();
    scanned_ = 0;
    return Step::on;
  }
  if (reading == Reading::open && !ended) return Step::wait;
  // What the arguments held back is theirs where the text ends, else content.
  if (tags_) give(Kind::arguments, tags_->held());
  if (reading == Reading::open) {
    give(Kind::arguments, rest());
    at_ = buffer_.size();
  }
  end_call(false, options_.harmony ? State::message : State::after);
  return Step::on;
}

// The rest of the object that the arguments stood in: content if it does not end.
ChatReader::Step ChatReader::tail(bool ended) {
  std::string_view text = rest().substr(scanned_);
  std::string ignored;
  const Reading reading = object_->read(text, ignored);
  scanned_ = rest().size() - text.size();
  if (reading == Reading::open && !ended) return Step::wait;
  if (reading == Reading::done) at_ += scanned_;
  state_ = State::after;
  return Step::on;
}

ChatReader::Step ChatReader::after(bool ended) {
  Cursor cursor(rest());
  cursor.spaces();
  const size_t blank = cursor.at();
  const auto go = [&](State next) {
    at_ += cursor.at();
    state_ = next;
    return Step::on;
  };
  if (syntax_.form == ToolForm::deepseek) {
    Cursor call_end = cursor;
    if (call_end.take("```")) call_end.spaces();
    if (call_end.take(kDeepEnd)) {
      at_ += call_end.at();
      return Step::on;
    }
    if (call_end.cut() && !ended) return Step::wait;
  }
  if (list_ && cursor.take("]")) {
    list_ = false;
    return go(State::after);
  }
  if (!syntax_.end.empty() && cursor.take(syntax_.end)) {
    block_ = list_ = false;
    return go(State::content);
  }
  if (cursor.take(syntax_.begin)) {
    block_ = true;
    list_ = false;
    markers_ = syntax_.begin;
    blanks_ = rest().substr(0, blank);
    return go(State::head);
  }
  const bool separated = cursor.take(",") || cursor.take(";");
  if (separated) cursor.spaces();
  // Then the next call may follow; without a marker of its end, only what looks like one begins one.
  const bool inside = !syntax_.inside.empty() && rest().substr(cursor.at()).starts_with(syntax_.inside);
  if (cursor.cut() && !ended) return Step::wait;
  if (!inside && !syntax_.inside.empty() && !ended && syntax_.inside.starts_with(rest().substr(cursor.at()))) return Step::wait;
  if (!rest().substr(cursor.at()).empty() && ((block_ && !syntax_.end.empty()) || separated || inside || cursor.sees('{'))) {
    blanks_ = rest().substr(0, blank);
    markers_ = rest().substr(blank, cursor.at() - blank);
    if (inside) inside_ = syntax_.inside.size();
    return go(State::head);
  }
  block_ = list_ = false;
  state_ = State::content;
  return Step::on;
}

// Harmony: <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>commentary to=functions.f
// json<|message|>{…}<|call|>
ChatReader::Step ChatReader::header(bool ended) {
  const std::string_view text = rest();
  if (text.empty()) return Step::wait;
  message_ = Kind::content;
  message_begins_ = true;
  fresh_ = false;
  const size_t end = text.find(kMessage);
  size_t begins = 0;  // bytes of what begins it
  for (const std::string_view first : {kChannel, kStart, kMessage, std::string_view(" to="), std::string_view("to=")}) {
    if (text.starts_with(first)) begins = first.size();
    if (first.size() > text.size() && first.starts_with(text) && !ended) return Step::wait;
  }
  if (begins > 0 && end == std::string_view::npos && text.size() < kMostHead && !ended) return Step::wait;
  state_ = State::message;
  if (begins == 0 || end == std::string_view::npos || end > kMostHead) {  // no header: it is content as it is
    give(Kind::content, text.substr(0, begins));
    message_begins_ = begins == 0;
    at_ += begins;
    return Step::on;
  }
  const std::string_view header = text.substr(0, end);
  const size_t channel = header.find(kChannel), to = header.find("to=");
  const bool analysis = channel != std::string_view::npos && header.substr(channel + kChannel.size()).starts_with("analysis");
  message_ = analysis ? Kind::reasoning : Kind::content;
  const size_t used = end + kMessage.size();
  if (to == std::string_view::npos) {
    at_ += used;
    return Step::on;
  }
  std::string_view name = header.substr(to + 3);
  name = name.substr(0, name.find_first_of(" <"));
  if (name.starts_with("functions.")) name.remove_prefix(10);
  const size_t brace = used + count_spaces(text.substr(used));
  if (tool(name) != nullptr && brace == text.size() && !ended) {
    state_ = State::header;
    return Step::wait;
  }
  if (tool(name) == nullptr || brace == text.size() || text[brace] != '{') {
    give(message_, text.substr(0, used));  // a call of nothing that is here
    message_begins_ = false;
    at_ += used;
    return Step::on;
  }
  message_begins_ = false;
  fresh_ = true;
  message_ = Kind::content;
  envelope_ = false;
  object_.emplace(ArgumentForm::json);
  return begin_call(std::string(name), used, State::arguments);
}

ChatReader::Step ChatReader::message(bool ended) {
  if (fresh_) at_ += count_spaces(rest());  // behind a call
  const std::string_view text = rest();
  if (text.empty()) return Step::wait;
  fresh_ = false;
  size_t end = text.find(kStart), marker = 0, held = begun_at_end(text, kStart);
  for (const std::string_view one : kMessageEnds) {
    if (const size_t at = text.find(one); at < end) end = at, marker = one.size();
    held = std::max(held, begun_at_end(text, one));
  }
  const std::string_view part =
      end != std::string_view::npos ? text.substr(0, end) : text.substr(0, text.size() - (ended ? 0 : held));
  const bool more = message_ == Kind::content ? !said_.content.empty() : !said_.reasoning.empty();
  if (!part.empty()) {
    if (std::exchange(message_begins_, false) && more) give(message_, "\n\n");
    give(message_, part);
    at_ += part.size();
  }
  if (end == std::string_view::npos) return Step::wait;
  at_ += marker;
  state_ = State::header;
  return Step::on;
}

}  // namespace vitrine::serve
