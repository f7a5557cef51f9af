#!/usr/bin/env bash
# Makes a gallery of pages for a web site: plain files that any static host serves. index.html tells what each page is.
#   make_gallery.sh OUTDIR [--program PROGRAM] [--pages NAME,NAME] [MODEL...]
# PROGRAM: default build/release/vitrine. --pages: only these of live, gpt2, gemma2, text, heads, patch, ablate, film, compare.
# MODEL: models at hand, folders or .gguf files; each gets a report of its own. film trains a small model for half a minute and
# needs python3. The social picture needs Node, web/node_modules (npm ci) and Chromium; without them it is left out.
# shellcheck disable=SC1111  # typographic quotes in the texts
set -euo pipefail
source=$(cd "$(dirname "$0")/.." && pwd)
usage() {
  echo "usage: make_gallery.sh OUTDIR [--program PROGRAM] [--pages NAME,NAME] [MODEL...]" >&2
  exit 2
}
case ${1:--} in -*) usage ;; esac
out=$1
shift
program=$source/build/release/vitrine
pages=live,gpt2,gemma2,text,heads,patch,ablate,film,compare
models=()
while [ $# -gt 0 ]; do
  case $1 in
    --program) program=${2:?--program needs a path}; shift 2 ;;
    --pages) pages=${2:?--pages needs names}; shift 2 ;;
    -*) usage ;;
    *) models+=("$(realpath -e "$1")"); shift ;;
  esac
done
program=$(realpath -e "$program")
mkdir -p "$out"
out=$(realpath "$out")

# Everything is made in one folder that looks like the repository, so that the commands on the pages name no folder of this machine.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
for folder in models examples tests; do ln -s "$source/$folder" "$folder"; done
run() { "$program" "$@" > log 2>&1 || { cat log >&2; exit 1; }; }

entries=""
# What a reader finds in index.html: the page, its title, and what it is.
page() {
  local name=$1 title=$2 what=$3
  shift 3
  case $name in model-*) ;; *) case ,$pages, in *,"$name",*) ;; *) return 0 ;; esac ;; esac
  echo "make_gallery: $name" >&2
  "$@" "$name.html"
  local size
  size=$(stat -c %s "$name.html")
  if [ "$size" -ge 1000000 ]; then size="$((size / 1000000)).$((size / 100000 % 10)) MB"; else size="$((size / 1000)) kB"; fi
  mv "$name.html" "$out/$name.html"
  entries+="<li><a href=\"$name.html\">$title</a> <small>$size</small><p>$what</p></li>"$'\n'
}
escaped() { sed 's/&/\&amp;/g; s/</\&lt;/g; s/>/\&gt;/g; s/"/\&quot;/g' <<< "$1"; }

king="Once upon a time there was a king"
fox="The quick brown fox jumps over it"
film() {
  python3 examples/induction/make_data.py repeats.txt
  run data repeats.txt --document '\n' --valid 0.02 --tokenizer characters --out repeats
  run train examples/induction/train.yaml
  run circuits --checkpoints induction-model --repeat 13 --page "$1"
}
compare() {
  run convert models/tales9m tales9m-q4_0.gguf --dtype q4_0
  run compare models/tales9m tales9m-q4_0.gguf "$king who lived in a great castle by the sea" --page "$1"
}
page live "A language model at work, in the page" "“$king”: how a model of nine million parameters comes to its next word, step by step. The model is in the page. Change the prompt, switch a head off, and see what becomes of the answer." \
  run explain "$king" --live --out
page text "A text, colored by its loss" "Fables by Aesop, each word colored by how little the model expected it, with what it expected instead." \
  run eval perplexity --file examples/fables.txt --context 256 --out
page heads "What attention heads look at" "Every head of the model: does it look at the previous token, at copies, at what followed a copy? And which head reads what another writes." \
  run circuits --page
page patch "Where the model keeps “king” or “queen”" "Activation patching: a value of one run is put into another, at every layer and position. Press a cell to see what the model then expects." \
  run intervene examples/patch-king-queen.yaml --compute f32 --page
