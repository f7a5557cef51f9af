// The walk-through: from the string to the prediction, step by step, in words that are true for the model at hand.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/registry.h"
#include "picture/data/document.h"
#include "picture/data/studio.h"
#include "picture/page/page.h"
#include "picture/page/source.h"

namespace vitrine {
namespace {

struct StepShape {
  std::string name;
  const char* hook;  // null: no hook holds it
  std::vector<int64_t> shape;
  std::vector<const char*> axes;
};

// 1572864 with thin spaces between its thousands, as the page writes counts.
std::string with_thin_spaces(int64_t n) {
  std::string digits = std::to_string(n);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, "\u202f");
  return digits;
}

class Walk {
 public:
  Walk(Studio& studio, const PictureJson& pictures)
      : studio_(studio), facts_(studio.facts), pictures_(pictures), files_(definition_files(family_of(studio.engine.model()))) {}

  PictureJson steps() {
    dot_product();
    tokens();
    embedding();
    if (facts_.positions == Positions::learned || facts_.positions == Positions::sinusoidal) added_positions();
    if (facts_.shape.embedding_scale != 1) embedding_scale();
    residual();
    norm();
    attention();
    if (facts_.attention_softcap != 0 || facts_.final_softcap != 0) soft_cap();
    if (facts_.rope) rope();
    mlp();
    if (facts_.norm_place == NormPlace::both) post_norm();
    if (facts_.final_norm) final_norm();
    output();
    attribution();
    if (is_available("input-attribution")) input_attribution();
    reach();
    if (is_available("gradient-norms")) back_propagation();
    if (is_available("interpolation")) merging();
    return std::move(list_);
  }

 private:
  // The question is what the second paragraph and those after it answer.
  void add(const char* id, const std::string& title, const std::string& question, std::vector<std::string> text,
           std::vector<std::string> formula, const std::vector<std::string_view>& tags, const std::vector<StepShape>& shapes,
           const std::vector<const char*>& pictures) {
    PictureJson written = PictureJson::array();
    for (const StepShape& s : shapes)
      written.push_back({{"name", s.name},
                         {"hook", s.hook != nullptr ? PictureJson(s.hook) : PictureJson(nullptr)},
                         {"shape", s.shape},
                         {"axes", s.axes}});
    list_.push_back({{"id", id},
                     {"title", title},
                     {"question", question},
                     {"text", std::move(text)},
                     {"formula", std::move(formula)},
                     {"source", excerpts(files_, tags)},
                     {"shapes", std::move(written)},
                     {"pictures", pictures}});
  }
  bool is_available(const char* picture) const { return pictures_.at(picture).at("available").get<bool>(); }
  const ModelShape& s() const { return facts_.shape; }
  int64_t n() const { return studio_.tokens(); }
  std::string norm_name() const { return facts_.rms ? "RMSNorm" : "LayerNorm"; }
  // "W_Q y", or "W_Q y + b_Q" where that matrix has a bias.
  std::string product(const std::string& part, const std::string& name, const std::string& vector) const {
    return "W_" + name + " " + vector + (facts_.has_bias(part + ".W_" + name) ? " + b_" + name : "");
  }
  std::string normed() const {
    if (!facts_.rms) return "(x − mean(x)) / √(variance(x) + ε) · w + b";
    return std::string("x / √(mean(x²) + ε) · ") + (facts_.norm_offset != 0 ? "(1 + w)" : "w");
  }
  std::string unembedding() const { return s().tied ? "W_E" : "W_U"; }
  bool output_bias() const { return static_cast<bool>(studio_.engine.model().head().weight->bias); }
  bool some_windows() const { return std::any_of(facts_.windows.begin(), facts_.windows.end(), is_window); }
  bool only_windows() const { return std::all_of(facts_.windows.begin(), facts_.windows.end(), is_window); }
  static bool is_window(int64_t window) { return window != kNoWindow; }

  void dot_product() {
    add("dot-product", "Before we start: the dot product", "Do two numbers tell anything about thousands?",
        {"Nearly everything below is made of one operation: multiply two lists of numbers place by place and add up the "
         "products. The result says how far the two agree. It is large when they point the same way, zero when they have nothing "
         "to do with each other, negative when they oppose; and longer vectors count for more.",
         fmt::format(
             "The picture has two numbers to a vector. This model compares vectors of {} numbers (its stream), {} (one head) and "
             "{} (the hidden layer of an MLP); what agreement means does not change.",
             with_thin_spaces(s().d_model), with_thin_spaces(s().head_dim),
             with_thin_spaces(facts_.experts ? facts_.experts->d_ff : s().d_ff))},
        {"a · b = a₁b₁ + a₂b₂ + … + aₙbₙ"}, {}, {}, {"dot-product"});
  }

  void tokens() {
    std::vector<std::string> text = {
        fmt::format("The model does not see letters. A tokenizer cuts the prompt into {} from a fixed vocabulary of {}, and each "
                    "piece becomes its number in that list.",
                    plural(n(), "piece"), with_thin_spaces(s().vocab_size))};
    if (studio_.spelled()) {
      text.push_back(
          "A vocabulary of pieces can spell any text: common words are one entry, rare ones are put together from several, down "
          "to single characters or bytes. Nothing of the text is thrown away; in most vocabularies the space in front of a word "
          "is part of its piece.");
      const Tokenizer& tokenizer = studio_.engine.tokenizer();
      if (tokenizer.adds_bos() && tokenizer.bos())
        text.push_back(fmt::format("This tokenizer puts {} in front of every text, a mark that says \"here it begins\".",
                                   tokenizer.piece(*tokenizer.bos())));
    }
    add("tokens", "From text to tokens", "Why pieces, and not letters or words?", std::move(text), {}, {},
        {{"tokens", nullptr, {n()}, {"token"}}}, {"tokens", "merges", "splits"});
  }

