// The ten most likely tokens after a prompt, with their probabilities.
//   top_ten MODEL [TEXT]
#include <vitrine/vitrine.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s MODEL [TEXT]\n", argv[0]);
    return 2;
  }
  const std::string text = argc > 2 ? argv[2] : "Once upon a time";
  try {
    vitrine::LanguageModel model(argv[1]);
    // One entry for each position that was asked for: here the last one alone.
    const vitrine::NextTokens next = model.predict(text, {.top = 10}).back();
    double sum = 0;
    for (const vitrine::NextToken& token : next.top) {
      sum += token.probability();
      std::printf("%6.2f %%  %6d  %s\n", 100 * token.probability(), token.token, token.piece.c_str());
    }
    std::printf("%6.2f %%  together\n", 100 * sum);
  } catch (const vitrine::InputError& error) {  // a missing file, an empty prompt
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  } catch (const vitrine::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
