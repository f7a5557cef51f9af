// The rules are those of mergekit 0.1.5 (mergekit/tokenizer): github.com/arcee-ai/mergekit.
#include "merge/token_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <set>

#include "base/error.h"
#include "merge/input_vocabulary.h"

namespace vitrine {
namespace {

/// Names for the report: the first few, and how many there are.
class TokenNames {
 public:
  void add(std::string_view token) {
    if (++count_ <= kShown) names_ += fmt::format("{}\"{}\"", names_.empty() ? "" : ", ", token);
  }
  size_t count() const { return count_; }
  std::string text() const { return names_ + (count_ > kShown ? ", …" : ""); }

 private:
  static constexpr size_t kShown = 8;
  size_t count_ = 0;
  std::string names_;
};

std::string tokens_text(size_t n) { return n == 1 ? "1 token" : fmt::format("{} tokens", n); }

class TokenPlanner {
 public:
  TokenPlanner(const TokenizerRecipe& recipe, const std::vector<TokenizerInput>& inputs, std::optional<size_t> base,
               const TokenizerInput* other)
      : recipe_(recipe), inputs_(inputs), base_(base), first_(base.value_or(0)), other_(other) {}

  TokenPlan plan() {
    for (const TokenizerInput& input : inputs_) vocabularies_.push_back(read_input_vocabulary(input));
    require_vocabulary(vocabularies_[first_], inputs_[first_]);
    choose_source();
    list_tokens();
    plan_.files = changed_tokenizer(source_->files, *source_vocabulary_, end_, fresh_);
    count_rows();
    find_own_rows();
    find_defaults();
    return std::move(plan_);
  }