  void embedding() {
    add("embedding", "Looking the tokens up", "Why a vector for each token?",
        {fmt::format(
             "Each token number picks one row of a table: a vector of {} numbers. The table has {} rows, {} numbers in all. "
             "From here on every token of the prompt is such a vector; together they are the residual stream.",
             with_thin_spaces(s().d_model), with_thin_spaces(s().vocab_size), with_thin_spaces(s().vocab_size * s().d_model)),
         "The numbers of the tokens mean nothing in themselves; neighbors in the list are strangers. The vectors can mean "
         "something: training pushes words that are used alike in like directions." +
             nearest_words(),
         s().tied ? "The same table is used once more at the very end, to score every possible next token."
                  : "This model has a second table of the same size, which scores the next tokens at the end."},
        {"x[t] = W_E[token[t]]"}, {"embed"},
        {{"W_E", nullptr, {s().vocab_size, s().d_model}, {"vocabulary", "component"}},
         {"x", "hook_embed", {n(), s().d_model}, {"token", "component"}}},
        {"embedding-cosine", "embedding-neighbors"});
  }

  // The nearest pair of the picture, in this model.
  std::string nearest_words() const {
    if (!is_available("embedding-cosine")) return "";
    const PictureJson &ids = pictures_.at("embedding-cosine").at("ids"), &grid = pictures_.at("embedding-cosine").at("cosine");
    size_t first = 0, second = 1;
    for (size_t i = 0; i < ids.size(); ++i)
      for (size_t j = i + 1; j < ids.size(); ++j)
        if (grid[i][j].get<double>() > grid[first][second].get<double>()) first = i, second = j;
    return fmt::format(" In this model the two nearest of the picture are \"{}\" and \"{}\", with a cosine of {:.3f}.",
                       studio_.piece(ids[first]), studio_.piece(ids[second]), grid[first][second].get<double>());
  }

  void added_positions() {
    const bool learned = facts_.positions == Positions::learned;
    const std::string likeness = likeness_of_positions(studio_);
    add("positions", "Where a token stands", "How does a vector tell where it stands?",
        {learned
             ? fmt::format("Attention by itself does not know in which order the tokens came. This model has a table with one "
                           "vector for each of its {} positions and adds it to the embedding of whatever token stands there.",
                           s().context_length)
             : std::string(
                   "Attention by itself does not know in which order the tokens came. This model adds a vector of sines and "
                   "cosines of the position to each embedding: slow and fast waves together make every position different."),
         learned ? "Nothing but training can make neighbors alike." + (likeness.empty() ? "" : " " + likeness)
                 : std::string(
                       "One fixed linear map takes the vector of any position to that of the next, so distances are easy to read "
                       "off.")},
        {learned                    ? std::string("x[t] ← x[t] + W_pos[t]")
         : !facts_.halved_sinusoids ? std::string("p[t, 2i] = sin(t / 10000^(2i/d)), p[t, 2i+1] = cos(t / 10000^(2i/d))")
                                    : fmt::format("p[t, i] = sin(t / 10000^(2i/d)), p[t, i + {}] = cos(t / 10000^(2i/d))",
                                                  s().d_model % 2 == 0 ? "d/2" : "(d+1)/2")},
        {"positions"}, {{"positions", "hook_pos_embed", {n(), s().d_model}, {"token", "component"}}}, {"position-vectors"});
  }

  void embedding_scale() {
    const double scale = facts_.shape.embedding_scale;
    const bool root = std::abs(scale * scale - static_cast<double>(s().d_model)) < 1e-3 * static_cast<double>(s().d_model);
    add("embedding-scale", "Rescaling the embeddings", fmt::format("Why multiply by {:.4g}?", scale),
        {root ? fmt::format("The vectors are multiplied by √{} = {:.4g} before anything else happens.", s().d_model,
                            facts_.shape.embedding_scale)
              : fmt::format("The vectors are multiplied by {:g} before anything else happens.", facts_.shape.embedding_scale),
         "The rows of the table are short, so that they give scores of a sensible size when the table is used at the end. As the "
         "start of the stream they would be too short: the first attention layer would drown them instead of adding to them. The "
         "factor makes them long enough to count. The picture compares this run with one in which the factor was left out."},
        {root ? std::string("x ← √d · x") : fmt::format("x ← {:g} · x", facts_.shape.embedding_scale)}, {"embedding-scale"},
        {{"x", "hook_embed", {n(), s().d_model}, {"token", "component"}}}, {"embedding-rescaling"});
  }

  // What the update scales of this run are: the middle one, and the part that changes the stream most.
  std::string measured_updates() const {
    if (!is_available("update-scale")) return "";
    const PictureJson& parts = pictures_.at("update-scale").at("sublayers");
    std::vector<double> scales;
    size_t most = 0;
    for (const PictureJson& part : parts) {
      if (!part.at("scale").is_number()) return "";
      scales.push_back(part.at("scale"));
      if (scales.back() > scales[most]) most = scales.size() - 1;
    }
    if (scales.size() < 2) return "";
    const double largest = scales[most];
    std::nth_element(scales.begin(), scales.begin() + static_cast<std::ptrdiff_t>(scales.size() / 2), scales.end());
    const double middle = scales[scales.size() / 2];
    return fmt::format(" In this run half of the parts stay below {:.2f}; {} of layer {} changes most, {:.2f}.{}", middle,
                       parts[most].at("part") == "mlp" ? "the MLP" : "attention", parts[most].at("layer").get<int64_t>(), largest,
                       middle < 0.15 ? " So most parts adjust the vectors rather than write them anew." : "");
  }

