#pragma once
// kl_divergence (runtime/logits.h) from one row of logits to several.
#include <span>
#include <vector>

namespace vitrine {

/// Keeps what the divergence takes of p, so that a row of the size of a vocabulary costs no exponentials but its own sum.
class KlFrom {
 public:
  explicit KlFrom(std::span<const float> p);
  /// kl_divergence(p, q); q_log_sum_exp is that of q.
  double to(std::span<const float> q, double q_log_sum_exp) const;

 private:
  std::vector<double> log_p_, p_;
};

}  // namespace vitrine
