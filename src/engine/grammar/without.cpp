// In the place of compile.cpp in a build without llguidance.
#include "base/error.h"
#include "grammar/grammar.h"

namespace vitrine {

struct GrammarCompiler::Vocabulary {};

bool has_grammars() { return false; }
void start_mask_threads() {}

GrammarCompiler::GrammarCompiler(const Tokenizer&, int64_t) {
  throw UsageError(
      "this vitrine was built without grammars (JSON schemas, regular expressions, GBNF): they need the library llguidance. "
      "Install Rust 1.87 or newer (cargo) and build again with -DVITRINE_GRAMMARS=ON");
}
GrammarCompiler::~GrammarCompiler() = default;

std::shared_ptr<const Constraint> GrammarCompiler::compile(const Grammar&) const { return nullptr; }

}  // namespace vitrine
