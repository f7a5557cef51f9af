// The pictures of the chapter "heads", and of every chapter that shows them too.
#include <array>

#include "picture/data/entry.h"
#include "picture/data/studio.h"

namespace vitrine {

PictureJson data_of_block_diagram(Studio&);
PictureJson data_of_stream_sum(Studio&);
PictureJson data_of_head_matrices(Studio&);
PictureJson data_of_frozen_attention(Studio&);
PictureJson data_of_heads_as_one(Studio&);
PictureJson data_of_permutations(Studio&);
PictureJson data_of_mask_and_positions(Studio&);
PictureJson data_of_sinusoids(Studio&);
PictureJson data_of_sinusoid_wheel(Studio&);
PictureJson data_of_sinusoid_shift(Studio&);
PictureJson data_of_head_roles(Studio&);

namespace {

constexpr std::array kHeadsPictures = {
    PictureEntry{
        {"block-diagram", "One block", "The parts of a block in the model's own order: norms, heads, MLP and plus signs"},
        0,
        data_of_block_diagram},
    PictureEntry{
        {"stream-sum", "The stream as a sum", "How long the stream is, and what each part adds to it"}, 0, data_of_stream_sum},
    PictureEntry{
        {"head-matrices", "A, S and Y of a head", "One head as A·x·S: its matrices, their ranks, and a check against the run"},
        0,
        data_of_head_matrices,
        kRun | kModel},
    PictureEntry{
        {"frozen-attention", "Linear, if A is kept", "f(x + y) against f(x) + f(y), with the weights of attention kept and not"},
        0,
        data_of_frozen_attention},
    PictureEntry{{"heads-as-one", "Several heads against one", "What one head in the place of all heads of a layer would lose"},
                 0,
                 data_of_heads_as_one},
    PictureEntry{
        {"permutations", "Vectors in another order", "h(Px) = P h(x), step by step, for shuffles of the prompt's vectors"},
        0,
        data_of_permutations,
        kRun,
        kWide},
    PictureEntry{
        {"mask-and-positions", "What breaks the law", "How far a head is from h(Px) = P h(x), with its mask and its positions"},
        0,
        data_of_mask_and_positions},
    PictureEntry{
        {"sinusoids", "N and the context", "Sines and cosines of positions that repeat within the context, and that do not"},
        0,
        data_of_sinusoids,
        kToy | kModel,
        false,
        kWithoutWeights},
    PictureEntry{
        {"sinusoid-wheel", "Positions as wheels", "Each pair of a sine and a cosine as a hand that turns with the position"},
        0,
        data_of_sinusoid_wheel,
        kToy,
        false,
        kWithoutWeights},
    PictureEntry{{"sinusoid-shift", "One step further on", "The one matrix that takes every position to the next, and its error"},
                 0,
                 data_of_sinusoid_shift,
                 kToy | kModel,
                 false,
                 kWithoutWeights},
    PictureEntry{
        {"head-roles", "Which heads do what", "Previous-token and induction heads, who reads whom, and the loss without them"},
        0,
        data_of_head_roles,
        kModel},
};

}  // namespace

std::span<const PictureEntry> heads_pictures() { return kHeadsPictures; }

}  // namespace vitrine
