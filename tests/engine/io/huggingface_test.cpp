#include "io/huggingface.h"

#include <cstdlib>

#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

TEST(ModelFiles, OfEveryGoldenModel) {
  for (const std::string& name : Golden::all()) {
    const std::string model = Golden::open(name).model();
    const ModelFiles files = resolve_model(model);
    EXPECT_EQ(files.kind, ModelFiles::Kind::huggingface);
    EXPECT_EQ(files.directory, model);
    EXPECT_EQ(files.weights, model);
    EXPECT_EQ(files.config_path, model + "/config.json");
    EXPECT_TRUE(files.config.contains("model_type")) << name;
    EXPECT_EQ(files.generation_config.is_null(), name.starts_with("classic"));
    EXPECT_GT(open_weights(files).tensors().size(), 10u);
  }
}

/// A cache as huggingface_hub lays it out: snapshots are folders of links to blobs.
class HubCache : public testing::Test {
 protected:
  HubCache() {
    const std::string model = Golden::open("gemma").model();
    for (const std::string file : {"config.json", "generation_config.json", "model.safetensors"}) {
      std::filesystem::create_directories(folder() + "/blobs");
      std::filesystem::copy(model + "/" + file, folder() + "/blobs/" + file + ".hash");
      cache.link(kFolder + "/snapshots/abc123/" + file, "../../blobs/" + file + ".hash");
    }
    cache.write(kFolder + "/refs/main", "abc123");
  }
  std::string folder() const { return cache / kFolder; }
  std::string message() const {
    return message_of([&] { resolve_model("google/gemma-2b", cache.path()); });
  }
  const std::string kFolder = "models--google--gemma-2b";
  Scratch cache;
};

TEST_F(HubCache, ResolvesAnIdThroughItsRevision) {
  const ModelFiles files = resolve_model("google/gemma-2b", cache.path());
  EXPECT_EQ(files.directory, folder() + "/snapshots/abc123");
  EXPECT_EQ(files.name, "google/gemma-2b");
  EXPECT_EQ(files.config.at("model_type"), "gemma");
  EXPECT_EQ(files.generation_config.at("eos_token_id"), 1);
  EXPECT_NE(open_weights(files).find("model.embed_tokens.weight"), nullptr);
  cache.write(kFolder + "/refs/main", "abc123\n");
  EXPECT_EQ(locate_model("google/gemma-2b", cache.path()), folder() + "/snapshots/abc123");
}

TEST_F(HubCache, TakesTheOnlySnapshotIfNoneIsNamed) {
  std::filesystem::remove(folder() + "/refs/main");
  EXPECT_EQ(locate_model("google/gemma-2b", cache.path()), folder() + "/snapshots/abc123");
  std::filesystem::create_directory(folder() + "/snapshots/def456");
  EXPECT_EQ(message(), folder() +
                           ": has no refs/main and 2 snapshots, so it is not clear which google/gemma-2b is meant; give the "
                           "path of a snapshot");
}

TEST_F(HubCache, SaysWhatIsBroken) {
  EXPECT_EQ(message_of([&] { resolve_model("google/gemma-7b", cache.path()); }),
            "google/gemma-7b: is neither a file nor a directory here, nor a model in the Hugging Face cache (looked for " +
                cache / "models--google--gemma-7b" +
                "). Give a path, or download it with `vitrine pull google/gemma-7b`; "
                "HF_HUB_CACHE and HF_HOME move the cache");
  std::filesystem::remove(folder() + "/blobs/config.json.hash");
  EXPECT_EQ(message(),
            folder() + "/snapshots/abc123/config.json: is a link to a file that does not exist. Is the download complete?");
  cache.write(kFolder + "/refs/main", "def456");
  EXPECT_EQ(message(), folder() +
                           "/snapshots/def456: does not exist, although refs/main of google/gemma-2b names it; download it "
                           "again with `vitrine pull google/gemma-2b`");
  cache.write(kFolder + "/refs/main", "../../../etc");
  EXPECT_EQ(message(), folder() + "/refs/main: does not name a revision; download it again with `vitrine pull google/gemma-2b`");
}

