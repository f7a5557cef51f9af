#pragma once
// Causal depthwise convolution along each sequence, with the cache.
#include <string_view>

#include "kernels/types.h"
#include "ops/context.h"
#include "ops/step.h"
#include "ops/weight.h"

namespace vitrine {

/// Each channel's inputs at a position and just before it, weighed:
///   y[t, c] = f(bias[c] + sum over k < K of w[c, k] · x[t - K + 1 + k, c]),   x before the sequence's first position being 0.
///
/// x     [rows, channels]
/// w     [channels, K] row by row: its size says K, the kernel size
/// bias  [channels], or empty
/// step  where each sequence's rows begin, their positions, and its cached inputs of `layer`, which x extends (they count once
///       step.commit is called); the cache keeps CacheLayer::of_rows(K, channels) of that layer, or, where state_at is not
///       negative, the last K - 1 inputs from that number on in the layer's state, so that a long step takes no more room
/// returns  y [rows, channels]
///
/// Sums run over the channel's bias and k = 0, 1, … in order: a row's bits depend neither on the cache, the chunking nor the
/// other rows. Hook point under `name`, where f is not none: hook_pre, what f acts on.
/// Backward: x, w, bias. Not defined with a cache.
/// Errors: ShapeError naming the sizes that disagree; UsageError for a tape or f64 together with a cache.
/// Sources: arXiv:2312.00752 (before a state space model), 2412.06464 (before a delta rule), 2511.23404 (between two gates).
Tensor causal_conv(Context& ctx, std::string_view name, const Tensor& x, const Vector& w, const Vector& bias, const Step& step,
                   int layer, Activation f = Activation::none, int64_t state_at = -1);

}  // namespace vitrine
