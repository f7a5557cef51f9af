// The words of pictures and of the walk-through: one of a thing is not several.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "base/mapped_file.h"
#include "base/plural.h"
#include "support.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

TEST(Words, FollowTheirNumber) {
  EXPECT_EQ(plural(int64_t{1}, "token"), "1 token");
  EXPECT_EQ(plural(int64_t{0}, "token"), "0 tokens");
  EXPECT_EQ(plural("0.75", "radian"), "0.75 radians");
  EXPECT_EQ(plural(size_t{12}, "key and value head"), "12 key and value heads");
}

// "1 tokens" and the like in a text.
std::vector<std::string> ones_in_plural(const std::string& text) {
  std::vector<std::string> found;
  for (size_t at = text.find("1 "); at != std::string::npos; at = text.find("1 ", at + 1)) {
    if (at > 0 && std::string_view("0123456789.,").find(text[at - 1]) != std::string_view::npos) continue;
    const size_t end =
        std::min(text.size(), text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-", at + 2));
    const std::string word = text.substr(at + 2, end - at - 2);
    if (word.ends_with("s") && word != "is" && word != "has" && word != "as") found.push_back("1 " + word);
  }
  return found;
}

void every_text(const PictureJson& json, std::vector<std::string>& texts) {
  if (json.is_string()) texts.push_back(json.get<std::string>());
  if (json.is_structured())
    for (const PictureJson& inside : json) every_text(inside, texts);
}

TEST(Words, OneTokenOneLayerOneHead) {
  EXPECT_EQ(ones_in_plural("1 tokens, 21 tokens, 1 token is"), std::vector<std::string>{"1 tokens"});
  const Scratch folder;
  write_random_model(folder.path(), {{"architectures", {"GemmaForCausalLM"}},
                                     {"model_type", "gemma"},
                                     {"hidden_size", 4},
                                     {"num_hidden_layers", 1},
                                     {"num_attention_heads", 1},
                                     {"num_key_value_heads", 1},
                                     {"head_dim", 2},
                                     {"intermediate_size", 4},
                                     {"vocab_size", 8},
                                     {"max_position_embeddings", 1},
                                     {"hidden_act", "gelu_pytorch_tanh"}});
  Engine engine(folder.path(), kF32);
  const PictureJson document = explain_document(engine, ids_prompt({3}));
  std::vector<std::string> texts;
  every_text(document, texts);
  EXPECT_GT(texts.size(), 150u);
  for (const PictureInfo& info : chapter_pictures()) {
    if (!document.at("pictures").at(info.name).at("available").get<bool>()) continue;
    const std::string svg = picture_svg(document, info.name);
    for (size_t at = svg.find("<text "); at != std::string::npos; at = svg.find("<text ", at + 1))
      texts.push_back(svg.substr(svg.find('>', at) + 1, svg.find('<', at + 1) - svg.find('>', at) - 1));
  }
  for (const std::string& text : texts) EXPECT_EQ(ones_in_plural(text), std::vector<std::string>()) << text;
}

// What a reader of the page cannot know: another text, or where on the page a picture will stand. A heading's number stands in
// front of its words, so these begin with a letter.
TEST(Words, SpeakOfWhatTheReaderSees) {
  for (const char* model : {"gemma2", "gpt2_a", "classic_post", "mixtral"}) {
    Engine engine(open_model(resolve_model(Golden::open(model).model())), kF32);
    const PictureJson document = explain_document(engine, ids_prompt({3, 5, 7, 9}));
    std::vector<std::string> texts;
    every_text(document, texts);
    for (const std::string& text : texts)
      for (const char* words : {"toy of the text", "example of the text", "Below"})
        EXPECT_EQ(text.find(words), std::string::npos) << text;
    for (const PictureJson& step : document.at("steps"))
      EXPECT_TRUE(std::isalpha(static_cast<unsigned char>(step.at("title").get<std::string>()[0]))) << step.at("title");
  }
}

// The program cannot know whether weights were trained, and what that did; those of the golden models were not.
TEST(Words, ClaimNothingThatOnlyTrainingCouldHaveDone) {
  for (const char* model : {"gpt2_a", "gemma2", "classic_post"}) {
    Engine engine(open_model(resolve_model(Golden::open(model).model())), kF32);
    std::vector<std::string> texts;
    every_text(explain_document(engine, ids_prompt({3, 5, 7, 9})), texts);
    texts.push_back(read_file(std::string(VITRINE_SOURCE) + "/web/src/article.tsx"));
    for (const std::string& text : texts)
      for (const char* words : {"that training has", "during training", "been trained", "This model has learned", "that it did",
                                "trained so", "neighbors are alike", "above all to the first"})
        EXPECT_EQ(text.find(words), std::string::npos) << words << "\n" << text;
  }
}

// The walk-through of a golden model with some keys changed, none of which a tensor depends on.
PictureJson steps_of(const std::string& model, const Json& keys = Json::object(), std::string_view chapter = kFirstChapter) {
  ModelFiles files = resolve_model(Golden::open(model).model());
  files.config.update(keys);
  Engine engine(open_model(std::move(files)), kF32);
  return explain_document(engine, ids_prompt({3, 5, 7}), {}, chapter).at("steps");
}

// A step's formulas and sentences, one a line, those for engineers and the answers of guesses included.
std::string words_of(const PictureJson& steps, const char* id) {
  std::string words;
  for (const PictureJson& step : steps)
    if (step.at("id") == id) {
      for (const PictureJson& part : {step, step.at("engineers")})
        for (const char* key : {"formula", "text"})
          for (const PictureJson& line : part.at(key)) words += line.get<std::string>() + "\n";
      for (const PictureJson& guess : step.at("guesses")) words += guess.at("reveal").get<std::string>() + "\n";
    }
  return words;
}

// gpt2_a has random positions; here neighbors are alike, and there they are not.
TEST(Words, PositionsAreAlikeIfTheirCosinesAre) {
  Engine random(open_model(resolve_model(Golden::open("gpt2_a").model())), kF32),
      waves(open_model(resolve_model(Golden::open("classic_pre").model())), kF32);
  for (Engine* engine : {&random, &waves}) {
    const PictureJson document = explain_document(*engine, ids_prompt({3, 5, 7, 9}));
    const PictureJson& p = document.at("pictures").at("position-vectors");
    double near = 0, far = 0;
    for (const auto& [i, j] : {std::pair{0, 1}, {1, 2}, {2, 3}}) near += p.at("cosine")[i][j].get<double>() / 3;
    for (const auto& [i, j] : {std::pair{0, 2}, {1, 3}, {0, 3}}) far += p.at("cosine")[i][j].get<double>() / 3;
    const std::string sentence =
        fmt::format("The mean cosine of neighbors is {:.3f}, that of all other pairs {:.3f}: neighbors are ", near, far);
    EXPECT_CONTAINS(p.at("caption").get<std::string>(),
                    sentence + (engine == &random ? "about as alike as" : "more alike than") + " distant positions.");
    if (engine == &random) {
      EXPECT_CONTAINS(words_of(document.at("steps"), "positions"), sentence);
    }
  }
}

// A step's sentences about sizes are this run's numbers.
TEST(Words, UpdatesAreMeasured) {
  Engine engine(open_model(resolve_model(Golden::open("gemma2").model())), kF32);
  const PictureJson document = explain_document(engine, ids_prompt({3, 5, 7, 9}));
  std::vector<double> scales;
  for (const PictureJson& part : document.at("pictures").at("update-scale").at("sublayers")) scales.push_back(part.at("scale"));
  std::sort(scales.begin(), scales.end());
  EXPECT_CONTAINS(words_of(document.at("steps"), "residual"),
                  fmt::format("half of the parts stay below {:.2f}; ", scales[scales.size() / 2]));
}

TEST(Words, WindowsOfEveryLayerOrOfSome) {
  const std::string mistral = words_of(steps_of("mistral"), "reach");
  EXPECT_CONTAINS(mistral, "Every layer sees a window of the nearest tokens only, 7 of them.");
  EXPECT_CONTAINS(mistral, "t − window < s ≤ t");
  EXPECT_EQ(mistral.find("whole text"), std::string::npos) << mistral;
  EXPECT_EQ(mistral.find("if  s ≤ t"), std::string::npos) << mistral;
  const PictureJson gemma2 = steps_of("gemma2");
  EXPECT_CONTAINS(words_of(gemma2, "reach"), "Some layers see a window of the nearest tokens only, others the whole text.");
  EXPECT_CONTAINS(words_of(gemma2, "reach"), "without a window:  t sees s  if  s ≤ t");
  EXPECT_CONTAINS(words_of(gemma2, "attention"), "for s ≤ t that the layer sees");
  EXPECT_CONTAINS(words_of(gemma2, "norm"), "· (1 + w)");
  const PictureJson llama = steps_of("llama");
  EXPECT_CONTAINS(words_of(llama, "reach"), "Every layer sees the whole text");
  EXPECT_EQ(words_of(llama, "reach").find("window"), std::string::npos);
  EXPECT_EQ(words_of(llama, "attention").find("that the layer sees"), std::string::npos);
}

TEST(Words, ChunksAreNoWindows) {
  Engine engine(Golden::open("llama4").model(), kF32);
  const std::string svg = picture_svg(picture_document(engine, ids_prompt({3, 5, 7}), "reach"), "reach");
  EXPECT_CONTAINS(svg, ">layer 0 chunk 4<");
  EXPECT_EQ(svg.find("window"), std::string::npos);
}

// A convolution's taps are no window.
TEST(Words, TheChapterOnGemma2FindsTheWindow) {
  EXPECT_CONTAINS(words_of(steps_of("gemma2", Json::object(), "gemma2"), "windows"),
                  "a layer with this model's window of 8 computes");
  for (const char* model : {"gpt2_a", "lfm2", "qwen3_5"})
    EXPECT_CONTAINS(words_of(steps_of(model, Json::object(), "gemma2"), "windows"), "No layer of this model has a window")
        << model;
}

TEST(Words, NormsBehindTheSumLeaveNoPlainSum) {
  const PictureJson after = steps_of("classic_post"), before = steps_of("classic_pre");
  EXPECT_CONTAINS(words_of(after, "residual"), "x ← norm(x + attention(x))");
  EXPECT_CONTAINS(words_of(after, "residual"), "then the sum is brought back to a fixed size");
  EXPECT_EQ(words_of(after, "residual").find("only ever add"), std::string::npos);
  EXPECT_EQ(words_of(after, "attribution").find("final norm"), std::string::npos);
  EXPECT_CONTAINS(words_of(before, "residual"), "Because parts only ever add");
  EXPECT_CONTAINS(words_of(before, "attribution"), "The final norm divides by");
}

TEST(Words, SinesAndCosinesInTheOrderOfTheModel) {
  EXPECT_CONTAINS(words_of(steps_of("classic_pre"), "positions"), "p[t, 2i+1] = cos(t / 10000^(2i/d))");
  EXPECT_CONTAINS(words_of(steps_of("classic_pre", {{"position_layout", "halves"}}), "positions"),
                  "p[t, i] = sin(t / 10000^(2i/d)), p[t, i + d/2] = cos(t / 10000^(2i/d))");
}

TEST(Words, BiasesWhereTheModelHasThem) {
  const PictureJson gpt2 = steps_of("gpt2_a"), qwen = steps_of("qwen2"), llama = steps_of("llama"),
                    classic = steps_of("classic_pre");
  const std::string biased = "q = W_Q y + b_Q,  k = W_K y + b_K,  v = W_V y + b_V\n";
  EXPECT_CONTAINS(words_of(gpt2, "attention"), biased);
  EXPECT_CONTAINS(words_of(gpt2, "attention"), "update = W_O z + b_O\n");
  EXPECT_CONTAINS(words_of(gpt2, "mlp"), "z = gelu(W_in y + b_in)\nupdate = W_out z + b_out\n");
  EXPECT_CONTAINS(words_of(gpt2, "output"), "logit[t, v] = x[t] · W_E[v]\n");
  EXPECT_CONTAINS(words_of(qwen, "attention"), biased);  // of queries, keys and values only
  EXPECT_CONTAINS(words_of(qwen, "attention"), "update = W_O z\n");
  EXPECT_CONTAINS(words_of(qwen, "mlp"), "z = silu(W_gate y) ⊙ (W_in y)\nupdate = W_out z\n");
  EXPECT_CONTAINS(words_of(llama, "attention"), "q = W_Q y,  k = W_K y,  v = W_V y\n");
  EXPECT_CONTAINS(words_of(llama, "attribution"), "every head of every layer and for every MLP.");
  EXPECT_CONTAINS(words_of(classic, "attention"), biased);
  EXPECT_CONTAINS(words_of(classic, "output"), "logit[t, v] = x[t] · W_U[v] + b_U[v]\n");
  EXPECT_CONTAINS(words_of(classic, "attribution"), "for every MLP and for every bias.");

  const Scratch folder;
  write_random_model(folder.path(), {{"architectures", {"LlamaForCausalLM"}},
                                     {"model_type", "llama"},
                                     {"hidden_size", 16},
                                     {"num_hidden_layers", 1},
                                     {"num_attention_heads", 2},
                                     {"num_key_value_heads", 2},
                                     {"intermediate_size", 8},
                                     {"vocab_size", 16},
                                     {"max_position_embeddings", 16},
                                     {"attention_bias", true},
                                     {"mlp_bias", true}});
  Engine engine(folder.path(), kF32);
  const PictureJson steps = explain_document(engine, ids_prompt({3, 5})).at("steps");
  EXPECT_CONTAINS(words_of(steps, "attention"), biased);
  EXPECT_CONTAINS(words_of(steps, "attention"), "update = W_O z + b_O\n");
  EXPECT_CONTAINS(words_of(steps, "mlp"), "z = silu(W_gate y + b_gate) ⊙ (W_in y + b_in)\nupdate = W_out z + b_out\n");
}

TEST(Words, RotaryFrequenciesAsTheyAreScaled) {
  EXPECT_CONTAINS(words_of(steps_of("llama"), "rope"), "frequencyᵢ = θ^(−2i/d)\n");
  const std::string linear = words_of(steps_of("llama", {{"rope_scaling", {{"type", "linear"}, {"factor", 4.0}}}}), "rope");
  EXPECT_CONTAINS(linear, "frequencyᵢ = θ^(−2i/d) / 4\n");
  EXPECT_CONTAINS(linear, "Every frequency is divided by 4");
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 64}};
  const std::string stretched = words_of(steps_of("llama", {{"rope_scaling", llama3}}), "rope");
  EXPECT_CONTAINS(stretched, "frequencyᵢ = θ^(−2i/d) / cᵢ\n");
  EXPECT_CONTAINS(stretched, "takes more than 64 tokens, c is 8; where it takes fewer than 16, c is 1;");
}

}  // namespace
}  // namespace vitrine
