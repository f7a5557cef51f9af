// What one attention head does for a prediction: runs a prompt twice, the second time with that head's output set to zero, and
// compares the probabilities of the tokens that were most likely before.
//   head_off MODEL LAYER HEAD [TEXT]
#include <vitrine/vitrine.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <span>
#include <string>

namespace {

// An edit of hook_z, [position, head, head_dim]: what the heads read from their values, before W_O joins them.
vitrine::HookEdit head_off(const std::string& layer, std::int64_t head) {
  return {
      "blocks." + layer + ".attn.hook_z", [head](const vitrine::HookView& z) {
        const std::int64_t heads = z.shape[1], width = z.shape[2];
        if (head < 0 || head >= heads)
          throw vitrine::InputError("head " + std::to_string(head) + ": the model has heads 0 to " + std::to_string(heads - 1));
        for (std::int64_t row = 0; row < z.shape[0]; ++row) {
          const std::int64_t first = (row * heads + head) * width;
          for (float& value : z.values.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(width))) value = 0;
        }
      }};
}

int compare(const char* name, const std::string& layer, std::int64_t head, const std::string& text) {
  vitrine::LanguageModel model(name);
  const vitrine::NextTokens before = model.predict(text, {.top = 5}).back();
  // All tokens, because what was likely before may be unlikely now.
  const vitrine::NextTokens after =
      model.predict(text, {.top = model.description().vocab_size, .edits = {head_off(layer, head)}}).back();
  std::map<std::int32_t, double> probability;
  for (const vitrine::NextToken& token : after.top) probability[token.token] = token.probability();
  std::printf("  before   without head %lld of layer %s\n", static_cast<long long>(head), layer.c_str());
  for (const vitrine::NextToken& token : before.top)
    std::printf("%6.2f %%  %6.2f %%  %s\n", 100 * token.probability(), 100 * probability[token.token], token.piece.c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s MODEL LAYER HEAD [TEXT]\n", argv[0]);
    return 2;
  }
  try {
    return compare(argv[1], argv[2], std::atoll(argv[3]), argc > 4 ? argv[4] : "The old king and the old");
  } catch (const vitrine::InputError& error) {  // a missing file, a layer that the model does not have
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const vitrine::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
