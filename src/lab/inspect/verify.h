#pragma once
// Numerics against a reference implementation's numbers, per layer and per quantity.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "runtime/engine.h"

namespace vitrine {

/// One hook over all sequences of the reference.
struct VerifiedQuantity {
  std::string quantity;  // what a person calls it: "logits", "logits through the cache", "residual", "pattern", or the hook
  std::string hook;      // in full
  std::optional<int64_t> layer;
  int64_t sequences = 0, numbers = 0;
  double max_abs = 0, mean_abs = 0;  // of ours - reference
  double relative = 0;               // |ours - reference| / |reference|, Euclidean, over all numbers
  double cosine = 1;
  // Of logits only:
  std::optional<double> kl_mean, kl_max;  // KL(reference || ours) per position, in nats
  std::optional<double> top1_agreement;   // share of positions whose most likely token is the same
  /// The number furthest outside what is allowed, or nearest to it.
  struct Worst {
    double share_of_tolerance = 0;  // |difference| / (abs + rel |reference|): within the tolerance up to 1
    std::string at;                 // "short, sequence 0, [3, 7]"
    double ours = 0, reference = 0;

    VITRINE_MEMBERS(share_of_tolerance, at, ours, reference);
  };
  Worst worst;
  bool held = true;

  std::string name() const { return layer ? quantity + " " + std::to_string(*layer) : quantity; }
  VITRINE_MEMBERS(quantity, hook, layer, sequences, numbers, max_abs, mean_abs, relative, cosine, worst, held, kl_mean, kl_max,
                  top1_agreement);
};

struct VerifyReport {
  std::string model, reference;
  std::string kernels;              // the target's name
  std::vector<std::string> dtypes;  // of the stored weights
  bool f32 = false, exact = false;  // numerics the engine ran with
  int threads = 0;
  double tolerance_abs = 2e-5, tolerance_rel = 1e-4;
  std::string tolerance_from;  // why: the general one, or three times the reference's own distance from float64
  int64_t sequences = 0, tokens = 0;
  std::vector<VerifiedQuantity> quantities;  // in the order of the run
  std::vector<std::string> not_compared;     // tensors of the reference that are not hooks of this family
  bool held = true;                          // every quantity
  std::string note;                          // empty, or why a miss is no surprise (16-bit arithmetic was asked for)
};

/// Compares the engine with reference numbers at `reference`:
///
/// - a folder with forward.safetensors and prompts.json or golden.json (or its parent, where that folder is "golden"):
///   "<prompt>/logits", "/hidden.i", "/attn.i", "/resid_final"; rows that a prompt's attention mask leaves out are not
///   compared;
/// - a safetensors file, or a folder of them, as `trace` writes it or any script can: tensors by hook name or alias,
///   "<hook>#<i>" for several sequences, and the tokens as metadata "tokens" ("2,651;2,1175") or as an integer tensor
///   "tokens" [position] or "tokens#<i>".
///
/// Each sequence runs at once as it does in `predict` (fused attention), again with every intermediate computed where one
/// asks for them, and the logits once more through the cache, one token at a time.
/// Errors: FileError for a reference that holds nothing to compare, no tokens, or shapes that do not fit the model.
VerifyReport verify(Engine& engine, const std::string& reference);

/// "agrees", or "differs: first at …" with the first quantity, in the order of the run, beyond the tolerance, the place where it
/// is furthest, and how many are beyond.
std::string verdict(const VerifyReport& report);

Json to_json(const VerifyReport& report);

}  // namespace vitrine
