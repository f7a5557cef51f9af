#include "evaluate/compare.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/stopwatch.h"
#include "evaluate/score.h"
#include "hooks/hooks.h"
#include "hooks/listening.h"
#include "inspect/compare.h"
#include "inspect/stream_distance.h"

namespace vitrine {
namespace {

constexpr int64_t kContext = 512;  // every layer's stream of a window is kept

// What two rows of logits say of the token that follows.
struct TokenPair {
  double kl = 0, logprob_a = 0, logprob_b = 0;
  int64_t same_top = 0;  // 1: the same token is most likely; as wide as the others, so that no byte is undefined
};

size_t most_likely(std::span<const float> row) {
  return static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

TokenPair compare_token(std::span<const float> a, std::span<const float> b, int32_t label) {
  TokenPair pair;
  pair.kl = kl_divergence(a, b);
  pair.logprob_a = static_cast<double>(a[static_cast<size_t>(label)]) - log_sum_exp(a);
  pair.logprob_b = static_cast<double>(b[static_cast<size_t>(label)]) - log_sum_exp(b);
  pair.same_top = most_likely(a) == most_likely(b) ? 1 : 0;
  return pair;
}

// Hears the streams of the second model beside those that were recorded of the first.
class StreamDistances final : public Listener {
 public:
  StreamDistances(const Recorder& first, int64_t first_row, std::vector<StreamDistance>& distances)
      : first_(first), first_row_(first_row), distances_(distances) {}

  bool wants(std::string_view name) const override { return first_.values().contains(name); }
  Tensor see(Context&, std::string_view name, const Tensor& b) override {
    const FloatVector& a = first_.values().find(name)->second.values;  // of rows first_row_ and up
    if (distances_.size() <= point_) distances_.emplace_back();
    StreamDistance& distance = distances_[point_++];
    const auto width = static_cast<size_t>(b.row_size());
    for (int64_t r = first_row_; r < b.rows(); ++r)
      distance.add({a.data() + static_cast<size_t>(r - first_row_) * width, width}, {b.row<float>(r), width}, r);
    return {};
  }

 private:
  const Recorder& first_;
  int64_t first_row_;
  std::vector<StreamDistance>& distances_;
  size_t point_ = 0;
};

std::vector<HookRequest> stream_hooks(int64_t first_row) {
  std::vector<HookRequest> requests;
  for (const char* hook : {"blocks.0.hook_resid_pre", "blocks.*.hook_resid_post"}) {
    HookRequest& request = requests.emplace_back();
    request.glob = hook;
    request.positions.first = first_row;
  }
  return requests;
}

// What windows say: of every scored token, and of the streams.
struct Compared {
  std::vector<TokenPair> tokens;
  std::vector<StreamDistance> distances;

  void add(const Compared& window) {
    tokens.insert(tokens.end(), window.tokens.begin(), window.tokens.end());
    distances.resize(std::max(distances.size(), window.distances.size()));
    for (size_t i = 0; i < window.distances.size(); ++i) distances[i].add(window.distances[i]);
  }
};

// Runs a window through both models and keeps what its scored tokens say.
class Comparison {
 public:
  Comparison(Engine& a, Engine& b) : a_(a), b_(b) {}

  Compared made;

  void run(std::span<const int32_t> read, std::span<const int32_t> labels) {
    const auto frame_a = a_.context().frame(), frame_b = b_.context().frame();
    const Step step = Step::of(read), same_step = Step::of(read);
    const auto first_row = static_cast<int64_t>(read.size() - labels.size());
    Recorder recorder(stream_hooks(first_row));
    Tensor x_a, x_b;
    {
      const Listening listening(a_.context(), recorder);
      x_a = a_.model().residual(a_.context(), step);
    }
    {
      StreamDistances streams(recorder, first_row, made.distances);
      const Listening listening(b_.context(), streams);
      x_b = b_.model().residual(b_.context(), same_step);
    }
    for (int64_t row = first_row; row < step.rows(); row += kLogitRows) {
      std::vector<int64_t> rows(static_cast<size_t>(std::min(kLogitRows, step.rows() - row)));
      std::iota(rows.begin(), rows.end(), row);
      compare_rows(step, same_step, x_a, x_b, rows, labels.subspan(static_cast<size_t>(row - first_row), rows.size()));
    }
  }

 private:
  void compare_rows(const Step& step_a, const Step& step_b, const Tensor& x_a, const Tensor& x_b, std::span<const int64_t> rows,
                    std::span<const int32_t> labels) {
    const auto frame_a = a_.context().frame(), frame_b = b_.context().frame();
    const Tensor z_a = logits(a_.context(), x_a, a_.model().head(), rows);
    const Tensor z_b = logits(b_.context(), x_b, b_.model().head(), rows);
    if (first_not_finite(z_a) >= 0) a_.report_not_finite(step_a, rows);
    if (first_not_finite(z_b) >= 0) b_.report_not_finite(step_b, rows);
    const auto width = static_cast<size_t>(z_a.row_size());
    std::vector<TokenPair>& tokens = made.tokens;
    const size_t before = tokens.size();
    tokens.resize(before + rows.size());
    a_.context().pool().run(static_cast<int64_t>(rows.size()), [&](int64_t r, int) {
      const auto i = static_cast<size_t>(r);
      tokens[before + i] = compare_token({z_a.row<float>(r), width}, {z_b.row<float>(r), width}, labels[i]);
    });
  }

  Engine &a_, &b_;
};

template <class F>
MeanOfTokens mean_of(const std::vector<TokenPair>& tokens, F&& value) {
  const auto n = static_cast<double>(tokens.size());
  double sum = 0, squares = 0;
  for (const TokenPair& token : tokens) sum += value(token);
  const double mean = sum / n;
  for (const TokenPair& token : tokens) squares += (value(token) - mean) * (value(token) - mean);
  return {mean, n > 1 ? std::sqrt(squares / (n - 1) / n) : 0};
}

void sum_up(const Compared& comparison, TextComparison& result) {
  const std::vector<TokenPair>& tokens = comparison.tokens;
  if (tokens.empty()) throw InputError("the text has too few tokens to be compared on; give a longer one");
  const auto prob_difference = [](const TokenPair& t) { return std::exp(t.logprob_b) - std::exp(t.logprob_a); };
  result.tokens = static_cast<int64_t>(tokens.size());
  result.kl = mean_of(tokens, [](const TokenPair& t) { return t.kl; });
  result.same_top = mean_of(tokens, [](const TokenPair& t) { return static_cast<double>(t.same_top); });
  result.nll_a = mean_of(tokens, [](const TokenPair& t) { return -t.logprob_a; });
  result.nll_b = mean_of(tokens, [](const TokenPair& t) { return -t.logprob_b; });
  result.nll_difference = mean_of(tokens, [](const TokenPair& t) { return t.logprob_a - t.logprob_b; });
  result.prob_difference = mean_of(tokens, prob_difference);
  result.prob_difference_rms =
      std::sqrt(mean_of(tokens, [&](const TokenPair& t) { return prob_difference(t) * prob_difference(t); }).mean);
  for (const TokenPair& token : tokens) result.kl_sorted.push_back(static_cast<float>(token.kl));
  std::sort(result.kl_sorted.begin(), result.kl_sorted.end());
  for (size_t i = 0; i < comparison.distances.size(); ++i) {
    const StreamDistance& d = comparison.distances[i];
    result.layers.push_back({"embedding", {}, d.cosine(), d.relative(), d.largest()});
    if (i == 0) continue;
    result.layers.back().layer = static_cast<int64_t>(i) - 1;
    result.layers.back().point = "layer " + std::to_string(i - 1);
  }
}

void require_stream_memory(const Engine& a, int64_t context) {
  const ModelShape& shape = a.shape();
  const auto bytes = static_cast<size_t>((shape.n_layers + 1) * context * shape.d_model) * sizeof(float);
  require_memory(bytes, 0, "The streams of a window of " + std::to_string(context) + " tokens", "Give a smaller --context");
}

}  // namespace

double TextComparison::kl_quantile(double share) const {
  const auto at = static_cast<size_t>(share * static_cast<double>(kl_sorted.size() - 1) + 0.5);
  return static_cast<double>(kl_sorted[at]);
}

TextComparison compare_on_texts(Engine& a, Engine& b, std::span<const std::string> texts, WindowOptions options,
                                const EvaluationProgress& progress, SharedWork* shared) {
  SharedWork alone = SharedWork::alone();
  SharedWork& work = shared != nullptr ? *shared : alone;
  check_same_sizes(a, b);
  const int64_t model = a.shape().context_length;
  if (options.context == 0) options.context = model > 0 ? std::min(model, kContext) : kContext;
  TextComparison result;
  if (options.stride == 0 && options.like == Protocol::vitrine)  // side by side
    options.stride = options.context - (!options.no_special && a.tokenizer().adds_bos() ? 1 : 0);
  result.definition = define_windows(a, options);
  result.dtypes_a = weight_dtypes(a);
  result.dtypes_b = weight_dtypes(b);
  require_stream_memory(a, result.definition.context);

  size_t bytes = 0, done = 0;
  for (const std::string& text : texts) bytes += text.size();
  Compared all;
  const Stopwatch watch;
  for (const std::string& text : texts) {
    const std::vector<TokenPiece> ids = tokenize(a, result.definition, text);
    for (const TextWindow& w : windows_over(ids.size(), result.definition)) {
      std::vector<int32_t> read, labels;
      if (w.lead) read.push_back(*w.lead);
      for (size_t i = w.begin; i + 1 < w.end; ++i) read.push_back(ids[i].id);
      for (size_t i = w.first; i < w.end; ++i) labels.push_back(ids[i].id);
      for (Engine* engine : {&a, &b}) {
        engine->check_ids(read);
        for (const int32_t& label : labels) engine->check_ids(std::span(&label, 1));
      }
      ++result.windows;
      Compared window;
      const ScoredSequence sequence{read, labels};
      const bool here = work.unit(
          key_of(std::span(&sequence, 1)),
          [&] {
            Comparison comparison(a, b);
            comparison.run(read, labels);
            window = std::move(comparison.made);
          },
          [&](UnitBytes& bytes) {
            bytes.values(window.tokens, labels.size());
            bytes.values(window.distances, static_cast<size_t>(a.shape().n_layers) + 1);
          });
      if (here) result.timings.tokens_read += static_cast<int64_t>(read.size());
      if (here && work.gives_all()) all.add(window);
      result.timings.seconds = watch.ms() / 1000;
      if (progress)
        progress(static_cast<double>(done + ids[w.end - 1].end) / static_cast<double>(std::max<size_t>(bytes, 1)),
                 result.timings.tokens_per_s());
    }
    done += text.size();
  }
  if (!work.gives_all()) return result;
  sum_up(all, result);
  return result;
}

}  // namespace vitrine
