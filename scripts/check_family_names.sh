#!/usr/bin/env bash
# What a family is stands in its file in src/engine/model alone: elsewhere nothing names a family, reads its configuration's JSON or
# knows the keys that only vitrine writes.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0

# Prints the lines that match, outside src/engine/model. The tokenizers' names of GGUF ("gpt2", "llama"), those of chat templates, of
# parsers of tool calls and of the book's chapters are not those of families.
look() {  # what pattern [paths to leave out]
  local found
  found=$(grep -rnE "$2" src python/src --include='*.cpp' --include='*.h' | grep -v "^src/engine/model/" | grep -vE "^${3:-src/engine/model/}" || true)
  [ -z "$found" ] && return
  echo "$1 outside src/engine/model:"
  echo "$found"
  status=1
}

families=$(sed -n 's/^ *FAMILY(\([a-z0-9_]*\)).*/\1/p' src/engine/model/registry.cpp | paste -sd '|')
[ -n "$families" ] || { echo "src/engine/model/registry.cpp lists no family: has the table changed?"; exit 1; }
look "a family's name" "\"($families)\"" "src/engine/tokenizer/|src/lab/merge/chat_templates|src/app/serve/tool_calls|src/app/picture/page/chapters.cpp"
look "a key that only vitrine writes" 'vitrine_(norms|residual|mlp|affine|positions|causal|rotary_value)'
look "a model's configuration as JSON" '(files\.|files_\.|model_)config(\[|\.(value|contains|find|at|erase)\()'
exit "$status"