TEST_F(HubCache, SaysHowToFinishAPullThatWasStopped) {
  std::filesystem::remove_all(folder() + "/snapshots/abc123");
  std::filesystem::remove(folder() + "/refs/main");
  EXPECT_EQ(message(),
            folder() + ": holds no whole model: was its download stopped? Finish it with `vitrine pull google/gemma-2b`");
}

TEST_F(HubCache, FindsGgufFiles) {
  const std::string other = "models--google--gemma-GGUF/";
  const auto locate = [&](const std::string& name) { return locate_model(name, cache.path()); };
  const auto refused = [&](const std::string& name) { return message_of([&] { locate(name); }); };
  const std::string first = cache.write(other + "snapshots/abc/gemma-Q8_0.gguf", "x");
  EXPECT_EQ(locate("google/gemma-GGUF"), first);
  const std::string part = cache.write(other + "snapshots/abc/BF16/gemma-BF16-00001-of-00002.gguf", "x");
  EXPECT_EQ(locate("google/gemma-GGUF:q8_0"), first);
  EXPECT_EQ(locate("google/gemma-GGUF:gemma-Q8_0.gguf"), first);
  EXPECT_EQ(
      refused("google/gemma-GGUF:BF16"),
      part + ": is one of 2 parts, of which 1 are in the cache; fetch the others with `vitrine pull google/gemma-GGUF:BF16`");
  cache.write(other + "snapshots/abc/BF16/gemma-BF16-00002-of-00002.gguf", "x");
  EXPECT_EQ(locate("google/gemma-GGUF:BF16"), part);
  EXPECT_EQ(refused("google/gemma-GGUF"),
            "google/gemma-GGUF: means several models in the cache; name one:\n  google/gemma-GGUF:BF16/"
            "gemma-BF16-00001-of-00002.gguf\n  google/gemma-GGUF:gemma-Q8_0.gguf");
  EXPECT_EQ(refused("google/gemma-GGUF:Q4_0"),
            "google/gemma-GGUF:Q4_0: is not in the Hugging Face cache, which has BF16, Q8_0 of this repository. Download it with "
            "`vitrine pull google/gemma-GGUF:Q4_0`");
  EXPECT_EQ(refused("google/other:Q4_0"),
            "google/other:Q4_0: is neither a file nor a directory here, nor a model in the Hugging Face cache (looked for " +
                cache / "models--google--other" +
                "). Give a path, or download it with `vitrine pull google/other:Q4_0`; "
                "HF_HUB_CACHE and HF_HOME move the cache");
  for (const std::string name : {"google/gemma-GGUF:../../../x", "google/gemma-GGUF:/etc/passwd"})
    EXPECT_TRUE(refused(name).find("is not in the Hugging Face cache") != std::string::npos) << name;
}

TEST(HubCacheFolder, FollowsTheEnvironment) {
  const auto with = [](const char* name, const char* value, auto f) {
    const char* old = std::getenv(name);
    const std::string kept = old == nullptr ? "" : old;
    ::setenv(name, value, 1);
    f();
    if (old == nullptr) {
      ::unsetenv(name);
    } else {
      ::setenv(name, kept.c_str(), 1);
    }
  };
  with("HF_HUB_CACHE", "", [&] {
    with("HF_HOME", "", [&] {
      with("XDG_CACHE_HOME", "",
           [&] { with("HOME", "/home/ada", [] { EXPECT_EQ(hub_cache(), "/home/ada/.cache/huggingface/hub"); }); });
      with("XDG_CACHE_HOME", "/x", [] { EXPECT_EQ(hub_cache(), "/x/huggingface/hub"); });
    });
    with("HF_HOME", "/h", [] { EXPECT_EQ(hub_cache(), "/h/hub"); });
  });
  with("HF_HUB_CACHE", "/c", [] { EXPECT_EQ(hub_cache(), "/c"); });
}

TEST(LocateModel, RefusesNamesThatCannotBe) {
  const Scratch cache;
  const auto message = [&](const std::string& name) { return message_of<InputError>([&] { locate_model(name, cache.path()); }); };
  EXPECT_EQ(message(""), "the name of the model is empty; give a directory, a .gguf file or an id such as google/gemma-2b");
  for (const std::string name : {"../nowhere", "a/b/c", "/no/where", "a b", "a/..", "x\n/y"})
    EXPECT_EQ(message(name),
              name + ": does not exist. Expected a model's directory, a .gguf file or an id such as google/gemma-2b");
  EXPECT_CONTAINS(message("gpt2"), cache / "models--gpt2");
}

