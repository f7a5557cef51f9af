#include "hooks/trace.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "hooks/gradient_recording.h"
#include "hooks/listening.h"
#include "hooks/objective.h"
#include "io/safetensors.h"
#include "model/abilities.h"
#include "ops/listener_chain.h"
#include "ops/tape.h"

namespace vitrine {
namespace {

std::vector<HookQuery> parse_all(std::span<const std::string> hooks) {
  std::vector<HookQuery> queries;
  for (const std::string& hook : hooks) queries.push_back(parse_hook_query(hook));
  return queries;
}

constexpr char kAskForLess[] = "Ask for fewer hooks, or for slices of them: blocks.*.attn.hook_pattern[heads=0:2,positions=-1]";

std::vector<HookRequest> requests_of(std::span<const Capture> captures) {
  std::vector<HookRequest> requests;
  for (const Capture& capture : captures) requests.push_back(capture.request);
  return requests;
}
bool asks_for_logits(std::span<const Capture> captures) {
  return std::any_of(captures.begin(), captures.end(), [](const Capture& capture) { return capture.name == "hook_logits"; });
}

// Runs one sequence with a listener on the planned hooks.
Recorder record(Engine& engine, std::span<const int32_t> ids, std::span<const Capture> captures, Listener* edits = nullptr) {
  Recorder recorder(requests_of(captures));
  ListenerChain edited({edits, &recorder});
  Context& ctx = engine.context();
  const Listening listening(ctx, edited);
  const auto frame = ctx.frame();
  const Step step = Step::of(ids);
  const Tensor x = engine.model().residual(ctx, step);
  const int64_t last = step.rows() - 1;
  if (asks_for_logits(captures)) logits(ctx, x, engine.model().head(), std::span(&last, 1));
  return recorder;
}

// Which label each row of the step should predict: label t + 1 at row t, nothing at a sequence's last row; by a model in both
// directions, which fills masked tokens, label t at row t.
std::vector<int32_t> targets_of(const Engine& engine, std::span<const std::vector<int32_t>> sequences,
                                std::span<const std::vector<int32_t>> labels) {
  const int64_t vocab_size = engine.shape().vocab_size;
  const bool causal = predicts_next(engine.model());
  if (labels.size() != sequences.size())
    throw InputError("there are labels for " + std::to_string(labels.size()) + " sequence(s) and tokens for " +
                     std::to_string(sequences.size()) + "; labels have the tokens' shape");
  std::vector<int32_t> targets;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (labels[i].size() != sequences[i].size())
      throw InputError("sequence " + std::to_string(i) + " has " + std::to_string(sequences[i].size()) + " tokens and " +
                       std::to_string(labels[i].size()) + " labels; labels have the tokens' shape, and -100 is not scored");
    for (size_t t = 0; t < labels[i].size(); ++t)
      if (labels[i][t] != kNotScored && (labels[i][t] < 0 || labels[i][t] >= vocab_size))
        throw InputError("label " + std::to_string(labels[i][t]) + " at place " + std::to_string(t) + " of sequence " +
                         std::to_string(i) + " is outside the vocabulary (0 to " + std::to_string(vocab_size - 1) +
                         "); -100 means not scored");
    targets.insert(targets.end(), labels[i].begin() + (causal ? 1 : 0), labels[i].end());
    if (causal) targets.push_back(kNotScored);
  }
  return targets;
}

void require_scored(int64_t scored, bool causal, std::span<const std::vector<int32_t>> sequences) {
  if (scored > 0) return;
  if (!causal)
    throw InputError(
        "no position is scored, so there is no loss: every label is -100, which means not scored. Name a token in one of them");
  const bool short_ones = std::all_of(sequences.begin(), sequences.end(), [](const auto& ids) { return ids.size() < 2; });
  throw InputError(std::string("no position is scored, so there is no loss: label t + 1 is scored against the logits at t, ") +
                   (short_ones
                        ? "which takes a sequence of two tokens or more"
                        : "and every label from the second on is -100, which means not scored. Name a token in one of them"));
}

void require_finite(double loss) {
  if (!std::isfinite(loss))
    throw RunError(
        "the loss is NaN or infinite, so there are no gradients. A trace of hooks without gradients shows where it begins");
}

// The canonical name of each file tensor, and what the model's own file calls it (files of a bare model lack a prefix).
std::map<std::string, std::string> own_names(Engine& engine) {
  const bool gguf = engine.opened().gguf != nullptr;
  std::map<std::string, std::string> names;
  for (const TensorLine& line : engine.model().tensors())
    names[line.file_name(gguf)] = line.weight != nullptr ? line.weight->name : line.vector->name;
  return names;
}

std::string tokens_text(std::span<const std::vector<int32_t>> sequences) {
  std::string text;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (i > 0) text += ';';
    for (size_t t = 0; t < sequences[i].size(); ++t) text += (t > 0 ? "," : "") + std::to_string(sequences[i][t]);
  }
  return text;
}

