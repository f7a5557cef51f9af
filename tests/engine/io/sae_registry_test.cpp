#include "io/sae_registry.h"

#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

class SaeRegistry : public testing::Test {
 protected:
  SaeRegistry() {
    scratch.write("saes.yaml", R"(
small-res:
  repo_id: ada/small-saes
  model: gpt2
  conversion_func:
  config_overrides: {model_from_pretrained_kwargs: {center_writing_weights: true}}
  saes:
    - {id: blocks.0.hook_resid_pre, path: layer_0, l0: 10.0}
    - {id: blocks.11.hook_resid_pre, path: layer_11, l0: 10.0, neuronpedia: gpt2-small/11}
small-scope:
  repo_id: ada/scope
  model: gemma
  conversion_func: gemma_2
  saes:
    - {id: layer_3/width_16k, path: layer_3/width_16k}
small-scaled:
  repo_id: ada/scaled
  model: gemma
  config_overrides: {dataset_path: text}
  saes:
    - {id: one, path: "1", norm_scaling_factor: 1.5}
small-renormalized:
  repo_id: ada/renormalized
  model: gemma
  config_overrides: {normalize_activations: constant_norm_rescale}
  saes:
    - {id: one, path: one}
small-other:
  repo_id: ada/other
  model: llama
  conversion_func: llama_scope
  saes:
    - {id: l0r, path: L0R}
)");
  }
  std::string message(const std::string& release, const std::string& id) const {
    return message_of<InputError>([&] { registered_sae(scratch / "saes.yaml", release, id); });
  }
  Scratch scratch;
};

TEST_F(SaeRegistry, GivesTheNameToPull) {
  const RegisteredSae one = registered_sae(scratch / "saes.yaml", "small-res", "blocks.11.hook_resid_pre");
  EXPECT_EQ(one.name, "ada/small-saes:layer_11");
  EXPECT_TRUE(one.centered);
  const RegisteredSae other = registered_sae(scratch / "saes.yaml", "small-scope", "layer_3/width_16k");
  EXPECT_EQ(other.name, "ada/scope:layer_3/width_16k");
  EXPECT_FALSE(other.centered);
}

TEST_F(SaeRegistry, NamesTheNearest) {
  EXPECT_EQ(message("smal-res", "blocks.0.hook_resid_pre"),
            "release \"smal-res\" is not in " + scratch / "saes.yaml" + ", which has 5; the nearest name is \"small-res\"");
  EXPECT_EQ(
      message("small-res", "blocks.1.hook_resid_pre"),
      "release \"small-res\" has no id \"blocks.1.hook_resid_pre\" among its 2; the nearest is \"blocks.0.hook_resid_pre\"");
}

TEST_F(SaeRegistry, RefusesWhatTheFilesAloneDoNotGive) {
  const std::string advice =
      ". SAELens can write it as the files that are read here: SAE.from_pretrained(release, sae_id).save_model(FOLDER)";
  EXPECT_EQ(message("small-other", "l0r"),
            "\"small-other:l0r\" has files in the form that SAELens names llama_scope, which is not supported" + advice);
  EXPECT_EQ(message("small-scaled", "one"),
            "\"small-scaled:one\" is scaled by norm_scaling_factor, which is in the registry and not in its files" + advice);
  EXPECT_EQ(message("small-renormalized", "one"),
            "\"small-renormalized:one\" has another normalize_activations in the registry than in its files" + advice);
}

TEST_F(SaeRegistry, SaysWhatIsNoRegistry) {
  scratch.write("list.yaml", "[1, 2]\n");
  scratch.write("empty.yaml", "small: {repo_id: ada/small}\n");
  EXPECT_NE(message_of([&] { registered_sae(scratch / "list.yaml", "a", "b"); }).find("expected the releases of SAELens's"),
            std::string::npos);
  EXPECT_NE(message_of([&] { registered_sae(scratch / "empty.yaml", "small", "b"); }).find("the release's autoencoders"),
            std::string::npos);
}

}  // namespace
}  // namespace vitrine
