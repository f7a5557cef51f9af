// bench_grammars VOCABULARY [TEXTS]: reads a JSON schema a line and writes TEXTS random texts of each, drawn at temperature 1.5,
// as lines
// {"schema": i, "text": ..., "complete": ...} or {"schema": i, "refused": ...}; to standard error, what compiling, cloning and
// masks cost. VOCABULARY: gpt2 (50,257 tokens), gemma (256,000) or tales9m. scripts/check_grammars.py checks the texts.
#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "base/json.h"
#include "base/stopwatch.h"
#include "base/utf8.h"
#include "grammar/grammar_support.h"

namespace {

struct Costs {
  std::vector<double> ms;
  void say(const char* what) {
    if (ms.empty()) return;
    std::ranges::sort(ms);
    double sum = 0;
    for (const double x : ms) sum += x;
    const auto at = [&](double share) { return ms[static_cast<size_t>(share * static_cast<double>(ms.size() - 1))]; };
    std::fprintf(stderr, "%-8s %6zu times: mean %8.3f ms, median %8.3f, 99%% %8.3f, most %8.3f\n", what, ms.size(),
                 sum / static_cast<double>(ms.size()), at(0.5), at(0.99), ms.back());
  }
};

}  // namespace

int main(int argc, char** argv) {
  using namespace vitrine;
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_grammars gpt2|gemma|tales9m [TEXTS] < SCHEMAS\n");
    return 2;
  }
  const Stopwatch opening;
  const GrammarFixture& f = fixture(argv[1]);
  std::fprintf(stderr, "%s: %d tokens, ready in %.0f ms\n", argv[1], f.tokenizer->vocab_size(), opening.ms());
  const uint64_t texts = argc > 2 ? std::stoull(argv[2]) : 10;
  Costs compiling, cloning, masks;
  std::string line;
  for (int64_t i = 0; std::getline(std::cin, line); ++i) {
    std::shared_ptr<const Constraint> grammar;
    const Stopwatch watch;
    try {
      grammar = f.compiler->compile({.kind = GrammarKind::json_schema, .text = line, .source = "schema"});
    } catch (const InputError& e) {
      std::cout << Json{{"schema", i}, {"refused", e.what()}}.dump() << "\n";
      continue;
    }
    compiling.ms.push_back(watch.ms());
    for (uint64_t seed = 0; seed < texts; ++seed) {
      const Stopwatch copying;
      grammar->clone();
      cloning.ms.push_back(copying.ms());
      Written written;
      try {
        written = write_randomly(f, *grammar, seed, 200, &masks.ms);
      } catch (const RunError& e) {
        std::cout << Json{{"schema", i}, {"failed", e.what()}}.dump() << "\n";
        continue;
      }
      std::cout << Json{{"schema", i}, {"text", utf8_lossy(written.text)}, {"complete", written.complete}}.dump() << "\n";
    }
  }
  compiling.say("compile");
  cloning.say("clone");
  masks.say("mask");
}
