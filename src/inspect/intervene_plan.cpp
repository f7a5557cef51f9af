#include "inspect/intervene_plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "inspect/form.h"
#include "inspect/trace.h"
#include "io/safetensors.h"

namespace vitrine {
namespace {

using Target = Intervention::Target;
using Action = Intervention::Action;

// Whether a message begins with `where`, such as r.yaml:3: "interventions[0]", or with the place of a value inside it, which may
// stand on another line.
bool names_place(std::string_view message, std::string_view where) {
  if (message.starts_with(where)) return true;
  const size_t quote = where.rfind(": \"");
  if (quote == std::string_view::npos) return false;
  const std::string_view file = where.substr(0, where.rfind(':', quote - 1) + 1);
  const std::string_view field = where.substr(quote, where.size() - quote - 1);  // without its closing quote
  if (!message.starts_with(file)) return false;
  message.remove_prefix(file.size());
  message.remove_prefix(std::min(message.find_first_not_of("0123456789"), message.size()));
  if (!message.starts_with(field) || message.size() == field.size()) return false;
  return message[field.size()] == '.' || message[field.size()] == '[';
}

// Runs f; what it refuses is reported at `where`.
template <class F>
auto reported(const std::string& where, F&& f) {
  try {
    return f();
  } catch (const InputError& error) {
    if (where.empty() || names_place(error.what(), where)) throw;
    throw InputError(where + ": " + error.what());
  }
}

std::string block(int64_t layer, const char* hook) { return "blocks." + std::to_string(layer) + "." + hook; }

// Hooks whose sum enters the norm; none where no hook shows it (the second norm after the MLP, an RMSNorm).
std::vector<std::string> inputs_of_norm(const Engine& engine, const std::string& norm) {
  const Model& model = engine.model();
  if (norm == "ln_final") return {block(model.shape().n_layers - 1, "hook_resid_post")};
  const size_t dot = norm.rfind('.');
  const std::string at = norm.substr(0, dot + 1), name = norm.substr(dot + 1);
  if (name == "ln1" || name == "ln2") {
    const std::string stream = at + (name == "ln1" ? "hook_resid_pre" : "hook_resid_mid");
    const std::string update = at + (name == "ln1" ? "hook_attn_out" : "hook_mlp_out");
    if (!model.block_spec(0).norms_after) return {stream};
    return adds_to_stream(engine) ? std::vector{stream, update} : std::vector{update};
  }
  if (name == "ln1_post") return {at + "attn.hook_out"};
  return {};
}

// Queries for hooks, one for each slice of positions.
std::vector<std::string> with_slices(const std::string& pattern, const std::string& heads,
                                     const std::vector<std::string>& positions) {
  std::vector<std::string> queries;
  for (const std::string& slice : positions.empty() ? std::vector<std::string>{""} : positions) {
    std::string inside = heads.empty() ? "" : "heads=" + heads;
    if (!slice.empty()) inside += (inside.empty() ? "" : ",") + ("positions=" + slice);
    queries.push_back(pattern + (inside.empty() ? "" : "[" + inside + "]"));
  }
  return queries;
}

// Whether a text may stand behind positions= in a request: an empty one would be every position, one with a comma more than that.
bool may_be_slice(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789-:") == std::string::npos;
}

// What an intervention touches, as requests for hooks.
std::vector<std::string> queries_of(const Engine& engine, const Intervention& i) {
  const ModelShape& shape = engine.shape();
  for (const std::string& text : i.positions)
    if (!may_be_slice(text)) throw InputError("\"" + text + "\" is neither a position nor a range of positions FIRST:END");
  std::vector<std::string> queries;
  const auto add = [&](const std::string& pattern, const std::string& heads = "") {
    for (std::string& query : with_slices(pattern, heads, i.positions)) queries.push_back(std::move(query));
  };
  const bool whole_layer = i.action == Action::set || i.action == Action::add || i.action == Action::identity;
  switch (i.target) {
    case Target::head:
      for (const HeadPlace& place : heads_of(i.of, shape, i.where))
        add(block(place.layer, "attn.hook_z"), std::to_string(place.head));
      break;
    case Target::mlp:
      for (const int64_t layer : indices_of(i.of, shape.n_layers, "layers", i.where)) add(block(layer, "hook_mlp_out"));
      break;
    case Target::attn:
      for (const int64_t layer : indices_of(i.of, shape.n_layers, "layers", i.where)) add(block(layer, "hook_attn_out"));
      break;
    case Target::layer:
      for (const int64_t layer : indices_of(i.of, shape.n_layers, "layers", i.where)) {
        if (whole_layer) {
          add(block(layer, "hook_resid_post"));
        } else {  // what the layer adds to the stream
          add(block(layer, "hook_attn_out"));
          add(block(layer, "hook_mlp_out"));
        }
      }
      break;
    case Target::norm:
      for (const std::string& norm : i.of) add(norm + ".hook_normalized");
      break;
    case Target::positions: add(block(0, "hook_resid_pre")); break;
    case Target::hook:
      for (const std::string& text : i.of) {
        if (i.positions.empty()) {
          queries.push_back(text);
          continue;
        }
        const HookQuery query = parse_hook_query(text);
        if (query.positions) throw InputError("\"" + text + "\" has positions of its own; leave out one of the two");
        const size_t open = text.find("heads=");
        const std::string heads = open == std::string::npos ? "" : text.substr(open + 6, text.size() - open - 7);
        for (std::string& one : with_slices(query.pattern, heads, i.positions)) queries.push_back(std::move(one));
      }
  }
  return queries;
}

// The slice of a capture along one axis of its shape; without that axis all of it, on both sides alike.
HookRequest::Range taken(const Capture& capture, std::optional<size_t> axis, const HookRequest::Range& range) {
  return axis ? HookRequest::Range{range.first, range.first + capture.shape[*axis]} : HookRequest::Range{0, 1};
}

// The parts of `capture` that lie outside `before`, another slice of the same hook.
std::vector<Capture> outside(const Capture& capture, const Capture& before) {
  const bool pattern = heads_first(capture.name);
  const size_t rows_axis = pattern ? 1 : 0;
  const std::optional<size_t> heads_axis = pattern                    ? std::optional<size_t>(0)
                                           : capture.shape.size() > 2 ? std::optional<size_t>(1)
                                                                      : std::nullopt;
  const HookRequest::Range heads = taken(capture, heads_axis, capture.request.heads),
                           other_heads = taken(before, heads_axis, before.request.heads),
                           rows = taken(capture, rows_axis, capture.request.positions),
                           other_rows = taken(before, rows_axis, before.request.positions);
  const HookRequest::Range both = {std::max(heads.first, other_heads.first), std::min(heads.end, other_heads.end)};
  const HookRequest::Range shared = {std::max(rows.first, other_rows.first), std::min(rows.end, other_rows.end)};
  if (both.first >= both.end || shared.first >= shared.end) return {capture};
  std::vector<Capture> parts;
  const auto add = [&](const HookRequest::Range& of_heads, const HookRequest::Range& of_rows) {
    if (of_heads.first >= of_heads.end || of_rows.first >= of_rows.end) return;
    Capture part = capture;
    if (heads_axis) part.request.heads = of_heads, part.shape[*heads_axis] = of_heads.end - of_heads.first;
    part.request.positions = of_rows;
    part.shape[rows_axis] = of_rows.end - of_rows.first;
    parts.push_back(std::move(part));
  };
  add({heads.first, both.first}, rows);
  add({both.end, heads.end}, rows);
  add(both, {rows.first, shared.first});
  add(both, {shared.end, rows.end});
  return parts;
}

// The hooks that the queries select. A hook may come more than once, with slices that do not overlap: what several queries name
// is changed once.
std::vector<Capture> captures_of(const Engine& engine, const std::vector<std::string>& queries, int64_t rows) {
  std::vector<Capture> captures;
  for (const std::string& text : queries) {
    const HookQuery query = parse_hook_query(text);
    std::vector<Capture> fresh = plan_captures(engine.model(), std::span(&query, 1), rows);
    for (const Capture& before : captures) {
      std::vector<Capture> left;
      for (const Capture& capture : fresh) {
        if (capture.name != before.name) {
          left.push_back(capture);
          continue;
        }
        for (Capture& part : outside(capture, before)) left.push_back(std::move(part));
      }
      fresh = std::move(left);
    }
    captures.insert(captures.end(), fresh.begin(), fresh.end());
  }
  return captures;
}

const Recorder::Value& value_of(const Recorder& values, const std::string& name) { return values.values().find(name)->second; }

struct Part {
  std::vector<int64_t> shape;
  std::vector<float> numbers;
};

// What `capture` selects of a whole value.
Part part_of(const Recorder::Value& whole, const Capture& capture) {
  const bool pattern = heads_first(capture.name);
  const int64_t a = whole.shape[0], b = whole.shape.size() > 1 ? whole.shape[1] : 1;
  const auto rest = static_cast<int64_t>(whole.numbers.size()) / std::max<int64_t>(1, a * b);
  const bool heads_second = !pattern && whole.shape.size() >= 3;
  const auto cut = [](const HookRequest::Range& range, int64_t size) {
    return std::pair{std::clamp<int64_t>(range.first, 0, size), std::clamp<int64_t>(range.end, 0, size)};
  };
  const auto [a_first, a_end] = cut(pattern ? capture.request.heads : capture.request.positions, a);
  const auto [b_first, b_end] = pattern        ? cut(capture.request.positions, b)
                                : heads_second ? cut(capture.request.heads, b)
                                               : std::pair<int64_t, int64_t>{0, b};
  Part part;
  part.shape = whole.shape;
  part.shape[0] = a_end - a_first;
  if (part.shape.size() > 1) part.shape[1] = b_end - b_first;
  for (int64_t i = a_first; i < a_end; ++i) {
    const auto row = whole.numbers.begin() + (i * b + b_first) * rest;
    part.numbers.insert(part.numbers.end(), row, row + (b_end - b_first) * rest);
  }
  return part;
}

ValueEdit edit_of(const Capture& capture, ValueEdit::Kind kind) {
  ValueEdit edit;
  edit.hook = capture.name;
  edit.heads = capture.request.heads;
  edit.positions = capture.request.positions;
  edit.kind = kind;
  return edit;
}

// Mean over positions of [position, rest]: [rest].
void add_rows(const Part& value, std::vector<double>& sum, int64_t& count) {
  const int64_t rows = value.shape[0];
  const size_t rest = value.numbers.size() / static_cast<size_t>(std::max<int64_t>(1, rows));
  sum.resize(rest);
  for (int64_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < rest; ++i) sum[i] += static_cast<double>(value.numbers[static_cast<size_t>(r) * rest + i]);
  count += rows;
}

std::vector<float> divided(const std::vector<double>& sum, int64_t count) {
  std::vector<float> mean(sum.size());
  for (size_t i = 0; i < sum.size(); ++i) mean[i] = static_cast<float>(sum[i] / static_cast<double>(count));
  return mean;
}

// The prompts whose values an intervention takes.
std::vector<std::vector<int32_t>> sources_of(const Engine& engine, const Intervention& i, const RecipePrompts& prompts) {
  switch (i.from) {
    case Intervention::From::own: return {prompts.run()};
    case Intervention::From::clean: return {prompts.clean};
    case Intervention::From::corrupt: return {prompts.corrupt};
    case Intervention::From::prompts: break;
  }
  std::vector<std::vector<int32_t>> sources;
  for (const PromptSpec& prompt : i.prompts) sources.push_back(ids_of(engine, prompt));
  return sources;
}

void require_length(size_t found, size_t expected, const std::string& what) {
  if (found == expected) return;
  throw InputError(what + " has " + std::to_string(found) + " tokens and the prompt that runs " + std::to_string(expected) +
                   "; values are taken position by position, so both must have as many. `vitrine tokenize` shows the tokens");
}

std::vector<ValueEdit> resampled(Engine& engine, const Intervention& i, const RecipePrompts& prompts, SourceValues& values,
                                 const std::vector<Capture>& captures) {
  const std::vector<int32_t> source = sources_of(engine, i, prompts)[0];
  require_length(source.size(), prompts.run().size(), "the prompt that values are taken from");
  const Recorder& seen = values.of(source, captures);
  std::vector<ValueEdit> edits;
  for (const Capture& capture : captures) {
    ValueEdit edit = edit_of(capture, ValueEdit::Kind::set);
    Part part = part_of(value_of(seen, capture.name), capture);
    edit.numbers = std::move(part.numbers);
    edit.shape = std::move(part.shape);
    edits.push_back(std::move(edit));
  }
  return edits;
}

std::vector<ValueEdit> averaged(Engine& engine, const Intervention& i, const RecipePrompts& prompts, SourceValues& values,
                                const std::vector<Capture>& captures) {
  for (const Capture& capture : captures)
    if (heads_first(capture.name) && !i.by_position)
      throw InputError("a mean over positions mixes the queries of " + capture.name +
                       ", whose rows have different keys; take the mean over prompts by position");
  struct Sum {
    std::vector<double> numbers;
    int64_t count = 0;
  };
  std::vector<Sum> sums(captures.size());
  for (const std::vector<int32_t>& source : sources_of(engine, i, prompts)) {
    if (i.by_position) require_length(source.size(), prompts.run().size(), "a prompt of the mean");
    const Recorder& seen = values.of(source, captures);
    for (size_t c = 0; c < captures.size(); ++c) {
      Capture cut = captures[c];
      if (!i.by_position) cut.request.positions = {};  // of all positions, whichever are touched
      const Part part = part_of(value_of(seen, cut.name), cut);
      if (i.by_position) {
        sums[c].numbers.resize(part.numbers.size());
        for (size_t n = 0; n < part.numbers.size(); ++n) sums[c].numbers[n] += static_cast<double>(part.numbers[n]);
        ++sums[c].count;
      } else {
        add_rows(part, sums[c].numbers, sums[c].count);
      }
    }
  }
  std::vector<ValueEdit> edits;
  for (size_t c = 0; c < captures.size(); ++c) {
    ValueEdit edit = edit_of(captures[c], ValueEdit::Kind::set);
    edit.numbers = divided(sums[c].numbers, sums[c].count);
    edit.shape = captures[c].shape;
    if (!i.by_position) edit.shape.erase(edit.shape.begin());
    edits.push_back(std::move(edit));
  }
  return edits;
}

// Whether `shape` can be broadcast, from the right, to `part`.
bool fits_part(const std::vector<int64_t>& shape, const std::vector<int64_t>& part) {
  if (shape.size() > part.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t size = shape[shape.size() - 1 - i];
    if (size != 1 && size != part[part.size() - 1 - i]) return false;
  }
  return true;
}

VectorSpec from_file(const VectorSpec& vector) {
  const Checkpoint file = open_safetensors(vector.file);
  const StoredTensor* tensor = file.find(vector.tensor);
  if (tensor == nullptr) {
    std::string list;
    for (const auto& [name, stored] : file.tensors()) {
      if (list.size() > 200) {
        list += ", …";
        break;
      }
      list += (list.empty() ? "" : ", ") + name;
    }
    throw FileError(vector.file, "holds no tensor \"" + vector.tensor + "\"; it holds " + (list.empty() ? "none" : list));
  }
  VectorSpec result = vector;
  result.shape = tensor->shape;
  const size_t count = tensor->bytes / std::max<size_t>(1, row_bytes(tensor->dtype, 1));
  const bool plain =
      tensor->dtype == DType::f32 || tensor->dtype == DType::f16 || tensor->dtype == DType::bf16 || tensor->dtype == DType::f64;
  if (!plain || tensor->shape.size() > 3)
    throw FileError(vector.file,
                    "\"" + vector.tensor + "\" is " + shape_text(tensor->shape) +
                        " of a type or rank that is no vector; expected f32, f16, bf16 or f64 with up to three sizes");
  for (size_t n = 0; n < count; ++n)
    result.numbers.push_back(tensor->dtype == DType::f64 ? static_cast<float>(reinterpret_cast<const double*>(tensor->data)[n])
                                                         : element_at(tensor->dtype, tensor->data, n));
  const auto bad = std::find_if(result.numbers.begin(), result.numbers.end(), [](float v) { return !std::isfinite(v); });
  if (bad != result.numbers.end())
    throw FileError(vector.file, "\"" + vector.tensor + "\" holds " + std::to_string(*bad) + " at number " +
                                     std::to_string(bad - result.numbers.begin()) + "; expected numbers that f32 holds");
  return result;
}

// The value at the capture's hook for `plus` less that for `minus`, at one position of each: [heads, head_dim] or [d_model].
void add_difference(Engine& engine, const VectorSpec& vector, const Capture& capture, SourceValues& values, ValueEdit& edit) {
  if (heads_first(capture.name))
    throw InputError("a pattern of one prompt has other keys than that of another; give numbers for " + capture.name);
  const std::pair<const PromptSpec*, float> terms[] = {{&*vector.plus, 1.0F}, {vector.minus ? &*vector.minus : nullptr, -1.0F}};
  for (const auto& [prompt, sign] : terms) {
    if (prompt == nullptr) continue;
    const std::vector<int32_t> ids = ids_of(engine, *prompt);
    const auto rows = static_cast<int64_t>(ids.size());
    Capture cut = capture;
    const int64_t position = position_of(vector.position, rows, vector.where);
    cut.request.positions = {position, position + 1};
    const Recorder& seen = values.of(ids, {cut});
    const Part part = part_of(value_of(seen, cut.name), cut);
    edit.numbers.resize(part.numbers.size());
    for (size_t n = 0; n < part.numbers.size(); ++n) edit.numbers[n] += sign * part.numbers[n];
    edit.shape.assign(part.shape.begin() + 1, part.shape.end());
  }
}

std::vector<ValueEdit> given(Engine& engine, const Intervention& i, SourceValues& values, const std::vector<Capture>& captures) {
  const VectorSpec vector = i.vector.file.empty() ? i.vector : reported(i.vector.where, [&] { return from_file(i.vector); });
  std::vector<ValueEdit> edits;
  for (const Capture& capture : captures) {
    ValueEdit edit = edit_of(capture, i.action == Action::add ? ValueEdit::Kind::add : ValueEdit::Kind::set);
    edit.factor = i.factor;
    if (vector.plus) {
      add_difference(engine, vector, capture, values, edit);
    } else {
      edit.numbers = vector.numbers;
      edit.shape = vector.shape;
    }
    if (!fits_part(edit.shape, capture.shape)) {
      const std::vector<int64_t> last = {capture.shape.back()};
      throw ShapeError("the vector has shape " + shape_text(edit.shape) + "; " + capture.name + " takes one number, " +
                       shape_text(last) + " or what can be broadcast to " + shape_text(capture.shape));
    }
    edits.push_back(std::move(edit));
  }
  return edits;
}

std::vector<ValueEdit> of_norms(const Engine& engine, const Intervention& i, const std::vector<Capture>& captures) {
  constexpr std::string_view kHook = ".hook_normalized";
  std::vector<ValueEdit> edits;
  for (const Capture& capture : captures) {
    const std::string norm = capture.name.substr(0, capture.name.size() - kHook.size());
    ValueEdit scale = edit_of(capture, ValueEdit::Kind::set), recall = edit_of(capture, ValueEdit::Kind::recall);
    scale.hook = norm + ".hook_scale";
    scale.numbers = {1};
    recall.sources = {norm + ".hook_normalized_pre"};
    if (i.action == Action::unit_scale) edits.push_back(scale);
    if (i.action == Action::no_weight) edits.push_back(recall);
    if (i.action != Action::identity) continue;
    const std::vector<std::string> inputs = inputs_of_norm(engine, norm);
    if (inputs.empty()) {
      edits.push_back(scale);  // x / 1 is x
    } else {
      recall.sources = inputs;
    }
    edits.push_back(recall);
  }
  return edits;
}

std::vector<ValueEdit> edits_of(Engine& engine, const Intervention& i, const RecipePrompts& prompts, SourceValues& values,
                                const std::vector<Capture>& captures) {
  std::vector<ValueEdit> edits;
  switch (i.action) {
    case Action::mean: return averaged(engine, i, prompts, values, captures);
    case Action::resample: return resampled(engine, i, prompts, values, captures);
    case Action::set:
    case Action::add: return given(engine, i, values, captures);
    case Action::unit_scale:
    case Action::no_weight: return of_norms(engine, i, captures);
    case Action::identity: break;
    case Action::zero:
    case Action::scale:
      for (const Capture& capture : captures) {
        ValueEdit edit = edit_of(capture, i.action == Action::zero ? ValueEdit::Kind::set : ValueEdit::Kind::scale);
        if (i.action == Action::zero) edit.numbers = {0};
        edit.factor = i.factor;
        edits.push_back(std::move(edit));
      }
      return edits;
  }
  if (i.target == Target::norm) return of_norms(engine, i, captures);
  for (const Capture& capture : captures) {  // a layer that lets the stream through
    ValueEdit edit = edit_of(capture, ValueEdit::Kind::recall);
    edit.sources = {capture.name.substr(0, capture.name.size() - 4) + "pre"};
    edits.push_back(std::move(edit));
  }
  return edits;
}

}  // namespace

std::vector<int32_t> ids_of(const Engine& engine, const PromptSpec& prompt) {
  return reported(prompt.where, [&] {
    std::vector<int32_t> ids = prompt.from_tokens ? prompt.tokens : engine.prompt_ids(prompt.text, prompt.special);
    engine.check_ids(ids);
    return ids;
  });
}

int32_t id_of(const Engine& engine, const TokenSpec& token) {
  return reported(token.where, [&] {
    const int32_t id = token.id >= 0 ? token.id : single_token(engine.tokenizer(), token.text);
    engine.check_ids(std::span(&id, 1));  // a tokenizer may hold more than the model
    return id;
  });
}

int64_t position_of(int64_t position, int64_t rows, const std::string& where) {
  const int64_t at = position < 0 ? position + rows : position;
  if (at < 0 || at >= rows)
    throw InputError((where.empty() ? "" : where + ": ") + "position " + std::to_string(position) + " is not among the " +
                     std::to_string(rows) + " tokens of the prompt");
  return at;
}

std::vector<int64_t> indices_of(const std::vector<std::string>& texts, int64_t count, const char* what,
                                const std::string& where) {
  std::set<int64_t> indices;
  for (const std::string& text : texts) {
    const auto refuse = [&](const std::string& problem) {
      throw InputError((where.empty() ? "" : where + ": ") + "\"" + text + "\" " + problem + "; the model has " +
                       std::to_string(count) + " " + what + ", 0 to " + std::to_string(count - 1));
    };
    if (text == "*") {
      for (int64_t i = 0; i < count; ++i) indices.insert(i);
      continue;
    }
    std::optional<HookQuery::Slice> slice;
    if (!may_be_slice(text)) refuse("is neither an index, a range FIRST:END nor *");
    try {
      slice = parse_hook_query("*[positions=" + text + "]").positions;
    } catch (const InputError&) {
      refuse("is neither an index, a range FIRST:END nor *");
    }
    const auto from_end = [&](int64_t i) { return i < 0 ? i + count : i; };
    if (slice->single) {
      const int64_t i = from_end(*slice->first);
      if (i < 0 || i >= count) refuse("is not there");
      indices.insert(i);
      continue;
    }
    const int64_t first = std::clamp<int64_t>(from_end(slice->first.value_or(0)), 0, count);
    const int64_t end = std::clamp<int64_t>(slice->end ? from_end(*slice->end) : count, 0, count);
    if (first >= end) refuse("selects nothing");
    for (int64_t i = first; i < end; ++i) indices.insert(i);
  }
  return {indices.begin(), indices.end()};
}

std::vector<HeadPlace> heads_of(const std::vector<std::string>& texts, const ModelShape& shape, const std::string& where) {
  std::set<HeadPlace> places;
  for (const std::string& text : texts) {
    const size_t dot = text.find('.');
    if (dot == std::string::npos && text != "*")
      throw InputError((where.empty() ? "" : where + ": ") + "\"" + text +
                       "\" is no head; expected LAYER.HEAD, such as 3.7 or 3.*");
    const std::string layer = text.substr(0, dot), head = dot == std::string::npos ? "*" : text.substr(dot + 1);
    for (const int64_t l : indices_of({layer}, shape.n_layers, "layers", where))
      for (const int64_t h : indices_of({head}, shape.n_heads, "heads in a layer", where)) places.insert({l, h});
  }
  return {places.begin(), places.end()};
}

const Recorder& SourceValues::of(std::span<const int32_t> ids, const std::vector<Capture>& captures) {
  std::set<std::string> names;
  for (const Capture& capture : captures) names.insert(capture.name);
  const bool there = kept_ && std::equal(ids.begin(), ids.end(), ids_.begin(), ids_.end()) &&
                     std::all_of(names.begin(), names.end(), [&](const auto& name) { return kept_->values().contains(name); });
  if (there) return *kept_;
  kept_.reset();
  ids_.assign(ids.begin(), ids.end());
  const std::vector<std::string> hooks(names.begin(), names.end());
  kept_.emplace(trace_to_memory(engine_, ids, hooks, nullptr, memory_));
  return *kept_;
}

std::vector<ValueEdit> plan_edits(Engine& engine, const Intervention& intervention, const RecipePrompts& prompts,
                                  SourceValues& values) {
  return reported(intervention.where, [&] {
    const auto rows = static_cast<int64_t>(prompts.run().size());
    const std::vector<Capture> captures = captures_of(engine, queries_of(engine, intervention), rows);
    return edits_of(engine, intervention, prompts, values, captures);
  });
}

}  // namespace vitrine