  void residual() {
    const bool after = facts_.norm_place == NormPlace::after;
    std::vector<std::string> formula = {s().n_layers == 1 ? "in the one layer:"
                                                          : fmt::format("for each of the {} layers:", s().n_layers)};
    if (after) {
      formula.insert(formula.end(), {"x ← norm(x + attention(x))", "x ← norm(x + mlp(x))"});
    } else if (facts_.norm_place == NormPlace::both) {
      formula.insert(formula.end(), {"x ← x + norm(attention(norm(x)))", "x ← x + norm(mlp(norm(x)))"});
    } else if (facts_.norm_place == NormPlace::written) {
      formula.insert(formula.end(), {"x ← x + norm(attention(x))", "x ← x + norm(mlp(x))"});
    } else if (facts_.residual_scale != 1) {
      const std::string m = fmt::format("{:g}", facts_.residual_scale);
      formula.insert(formula.end(), {"x ← x + " + m + " · attention(norm(x))", "x ← x + " + m + " · mlp(norm(x))"});
    } else {
      formula.insert(formula.end(), {"x ← x + attention(norm(x))", "x ← x + mlp(norm(x))"});
    }
    add("residual",
        s().n_layers == 1 ? "A stream that one layer adds to" : fmt::format("A stream that {} layers add to", s().n_layers),
        "Why add, and not replace?",
        {fmt::format("The middle of the model is {}. Each has two parts, attention and an MLP, and neither "
                     "replaces the vectors: it reads them, computes an update, and adds it{}.",
                     s().n_layers == 1 ? "a single layer" : fmt::format("{} layers of the same build", s().n_layers),
                     after ? "; a norm then brings the sum back to one size" : ""),
         "How much does a part change the stream? Compare the spread of what it adds with the spread of what was there: 0 is "
         "nothing new, 1 is a stream that is replaced." +
             measured_updates(),
         after
             ? "The norm behind each sum rescales what was there together with what is new, so the stream at the end is no plain "
               "sum of the updates. But with every norm held at the scale of this run it is one, of parts that went through all "
               "the norms behind them. That is what makes it possible to say later which part wrote the answer."
             : "Because parts only ever add, the stream at the end is a plain sum: embedding plus every update. That is what "
               "makes it possible to say later which part wrote the answer."},
        std::move(formula), {after ? "residual-after" : "residual", "layers"},
        {{"x", "blocks.*.hook_resid_pre", {n(), s().d_model}, {"token", "component"}},
         {"attention's update", "blocks.*.hook_attn_out", {n(), s().d_model}, {"token", "component"}},
         {"MLP's update", "blocks.*.hook_mlp_out", {n(), s().d_model}, {"token", "component"}}},
        {"update-scale"});
  }

  void norm() {
    const bool after = facts_.norm_place == NormPlace::after, written = facts_.norm_place == NormPlace::written;
    std::vector<std::string> text;
    text.push_back(
        facts_.rms
            ? fmt::format(
                  "{}, each token's vector is divided by its root mean square, so that its numbers have size 1 on average, "
                  "and then multiplied place by place with a learned weight.",
                  written ? "Before what a part has computed is added to the stream" : "Before a part reads the stream")
            : fmt::format("{} each token's vector is shifted so that its mean is 0 and divided by its standard deviation, so "
                          "that its variance is 1; then a learned weight multiplies each place and a learned bias is added.",
                          after ? "After a part has added its update," : "Before a part reads the stream,"));
    text.push_back(
        std::string(written ? "Parts read the stream as it is, and what they compute grows with what they read. Without this, it "
                              "would be added in proportion: the scale would "
                            : "Without this, each part would see what all parts before it have piled up, and answer in "
                              "proportion: the scale would ") +
        "multiply from layer to layer. A toy shows it: 18 times x ← x + 2x gives 387\u202f420\u202f489; 18 times x ← x + 2 gives "
        "37. The "
        "picture runs this very model once more with every norm switched off.");
    if (!facts_.rms)
      text.push_back(
          "Variance here is the mean of the squared deviations, over all of them: that of (2, 4, 6) is 8/3. Taking the mean away "
          "turns the vector (the direction changes); dividing only shortens or lengthens it.");
    else
      text.push_back(
          "Dividing by the root mean square keeps the direction of the vector. LayerNorm, which other models use, also takes the "
          "mean away first, and that turns it; the picture shows both.");
    add("norm", facts_.rms ? "RMSNorm" : "LayerNorm",
        facts_.rms ? "Why divide by the root mean square?" : "Why bring every vector to mean 0 and variance 1?", std::move(text),
        {"y = " + normed()},
        {after     ? "norm-after"
         : written ? "post-norm"
                   : "norm"},
        {{"scale", written ? "blocks.*.ln1_post.hook_scale" : "blocks.*.ln1.hook_scale", {n(), 1}, {"token", "1"}},
         {"y",
          written ? "blocks.*.ln1_post.hook_normalized" : "blocks.*.ln1.hook_normalized",
          {n(), s().d_model},
          {"token", "component"}}},
        {"layer-norm", "residual-scale", "norm-statistics"});
  }

  void attention() {
    const std::string kind = facts_.heads_title();
    std::vector<std::string> text = {
        fmt::format(
            "{} there {} {}. For every token a "
            "head makes three short vectors of {} numbers: a query (what is this token looking for?), a key (what does "
            "it offer?) and a value (what does it hand over?).",
            facts_.conv_layers.empty() ? "Attention is the only place where tokens exchange anything. In each layer"
            : facts_.recurrent
                ? "Tokens exchange something in two places: in attention, and in " + facts_.conv_layers_text() +
                      " in a recurrence that stands in its place: each head has a state, a matrix S that forgets by a decay, "
                      "S' = exp(g) S, corrects what it holds under a token's key towards the token's value, "
                      "S = S' + beta k (v - S'ᵀ k)ᵀ, and is read by the token's query, Sᵀ q. In each layer with attention"
                : "Tokens exchange something in two places: in attention, and in " + facts_.conv_layers_text() +
                      " in a short convolution that stands in its place, where a token takes in its nearest "
                      "predecessors only, each component by itself: update = W_out (C ⊙ conv(B ⊙ u)), and B, C and u "
                      "are made of y by a matrix each. In each layer with attention",
            s().n_heads == 1 ? "is" : "are", plural(s().n_heads, "head"), s().head_dim),
        fmt::format(
            "The query of a token is compared by dot product with the keys of all tokens up to itself{}. Softmax turns the "
            "scores of one row into weights{}, and the head's result is the sum of the values with those "
            "weights. Later tokens are masked: a model that predicts must not peek.",
            some_windows() ? " that the layer sees" : "", facts_.sinks ? "" : " that sum to 1"),
        "The results of all heads are then brought back to the width of the stream by one more matrix, which is the same as "
        "letting each head write its own update and adding them up.",
        kind == "MHA"   ? std::string("Here every query head has a key head and a value head of its own.")
        : kind == "MQA" ? fmt::format("Here all {} query heads share one key head and one value head (multi-query attention), "
                                      "which makes the cache of past keys and values {} times smaller.",
                                      s().n_heads, s().n_heads)
                        : fmt::format("Here {} query heads share {} key and value heads (grouped-query attention), which makes "
                                      "the cache of past keys and values {} times smaller.",
                                      s().n_heads, s().n_kv_heads, s().n_heads / s().n_kv_heads),
        "In the grids, a strong diagonal means that a token looks at itself, a strong line beside it the token before, a strong "
        "first column the first token. The order of heads within a layer has no meaning, so they can be sorted from flat to "
        "spiky."};
    if (facts_.sinks)
      text.emplace_back(
          "Each head of this model also has a sink: a learned score that takes part in every row's softmax and has no value "
          "behind it. The weights of the tokens sum to less than 1, and a head that finds nothing can leave nearly all of it to "
          "its sink and write almost nothing.");
    std::vector<std::string_view> tags = {"attention", "heads", "scale"};
    if (facts_.sinks) tags.emplace_back("sinks");
    add("attention", "Attention", "How does a token choose where to look?", std::move(text),
        {fmt::format("q = {},  k = {},  v = {}", product("attn", "Q", "y"), product("attn", "K", "y"), product("attn", "V", "y")),
         std::string("score[t, s] = scale · q[t] · k[s]   for s ≤ t") + (some_windows() ? " that the layer sees" : ""),
         facts_.sinks ? "weight[t, s] = exp(score[t, s]) / (exp(sink) + Σᵣ exp(score[t, r]))"
                      : "weight[t, ·] = softmax(score[t, ·])",
         "z[t] = Σₛ weight[t, s] · v[s]", "update = " + product("attn", "O", "z")},
        tags,
        {{"q", "blocks.*.attn.hook_q", {n(), s().n_heads, s().head_dim}, {"token", "head", "component"}},
         {"k", "blocks.*.attn.hook_k", {n(), s().n_kv_heads, s().head_dim}, {"token", "key head", "component"}},
         {"v", "blocks.*.attn.hook_v", {n(), s().n_kv_heads, s().head_dim}, {"token", "value head", "component"}},
         {"weights", "blocks.*.attn.hook_pattern", {s().n_heads, n(), n()}, {"head", "target", "source"}},
         {"z", "blocks.*.attn.hook_z", {n(), s().n_heads, s().head_dim}, {"token", "head", "component"}}},
        {"head-grouping", "softmax", "attention"});
  }

