// The pictures of the chapter "next-word", and of every chapter that shows them too.
#include <array>

#include "picture/data/entry.h"
#include "picture/data/studio.h"

namespace vitrine {

// One builder per picture: present(…) with the picture's own fields, tables and charts, or absent(…).
PictureJson data_of_dot_product(Studio&);
PictureJson data_of_tokens(Studio&);
PictureJson data_of_merges(Studio&);
PictureJson data_of_splits(Studio&);
PictureJson data_of_embedding_cosine(Studio&);
PictureJson data_of_embedding_neighbors(Studio&);
PictureJson data_of_position_vectors(Studio&);
PictureJson data_of_embedding_rescaling(Studio&);
PictureJson data_of_update_scale(Studio&);
PictureJson data_of_residual_scale(Studio&);
PictureJson data_of_layer_norm(Studio&);
PictureJson data_of_norm_statistics(Studio&);
PictureJson data_of_head_grouping(Studio&);
PictureJson data_of_softmax(Studio&);
PictureJson data_of_attention(Studio&);
PictureJson data_of_soft_cap(Studio&);
PictureJson data_of_rope_rotation(Studio&);
PictureJson data_of_rope_wavelengths(Studio&);
PictureJson data_of_query_length(Studio&);
PictureJson data_of_activation_curves(Studio&);
PictureJson data_of_mlp_surfaces(Studio&);
PictureJson data_of_experts(Studio&);
PictureJson data_of_expert_load(Studio&);
PictureJson data_of_final_norm(Studio&);
PictureJson data_of_next_tokens(Studio&);
PictureJson data_of_logit_lens(Studio&);
PictureJson data_of_tuned_lens(Studio&);
PictureJson data_of_logit_attribution(Studio&);
PictureJson data_of_input_attribution(Studio&);
PictureJson data_of_reach(Studio&);
PictureJson data_of_gradient_norms(Studio&);
PictureJson data_of_gradient_hooks(Studio&);
PictureJson data_of_interpolation(Studio&);
PictureJson data_of_task_vectors(Studio&);
PictureJson data_of_vocabulary_size(Studio&);
PictureJson data_of_initial_scale(Studio&);
PictureJson data_of_half_range(Studio&);
PictureJson data_of_lookup(Studio&);
PictureJson data_of_head_sizes(Studio&);
PictureJson data_of_mlp_regions(Studio&);

namespace {

constexpr std::array kPictures = {
    PictureEntry{{"dot-product", "The dot product", "Lines around a point and their dot products with one of them"},
                 0,
                 data_of_dot_product,
                 kToy,
                 false,
                 kWithoutWeights},
    PictureEntry{{"tokens", "Tokens", "The prompt cut into pieces, with the bytes each stands for"}, 0, data_of_tokens},
    PictureEntry{{"merges", "Merges", "How pairs were joined, one after the other, until the tokens were there"},
                 0,
                 data_of_merges,
                 kRun,
                 kWide},
    PictureEntry{{"vocabulary-size", "More entries, fewer tokens", "Tokens of a text by the size of the vocabulary"},
                 0,
                 data_of_vocabulary_size,
                 kModel},
    PictureEntry{
        {"splits", "Other splits", "Other ways to cut the same string, with the model's probability of each"}, 0, data_of_splits},
    PictureEntry{{"embedding-cosine", "Likeness of embeddings", "Cosines of chosen tokens' embeddings"},
                 0,
                 data_of_embedding_cosine,
                 kModel},
    PictureEntry{{"embedding-neighbors", "Sums of embeddings", "The tokens nearest to king - man + woman"},
                 0,
                 data_of_embedding_neighbors,
                 kModel},
    PictureEntry{{"position-vectors", "Position vectors", "Cosines of the vectors that mark positions, where a model adds such"},
                 kNeedEmbeddings,
                 data_of_position_vectors},
    PictureEntry{{"embedding-rescaling", "Rescaling the embeddings",
                  "The first layer's update scales with and without the embedding's factor"},
                 kNeedStream,
                 data_of_embedding_rescaling},
    PictureEntry{{"initial-scale", "The scale at the start", "Deviation of logits of random weights, with and without 1/√d"},
                 0,
                 data_of_initial_scale,
                 kToy,
                 false,
                 kWithoutWeights},
    PictureEntry{{"update-scale", "Update scales", "How much each attention and MLP changes the residual stream"},
                 kNeedStream,
                 data_of_update_scale},
    PictureEntry{
        {"residual-scale", "Scale of the stream", "Standard deviation of the stream per sub-layer, with and without the norms"},
        kNeedStream,
        data_of_residual_scale,
        kRun | kToy},
    PictureEntry{{"layer-norm", "What a norm does", "A vector of two numbers without its mean, scaled, weighted, shifted"},
                 0,
                 data_of_layer_norm,
                 kToy,
                 kWide,
                 kWithoutWeights},
    PictureEntry{
        {"norm-statistics", "In and out of each norm", "Mean, deviation and root mean square entering and leaving each norm"},
        kNeedNorms,
        data_of_norm_statistics},
    PictureEntry{{"half-range", "Where float16 ends", "Squares in float32, float16 and bfloat16"},
                 0,
                 data_of_half_range,
                 kToy,
                 false,
                 kWithoutWeights},
    PictureEntry{{"head-grouping", "Heads and their groups", "Which query heads share keys and values"},
                 0,
                 data_of_head_grouping,
                 kModel,
                 false,
                 kWithoutWeights},
    PictureEntry{
        {"head-sizes", "How many heads, and how large", "Numbers of heads and of key and value heads, and what each costs"},
        0,
        data_of_head_sizes,
        kModel},
    PictureEntry{{"softmax", "From scores to weights", "One row of attention scores and the weights they become"},
                 kNeedScores,
                 data_of_softmax,
                 kToy | kRun},
    PictureEntry{{"lookup", "Attention as a lookup", "One query, the keys it matches, and the mixture of their values"},
                 kNeedScores,
                 data_of_lookup},
    PictureEntry{{"attention", "Attention weights", "Who looks where: every head of every layer"},
                 kNeedPatterns,
                 data_of_attention,
                 kRun,
                 kWide},
    PictureEntry{{"soft-cap", "Soft caps", "The curve of a soft cap, and the share of scores it changes"},
                 kNeedScores | kNeedLogits,
                 data_of_soft_cap,
                 kToy | kRun},
    PictureEntry{{"rope-rotation", "Turned vectors", "One vector as rotary positions turn it"},
                 0,
                 data_of_rope_rotation,
                 kToy,
                 false,
                 kWithoutWeights},
    PictureEntry{{"rope-wavelengths", "Wavelengths", "After how many positions each pair of components has turned once"},
                 0,
                 data_of_rope_wavelengths,
                 kModel,
                 false,
                 kWithoutWeights},
    PictureEntry{{"query-length", "Lengths of the queries", "Length of query vectors by head and wavelength, any layer"},
                 kNeedQueries,
                 data_of_query_length,
                 kRun,
                 kWide},
    PictureEntry{{"activation-curves", "Activations", "ReLU, GELU and SiLU, and how many units are active"},
                 kNeedHidden,
                 data_of_activation_curves,
                 kToy | kRun},
    PictureEntry{{"mlp-surfaces", "What an MLP can bend", "A toy MLP over two inputs: linear, ReLU, ReGLU, GeGLU"},
                 0,
                 data_of_mlp_surfaces,
                 kToy,
                 kWide,
                 kWithoutWeights},
    PictureEntry{{"mlp-regions", "How many regions", "Regions that hidden units can make of their inputs, at most"},
                 0,
                 data_of_mlp_regions,
                 kModel | kToy},
    PictureEntry{{"experts", "Which token went to which expert",
                  "The experts of every token in every layer, with weights and the router's probabilities"},
                 kNeedExperts,
                 data_of_experts,
                 kRun,
                 kWide},
    PictureEntry{{"expert-load", "Load of the experts", "How many of the prompt's tokens each expert gets, beside an even load"},
                 kNeedExperts,
                 data_of_expert_load},
    PictureEntry{{"final-norm", "The final norm", "Root mean square of each token before and after the final norm"},
                 kNeedNorms,
                 data_of_final_norm},
    PictureEntry{{"next-tokens", "What could come next", "The ten most likely next tokens after every position"},
                 kNeedLogits,
                 data_of_next_tokens,
                 kRun,
                 kWide},
    PictureEntry{{"logit-lens", "Predictions on the way", "What the model would predict after each layer"},
                 0,
                 data_of_logit_lens,
                 kRun,
                 kWide},
    PictureEntry{
        {"tuned-lens", "The same through a tuned lens", "Predictions on the way through the logit lens and a tuned lens"},
        0,
        data_of_tuned_lens},
    PictureEntry{{"logit-attribution", "Who wrote the answer", "A logit as a sum over heads and MLPs"},
                 kNeedLogits,
                 data_of_logit_attribution},
    PictureEntry{
        {"input-attribution", "What the answer owes to each token", "Gradients of the prediction at the prompt's embeddings"},
        0,
        data_of_input_attribution},
    PictureEntry{{"reach", "Reach and cache", "Which positions each layer sees, and what the cache keeps"},
                 0,
                 data_of_reach,
                 kModel,
                 false,
                 kWithoutWeights},
    PictureEntry{{"gradient-norms", "What training sees",
                  "The gradient that reaches each layer, with and without the norms, and its parameters"},
                 0,
                 data_of_gradient_norms},
    PictureEntry{
        {"gradient-hooks", "The gradient at any hook", "Length of the gradient at a hook of your choice, by layer and token"},
        0,
        data_of_gradient_hooks,
        kRun,
        kWide},
    PictureEntry{
        {"interpolation", "Between two rows of weights", "What lies between two rows of a weight matrix: averages and SLERP"},
        0,
        data_of_interpolation,
        kModel,
        kWide},
    PictureEntry{{"task-vectors", "Task vectors", "Differences from a starting point, merged, and the way back to it (LITI)"},
                 0,
                 data_of_task_vectors,
                 kModel},
};

}  // namespace

std::span<const PictureEntry> next_word_pictures() { return kPictures; }

}  // namespace vitrine
