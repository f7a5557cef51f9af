#include "cli/sae_flags.h"

#include <cstdint>
#include <utility>

#include "base/error.h"
#include "cli/options.h"
#include "inspect/features.h"
#include "sae/circuit_tracer.h"
#include "sae/cross_layer_splice.h"
#include "sae/sae_file.h"
#include "sae/splice.h"

namespace vitrine::cli {

void SaeFlags::check(int64_t beams) const {
  if (directory.empty() && !edits.empty()) throw UsageError("--steer needs --sae, the autoencoder whose features it changes.");
  if (directory.empty() && !hook.empty()) throw UsageError("--sae-hook needs --sae.");
  if (directory.empty()) return;
  if (edits.empty()) throw UsageError("--sae needs --steer: without a change the autoencoder changes no token.");
  if (beams > 1) throw UsageError("--sae changes one sequence; --beams runs several.");
}

std::unique_ptr<Listener> SaeFlags::open(const Engine& engine) const {
  if (directory.empty()) return nullptr;
  if (is_cross_layer(directory)) {
    if (!hook.empty())
      throw UsageError(
          "--sae-hook: a cross-layer transcoder reads at every layer; its config.yaml defines "
          "the hooks.");
    std::vector<LayerFeatureEdit> wanted;
    for (const std::string& edit : edits) wanted.push_back(parse_layer_feature_edit(edit));
    const auto transcoder = std::make_shared<const CrossLayerTranscoder>(read_cross_layer(directory));
    check_fits(engine, *transcoder);
    return std::make_unique<CrossLayerSplice>(transcoder, wanted);
  }
  Splice splice;
  for (const std::string& edit : edits) splice.edits.push_back(parse_feature_edit(edit));
  auto sae = std::make_shared<SparseAutoencoder>(read_sae(directory, hook));
  check_fits(engine, *sae);
  splice.sae = std::move(sae);
  return std::make_unique<SpliceListener>(std::vector<Splice>{std::move(splice)});
}

void add_sae_flags(CLI::App& app, SaeFlags& flags) {
  app.add_option("--sae", flags.directory, "A sparse autoencoder or transcoder whose features --steer changes during generation")
      ->type_name("DIR")
      ->check(not_empty());
  app.add_option("--sae-hook", flags.hook, "The hook it reads, instead of the one in its files")
      ->type_name("HOOK")
      ->check(not_empty());
  app.add_option("--steer", flags.edits,
                 "At every position: FEATURE=VALUE sets (12=0 ablates), FEATURE+=VALUE adds, FEATURE*=VALUE multiplies; "
                 "LAYER:FEATURE=VALUE of a cross-layer transcoder. The reconstruction error is unchanged. May be repeated")
      ->type_name("EDIT")
      ->expected(1)
      ->take_all()
      ->check(not_empty());
}

}  // namespace vitrine::cli