std::span<const std::byte> bytes_of(std::span<const float> numbers) { return std::as_bytes(numbers); }

}  // namespace

LossGradients loss_gradients(Engine& engine, std::span<const std::vector<int32_t>> sequences,
                             std::span<const std::vector<int32_t>> labels) {
  for (const auto& ids : sequences) engine.check_ids(ids);
  const std::vector<int32_t> targets = targets_of(engine, sequences, labels);
  LossGradients result;
  result.scored = scored_in(targets);
  require_scored(result.scored, predicts_next(engine.model()), sequences);
  OpenedModel& opened = engine.opened();
  require_memory(static_cast<size_t>(parameter_count(*opened.model)) * 2 * sizeof(float), 0,
                 "The gradients of all parameters and their copy", "Use a machine with more memory, or a smaller model");
  Context& ctx = engine.context();
  const auto frame = ctx.frame();
  Gradients gradients(*opened.model, opened.gguf != nullptr);
  Tape tape(Tape::kAllBlocks);
  const Recording recording(ctx, tape);
  Step step;
  for (const auto& ids : sequences) step.add(ids);
  const Tensor loss = cross_entropy(ctx, opened.model->residual(ctx, step), opened.model->head(), targets);
  result.loss = static_cast<double>(*loss.data<float>());
  require_finite(result.loss);
  tape.backward(ctx, loss);
  const std::map<std::string, std::string> names = own_names(engine);
  for (const auto& [name, buffer] : gradients.buffers()) {
    Recorder::Value& value = result.gradients[names.at(name)];
    value.shape = buffer.shape;
    value.values.resize(buffer.data.size() / sizeof(float));
    std::memcpy(value.values.data(), buffer.data.data(), buffer.data.size());
  }
  return result;
}

HookGradients hook_gradients(Engine& engine, std::span<const std::vector<int32_t>> sequences,
                             std::span<const std::vector<int32_t>> labels, std::span<const std::string> hooks, size_t memory) {
  for (const auto& ids : sequences) engine.check_ids(ids);
  const std::vector<int32_t> targets = targets_of(engine, sequences, labels);
  const std::vector<HookQuery> queries = parse_all(hooks);
  HookGradients result;
  result.scored = scored_in(targets);
  require_scored(result.scored, predicts_next(engine.model()), sequences);
  size_t bytes = 0;
  std::vector<std::vector<Capture>> captures;
  for (const auto& ids : sequences) {
    captures.push_back(plan_captures(engine.model(), queries, static_cast<int64_t>(ids.size())));
    bytes += capture_bytes(captures.back());
  }
  require_memory(bytes, memory, "The gradients at these hooks", kAskForLess);
  for (const Capture& capture : captures.front()) result.order.push_back(capture.name);

  Context& ctx = engine.context();
  const auto share_of_all = [&](int64_t scored) { return static_cast<double>(scored) / static_cast<double>(result.scored); };
  Tape tape;  // a block that is run again in backward would show nobody its hooks
  size_t first = 0;
  for (size_t i = 0; i < sequences.size(); first += sequences[i++].size()) {
    const std::span<const int32_t> mine = std::span(targets).subspan(first, sequences[i].size());
    const int64_t scored = scored_in(mine);
    result.values.emplace_back();
    if (scored > 0) {
      const auto frame = ctx.frame();
      tape.clear();
      GradientRecording recorder(ctx, captures[i]);
      const Listening listening(ctx, recorder);
      const Recording recording(ctx, tape);
      const Step step = Step::of(sequences[i]);
      const Tensor x = engine.model().residual(ctx, step);
      Tensor loss;
      if (asks_for_logits(captures[i])) {  // the fused loss makes no table of logits
        std::vector<int64_t> rows;
        std::vector<LogprobTerm> terms;
        for (size_t t = 0; t < mine.size(); ++t) {
          rows.push_back(static_cast<int64_t>(t));
          if (mine[t] != kNotScored) terms.push_back({static_cast<int64_t>(t), mine[t], -1.0 / static_cast<double>(scored)});
        }
        loss = sum_of_logprobs(ctx, logits(ctx, x, engine.model().head(), rows), terms);
      } else {
        loss = cross_entropy(ctx, x, engine.model().head(), mine);
      }
      const auto value = static_cast<double>(*loss.data<float>());
      require_finite(value);
      result.loss += value * share_of_all(scored);
      tape.backward(ctx, loss);
      result.values.back() = recorder.take_values();
    }
    result.values.back() = completed(std::move(result.values.back()), captures[i]);
    for (auto& [name, value] : result.values.back())
      for (float& x : value.values) x = static_cast<float>(x * share_of_all(scored));
  }
  return result;
}