page ablate "Which heads an answer needs" "After “Hansel and Gretel, Hansel and” comes “Gretel”. One head at a time is switched off." \
  run intervene examples/ablate-heads.yaml --compute f32 --page
page film "How induction heads come to be" "A film over the checkpoints of a training: when two heads learn to repeat what has been read once, the loss of repeated letters falls." \
  film
page compare "A model and its copy of four bits" "The same prompt through both: where the predictions part, in which layer, and which heads look elsewhere." \
  compare
page gpt2 "The design of GPT-2" "A walk through a tiny model of GPT-2's design with random weights: learned positions, LayerNorm, a plain MLP." \
  run explain "$fox" --model tests/golden/models/gpt2_a/model --out
page gemma2 "The design of Gemma 2" "The same walk through a tiny model of Gemma 2's design with random weights: rotary positions, windows, soft caps, norms before and after." \
  run explain "$fox" --model tests/golden/models/gemma2/model --out
for model in ${models[@]+"${models[@]}"}; do
  name=$(basename "$model")
  ln -s "$model" "$name"
  page "model-$(tr -c 'A-Za-z0-9.\n' - <<< "$name")" "$(escaped "$name")" "“$king” through this model." run explain "$king" --model "$name" --out
done
[ -n "$entries" ] || { echo "make_gallery: no page of that name" >&2; usage; }

cat > index.html <<HTML
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="description" content="Pages that show the inside of language models: every number comes from a run of the model.">
<meta property="og:title" content="The inside of language models, in pages">
<meta property="og:description" content="Pages that show the inside of language models: every number comes from a run of the model.">
<meta property="og:image" content="social.png">
<link rel="icon" href="data:,">
<title>The inside of language models, in pages</title>
<style>
:root { --paper: #fdfcfa; --ink: #1d2126; --quiet: #575e67; --rule: #d9d7d1; --link: #14589b; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181f; --ink: #e4e6ea; --quiet: #a3abb6; --rule: #363d48; --link: #8cc1f0; } }
html { background: var(--paper); color: var(--ink); font: 1.125rem/1.6 Charter, "Bitstream Charter", "Iowan Old Style", Cambria, Georgia, "Noto Serif", "DejaVu Serif", serif; }
body { margin: 0; }
main { max-width: 42.5rem; margin: 0 auto; padding: clamp(2rem, 8vh, 5rem) 1.25rem 4rem; }
h1 { font-size: clamp(1.75rem, 5vw, 2.5rem); line-height: 1.18; letter-spacing: -0.012em; text-wrap: balance; margin: 0 0 1.2rem; }
ul { list-style: none; margin: 2rem 0; padding: 0; }
li { border-top: 1px solid var(--rule); padding: 0.9rem 0; }
li a { font-size: 1.2rem; font-weight: 600; color: var(--link); }
small { font: 0.8rem/1 system-ui, sans-serif; color: var(--quiet); white-space: nowrap; margin-left: 0.4rem; }
li p { margin: 0.3rem 0 0; }
footer { border-top: 1px solid var(--rule); padding-top: 1rem; font: 0.88rem/1.55 system-ui, sans-serif; color: var(--quiet); }
</style>
</head>
<body>
<main>
<h1>The inside of language models, in pages</h1>
<p>Each of these pages is one file. It loads nothing, works without a network once it is here, and every number on it comes from a run of the model that it names. The commands that make them stand on the pages.</p>
<ul>
$entries</ul>
<footer>Made by $(escaped "$("$program" --version | head -1)").</footer>
</main>
</body>
</html>
HTML
mv index.html "$out/index.html"

# The picture that goes with a link to the gallery: the opening of its first page.
no_social() {
  sed -i '/og:image/d' "$out/index.html"
  echo "make_gallery: no social picture: $1" >&2
}
if command -v node > /dev/null && [ -d "$source/web/node_modules/playwright-core" ]; then
  node "$source/web/test/social.mjs" "$out" || no_social "see above"
else
  no_social "it needs Node and the packages of web/ (npm ci)"
fi
echo "$out/index.html"
