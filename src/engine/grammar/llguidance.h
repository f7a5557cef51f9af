#pragma once
// The functions of llguidance's C interface that we use (its version stands in library/Cargo.toml). Strings end with NUL and are
// UTF-8. A matcher is used by one thread at a time.
#include <cstddef>
#include <cstdint>

extern "C" {

struct LlgTokenizer;
struct LlgMatcher;

struct LlgTokenizerInitV2 {
  size_t struct_size;  // sizeof(LlgTokenizerInitV2)
  uint32_t vocab_size;
  uint32_t tok_eos;            // 0xFFFFFFFF: none
  const uint32_t* token_lens;  // [vocab_size]
  const uint8_t* token_bytes;  // of all tokens, one behind the other
  const char* tokenizer_json;  // null: the two above are given
  bool tokenize_assumes_string;
  size_t (*tokenize_fn)(const void*, const uint8_t*, size_t, uint32_t*, size_t);
  bool use_approximate_greedy_tokenize_fn;  // true: tokenize_fn may be null, and no text is forced upon the model in its tokens
  const void* tokenize_user_data;
  const char* const* slices;  // null: the library's own
  const uint32_t* tok_eos_extra;
  uint32_t tok_eos_extra_count;
};

struct LlgParserLimits {
  size_t max_items_in_row;
  uint64_t initial_lexer_fuel;
  uint64_t step_lexer_fuel;
  size_t step_max_items;
  size_t max_lexer_states;
  size_t max_grammar_size;
  bool precompute_large_lexemes;
  bool verbose_errors;
};

struct LlgConstraintInit {
  const LlgTokenizer* tokenizer;
  uint32_t log_buffer_level;
  uint32_t log_stderr_level;
  bool ff_tokens_ok;
  bool backtrack_ok;
  LlgParserLimits limits;
};

/// Null on failure, with the reason in error_string.
LlgTokenizer* llg_new_tokenizer_v2(const LlgTokenizerInitV2* init, char* error_string, size_t error_string_len);
void llg_free_tokenizer(LlgTokenizer* tokenizer);

/// Never null; what went wrong says llg_matcher_get_error. constraint_type: "json_schema", "regex" or "lark".
LlgMatcher* llg_new_matcher(const LlgConstraintInit* init, const char* constraint_type, const char* data);
LlgMatcher* llg_clone_matcher(const LlgMatcher* matcher);
void llg_free_matcher(LlgMatcher* matcher);

/// Null: none. Else the reason of the first failure, after which every call fails.
const char* llg_matcher_get_error(LlgMatcher* matcher);

/// These two: 0, or -1 on failure. mask_byte_len: one bit for each token, in whole words of 32.
int32_t llg_matcher_compute_mask_into(LlgMatcher* matcher, uint32_t* mask, size_t mask_byte_len);
int32_t llg_matcher_consume_token(LlgMatcher* matcher, uint32_t token);

bool llg_matcher_is_accepting(LlgMatcher* matcher);      // the text is complete
bool llg_matcher_is_stopped(const LlgMatcher* matcher);  // nothing may follow, or it failed
}