Recorder trace_to_memory(Engine& engine, std::span<const int32_t> ids, std::span<const std::string> hooks, Listener* edits,
                         size_t memory) {
  engine.check_ids(ids);
  const std::vector<HookQuery> queries = parse_all(hooks);
  const std::vector<Capture> captures = plan_captures(engine.model(), queries, static_cast<int64_t>(ids.size()));
  require_memory(capture_bytes(captures), memory, "These hooks", kAskForLess);
  return record(engine, ids, captures, edits);
}

Trace trace(Engine& engine, std::span<const std::vector<int32_t>> sequences, const TraceOptions& options,
            const std::string& path) {
  if (options.hooks.empty() && options.gradients_at.empty() && !options.gradients)
    throw InputError(
        "there is nothing to trace; give hooks (--hooks 'blocks.*.hook_resid_post'), or ask for --gradients or --gradients-at");
  if (sequences.empty()) throw InputError("there are no tokens to run; give at least one sequence");
  for (const auto& ids : sequences) engine.check_ids(ids);

  // Everything is known before anything runs.
  const std::vector<HookQuery> queries = parse_all(options.hooks);
  std::vector<std::vector<Capture>> captures;
  std::vector<TensorPlan> plan;
  Trace result;
  const auto numbered = [&](const std::string& name, size_t i) {
    return sequences.size() == 1 ? name : name + "#" + std::to_string(i);
  };
  for (size_t i = 0; i < sequences.size(); ++i) {
    captures.push_back(plan_captures(engine.model(), queries, static_cast<int64_t>(sequences[i].size())));
    const size_t bytes = capture_bytes(captures.back());
    require_memory(bytes, options.memory, "The hooks of sequence " + std::to_string(i), kAskForLess);
    result.bytes += bytes;
    for (const Capture& capture : captures.back()) plan.push_back({numbered(capture.name, i), DType::f32, capture.shape});
  }
  if (options.labels.empty() && (options.gradients || !options.gradients_at.empty()))
    require_next_token(engine.model(), engine.name(),
                       "A loss without labels (--labels, the token that each mask hides and -100 elsewhere)");
  const auto labels = options.labels.empty() ? sequences : std::span(options.labels);
  HookGradients at_hooks;
  if (!options.gradients_at.empty()) {
    at_hooks = hook_gradients(engine, sequences, labels, options.gradients_at, options.memory);
    result.loss = at_hooks.loss;
    result.scored = at_hooks.scored;
    for (size_t i = 0; i < at_hooks.values.size(); ++i)
      for (const std::string& name : at_hooks.order) {
        const Recorder::Value& value = at_hooks.values[i].at(name);
        plan.push_back({numbered("grad." + name, i), DType::f32, value.shape});
        result.bytes += value.values.size() * sizeof(float);
      }
  }
  LossGradients gradients;
  if (options.gradients) {
    gradients = loss_gradients(engine, sequences, labels);
    result.loss = gradients.loss;
    result.scored = gradients.scored;
    for (const auto& [name, value] : gradients.gradients) {
      plan.push_back({"grad." + name, DType::f32, value.shape});
      result.bytes += value.values.size() * sizeof(float);
    }
  }
  for (const TensorPlan& tensor : plan) result.tensors.push_back({tensor.name, tensor.shape});

  SafetensorsWriter writer(path, plan, {{"tokens", tokens_text(sequences)}, {"model", engine.name()}});
  size_t index = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (captures[i].empty()) continue;
    const Recorder recorder = record(engine, sequences[i], captures[i]);
    for (const Capture& capture : captures[i]) {
      const Recorder::Value& value = recorder.values().find(capture.name)->second;
      VITRINE_CHECK(value.shape == capture.shape, "a capture has the shape that was planned");
      writer.write(index++, bytes_of(value.values));
    }
  }
  for (const auto& values : at_hooks.values)
    for (const std::string& name : at_hooks.order) writer.write(index++, bytes_of(values.at(name).values));
  for (const auto& [name, value] : gradients.gradients) writer.write(index++, bytes_of(value.values));
  writer.finish();
  return result;
}

}  // namespace vitrine