  void soft_cap() {
    std::vector<std::string_view> tags;
    if (facts_.attention_softcap != 0) tags.emplace_back("score-cap");
    if (facts_.final_softcap != 0) tags.emplace_back("head");
    std::string where = facts_.attention_softcap != 0 ? fmt::format("attention scores at {:g}", facts_.attention_softcap) : "";
    if (facts_.final_softcap != 0)
      where += fmt::format("{}the final logits at {:g}", where.empty() ? "" : " and ", facts_.final_softcap);
    add("soft-cap", "Soft caps", "Why bend large scores, and not cut them off?",
        {"This model bends large scores: " + where +
             ". A number far below the cap passes almost unchanged, a number beyond it comes near "
             "to the cap and never reaches it.",
         "Unlike cutting at a limit, the order of the scores stays, and in training something still flows back. The grids say "
         "how many scores of this prompt it touches at all."},
        {"cap(s) = c · tanh(s / c)"}, tags, {}, {"soft-cap"});
  }

  void rope() {
    const RopeSpec& rope = *facts_.rope;
    const bool whole = rope.rotary_dim == s().head_dim;
    std::string frequency = "θ^(−2i/d)", slower;
    if (rope.scaling == RopeSpec::Scaling::linear) {
      frequency += fmt::format(" / {:g}", rope.factor);
      slower = fmt::format(
          "Every frequency is divided by {:g}: so the positions of a longer text lie in the range that was learned first.",
          rope.factor);
    } else if (rope.scaling == RopeSpec::Scaling::llama3) {
      frequency += " / cᵢ";
      slower = fmt::format(
          "To reach further than the {:.7g} tokens it learned first, this model turns its slow pairs more slowly still. Where a "
          "turn takes more than {:.7g} tokens, c is {:g}; where it takes fewer than {:.7g}, c is 1; between the two it changes "
          "smoothly.",
          rope.original_context, rope.original_context / rope.low_freq_factor, rope.factor,
          rope.original_context / rope.high_freq_factor);
    }
    if (rope.scaling == RopeSpec::Scaling::yarn) {
      frequency += " / cᵢ";
      slower = fmt::format(
          "To reach further than the {:.7g} tokens it learned first, this model turns its slow pairs more slowly still (YaRN): "
          "pairs that turn more than {:g} times within them are left alone, those that turn fewer than {:g} times are slowed by "
          "{:g}, and between the two c changes evenly from pair to pair. Turned vectors are made {:.4g} times as long.",
          rope.original_context, rope.beta_fast, rope.beta_slow, rope.factor, rope.attention_factor);
    }
    if (rope.scaling == RopeSpec::Scaling::longrope) {
      const auto [short_least, short_most] = std::minmax_element(rope.divisors, rope.divisors + rope.rotary_dim / 2);
      const auto [long_least, long_most] = std::minmax_element(rope.long_divisors, rope.long_divisors + rope.rotary_dim / 2);
      frequency += " / fᵢ";
      slower = fmt::format(
          "This model has two divisors f for the frequency of each pair (LongRoPE): from {:.4g} to {:.4g} for prompts of up to "
          "{:.7g} tokens, from {:.4g} to {:.4g} for longer ones. Turned vectors are made {:.4g} times as long.",
          *short_least, *short_most, rope.original_context, *long_least, *long_most, rope.attention_factor);
    } else if (rope.divisors != nullptr) {
      const auto [least, most] = std::minmax_element(rope.divisors, rope.divisors + rope.rotary_dim / 2);
      frequency += " / fᵢ";
      slower += fmt::format("{}The model's file holds a divisor f for the frequency of each pair, from {:.4g} to {:.4g}.",
                            slower.empty() ? "" : " ", *least, *most);
    }
    std::vector<std::string> text = {
        fmt::format(
            "Attention by itself does not know in which order the tokens came. Here {} cut into {} of "
            "numbers, and each pair is turned like the hand of a clock: by the token's position times the pair's own speed.",
            whole ? std::string("each query and key is")
                  : fmt::format("{} of the {} numbers of each query and key are", rope.rotary_dim, s().head_dim),
            plural(rope.rotary_dim / 2, "pair")),
        "A dot product of two turned vectors depends only on the angle between them, and so on how far apart the tokens stand, "
        "not on where the pair begins.",
        "Fast pairs tell neighbors apart but come round again after a few tokens; slow ones hardly move within a whole text, "
        "so a head that uses them can look for content wherever it stands. How long a head's queries are in each pair shows "
        "which kind it is."};
    if (!slower.empty()) text.push_back(std::move(slower));
    if (facts_.head_norms)
      text.push_back(
          facts_.joint_head_norms
              ? "Before they are turned, the queries of all heads together are divided by their root mean square and multiplied "
                "by "
                "a weight for each component (RMSNorm), and so are the keys, so that no score grows with their length."
              : "Before they are turned, each head's query and key are divided by their own root mean square and multiplied by a "
                "weight for each component (RMSNorm), so that no score grows with their length.");
    if (!facts_.still_layers.empty()) {
      std::string layers;
      for (const int64_t layer : facts_.still_layers) layers += (layers.empty() ? "" : ", ") + std::to_string(layer);
      text.push_back(
          fmt::format("In {} of the {} layers nothing is turned ({}): their heads compare content alone, however far "
                      "apart the tokens stand.",
                      facts_.still_layers.size(), s().n_layers, layers));
    }
    if (facts_.other_rope)
      text.push_back(fmt::format(
          "The pictures show the first layer's turns. Layers with another reach turn with θ = {:g}{}.", facts_.other_rope->theta,
          facts_.other_rope->scaling == RopeSpec::Scaling::yarn
              ? fmt::format(", and stretch slow pairs by up to {:g} (YaRN)", facts_.other_rope->factor)
          : rope.scaling == RopeSpec::Scaling::yarn ? std::string(" and stretch none")
          : facts_.other_rope->scaling == RopeSpec::Scaling::linear
              ? fmt::format(" instead of {:g}, and divide every frequency by {:g}", rope.theta, facts_.other_rope->factor)
              : fmt::format(" instead of {:g}", rope.theta)));
    add("rope", "Rotary positions", "Why turn queries and keys?", std::move(text),
        {"angle = position · frequencyᵢ,  frequencyᵢ = " + frequency, "x′ = x cos a − y sin a,  y′ = y cos a + x sin a"},
        {"rope"},
        {{"turned q", "blocks.*.attn.hook_rot_q", {n(), s().n_heads, s().head_dim}, {"token", "head", "component"}},
         {"turned k", "blocks.*.attn.hook_rot_k", {n(), s().n_kv_heads, s().head_dim}, {"token", "key head", "component"}}},
        {"rope-rotation", "rope-wavelengths", "query-length"});
  }

