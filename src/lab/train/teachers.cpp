#include "train/teachers.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "model/fingerprint.h"
#include "runtime/model_tokenizer.h"
#include "train/continuation.h"
#include "train/data/prepare.h"

namespace vitrine {
namespace {

constexpr const char* kSameTokens =
    "; the predictions of two models can be compared only over the same tokens. Take a model of the same vocabulary, or train a "
    "student with that one's tokenizer and vocab_size on data that was prepared with it";

void check_pieces(const Tokenizer& other, const Engine& learner, const DataMix& data, const std::string& where) {
  if (!learner.has_tokenizer()) {
    if (tokenizer_fingerprint(other) != data.parts()[0].data.tokenizer())
      throw InputError(where + " has another tokenizer than the one that made " + data.path() + kSameTokens);
    return;
  }
  const Tokenizer& own = learner.tokenizer();
  if (const std::optional<int32_t> id = first_other_piece(own, other))
    throw InputError(where + " has another vocabulary than the model that learns: token " + std::to_string(*id) + " is \"" +
                     other.piece(*id) + "\" there and \"" + own.piece(*id) + "\" here" + kSameTokens);
}

}  // namespace

const Model& Teachers::open(std::unique_ptr<Engine>& to, const std::string& name, const char* key, const DataMix& data) {
  // Opened for its weights and its tokenizer; it runs in the learner's context, on the learner's threads.
  to = std::make_unique<Engine>(name, EngineOptions{.threads = 1});
  const std::string where = config_.path + ": " + key + ": " + name;
  const ModelShape theirs = to->shape(), own = learner_.engine().shape();
  if (theirs.vocab_size != own.vocab_size)
    throw InputError(where + " has a vocabulary of " + std::to_string(theirs.vocab_size) +
                     " tokens, the model that learns one of " + std::to_string(own.vocab_size) + kSameTokens);
  if (to->has_tokenizer()) check_pieces(to->tokenizer(), learner_.engine(), data, where);
  if (theirs.context_length > 0 && config_.sequence_length > theirs.context_length)
    throw InputError(where + " has a context of " + std::to_string(theirs.context_length) + " tokens, and sequence_length is " +
                     std::to_string(config_.sequence_length) + ". Lower it, or take another model");
  return to->model();
}

Teachers::Teachers(const TrainConfig& config, Learner& learner, const DataMix& data) : config_(config), learner_(learner) {
  std::vector<TeacherSpec> teachers;
  double cross_entropy = 1;
  if (config.distill) {
    const DistillOptions& d = *config.distill;
    const Model& model = open(teacher_, d.teacher, "distill.teacher", data);
    // The gradient of the divergence shrinks with 1 / temperature², which the factor undoes: arXiv:1503.02531 section 2.
    teachers.push_back({"kl", &model, d.spec, (1 - d.alpha) * d.spec.temperature * d.spec.temperature, !d.cache.empty()});
    cross_entropy = d.alpha;
    if (!d.cache.empty()) {
      const std::string where = config.path + ": distill.cache";
      if (learner.comm().size() > 1)
        throw InputError(where + " is written by one process, and " + std::to_string(learner.comm().size()) +
                         " train together. Leave it out");
      const int64_t vocab = learner.engine().shape().vocab_size;
      if (d.top_k > vocab)
        throw InputError(where + ".top_k is " + std::to_string(d.top_k) + "; the vocabulary has " + std::to_string(vocab) +
                         " tokens");
      Json identity = {{"teacher", hexadecimal(fingerprint_of(teacher_->opened()))},
                       {"data", hexadecimal(data.checksum())},
                       {"data_tokens", data.tokens()},
                       {"documents", config.documents},
                       {"seed", config.seed},
                       {"temperature", d.spec.temperature},
                       {"compute", config.bf16 ? "bf16" : "f32"}};
      if (data.parts().size() > 1) identity["data_weights"] = data.weights_text();
      cache_ = std::make_unique<TargetCache>(d.cache, identity, config.sequence_length, d.top_k, where);
    }
  }
  if (!config.kl_to.empty()) {
    const bool ema = config.kl_to == "ema";
    teachers.push_back({"kl_to",
                        ema ? &learner.ema()->model() : &open(anchor_, config.kl_to, "kl_to", data),
                        {.kind = DivergenceSpec::Kind::reverse_kl, .beta = 0.5, .temperature = 1},
                        config.kl_weight,
                        false});
  }
  for (const TeacherSpec& teacher : teachers) names_.push_back(teacher.name);
  learner.set_teachers(std::move(teachers), cross_entropy);
}

// Rows of the batch's sequences, which are number `first` and those that follow, from the cache; or computed and stored.
void Teachers::add_targets(Batch& batch, uint64_t first) {
  const auto rows = static_cast<size_t>(config_.sequence_length);
  const size_t sequences = batch.tokens.size() / rows;
  size_t found = 0;
  while (found < sequences && cache_->read(first + found, batch.teacher)) ++found;
  if (found == sequences) return;
  Context& ctx = learner_.engine().context();
  TopTokens& all = batch.teacher = {};
  for (const Batch& part : parts_of(batch, learner_.pass_rows())) {
    const auto frame = ctx.frame();
    const Step step = learner_.step_of(part);
    const Tensor x = teacher_->model().residual(ctx, step);
    if (const int64_t bad = first_not_finite(x); bad >= 0)
      throw RunError(config_.path + ": distill.teacher: " + config_.distill->teacher + " gives NaN or infinity at row " +
                     std::to_string(part.first_row - batch.first_row + static_cast<uint64_t>(bad)) +
                     " of a batch. Do its weights hold NaN? `vitrine verify` shows more");
    const TopTokens top = top_tokens(ctx, x, teacher_->model().head(), config_.distill->top_k, config_.distill->spec.temperature);
    all.k = top.k;
    all.tokens.insert(all.tokens.end(), top.tokens.begin(), top.tokens.end());
    all.logprobs.insert(all.logprobs.end(), top.logprobs.begin(), top.logprobs.end());
  }
  for (size_t s = 0; s < sequences; ++s) cache_->write(first + s, all, s * rows);
}

Batch Teachers::next(MixedSource& source, uint64_t number) {
  const DataPosition at = source.position();
  Batch batch = source.next();
  if (!config_.distill) return batch;
  const DistillOptions& d = *config_.distill;
  if (d.on_policy > 0 && static_cast<double>(uniform_from(philox(config_.seed, number, 0x6f70)[0])) < d.on_policy)
    return continued_by(learner_.engine(), batch, d, config_.seed, number);
  if (cache_ != nullptr) add_targets(batch, at.epoch * source.windows_per_epoch() + at.next);
  return batch;
}

void Teachers::describe(const StepReport& report, std::span<const Batch> batches, nlohmann::ordered_json& line) const {
  if (report.cross_entropy) line["ce"] = *report.cross_entropy;
  for (size_t i = 0; i < names_.size(); ++i) line[names_[i]] = report.divergences[i];
  if (!config_.distill || config_.distill->on_policy == 0) return;
  const auto sampled = std::count_if(batches.begin(), batches.end(), [](const Batch& batch) { return batch.sampled; });
  line["on_policy"] = static_cast<double>(sampled) / static_cast<double>(batches.size());
}

uint64_t Teachers::fingerprint() const {
  return (teacher_ ? fingerprint_of(teacher_->opened()) : 0) + 31 * (anchor_ ? fingerprint_of(anchor_->opened()) : 0);
}

void Teachers::check_space(uint64_t batches) const {
  if (cache_ == nullptr) return;
  const double stored = static_cast<double>(batches) * (1 - config_.distill->on_policy);  // sampled batches are not
  cache_->check_space(static_cast<uint64_t>(std::ceil(stored)) * static_cast<uint64_t>(config_.batch));
}

}  // namespace vitrine