class Folder : public testing::Test {
 protected:
  std::string message(const std::string& name) const {
    return message_of([&] { open_weights(resolve_model(name)); });
  }
  Scratch scratch;
  const std::string kConfig = R"({"model_type": "gpt2"})";
};

TEST_F(Folder, WithoutConfig) {
  EXPECT_EQ(message(scratch.path()), scratch.path() +
                                         ": holds no config.json. Expected the directory of a Hugging Face model: "
                                         "config.json, *.safetensors, tokenizer.json");
  scratch.write("pytorch_model.bin", "x");
  EXPECT_EQ(message(scratch.path()), scratch.path() +
                                         ": holds no config.json, which tells what kind of model pytorch_model.bin "
                                         "belongs to; download it into the same directory");
  const std::string weights = scratch.write("model.safetensors", "x");
  EXPECT_EQ(message(weights), weights + ": has no config.json beside it, which tells what kind of model it is");
  scratch.write("adapter_config.json", "{}");
  EXPECT_CONTAINS(message(scratch.path()),
                  "; it holds an adapter: give its base as the model and this folder as --adapter, or, where there "
                  "is no such flag, the model that `vitrine convert BASE OUT --adapter " +
                      scratch.path() + "` writes");
  scratch.write("m.gguf", "x");
  EXPECT_CONTAINS(message(scratch.path()), "; it does hold m.gguf: give that file's path");
}

TEST_F(Folder, WithoutWeights) {
  const std::string config = scratch.write("config.json", kConfig);
  EXPECT_TRUE(resolve_model(scratch.path()).weights.empty());
  EXPECT_EQ(resolve_model(scratch.path()).config.at("model_type"), "gpt2");
  EXPECT_CONTAINS(message(scratch.path()), ": holds neither model.safetensors nor model.safetensors.index.json; download");
  scratch.write("pytorch_model.bin", "x");
  EXPECT_CONTAINS(message(scratch.path()), "it does hold pytorch_model.bin, a Python pickle");
  EXPECT_EQ(resolve_model(config).config_path, config);
  EXPECT_EQ(message(config), config + ": is a configuration alone; give the model's directory to use its weights");
}

TEST_F(Folder, OfASingleFile) {
  std::filesystem::copy(Golden::open("gemma").model(), scratch.path());
  const ModelFiles files = resolve_model(scratch / "model.safetensors");
  EXPECT_EQ(files.weights, scratch / "model.safetensors");
  EXPECT_EQ(files.directory, scratch.path());
  EXPECT_EQ(files.config.at("model_type"), "gemma");
  EXPECT_GT(open_weights(files).tensors().size(), 10u);
  EXPECT_CONTAINS(message(scratch / "tokenizer.model"),
                  "is no model; expected a directory with config.json, a .gguf or .safetensors file, or a config.json");
}

TEST_F(Folder, OfAGgufFile) {
  const std::string path = std::string(VITRINE_GOLDEN) + "/io/types.gguf";
  const ModelFiles files = resolve_model(path);
  EXPECT_EQ(files.kind, ModelFiles::Kind::gguf);
  EXPECT_EQ(files.weights, path);
  EXPECT_EQ(files.directory, std::string(VITRINE_GOLDEN) + "/io");
  EXPECT_TRUE(files.config.is_null());
  EXPECT_NE(open_weights(files).find("q8_0"), nullptr);
}

TEST_F(Folder, WithABrokenConfig) {
  const std::string config = scratch.write("config.json", "[1, 2]");
  EXPECT_EQ(message(scratch.path()), config + ": is not a JSON object; expected the settings of a model");
  scratch.write("config.json", "{\"a\": ");
  EXPECT_CONTAINS(message(scratch.path()), config + ": is not valid JSON: it is truncated after 6 bytes");
  scratch.write("config.json", kConfig);
  const std::string generation = scratch.write("generation_config.json", "7");
  EXPECT_EQ(message(scratch.path()), generation + ": is not a JSON object; expected the settings of a model");
}

}  // namespace
}  // namespace vitrine