  // How an expert makes its hidden numbers of what its two matrices give.
  std::string gating(const ExpertSpec& e, const std::string& f) const {
    if (e.limit == 0) return fmt::format("one of them goes through {} and gates the other", f);
    return fmt::format(
        "one of them, g, is cut at {:g} and gates the other with g · σ({:g} g); the other is cut at ±{:g} and raised by 1",
        e.limit, e.slope, e.limit);
  }

  // A layer whose MLP is a mixture of experts: what they have in common with one MLP, `text`, follows.
  void experts(std::vector<std::string> text, const std::string& f) {
    const ExpertSpec& e = *facts_.experts;
    std::string dense;
    for (const int64_t layer : facts_.dense_layers) dense += (dense.empty() ? "" : ", ") + std::to_string(layer);
    text.front() = fmt::format(
        "The second part of a layer looks at each token alone. It has {} MLPs, the experts, and each token goes through {} of "
        "them. A router gives every expert a score; the experts with the best scores run, and their results are added with "
        "weights. In an expert two matrices make {} numbers each; {}.{}",
        e.count, e.per_row, e.d_ff, gating(e, f),
        dense.empty() ? "" : fmt::format(" Layers without experts ({}) have one MLP of {} hidden numbers.", dense, s().d_ff));
    text.insert(text.begin() + 1,
                std::string(!e.softmax_over_all
                                ? "The weights are the softmax over the scores of the chosen experts alone, so they sum to 1."
                            : e.renormalize ? "The softmax of all scores says how probable each expert is; the weights of the "
                                              "chosen ones are their probabilities divided by their sum."
                                            : "The softmax of all scores says how probable each expert is, and that is the "
                                              "weight of the chosen ones; what the others would have had is lost.") +
                    " All experts together hold many times the numbers of one MLP, but a token costs no more than those that it "
                    "goes through. The router is learned together with them.");
    const std::vector<StepShape> shapes = {
        {"scores", "blocks.*.mlp.hook_router_logits", {n(), e.count}, {"token", "expert"}},
        {"choice", "blocks.*.mlp.hook_expert_indices", {n(), e.per_row}, {"token", "choice"}},
        {"weights", "blocks.*.mlp.hook_expert_weights", {n(), e.per_row}, {"token", "choice"}},
        {"z", "blocks.*.mlp.hook_post", {n(), e.per_row, e.d_ff}, {"token", "choice", "unit"}},
        {"results", "blocks.*.mlp.hook_expert_out", {n(), e.per_row, s().d_model}, {"token", "choice", "component"}},
        {"update", "blocks.*.hook_mlp_out", {n(), s().d_model}, {"token", "component"}}};
    std::vector<std::string> formula = {router_has_bias() ? "scores = W_router y + b_router" : "scores = W_router y"};
    if (e.limit > 0) {
      formula.push_back(fmt::format("g = min(W_gate y + b_gate, {0:g}),  u = clamp(W_in y + b_in, −{0:g}, {0:g})", e.limit));
      formula.push_back(fmt::format("expertₑ(y) = W_out (g σ({:g} g) ⊙ (u + 1)) + b_out", e.slope));
    } else {
      formula.push_back("expertₑ(y) = W_out (" + f + "(W_gate y) ⊙ W_in y)");
    }
    formula.emplace_back("update = Σ weightₑ · expertₑ(y), over the chosen e");
    add("mlp", "The experts", "What do the experts cost, and what do they bend?", std::move(text), std::move(formula), {"mlp"},
        shapes, {"experts", "expert-load", "activation-curves", "mlp-surfaces"});
  }
  bool router_has_bias() const {
    return std::any_of(facts_.parameters.matrices.begin(), facts_.parameters.matrices.end(), [](const auto& entry) {
      return entry.first.ends_with("router") && static_cast<bool>(entry.second->bias);
    });
  }

