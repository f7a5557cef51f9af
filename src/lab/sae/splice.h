#pragma once
// An autoencoder in a model's run: features of the value at its hook are changed, and the value that they make flows on.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/context.h"
#include "sae/autoencoder.h"

namespace vitrine {

/// One feature changed, at every position or some.
struct FeatureEdit {
  enum class Kind : uint8_t { set, add, scale };
  int32_t feature = 0;
  Kind kind = Kind::set;
  float value = 0;
  int64_t first = 0, end = std::numeric_limits<int64_t>::max();  // positions of the sequence, half-open
};

/// "FEATURE=VALUE" sets, "FEATURE+=VALUE" adds, "FEATURE*=VALUE" multiplies. Errors: InputError that quotes `text`.
FeatureEdit parse_feature_edit(std::string_view text);

/// Errors: InputError for a feature that the autoencoder does not have; `where` begins the message.
void check_edits(const SparseAutoencoder& sae, const std::vector<FeatureEdit>& edits, const std::string& where);

/// The features after the edits, in their order; `position` is that of the first row in its sequence.
SparseFeatures edited(const SparseFeatures& features, const std::vector<FeatureEdit>& edits, int64_t position);

/// y [rows, d_out] += what `now` makes more than `before`, of which the norms of the rows are.
void add_difference(const SparseAutoencoder& sae, const SparseFeatures& now, const SparseFeatures& before, float* y);

struct Splice {
  std::shared_ptr<const SparseAutoencoder> sae;
  std::vector<FeatureEdit> edits;
  /// What the autoencoder does not explain, value - decode(encode(value)), is added to what the edited features make: without
  /// edits nothing changes. false: the value is what the features make.
  bool keep_error = true;
};

/// What flows on from the place where the autoencoder writes.
///
/// input    [rows, d_in] at hook_name (may have more sizes: heads are joined); `position` as in edited()
/// value    [rows, d_out] at hook_name_out; the same tensor unless it is a transcoder
/// returns  a tensor of value's shape; `kept`, if given, gets the features after the edits
///
/// On a tape gradients flow through encoder and decoder, features that are active passing them; the error is a constant, as in
/// SAELens. The autoencoder must outlive the tape. Errors: ShapeError for values of another width; UsageError for f64, and for a
/// tape with an InputNorm.
Tensor spliced(Context& ctx, const Splice& splice, const Tensor& input, const Tensor& value, int64_t position,
               SparseFeatures* kept = nullptr);

/// Splices several autoencoders into one run, each at its own hook. Their features of the run are kept if asked for: those of the
/// rows of all steps, in order.
class SpliceListener final : public Listener {
 public:
  explicit SpliceListener(std::vector<Splice> splices, bool keep_features = false);

  bool wants(std::string_view name) const override;
  Tensor see(Context& ctx, std::string_view name, const Tensor& value) override;

  /// Of splice `i`.
  const SparseFeatures& features(size_t i) const { return states_[i].kept; }

 private:
  struct State {
    Splice splice;
    SparseFeatures kept;
    std::vector<float> input;  // of a transcoder, until its output is reached
    Tensor on_tape;            // the same with a tape, which keeps it
    int64_t rows = 0;
  };
  std::vector<State> states_;
  bool keep_;
};

}  // namespace vitrine
