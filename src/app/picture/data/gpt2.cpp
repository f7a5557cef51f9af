// The pictures of the chapter on GPT-2, and of every later chapter that shows them too.
#include <array>

#include "picture/data/entry.h"
#include "picture/data/studio.h"

namespace vitrine {

PictureJson data_of_vocabulary_growth(Studio&);
PictureJson data_of_word_order(Studio&);
PictureJson data_of_norm_steps(Studio&);
PictureJson data_of_head_parameters(Studio&);
PictureJson data_of_causal_mask(Studio&);
PictureJson data_of_token_loss(Studio&);
PictureJson data_of_training_film(Studio&);
PictureJson data_of_sampling_rules(Studio&);
PictureJson data_of_beam_search(Studio&);

namespace {

constexpr std::array kPictures = {
    PictureEntry{{"vocabulary-growth", "The vocabulary grows", "A passage cut by ever more of the tokenizer's pairs"},
                 0,
                 data_of_vocabulary_growth,
                 kModel,
                 kWide},
    PictureEntry{
        {"word-order", "Words in another order", "The prediction with the words reversed, and with positions switched off"},
        0,
        data_of_word_order},
    PictureEntry{
        {"norm-steps", "A norm, step by step", "The first norm at work on the last token: mean, deviation, weight, bias"},
        0,
        data_of_norm_steps},
    PictureEntry{{"head-parameters", "The parameters of one head", "W_Q, W_K, W_V and W_O of one head with their biases"},
                 0,
                 data_of_head_parameters,
                 kModel},
    PictureEntry{{"causal-mask", "The causal mask", "Attention of one head with the mask, and what it would be without"},
                 0,
                 data_of_causal_mask,
                 kRun,
                 kWide},
    PictureEntry{{"token-loss", "Loss and its gradient", "What each token of the prompt costs, and p − 1 at the logits"},
                 kNeedLogits,
                 data_of_token_loss},
    PictureEntry{
        {"training-film", "A training run", "Loss, samples, attention and embeddings of a run, checkpoint by checkpoint"},
        0,
        data_of_training_film,
        kLog,
        kWide,
        kWithoutWeights},
    PictureEntry{
        {"sampling-rules", "Rules of sampling", "One distribution under greedy, temperature, top-k, top-p, min-p and typical"},
        0,
        data_of_sampling_rules,
        kRun,
        kWide},
    PictureEntry{{"beam-search", "Beam search", "The tree of continuations that a beam search looks at, with their sums"},
                 0,
                 data_of_beam_search,
                 kRun,
                 kWide},
};

}  // namespace

std::span<const PictureEntry> gpt2_pictures() { return kPictures; }

}  // namespace vitrine