 private:
  size_t size() const { return plan_.tokens.size(); }
  std::string name(size_t input) const { return inputs_[input].model.text(); }
  template <class... Args>
  void report(fmt::format_string<Args...> format, Args&&... args) {
    plan_.report.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  /// An input without a tokenizer has the vocabulary of the base.
  const InputVocabulary& vocabulary(size_t input) const {
    return vocabularies_[input] ? *vocabularies_[input] : *vocabularies_[first_];
  }
  /// Rows of an input that tokens of its vocabulary may have.
  int64_t rows_of(size_t input) const {
    const int64_t rows = inputs_[input].vocab_size;
    return vocabularies_[input] ? rows : std::min(rows, inputs_[first_].vocab_size);
  }
  std::string all_names() const {
    std::vector<std::string> names;
    for (const TokenizerInput& input : inputs_) names.push_back(input.model.text());
    return fmt::format("{}", fmt::join(names, ", "));
  }
  size_t find_input(const ModelReference& model, const std::string& where, std::string_view what) const {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (inputs_[i].model == model) return i;
    throw UsageError(fmt::format("{}: {} {}, which is none of the models that are merged; expected one of {}", where, what,
                                 model.text(), all_names()));
  }
  static void require_vocabulary(const std::optional<InputVocabulary>& vocabulary, const TokenizerInput& input) {
    if (!vocabulary)
      throw FileError(input.model.path,
                      "holds no tokenizer, and the result's is made of it; expected tokenizer.json, tokenizer.model, or "
                      "vocab.json and merges.txt. Name another base model, or another source of the tokenizer");
  }

  void choose_source();
  void list_tokens();
  void append(AddedToken token);
  void add_other_vocabularies();
  void count_rows();
  void find_own_rows();
  void find_defaults();
  std::vector<std::pair<int, int64_t>> row_of_rule(const TokenRule& rule, size_t id, std::string& told) const;

  const TokenizerRecipe& recipe_;
  const std::vector<TokenizerInput>& inputs_;
  std::optional<size_t> base_;   // whose rows are preferred
  size_t first_;                 // whose tokenizer is the base's
  const TokenizerInput* other_;  // the source, if it is none of the inputs
  std::vector<std::optional<InputVocabulary>> vocabularies_;
  std::optional<InputVocabulary> other_vocabulary_;
  const TokenizerInput* source_ = nullptr;  // whose files become the result's
  const InputVocabulary* source_vocabulary_ = nullptr;
  int64_t end_ = 0;                // tokens of these files from here on are left out
  Vocabulary known_;               // the result's
  std::vector<AddedToken> fresh_;  // in the order of their ids, but for pieces that the source has
  TokenPlan plan_;
};

void TokenPlanner::choose_source() {
  source_ = &inputs_[first_];
  source_vocabulary_ = &*vocabularies_[first_];
  end_ = inputs_[first_].vocab_size;
  if (recipe_.source != TokenizerRecipe::Source::model) return;
  end_ = std::numeric_limits<int64_t>::max();
  if (other_ != nullptr) {
    other_vocabulary_ = read_input_vocabulary(*other_);
    require_vocabulary(other_vocabulary_, *other_);
    source_ = other_;
    source_vocabulary_ = &*other_vocabulary_;
    return;
  }
  const size_t input = find_input(recipe_.model, recipe_.where, "the tokenizer's source is");
  require_vocabulary(vocabularies_[input], inputs_[input]);
  source_ = &inputs_[input];
  source_vocabulary_ = &*vocabularies_[input];
}

void TokenPlanner::append(AddedToken token) {
  token.id = int32_t(size());
  known_.add(token.content, token.id);
  plan_.tokens.push_back(token.content);
  fresh_.push_back(std::move(token));
}

void TokenPlanner::list_tokens() {
  const Vocabulary& pieces = source_vocabulary_->pieces;
  TokenNames beyond;
  size_t holes = 0;
  for (int32_t id = 0; id < pieces.size(); ++id) {
    if (!pieces.has(id)) continue;
    if (id >= end_) {
      beyond.add(pieces.piece(id));
      continue;
    }
    holes += size_t(id) - size();
    plan_.tokens.resize(size_t(id));
    plan_.tokens.emplace_back(pieces.piece(id));
    known_.add(plan_.tokens.back(), id);
  }
  if (beyond.count() > 0)
    report("{}: {} without a row in its embedding of {}, left out: {}", source_->model.text(), tokens_text(beyond.count()), end_,
           beyond.text());
  if (holes > 0)
    report("{}: {} of its ids stand for no token; transformers may count the tokens behind them otherwise", source_->model.text(),
           holes);
  const size_t before = size();
  if (recipe_.source == TokenizerRecipe::Source::union_of_all) add_other_vocabularies();
  const size_t united = size();
  for (const auto& [token, rule] : recipe_.tokens) {
    if (token.empty()) throw UsageError(rule.where + ": a rule for the empty token; name the token that it is for");
    if (known_.find(token) < 0) append({.content = token, .normalized = true});
  }
  report("the tokenizer of {}, {}{}{}", source_->model.text(), tokens_text(before - holes),
         united > before ? fmt::format(", and {} of the others", united - before) : "",
         size() > united ? fmt::format(", and {} of the recipe", size() - united) : "");
}

void TokenPlanner::add_other_vocabularies() {
  std::vector<size_t> order = {first_};
  for (size_t i = 0; i < inputs_.size(); ++i)
    if (i != first_ && vocabularies_[i]) order.push_back(i);
  // A token that is an added one anywhere becomes one here, as the first of them declares it; the others are the pieces of
  // vocabularies, and come first.
  std::vector<const AddedToken*> added;
  std::set<std::string_view> contents, in_source;
  for (const size_t i : order)
    for (const AddedToken& token : vocabularies_[i]->added) {
      if (token.id >= inputs_[i].vocab_size) continue;
      if (contents.insert(token.content).second) added.push_back(&token);
      if (i == first_) in_source.insert(token.content);
    }
  for (const size_t i : order) {
    const Vocabulary& pieces = vocabularies_[i]->pieces;
    for (int32_t id = 0; id < pieces.size() && id < inputs_[i].vocab_size; ++id) {
      const std::string_view piece = pieces.piece(id);
      if (!piece.empty() && known_.find(piece) < 0 && !contents.contains(piece))
        append({.content = std::string(piece), .normalized = true});
    }
  }
  for (const AddedToken* token : added) {
    if (in_source.contains(token->content)) continue;
    if (const int32_t id = known_.find(token->content); id >= 0) {
      fresh_.push_back(*token);
      fresh_.back().id = id;
    } else {
      append(*token);
    }
  }
}

void TokenPlanner::count_rows() {
  plan_.rows = int64_t(size());
  constexpr int64_t kLargest = 1 << 20;
  if (recipe_.pad_to_multiple_of > kLargest)
    throw UsageError(
        fmt::format("{}: pad_to_multiple_of is {}; expected at most {}", recipe_.where, recipe_.pad_to_multiple_of, kLargest));
  if (const int64_t multiple = recipe_.pad_to_multiple_of; multiple > 0)
    plan_.rows = (plan_.rows + multiple - 1) / multiple * multiple;
  if (plan_.rows > int64_t(size()))
    report("{} rows, of which {} of padding have the mean of the others", plan_.rows, plan_.rows - int64_t(size()));
  const int64_t had = source_->vocab_size;
  if (source_ != other_ && had > plan_.rows)
    report("{}: the last {} of its {} rows stand for no token and are left out; pad_to_multiple_of pads the result",
           source_->model.text(), had - plan_.rows, had);
}

void TokenPlanner::find_own_rows() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const InputVocabulary& v = vocabulary(i);
    const bool same_ids = &v == source_vocabulary_;  // then what no token has stays where it is
    std::vector<int64_t> own(size(), -1);
    size_t has = 0, gives = 0, tokens = 0;
    TokenNames without;
    const Vocabulary& pieces = source_vocabulary_->pieces;
    for (size_t id = 0; id < size(); ++id) {
      const std::string& token = plan_.tokens[id];
      if (token.empty() && !pieces.has(int32_t(id))) {
        if (same_ids && int64_t(id) < rows_of(i)) own[id] = int64_t(id);
        continue;
      }
      ++tokens;
      const int32_t row = v.find(token, rows_of(i));
      own[id] = row;
      has += row >= 0;
      gives += row >= 0 && int32_t(id) >= std::min<int64_t>(pieces.size(), end_);
      if (row < 0 && v.pieces.find(token) >= 0) without.add(token);
    }
    report("{}: {} {} of the {}{}{}", name(i),
           vocabularies_[i] ? "has" : "has no tokenizer files, so the base's vocabulary:", has, tokens_text(tokens),
           has < tokens ? fmt::format(", lacks {}", tokens - has) : "",
           gives > 0 ? fmt::format(", has {} of the new ones", gives) : "");
    TokenNames left_out;
    for (int32_t id = 0; vocabularies_[i] && id < v.pieces.size() && id < rows_of(i); ++id)
      if (v.pieces.has(id) && known_.find(v.pieces.piece(id)) < 0) left_out.add(v.pieces.piece(id));
    if (left_out.count() > 0)
      report("{}: {} that the result does not have, left out: {}", name(i), tokens_text(left_out.count()), left_out.text());
    if (without.count() > 0)
      report("{}: {} beyond the {} rows of its embedding count as lacking: {}", name(i), tokens_text(without.count()),
             inputs_[i].vocab_size, without.text());
    plan_.own.push_back(std::move(own));
  }
}

std::vector<std::pair<int, int64_t>> TokenPlanner::row_of_rule(const TokenRule& rule, size_t id, std::string& told) const {
  const std::string& token = plan_.tokens[id];
  if (rule.kind == TokenRule::Kind::zero) {
    told = "zero";
    return {};
  }
  const size_t input = find_input(rule.model, rule.where, fmt::format("token \"{}\" takes its row from", token));
  const auto refuse = [&](const std::string& problem) {
    throw UsageError(fmt::format("{}: token \"{}\" takes its row from {}, {}", rule.where, token, name(input), problem));
  };
  int64_t row = -1;
  if (rule.kind == TokenRule::Kind::model) {
    row = plan_.own[input][id];
    if (row < 0) refuse("which lacks it; name a model that has it, or another token of this one (kind: model_token)");
    told = fmt::format("the row of {}", name(input));
  } else if (rule.token) {
    row = vocabulary(input).find(*rule.token, rows_of(input));
    if (row < 0) refuse(fmt::format("which has no token \"{}\"; expected one of its vocabulary", *rule.token));
    told = fmt::format("the row of \"{}\" of {}", *rule.token, name(input));
  } else {
    row = rule.token_id.value_or(-1);
    const int64_t rows = inputs_[input].vocab_size;
    if (row < 0 || row >= rows) refuse(fmt::format("token_id {}; expected 0 to {}", row, rows - 1));
    told = fmt::format("row {} of {}", row, name(input));
  }
  return {{int(input), row}};
}

void TokenPlanner::find_defaults() {
  plan_.defaults.resize(size());
  std::map<std::string_view, const TokenRule*> rules;
  for (const auto& [token, rule] : recipe_.tokens) rules.emplace(token, &rule);
  TokenNames averaged, zero;
  std::vector<std::pair<int, int64_t>> owners;
  for (size_t id = 0; id < size(); ++id) {
    const std::string& token = plan_.tokens[id];
    owners.clear();
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (const int64_t row = plan_.own[i][id]; row >= 0) owners.emplace_back(int(i), row);
    const auto found = rules.empty() ? rules.end() : rules.find(token);
    const TokenRule* const rule = found == rules.end() ? nullptr : found->second;
    const bool needed = owners.size() < inputs_.size() || (rule != nullptr && rule->force);
    if (!needed) {
      if (rule != nullptr)
        report("\"{}\": every model has it, so its rule changes nothing; force: true would give all of them its row", token);
      continue;
    }
    std::vector<std::pair<int, int64_t>>& row = plan_.defaults[id];
    if (rule != nullptr && rule->kind != TokenRule::Kind::none) {
      std::string told;
      row = row_of_rule(*rule, id, told);
      report("\"{}\": {} for {}", token, told, rule->force ? "every model" : "the models that lack it");
    } else if (base_ && plan_.own[*base_][id] >= 0) {
      row = {{int(*base_), plan_.own[*base_][id]}};
    } else {
      row = owners;
      if (owners.empty()) zero.add(token);
      if (owners.size() > 1) averaged.add(token);
    }
    if (rule != nullptr && rule->force)
      for (std::vector<int64_t>& own : plan_.own) own[id] = -1;
  }
  if (averaged.count() > 0)
    report("{}: the mean of the models that have them for those that lack them: {}", tokens_text(averaged.count()),
           averaged.text());
  if (zero.count() > 0) report("{} in no model, so zero: {}", tokens_text(zero.count()), zero.text());
}

}  // namespace

TokenPlan plan_tokens(const TokenizerRecipe& recipe, const std::vector<TokenizerInput>& inputs, std::optional<size_t> base,
                      const TokenizerInput* other) {
  VITRINE_CHECK(!inputs.empty() && base.value_or(0) < inputs.size(), "a merge has inputs, and the base is one of them");
  return TokenPlanner(recipe, inputs, base, other).plan();
}

}  // namespace vitrine
