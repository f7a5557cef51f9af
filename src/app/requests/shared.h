#pragma once
// What requests share: prompts, tokens, changes of the model, sampling, and parts of answers.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "intervene/intervene.h"
#include "intervene/recipe.h"
#include "picture/data/request.h"
#include "requests/request.h"
#include "runtime/logits.h"
#include "runtime/token_json.h"

namespace vitrine {

/// prompt (text or ids) or messages, and add_special.
const std::vector<Field>& prompt_fields();
/// Reads them; without PicturePrompt::pieces. Errors: RequestError naming the field; as Engine::prompt_ids and check_ids.
PicturePrompt read_prompt(const Host& host, Fields& fields);
/// The ids of a list of prompts, or of a single prompt. Errors: as read_prompt.
std::vector<std::vector<int32_t>> read_prompts(const Host& host, Fields& fields);

/// Ids of a request. Errors: RequestError naming the field for one outside the vocabulary.
std::vector<int32_t> token_ids(const Engine& engine, const std::vector<int64_t>& numbers, const std::string& field);
/// A token as a field: an id, a text that is one token, or a piece. Errors: RequestError naming the field.
std::optional<int32_t> token_field(const Fields& fields, const std::string& name, const Engine& engine);
/// As docs/intervene.md counts them: negative ones from the end. Errors: RequestError naming the field.
std::vector<int64_t> positions_field(const std::vector<int64_t>& given, size_t tokens, const std::string& field);
/// A number of most likely tokens.
Field top_field(const char* about, double most);

/// The list `edits`: interventions of a recipe.
Field edits_field();
/// Them, for a run of `ids`; nothing: null. To be called within Host::run. Errors: RequestError for what reads a file, for too
/// many places and prompts, and as refuse_head_numbers; InputError in the words of the recipe's reader.
std::unique_ptr<Interventions> planned_edits(Engine& engine, const OrderedJson* edits, const std::vector<int32_t>& ids);
/// A recipe in JSON. Errors: as planned_edits, about `name`.
Recipe checked_recipe(const OrderedJson& json, const std::string& name, int64_t n_heads);
/// Errors: RequestError for a head that is a JSON number and could mean two heads, 1.1 and 1.10.
void refuse_head_numbers(const OrderedJson& json, int64_t n_heads, const std::string& key = {});

/// A field for each of sampling_options(); with seed.
std::vector<Field> sampling_number_fields(), drawn_fields();
/// Reads the first ones. Errors: RequestError naming the field.
void read_sampling_numbers(const Fields& fields, SamplingOptions& sampling);
/// Reads both.
SamplingOptions read_drawn(const Fields& fields);

/// Of Host::command: `vitrine trace` of these hooks.
std::vector<std::string> trace_words(const std::vector<std::string>& hooks);
/// `vitrine predict --score` of these prompts.
std::vector<std::string> score_words(const Engine& engine, const std::vector<std::vector<int32_t>>& prompts);
/// `vitrine generate` with these options, without its prompt; none where the options have what has no flag: a constraint, or a
/// number of tokens before the end.
std::optional<std::vector<std::string>> generate_words(const Engine& engine, const GenerateOptions& options);

}  // namespace vitrine