  void mlp() {
    const std::string f = activation_name(facts_.activation) == "silu"   ? "silu"
                          : activation_name(facts_.activation) == "relu" ? "relu"
                                                                         : "gelu";
    std::vector<std::string> text;
    text.push_back(
        facts_.gated
            ? fmt::format("The second part of a layer looks at each token alone. Two matrices make {} numbers each from its "
                          "vector; one of them goes through {} and then gates the other, place by place. A third matrix brings "
                          "the product back to the width of the stream.",
                          s().d_ff, f)
            : fmt::format("The second part of a layer looks at each token alone. One matrix makes {} numbers from its vector, "
                          "each goes through {}, and a second matrix brings them back to the width of the stream.",
                          s().d_ff, f));
    text.push_back(
        "Without the bend in the middle, two matrices in a row would be no more than one. With it the space of inputs falls into "
        "regions, one for each set of hidden units that are on. In a region the function is linear; with a gate it is quadratic, "
        "so it can curve.");
    text.push_back(
        fmt::format("The surfaces build this up for two inputs and three hidden units. This model's form is {}. ReLU's corners "
                    "come out as folds; GELU and SiLU round them off.",
                    facts_.mlp_title()));
    if (facts_.experts) return experts(std::move(text), f);
    std::vector<StepShape> shapes = {
        {facts_.gated ? "gate" : "hidden", "blocks.*.mlp.hook_pre", {n(), s().d_ff}, {"token", "unit"}}};
    if (facts_.gated) shapes.push_back({"up", "blocks.*.mlp.hook_pre_linear", {n(), s().d_ff}, {"token", "unit"}});
    shapes.push_back({"z", "blocks.*.mlp.hook_post", {n(), s().d_ff}, {"token", "unit"}});
    shapes.push_back({"update", "blocks.*.hook_mlp_out", {n(), s().d_model}, {"token", "component"}});
    add("mlp", "The MLP (" + facts_.mlp_title() + ")", "Why the bend in the middle?", std::move(text),
        {"z = " + f + "(" +
             (facts_.gated ? product("mlp", "gate", "y") + ") ⊙ (" + product("mlp", "in", "y") : product("mlp", "in", "y")) + ")",
         "update = " + product("mlp", "out", "z")},
        {"mlp"}, shapes, {"activation-curves", "mlp-surfaces"});
  }

  void post_norm() {
    add("post-norm", "A norm on the way out, too", "What follows for the sum of parts?",
        {"This model normalizes twice: what a part reads, and what it writes. The second norm sets the size of the update before "
         "it is added, whatever the part computed; its learned weight says how much each component may change.",
         "For the sum of parts it means that each head's share must go through that norm with the scale of this run."},
        {"x ← x + norm₂(part(norm₁(x)))"}, {"post-norm"},
        {{"update", "blocks.*.ln1_post.hook_normalized", {n(), s().d_model}, {"token", "component"}}}, {});
  }

  // How the lengths differ in this run, with a space at the end.
  std::string final_lengths() const {
    const std::vector<float>& before = studio_.seen.norms.back().in_rms;
    if (before.size() < 2) return "";
    const auto [low, high] = std::minmax_element(before.begin(), before.end());
    return fmt::format("By now the lengths differ: the root mean square goes from {:.3g} to {:.3g}, the largest at position {}. ",
                       *low, *high, high - before.begin());
  }

  void final_norm() {
    add("final-norm", "The final norm", "Why one more norm before the scores?",
        {"Once more each token's vector is brought to one size, but for the norm's learned weights.",
         final_lengths() +
             "The scores to come are dot products, and longer vectors would make the model surer of itself for no good reason."},
        {"x ← " + normed()}, {"final-norm"}, {{"x", "ln_final.hook_normalized", {n(), s().d_model}, {"token", "component"}}},
        {"final-norm"});
  }

  void output() {
    std::vector<std::string> formula = {
        "logit[t, v] = " + (facts_.logit_scale != 1 ? fmt::format("{:g} · ", facts_.logit_scale) : std::string()) + "x[t] · " +
        unembedding() + "[v]" + (output_bias() ? " + b_U[v]" : "")};
    if (facts_.final_softcap != 0) formula.emplace_back("logit ← c · tanh(logit / c)");
    formula.emplace_back("p(next = v) = e^logit[v] / Σᵤ e^logit[u]");
    const TokenLogprob& best = studio_.seen.next.back().front();
    add("output", "From vectors to predictions", "Which token is it, and what happens then?",
        {fmt::format(
             "Every vector is compared by dot product with {} row for each of the {} entries of the vocabulary{}: one score "
             "each, "
             "the logits. Softmax makes them probabilities. Every position gets its own prediction, from what came up to there.",
             s().tied ? "the embedding" : "a", with_thin_spaces(s().vocab_size),
             output_bias() ? ", and the entry's bias is added" : ""),
         fmt::format("After the last token the most likely continuation is \"{}\", with probability {:.1f} %.",
                     studio_.piece(best.token), 100 * std::exp(static_cast<double>(best.logprob))),
         "To go on writing, a program picks one of the candidates, appends it to the prompt and runs the model again."},
        std::move(formula), {"head"}, {{"logits", "hook_logits", {n(), s().vocab_size}, {"token", "vocabulary"}}},
        {"next-tokens", "logit-lens"});
  }

  void attribution() {
    const bool after = facts_.norm_place == NormPlace::after;
    std::vector<std::string> kinds;
    for (const PictureJson& part : pictures_.at("logit-attribution").at("components")) kinds.push_back(part.at("kind"));
    const bool biases = std::any_of(kinds.begin(), kinds.end(), [](const std::string& kind) { return kind.ends_with("-bias"); });
    add("attribution", "Who wrote the answer", "How can a logit be taken apart?",
        {fmt::format(
             "{}, and a logit is a dot product with it. So a logit, too, is a sum: one number for the embedding, {}for every "
             "head of every layer{} for every MLP{}.",
             after ? "With its norms held the stream is a sum" : "The stream is a sum",
             facts_.positions == Positions::rotary || facts_.positions == Positions::none ? "" : "for the position, ",
             biases ? "," : " and", biases ? " and for every bias" : ""),
         fmt::format(
             "{}, which makes the rest linear. The parts then add up to the logit before any cap, and what rounding leaves "
             "over is written beside it. A large number says that a part pushed the answer directly; what it did through "
             "later parts is not in it.",
             after ? "Each norm divides by a length that depends on the whole sum; here all are held at the values of this run"
                   : "The final norm divides by a length that depends on the whole sum; here it is held at the value of this "
                     "run")},
        {fmt::format("logit = Σ over parts ({}(part) · {}[token]) + remainder", after ? "norms behind it" : "norm",
                     unembedding())},
        {}, {}, {"logit-attribution"});
  }

