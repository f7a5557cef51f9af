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

void SaeFlags::check(int64_t beams, bool recipe) const {
  if (directory.empty() && !edits.empty()) throw UsageError("--steer needs --sae, the autoencoder whose features it changes.");
  if (directory.empty() && !hook.empty()) throw UsageError("--sae-hook needs --sae.");
  if (directory.empty()) return;
  if (recipe && !edits.empty())
    throw UsageError("--steer and --edits: put the features into the recipe (hook: HOOK.hook_sae_acts_post, features: [12=0]).");
  if (recipe && is_cross_layer(directory))
    throw UsageError("--edits and --sae: a cross-layer transcoder's features are changed by --steer alone.");
  if (edits.empty() && !recipe)
    throw UsageError(
        "--sae needs --steer, or --edits that name its features: without a change the autoencoder changes no token.");
  if (beams > 1) throw UsageError("--sae changes one sequence; --beams runs several.");
}

std::unique_ptr<Listener> SaeFlags::open(const Engine& engine) const {
  if (edits.empty()) return nullptr;
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
  app.add_option(
         "--sae", flags.directory,
         "A sparse autoencoder or transcoder whose features --steer changes during generation, or the hooks of --edits name")
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

void add_sae_option(CLI::App& app, std::vector<SaeFile>& saes) {
  app.add_option_function<std::vector<std::string>>(
         "--sae",
         [&saes](const std::vector<std::string>& words) {
           for (const std::string& word : words) {
             const size_t equals = word.find('=');
             if (equals == std::string::npos)
               saes.push_back({word, ""});
             else
               saes.push_back({word.substr(equals + 1), word.substr(0, equals)});
             if (saes.back().path.empty())
               throw UsageError("--sae is " + word + "; expected the directory of an autoencoder, or HOOK=DIR.");
           }
         },
         "The directory of a sparse autoencoder or transcoder whose features are hooks, such as "
         "blocks.3.hook_resid_post.hook_sae_acts_post; the result is unchanged until one of them is. HOOK=DIR: at that hook, "
         "instead of the one in its files. May be repeated")
      ->type_name("[HOOK=]DIR")
      ->expected(1)
      ->take_all()
      ->check(not_empty());
}

}  // namespace vitrine::cli
