#include "cli/commands.h"

namespace vitrine::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> table = {
      {"predict", "Predict the next token",
       "The prompt is a text, token ids or a file of texts. The table shows pieces as the vocabulary spells them, with their "
       "probabilities and bars. With --all-positions there is one line for each position, with the piece that actually "
       "follows in brackets. With sampling flags a column shows the probability that `vitrine generate` samples each token. "
       "A model in both directions fills masks: the table is of each [MASK] of the text, as in \"The [MASK] of France\", "
       "and with --all-positions of the token at each position itself. --compute, --exact, quantized weights and the number of "
       "tokens in one step round differently, so the last digits of a probability can differ between them (docs/numerics.md).",
       "vitrine predict \"In the middle of the forest there stood a house, and in the house lived\"\n"
       "vitrine predict --all-positions --top 3 \"Once upon a time there was a king\"",
       define_predict},
      {"generate", "Continue a prompt",
       "Decoding is greedy unless a sampling flag is given; --beams uses beam search. The text is streamed. The sampling "
       "rules are those of Hugging Face's generate(), and their order can be set. --lookup and --draft make decoding faster "
       "without changing the tokens (speculative decoding): docs/speculative-decoding.md explains when.",
       "vitrine generate \"Once upon a time\" --max-tokens 40 --temperature 0.8 --seed 7\n"
       "vitrine generate \"The old king\" --max-tokens 12 --beams 4 --return 2",
       define_generate},
      {"chat", "Chat with a model through its chat template",
       "Reads your messages line by line, or one TEXT, and streams the answers. Control tokens spelled out in a message stay "
       "text. If the tokenizer adds BOS, it occurs once at the beginning, whether the template writes it or not. --show-prompt "
       "prints what the template wrote.",
       "vitrine chat \"There was once a king\" --template examples/plain-chat.jinja --max-tokens 24", define_chat},
      {"serve", "Answer requests over HTTP",
       "By default only this machine has access, without a key. --host and --api-key give other machines access. SIGTERM and "
       "Ctrl-C let running answers finish. docs/serving.md describes keys, TLS, limits and several replicas.",
       "vitrine serve --port 8080", define_serve, "a signal to end"},
      {"tokenize", "Split text into tokens: ids, pieces, byte offsets",
       "--model may also be a bare tokenizer: a folder with tokenizer.json, tokenizer.model, vocab.json and merges.txt, or "
       "vocab.txt, or one such file.",
       "vitrine tokenize \"The old king had three sons\"\nvitrine tokenize --json \"The old king had three sons\"",
       define_tokenize},
      {"detokenize", "Join token ids to text",
       "The text is the same, byte for byte, as that of the tokenizer's reference library.",
       "vitrine detokenize 2,2165,374,650,264,614", define_detokenize},
      {"tokenizer", "Train a tokenizer: tokenizer train", "", "", nullptr},
      {"tokenizer train", "Train a tokenizer on text files",
       "Builds a vocabulary by byte-pair encoding (BPE): the most frequent pair of neighboring pieces is repeatedly merged into "
       "a new piece. byte-bpe gives the same ids and merges as Hugging Face's BpeTrainer with the ByteLevel pre-tokenizer. "
       "sentencepiece-bpe gives the same pieces as SentencePiece's trainer without normalization. Writes tokenizer.json, "
       "tokenizer_config.json and, for sentencepiece-bpe, "
       "tokenizer.model. \\n, \\t, \\r and \\\\ can be written in --special, --user-defined and --document. "
       "docs/tokenizer-training.md explains the rules.",
       "vitrine tokenizer train examples/fables.txt --vocab-size 400 --out fables-bytes --show-merges\n"
       "vitrine tokenizer train examples/fables.txt --kind sentencepiece-bpe --vocab-size 600 --user-defined '\\n' --out "
       "fables-pieces\n"
       "vitrine tokenize --model fables-pieces \"A lion and a mouse\"",
       define_tokenizer_train},
      {"data", "Tokenize text files into training data",
       "Reads plain files or JSON lines, compressed or not. Text is read as a stream, so memory does not grow with the "
       "corpus. The output is the same for any number of threads. Control tokens spelled out in the text stay text. See "
       "docs/token-data.md.",
       "vitrine data examples/fables.txt --document '\\n\\n\\n' --valid 0.2 --out fables-tokens\n"
       "vitrine data examples/fables.txt --tokenizer characters --out fables-characters\n"
       "vitrine data --check fables-tokens/train",
       define_data},
      {"trace", "Write any activation, by hook name, to a file",
       "Values are f32. With one sequence a tensor has the name of its hook, with several the name and #<number>. Attention "
       "patterns and scores are [head, query, key] over all keys; a masked key has 0 in the pattern. In a layer with experts "
       "mlp.hook_router_logits is [token, expert], and mlp.hook_expert_out is [token, choice, component]: the output of each "
       "chosen expert before its weight. Experts beside an MLP have the same hooks under experts. instead of mlp. Gemma 4's "
       "hook_per_layer is [token, layer, component], and hook_per_layer_out a layer's contribution from it. In a layer with "
       "a convolution conv.hook_in [token, channel] is its input, and conv.hook_conv its output. In a layer with a "
       "recurrence delta.hook_z [token, head, component] is its output before the norm and gate. hook_token_type_embed is the "
       "embedding of a token's type, hook_full_embed an embedding projected to the width of the residual stream, "
       "attn.hook_rot_v the rotated values; names of a head for masked tokens begin with mlm_head. `vitrine info --hooks` "
       "lists the names.",
       "vitrine trace \"Once upon a time\" --hooks 'blocks.*.attn.hook_pattern' --hooks hook_logits --out trace.safetensors\n"
       "vitrine trace --tokens 2,2165,374 --gradients --out gradients.safetensors\n"
       "vitrine trace \"Once upon a time\" --gradients-at 'blocks.*.hook_resid_post' --out at-hooks.safetensors",
       define_trace},
      {"collect", "Write activations of a corpus to disk",
       "Runs text in contexts of --context tokens and writes the values at hooks for every token, with the tokens' ids and "
       "positions, as safetensors shards beside a manifest. Each document is split into contexts separately, and each "
       "context begins with BOS if the tokenizer adds it to texts. Blocks after the last hook are skipped. Memory does not "
       "grow with the corpus. An interrupted run loses only its current shard: --resume continues after the last complete "
       "one, and writes the same bytes. docs/collect.md describes the files.",
       "vitrine collect examples/fables.txt --document '\\n\\n\\n' --hooks blocks.3.hook_resid_post --max-tokens 2000 --out "
       "fables-activations",
       define_collect},
      {"sae", "Sparse autoencoders: sae train", "", "", nullptr},
      {"sae train", "Train a sparse autoencoder on collected activations",
       "Losses, gradients and update are those of SAELens's trainer, and OUT loads in SAELens with the same values: "
       "cfg.json, sae_weights.safetensors, sparsity.safetensors (log10 of how often each feature was active). With topk, "
       "features that were inactive for --dead-window steps are trained on the residual error. OUT/metrics.csv has loss, "
       "explained variance, L0 and dead features. Ctrl-C saves and ends the run; --resume continues it, bit-identical to an "
       "uninterrupted run. See docs/collect.md.",
       "vitrine sae train fables-activations --features 512 --k 16 --steps 20 --batch 512 --out autoencoder-3", define_sae_train},
      {"explain", "Walk a prompt through the model, as one offline page",
       "Writes a page that opens without a network. It follows the prompt from the string to the prediction, and the gradients "
       "back. Each step has an explanation, its formula, the lines of the model's definition, the shapes of this run, and "
       "pictures of this run's numbers. Long prompts are shown with less detail, so that the page stays below 30 MB.",
       "vitrine explain \"Once upon a time there was a little girl who\" --out walk.html\nvitrine explain --list",
       define_explain},
      {"picture", "Draw one picture of the walk-through",
       "Prints a description with a table of the main numbers, data (--json) or a drawing (--svg). Without a prompt a default "
       "one is used. docs/pictures.md lists what each picture shows.",
       "vitrine picture --list\nvitrine picture update-scale\nvitrine picture attention \"The king and the queen\" --out "
       "heads.svg",
       define_picture},
      {"intervene", "Ablate, patch or steer parts of a model, from a recipe",
       "The recipe contains a prompt, the changes to heads, layers, norms or hooks, and a metric. docs/intervene.md explains "
       "every key. Shows predictions before and after, their KL divergence and the metric, and a grid for patching. Without "
       "--model the model of the recipe is used.",
       "vitrine intervene examples/ablate-heads.yaml\nvitrine intervene examples/patch-king-queen.yaml", define_intervene},
      {"attribute", "Show which tokens of a prompt a prediction depends on",
       "Uses gradients of a token's log-probability with respect to the embeddings: saliency (the gradient's length, as a "
       "share of the sum), gradient times input, and integrated gradients, which sum to the difference between the prompt "
       "and the baseline. docs/attribution.md explains them.",
       "vitrine attribute \"Once upon a time there was a little girl who\"\n"
       "vitrine attribute \"The king and the queen had a\" --token \" son\" --against \" daughter\" --steps 16",
       define_attribute},
      {"units", "Show the most active hidden units of an MLP and the logits that each changes",
       "For each hidden unit: its activation, and the tokens whose logits it directly raises and lowers most. This is its "
       "column of W_out times its activation, through the norms between it and the output with the scales of this run, and "
       "through the unembedding. docs/attribution.md has the formula.",
       "vitrine units \"Once upon a time there was a king\"\n"
       "vitrine units \"Once upon a time there was a king\" --layer 6 --position 2 --units 3 --json",
       define_units},
      {"features", "Show the features of a sparse autoencoder or transcoder",
       "With a TEXT: the largest features of each token. With --file: how often each feature is active, and for every "
       "--feature its largest contexts. --feature also shows the tokens whose logits its direction raises and lowers. "
       "Autoencoders can be in the formats of SAELens and Gemma Scope. See docs/sparse-autoencoders.md.",
       "vitrine features --sae my-autoencoder \"Once upon a time there was a king\"\n"
       "vitrine features --sae my-autoencoder --file examples/fables.txt --feature 12 --logits 5",
       define_features, "an autoencoder"},
      {"graph", "Make the attribution graph of a prompt through transcoders",
       "Direct effects of transcoder features, tokens and reconstruction errors on each other and on the logits of the most "
       "likely tokens, with attention patterns and norms frozen: circuit-tracer's definition and values. The graph is pruned "
       "to the most important nodes and edges. Shows the nodes with the largest influence; --out writes JSON for "
       "circuit-tracer's viewer, --page writes an HTML page. See docs/attribution-graphs.md.",
       "vitrine graph --transcoders my-transcoders \"The old king had a\" --out graphs/ --page graph.html", define_graph,
       "transcoders"},
      {"verify", "Compare results with those of a reference implementation",
       "Prints the largest and mean distance of logits, hidden states and attention patterns, the KL divergence and how "
       "often the most likely token agrees. The last line is \"agrees\", or \"differs\" with the first difference. The exit "
       "code is 1 if a difference exceeds the tolerance in docs/numerics.md.",
       "vitrine verify --reference tests/golden/tales9m --compute f32", define_verify},
      {"circuits", "Show what each attention head attends to, and its QK and OV circuits",
       "For every head: how much of its attention goes to the previous token, to earlier copies of the token, to what "
       "followed them (induction) and to the first token, as a mean over the queries that have such keys; the eigenvalue "
       "copying score of its full OV circuit; rank and largest singular values of QK and OV, with the norms' weights folded "
       "in. Then the strongest compositions: which later head reads what an earlier head writes. Without a prompt, heads are "
       "scored on a sequence of random tokens, repeated once.",
       "vitrine circuits\nvitrine circuits \"the old king and the old queen\" --layer 2 --compositions 0 --json",
       define_circuits},
      {"compare", "Compare two files of one model, layer by layer",
       "Runs one prompt through both: cosine and relative distance of the residual stream after every layer, the share of "
       "attention that differs, the KL divergence of the predictions, and the first layer beyond --threshold. Use it for two "
       "types of weights, such as f32 and Q8_0, or for two checkpoints of one training run.",
       "vitrine compare tests/golden/models/llama/model tests/golden/gguf/llama_q8_0.gguf --tokens 5,3,7,9,11", define_compare},
      {"eval", "Evaluate a model: eval perplexity, eval choices, eval compare", "", "", nullptr},
      {"eval perplexity", "Measure how well a model predicts a text",
       "Prints perplexity, the mean of -ln p, bits per byte and standard errors, with the definition that was used: what is "
       "tokenized, which tokens come first, the windows and the scored tokens. Perplexities of two models can be compared if "
       "definition and tokenizer are the same; bits per byte also across tokenizers. --like uses the definition of another "
       "program. See docs/evaluation.md.",
       "vitrine eval perplexity --file examples/fables.txt --context 256\n"
       "vitrine eval perplexity --file examples/fables.txt --context 256 --like llama.cpp --json",
       define_eval_perplexity},
      {"eval choices", "Answer multiple-choice questions by log-likelihood",
       "Reads the items of HellaSwag, ARC, PIQA and WinoGrande as JSON lines, or lines with context, choices and gold. A "
       "choice's score is the log-likelihood of its tokens, with the prompts of lm-evaluation-harness without examples "
       "(0-shot), and equal to its results item by item. Prints accuracy, length-normalized accuracy, standard errors, and "
       "centered accuracy, whose mean is the formula of DCLM's core score.",
       "vitrine eval choices --file examples/questions.jsonl --show-items\n"
       "vitrine eval choices --file examples/questions.jsonl --json",
       define_eval_choices},
      {"eval compare", "Compare a quantized file with its original over a text",
       "OTHER is compared with --model: the KL divergence of the predictions (mean and percentiles), how often the most likely "
       "token is "
       "the same, both perplexities, the change of the probabilities of the text's tokens, and the error of the residual stream "
       "after "
       "every layer. `vitrine compare` shows one prompt token by token.",
       "vitrine eval compare tests/golden/gguf/llama_q8_0.gguf --model tests/golden/models/llama/model --file "
       "examples/fables.txt",
       define_eval_compare},
      {"train", "Train a model, from fresh weights or from an existing one",
       "The configuration describes model, data, optimizer and schedule; docs/training.md explains every key. The run's "
       "folder contains metrics.jsonl and checkpoints as Hugging Face directories, which every command takes as --model; "
       "`last` and `best` are links to two of them. --resume continues a stopped run. Ctrl-C finishes the step and saves; a "
       "second Ctrl-C ends at once. The key lora trains an adapter instead of the model (docs/lora.md), ema keeps averaged "
       "weights, and kl_to keeps the model close to an anchor (docs/distillation.md). Processes started by mpirun share "
       "every batch (docs/parallel-training.md).",
       "vitrine train --example\n"
       "vitrine train --one-step \"the fat cat sat on the\" --target \" mat\"",
       define_train},
      {"curves", "Draw the metrics of training runs side by side",
       "Reads metrics.jsonl of each run, also while it is running, or such a file directly, plain, .gz or .zst. --out writes "
       "the same curves as a page that needs no network.",
       "vitrine curves models/training/metrics.jsonl.gz models/training/metrics-long.jsonl.gz --metric val_loss", define_curves},
      {"pull", "Download a model from the Hugging Face hub",
       "Downloads configuration, tokenizer and safetensors of OWNER/NAME into the cache of the Hugging Face libraries; every "
       "command then takes OWNER/NAME as --model. In a repository with several GGUF files select one by its type or its file "
       "name, and use OWNER/NAME:TYPE as --model. Every file is checked against the hub's hash before it gets its final "
       "name. The same command continues an interrupted download. For private and gated models set HF_TOKEN to a token. See "
       "docs/models.md.",
       "vitrine pull Qwen/Qwen3-0.6B\n"
       "vitrine pull Qwen/Qwen3-0.6B-GGUF:Q8_0\n"
       "vitrine pull Qwen/Qwen3-0.6B --dry-run",
       define_pull, "the network"},
      {"convert", "Convert a model to a Hugging Face directory or a GGUF file, or merge an adapter into it",
       "Reads a Hugging Face directory or a GGUF file. If OUT ends in .gguf, it writes one GGUF file for llama.cpp with "
       "configuration, vocabulary and chat template; otherwise a directory with configuration, tokenizer and weights. "
       "Weights are widened and rounded once, to nearest; in a GGUF file weights that already have the type are copied. "
       "--adapter adds a LoRA adapter to the weights in f32, before they are rounded. See docs/models.md and docs/lora.md.",
       "vitrine convert tests/golden/models/gpt2_a/model gpt2-bf16 --dtype bf16\n"
       "vitrine convert tests/golden/gguf/llama_q8_0.gguf llama-f32 --dtype f32\n"
       "vitrine convert models/tales9m tales9m-q8_0.gguf --dtype q8_0\n"
       "vitrine convert tests/golden/models/gpt2_a/model gpt2-merged --adapter tests/golden/lora/gpt2_a/adapter --dtype f32",
       define_convert},
      {"imatrix", "Collect an importance matrix for quantizing",
       "Runs a text through the model in chunks and sums the squares of each matrix's inputs. convert --imatrix uses them to "
       "weight the error of each weight. The format is llama.cpp's: llama-quantize can read the file, and convert can read "
       "those of llama-imatrix.",
       "vitrine imatrix --file examples/fables.txt --out fables.imatrix.gguf", define_imatrix},
      {"merge", "Merge models by a recipe (mergekit's YAML)",
       "The recipe is a mergekit YAML file: merge_method, models or slices, base_model, parameters with gradients and "
       "filters. Paths of models are relative to the working directory. OUT becomes a Hugging Face directory; it gets its "
       "final name when it is complete. --resume continues a stopped run. mergekit-yaml's options are accepted; a note lists "
       "those that have no effect here. docs/merge.md explains the methods and every key.",
       "vitrine merge examples/merge-slerp.yml merged --dry-run\nvitrine merge examples/merge-slerp.yml merged", define_merge},
      {"extract-lora", "Extract a LoRA adapter from a fine-tuned model and its base",
       "The difference of every matrix is approximated by two small ones, A and B, of rank --max-rank (truncated SVD). "
       "Tensors that cannot be decomposed are saved whole if they differ. DIR gets PEFT's files, and its final name when it "
       "is complete; nothing is overwritten. The models may have any architecture. mergekit-extract-lora's options are "
       "accepted; a note lists those that have no effect here. See docs/lora.md.",
       "vitrine extract-lora --model tests/golden/merging/llama/ft1 --base-model tests/golden/merging/llama/base --out-path "
       "adapter "
       "--max-rank 8",
       define_extract_lora},
      {"warp", "Train, merge and interpolate in rounds (WARP)",
       "A round trains several models from one, with configurations of `vitrine train`. It merges them by spherical "
       "interpolation of their task vectors, and interpolates between the merged model and the one that the round started "
       "from. The next round starts from one point of that interpolation. All of them are scored on a text. `out` gets the "
       "models, warp.json and front.svg, which shows loss against distance. --resume continues a run that was stopped or "
       "killed. docs/warp.md explains the keys and how `vitrine data` makes the example's data.",
       "vitrine warp examples/warp.yaml", define_warp},
      {"distill", "Train a model on the predictions of a teacher",
       "The configuration is that of `vitrine train` with a section for the teacher: any model with the same vocabulary, "
       "including quantized ones. Metrics, checkpoints, --resume and Ctrl-C work as in training. The example needs data made "
       "by `vitrine data`; docs/distillation.md explains the divergences, sampling by the student and the cache.",
       "vitrine distill examples/distill.yaml", define_distill},
      {"info", "Show shapes, parameters, memory and hook names of a model",
       "A directory with only config.json, or a bare configuration file, is enough. GGUF files are described by their "
       "metadata.",
       "vitrine info\nvitrine info --hooks --context 512 --batch 4", define_info},
      {"bench", "Measure the machine's limits and the model's share of them",
       "Prefill is compared with the peak of f32 multiply-adds in registers (tile instructions can exceed it), decode with the "
       "speed at which the weights can be read. Use an idle machine.",
       "vitrine bench --prompt 64 --decode 8 --repeat 1", define_bench},
      {"completion", "Print the completion script of a shell",
       "Load it with `source <(vitrine completion bash)`, or write it to your shell's completion folder.",
       "vitrine completion bash", define_completion},
      {"manual", "Print the manual page", "Read it with `vitrine manual | man -l -`.", "vitrine manual --format markdown",
       define_manual},
  };
  return table;
}

const std::vector<Purpose>& purposes() {
  static const std::vector<Purpose> table = {
      {"Run a model", {"predict", "generate", "chat", "serve"}},
      {"Inspect and evaluate a model",
       {"explain", "picture", "attribute", "units", "trace", "collect", "circuits", "features", "graph", "eval", "compare",
        "verify", "bench"}},
      {"Change a model", {"intervene", "merge", "extract-lora", "convert", "imatrix"}},
      {"Train", {"train", "distill", "warp", "sae", "data", "tokenizer", "curves"}},
      {"Files and the program", {"pull", "info", "tokenize", "detokenize", "completion", "manual"}},
  };
  return table;
}

}  // namespace vitrine::cli