  void reach() {
    const bool windows = some_windows(), all = windows && only_windows();
    std::vector<std::string_view> tags;
    if (windows) tags.emplace_back("window");
    const bool of_one_size =
        std::all_of(facts_.windows.begin(), facts_.windows.end(), [&](int64_t w) { return w == facts_.windows[0]; });
    std::vector<std::string> formula;
    if (windows) formula.emplace_back("t sees s  if  t − window < s ≤ t");
    if (!all) formula.emplace_back(windows ? "without a window:  t sees s  if  s ≤ t" : "t sees s  if  s ≤ t");
    add("reach", "How far a layer sees, and what is kept", "Why keep keys and values?",
        {!windows ? std::string("Every layer sees the whole text up to the token at hand.")
         : all
             ? fmt::format("Every layer sees a window of the nearest tokens only{}.{}",
                           of_one_size ? fmt::format(", {} of them", facts_.windows[0]) : "",
                           s().n_layers > 1 ? " Through several layers, content still travels further than one window." : "")
             : std::string("Some layers see a window of the nearest tokens only, others the whole text. Through several layers, "
                           "content still travels further than one window."),
         std::string(
             "When a next token is appended, the keys and values of all earlier ones that it sees are needed again and have "
             "not changed: they are kept in a cache. Its size is what long texts cost.") +
             (windows ? " A window layer needs only its window, and reuses the memory of what lies before it." : "")},
        std::move(formula), tags, {}, {"reach"});
  }

  void input_attribution() {
    const PictureJson& p = pictures_.at("input-attribution");
    const auto token = p.at("target").at("id").get<int32_t>();
    std::vector<std::string> text = {
        fmt::format("Which tokens of the prompt does the answer rest on? Let f be the log-probability of \"{}\" after the last "
                    "token. Its gradient at a token's embedding says how f changes when that embedding changes a little. The "
                    "length of the gradient is the token's saliency: how sensitive the answer is to it, without a sign. Its dot "
                    "product with the embedding says, to first order, what f would lose if the embedding were taken away.",
                    studio_.piece(token)),
        "Both look at one point only. Where the model is sure, f is flat: a word may be what makes it sure and still have a "
        "small gradient."};
    std::vector<std::string> formula = {"saliency[t] = |∂f/∂e[t]|", "gradient × input[t] = ∂f/∂e[t] · e[t]"};
    if (const PictureJson& integrated = p.at("integrated"); !integrated.is_null()) {
      const double value = p.at("target").at("logprob"), from = integrated.at("baselineLogprob");
      text.push_back(fmt::format(
          "Integrated gradients walk the whole way from a prompt that says nothing, in which every embedding is the mean of the "
          "vocabulary's, to this one, and add up what each token contributes at every point. The parts are complete: they sum to "
          "the difference between f here, {:.4g}, and f there, {:.4g}. Here they miss it by {:.2g}, because the integral is "
          "taken at {} points.",
          value, from, std::abs(integrated.at("gap").get<double>()), integrated.at("points").get<int64_t>()));
      formula.emplace_back("integrated[t] = (e[t] − b) · ∫ ∂f/∂e[t] at b + a (e − b) da,   a from 0 to 1");
      formula.emplace_back("Σₜ integrated[t] = f(e) − f(b)");
    }
    text.emplace_back(
        "The first token often stands out: attention looks at it where it has nothing better to look at, so every later token "
        "depends on it. `vitrine attribute` takes any other token, and one token against another.");
    add("input-attribution", "Which tokens the answer rests on", "What does a gradient not tell?", std::move(text),
        std::move(formula), {}, {{"e", "hook_embed", {n(), s().d_model}, {"token", "component"}}}, {"input-attribution"});
  }

  void back_propagation() {
    const bool after = facts_.norm_place == NormPlace::after;
    const PictureJson& p = pictures_.at("gradient-norms");
    std::vector<std::string> text = {
        fmt::format(
            "A model learns by asking how wrong it was. For this prompt the error is the mean of −log p(the token that really "
            "follows) over its {}: {:.4g}. Back-propagation then walks from the end to the beginning and finds for every number "
            "on the way by how much the error would rise if that number rose a little: its gradient. First for the last layer, "
            "from that for the layer before it, and so on down to the embeddings. Here the model runs backward, but nothing is "
            "changed; training would now move every parameter a small step against its gradient.",
            plural(n() - 1, "prediction"), studio_.backward->loss),
        "On its way each layer multiplies the gradient. If each makes it smaller, next to nothing arrives at the first layers, "
        "and they cannot learn: it vanishes, a curve that falls to the left by powers of ten. If each makes it larger, the first "
        "layers are told to change so much that it drowns everything else: it explodes, a curve that rises to the left. Near to "
        "level is healthy: every layer learns at about the same pace."};
    text.push_back(
        after ? std::string("Two things hold it. The sum with what came before lets the gradient pass beside each part, whatever "
                            "the part does; and the norm behind the sum keeps the numbers at one size, and with them what the "
                            "next layers multiply.")
              : std::string("Two things hold it. The sum lets the gradient pass unchanged beside each part, whatever the part "
                            "does (the first term of the formula); and a norm divides by the size of what it reads, so that "
                            "numbers that grow from layer to layer do not multiply the gradient as well."));
    const PictureJson& without = p.at("withoutNorms");
    if (std::any_of(without.begin(), without.end(), [](const PictureJson& norm) { return !norm.is_null(); }))
      text.emplace_back(
          "The second curve is this very model with its norms switched off. A model is not trained to run so; but the curve "
          "shows what the norms hold back.");
    else if (!without.is_null())
      text.emplace_back(
          "With its norms switched off this model's numbers leave the range of 32-bit floats before they reach the end; then "
          "there is no error to learn from, and no gradient at all.");
    if (!p.at("parameters").is_null())
      text.emplace_back(
          "The gradient of a matrix is the sum over the tokens of what came back to its output times what it had read. So a "
          "large one may come from either side, and its length also grows with the matrix's size: compare layers with each "
          "other, not attention with the MLP.");
    text.emplace_back(
        "Every number on the way has a gradient. The grid shows its length at the hook that you choose, for each layer and "
        "token: where the error could be changed. A click gives the command that writes the whole gradient to a file.");
    add("back-propagation", "The way back: what training would change", "When does a gradient vanish or explode?",
        std::move(text),
        {"loss = − mean over t of log p(token[t + 1] | token[0 … t])", "g = ∂loss/∂x,   of the stream x that enters a layer",
         after ? "g before a part = (1 + ∂part/∂x)ᵀ (∂norm)ᵀ g after it"
               : "g before a part = g after it + (∂part/∂x)ᵀ g after it",
         "∂loss/∂W = Σₜ ∂loss/∂y[t] · x[t]ᵀ   for y = W x"},
        {after ? "residual-after" : "residual"}, {{"g", "blocks.*.hook_resid_pre", {n(), s().d_model}, {"token", "component"}}},
        {"gradient-norms", "gradient-hooks"});
  }

