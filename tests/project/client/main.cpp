#include <vitrine/vitrine.h>

#include <cstdio>

int main(int argc, char** argv) {
  vitrine::LanguageModel model(argc > 1 ? argv[1] : "google/gemma-2b");
  const auto expected = model.predict("Once upon a time", {.top = 3});
  for (const vitrine::NextToken& next : expected.back().top)
    std::printf("%6.2f %%  %s\n", 100 * next.probability(), next.piece.c_str());
  const auto seen = model.trace("Once upon a time", {"blocks.*.attn.hook_pattern"});
  std::printf("%zu attention patterns, vitrine %s\n", seen.size(), vitrine::version());
}
