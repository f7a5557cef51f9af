#include "serve/inside.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/shell_word.h"
#include "intervene/request.h"
#include "ops/stopping.h"
#include "serve/chat_prompt.h"
#include "serve/lora.h"
#include "serve/openai_answer.h"
#include "serve/token_text.h"

namespace vitrine::serve {
InsideRun::InsideRun(Service& service, const std::shared_ptr<http::Exchange>& exchange, ScaledAdapters adapters)
    : service_(service),
      adapters_(std::move(adapters)),
      owner_(exchange->request().owner),
      gone_(std::make_shared<std::atomic<bool>>(false)) {
  const int most = service_.options().most_inside;
  if (service_.inside().fetch_add(1) >= most) {
    --service_.inside();
    ApiError busy(429, "rate_limit_exceeded",
                  "as many requests as may look inside the model at once are under way, which is " + std::to_string(most));
    busy.retry_after = 1;
    throw busy;
  }
  exchange->on_gone([gone = gone_] { *gone = true; });
}

InsideRun::~InsideRun() { --service_.inside(); }

void InsideRun::operator()(const std::function<void(Engine&)>& work) {
  service_.scheduler()
      .run(
          [&](Engine& engine) {
            const Stopping stopping(engine.context(), *gone_);
            const Adapted adapted(engine, adapters_);
            work(engine);
          },
          owner_, begun_)
      .get();
  begun_ = true;
}

const std::vector<Field>& inside_prompt_fields() {
  static const std::vector<Field> table = [] {
    using namespace type;
    return std::vector<Field>{{"model", text, "The model's name, an alias, or nothing."},
                              {"prompt", text | integers, "A text, or ids, which are used exactly as given."},
                              {"messages", list, "A conversation instead of a prompt, rendered by the model's chat template."},
                              {"add_special", boolean, "Add BOS and EOS to a text if the tokenizer does. Default: true."}};
  }();
  return table;
}

const std::vector<Field>& recipe_fields() {
  using namespace type;
  static const std::vector<Field> table = {
      {"corrupt", text | integers | object, "A second prompt, for patch, path and values from it."},
      {"run", text, "Which prompt is changed: clean or corrupt."},
      {"metric", text | object, "The metric of a run."},
      {"interventions", list | object, "A list of changes, applied in this order."},
      {"patch", text | object, "A grid of runs, each with one value of the other prompt's."},
      {"ablate", text | object, "A grid of runs, each with one part set to zero or its mean."},
      {"path", object, "A grid of senders, along the direct paths to the receivers."},
      {"all_positions", boolean, "Predictions after every token. Default: false."},
  };
  return table;
}

Field edits_field() {
  return {"edits", type::list, "Changes to the model, in the format of the list interventions in docs/intervene.md."};
}

InsidePrompt read_one_prompt(const OrderedJson& prompt, bool special, Service& service, const std::string& field) {
  InsidePrompt read;
  read.special = special;
  if (prompt.is_string()) {
    read.text = prompt.get<std::string>();
    read.ids = service.engine().prompt_ids(*read.text, special);
  } else {
    if (!prompt.is_array() || prompt.empty())
      throw invalid(field, "\"" + field + "\" is " + kind_of(prompt) + "; expected a text or a list of ids that is not empty",
                    "invalid_type");
    std::vector<int64_t> numbers;
    for (const OrderedJson& id : prompt) {
      if (!id.is_number_integer()) throw invalid(field, "\"" + field + "\" mixes ids with " + kind_of(id), "invalid_type");
      numbers.push_back(id.get<int64_t>());
    }
    read.ids = token_ids(service.engine(), numbers, field);
  }
  service.engine().check_ids(read.ids);
  return read;
}

InsidePrompt read_prompt(Fields& fields, Service& service) {
  service.model_named(fields.text("model"));
  const bool special = fields.boolean("add_special", true);
  const OrderedJson *prompt = fields.find("prompt"), *messages = fields.find("messages");
  if ((prompt == nullptr) == (messages == nullptr))
    throw invalid("prompt",
                  prompt == nullptr ? "\"prompt\" is missing; expected a text, ids, or \"messages\" in its place"
                                    : "\"prompt\" and \"messages\" are both there; give one of them",
                  "missing_required_parameter");
  if (prompt != nullptr) return read_one_prompt(*prompt, special, service, "prompt");
  Conversation conversation;
  conversation.messages = read_messages(*messages, fields);
  InsidePrompt read;
  read.ids = chat_prompt(service, conversation).ids;
  check_room(service, read.ids.size(), "messages");
  return read;
}

void add_ignored(const Fields& fields, OrderedJson& json) {
  if (!fields.ignored().empty()) json["ignored_fields"] = fields.ignored();
}

void check_recipe(const Recipe& recipe) {
  const auto refuse = [](const std::string& field, const std::string& what) {
    throw invalid(field, "\"" + field + "\" names " + what + "; requests read no files. Use vitrine intervene",
                  "unsupported_parameter");
  };
  if (!recipe.model.empty()) refuse("model", "a model");
  if (!recipe.adapter.empty()) refuse("adapter", "an adapter");
  size_t changes = 0;
  for (const Intervention& one : recipe.interventions) {
    if (one.target == Intervention::Target::sae) refuse("sae", "a folder");
    if (!one.vector.file.empty()) refuse("vector.file", "a file");
    changes += std::max<size_t>(one.of.size(), 1) * std::max<size_t>(one.positions.size(), 1) + one.prompts.size();
  }
  if (changes > kMostChanges)
    throw invalid("",
                  fmt::format("the request makes {} changes to the model and may make {}; name layers, heads and positions by "
                              "ranges, such as \"0:8\" or \"*\"",
                              changes, kMostChanges));
}

void refuse_head_numbers(const OrderedJson& json, int64_t n_heads, const std::string& key) {
  if (key == "head" && json.is_number_float()) {
    const std::string text = json_text(json);
    const size_t point = text.find('.');
    if (point + 2 == text.size() && text.back() != '0' && (text.back() - '0') * 10 < n_heads)
      throw invalid(key, "\"head\" is the number " + text + ", which in JSON is also " + text + "0; write it as a string",
                    "invalid_type");
  }
  if (json.is_object())
    for (const auto& [name, value] : json.items()) refuse_head_numbers(value, n_heads, name);
  if (json.is_array())
    for (const OrderedJson& value : json) refuse_head_numbers(value, n_heads, key);
}

std::unique_ptr<Interventions> planned_edits(Engine& engine, const OrderedJson* edits, const std::vector<int32_t>& ids) {
  if (edits == nullptr || edits->empty()) return nullptr;
  refuse_head_numbers(*edits, engine.shape().n_heads);
  const Recipe recipe = recipe_of_edits(*edits, ids);
  check_recipe(recipe);
  return planned(engine, recipe, ids);
}

OrderedJson command_line(const Service& service, const std::vector<std::string>& words, const ScaledAdapters& adapters,
                         const std::vector<int32_t>& ids) {
  const bool beside = service.engine().opened().adapter != nullptr;  // which the options name
  if (adapters.size() > (beside ? 0 : 1) || (adapters.size() == 1 && adapters[0].scale != 1)) return nullptr;
  std::string line = "vitrine";
  for (const std::string& word : words) line += " " + word;
  for (size_t i = 0; i < ids.size(); ++i) line += (i == 0 ? " --tokens " : ",") + std::to_string(ids[i]);
  line += " --model " + shell_word(service.engine().name());
  if (const std::string& options = service.options().command_options; !options.empty()) line += " " + options;
  if (!adapters.empty()) line += " --adapter " + shell_word(adapters[0].adapter->directory());
  return line;
}

OrderedJson trace_command(const Service& service, const std::vector<std::string>& hooks, const ScaledAdapters& adapters,
                          const std::vector<int32_t>& ids) {
  std::vector<std::string> words = {"trace"};
  for (const std::string& hook : hooks) words.insert(words.end(), {"--hooks", shell_word(hook)});
  words.insert(words.end(), {"--out", "trace.safetensors"});
  return command_line(service, words, adapters, ids);
}

}  // namespace vitrine::serve