  void merging() {
    const PictureJson& p = pictures_.at("interpolation");
    const PictureJson& pair = p.at("pairs")[0];
    const auto length = [&](const char* key) { return pair.at(key).get<double>(); };
    const auto angle = [](double radians) { return radians * 180 / std::numbers::pi; };
    std::vector<std::string> text = {
        fmt::format(
            "Models of one shape can be merged: a new model whose every weight is computed from the same weight of the others, "
            "without training. The simplest way is to average. How much that keeps depends on the angle between the two: of two "
            "vectors of one length that are Ω apart, the average is shorter by the factor cos(Ω/2). The picture takes two rows "
            "of {} for the weights of two models. The two that are most alike{}, rows {} and {}, stand {:.1f}° apart; their "
            "lengths are {:.3g} and {:.3g}, that of their average is {:.3g}.",
            p.at("matrix").get<std::string>(),
            p.at("read") == p.at("shape")[0] ? "" : fmt::format(" of its first {}", p.at("read").get<int64_t>()),
            pair.at("rows")[0].dump(), pair.at("rows")[1].dump(), angle(pair.at("angle").get<double>()),
            pair.at("lengths")[0].get<double>(), pair.at("lengths")[1].get<double>(), length("averageLength")),
        pair.at("straight").get<bool>()
            ? std::string("SLERP, spherical linear interpolation, goes along the arc instead of the straight line and keeps the "
                          "length. Two vectors that are as nearly parallel or opposite as these have no arc that rounding "
                          "leaves alone; there it takes the straight line, too.")
            : fmt::format("SLERP, spherical linear interpolation, goes along the arc instead of the straight line and keeps the "
                          "length: here the middle has length {:.3g}. Where the lengths differ it passes from one to the other.",
                          length("slerpLength")),
        "Nothing keeps the rows of one matrix near each other. The weights of two models that were fine-tuned from the same "
        "start usually are near: they are almost parallel, and averaging them costs next to no length. What the fine-tuning did "
        "is the small difference, and of that an average does lose."};
    std::vector<std::string> formula = {"cos Ω = a · b / (|a| |b|)",
                                        "average = (a + b) / 2,   of length cos(Ω/2) · |a|  where |a| = |b|",
                                        "slerp(a, b, t) = sin((1 − t)Ω) / sin Ω · a + sin(tΩ) / sin Ω · b"};
    std::vector<const char*> shown = {"interpolation"};
    if (is_available("task-vectors")) {
      const PictureJson& tasks = pictures_.at("task-vectors");
      text.push_back(fmt::format(
          "Therefore many methods merge task vectors: what each model has learned since the start, τ = θ − θ₀. The second "
          "picture takes the mean of the matrix's rows for that start, because a model's file does not hold where its training "
          "began. Measured from there the same two rows are {:.1f}° apart. Their task vectors have lengths {:.3g} and {:.3g}; "
          "the average has {:.3g}, the middle of the arc {:.3g}.",
          angle(tasks.at("taskAngle").get<double>()), tasks.at("taskLengths")[0].get<double>(),
          tasks.at("taskLengths")[1].get<double>(), tasks.at("averageLength").get<double>(),
          tasks.at("slerpLength").get<double>()));
      text.emplace_back(
          "WARP, which Gemma 2's report cites, merges so: an average that follows each run while it trains (EMA), "
          "SLERP "
          "of the task vectors, and then LITI, a step on the straight line from the merge back to the start. With η = 1 all that "
          "was learned stays, with η = 0 nothing; between the two the model forgets less of what it knew before.");
      formula.insert(formula.end(),
                     {"τ₁ = θ₁ − θ₀,   τ₂ = θ₂ − θ₀", "θ = θ₀ + slerp(τ₁, τ₂, t)", "LITI:   θ(η) = θ₀ + η (θ − θ₀)"});
      shown.push_back("task-vectors");
    }
    const PictureJson& shape = p.at("shape");
    add("merging", "Merging models", "Why not simply average?", std::move(text), std::move(formula), {},
        {{"W_in", nullptr, {shape[0].get<int64_t>(), shape[1].get<int64_t>()}, {"unit", "component"}}}, shown);
  }

  Studio& studio_;
  const ModelFacts& facts_;
  const PictureJson& pictures_;
  std::vector<std::string_view> files_;
  PictureJson list_ = PictureJson::array();
};

}  // namespace

DocumentRuns explain_runs(Engine& engine, const PicturePrompt& prompt, const PictureOptions& options) {
  require_family_form(engine.model(), engine.name(), "The walk-through");
  return {
      engine, prompt, options, {}, [](Studio& studio, const PictureJson& pictures) { return Walk(studio, pictures).steps(); }};
}

PictureJson explain_document(Engine& engine, const PicturePrompt& prompt, const PictureOptions& options) {
  return explain_runs(engine, prompt, options).take();
}

}  // namespace vitrine
