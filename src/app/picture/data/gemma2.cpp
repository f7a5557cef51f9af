// The pictures of the chapter on Gemma 2, and of every later chapter that shows them too.
#include <array>

#include "picture/data/entry.h"
#include "picture/data/studio.h"

namespace vitrine {

PictureJson data_of_designs(Studio&);
PictureJson data_of_head_sharing(Studio&);
PictureJson data_of_attention_layer(Studio&);
PictureJson data_of_masks(Studio&);
PictureJson data_of_position_encodings(Studio&);
PictureJson data_of_rope_decay(Studio&);
PictureJson data_of_rotated_values(Studio&);
PictureJson data_of_clipping(Studio&);
PictureJson data_of_beyond_training(Studio&);
PictureJson data_of_targets(Studio&);
PictureJson data_of_distillation(Studio&);

namespace {

constexpr std::array kGemma2Pictures = {
    PictureEntry{{"designs", "Designs side by side", "Published models and this one, drawn to one scale from their sizes"},
                 0,
                 data_of_designs,
                 kSizes,
                 kWide,
                 kWithoutWeights},
    PictureEntry{{"head-sharing", "MHA, GQA and MQA", "Three ways to share keys and values, with the bytes of the cache"},
                 0,
                 data_of_head_sharing,
                 kSizes,
                 kWide,
                 kWithoutWeights},
    PictureEntry{{"attention-layer", "An attention layer on random numbers", "Every shape of a grouped-query layer, from a run"},
                 0,
                 data_of_attention_layer,
                 kToy,
                 false,
                 kWithoutWeights},
    PictureEntry{{"masks", "Masks", "Which positions global and windowed layers let each position see"},
                 0,
                 data_of_masks,
                 kModel,
                 false,
                 kWithoutWeights},
    PictureEntry{{"position-encodings", "Position encodings", "Vectors of sines and cosines beside angles of rotation"},
                 0,
                 data_of_position_encodings,
                 kToy,
                 false,
                 kWithoutWeights},
    PictureEntry{{"rope-decay", "Rotation and distance", "How the score of a rotated query and key falls with their distance"},
                 0,
                 data_of_rope_decay,
                 kToy,
                 false,
                 kWithoutWeights},
    PictureEntry{{"rotated-values", "Rotated values", "What attention reads when all tokens move, with values rotated or not"},
                 0,
                 data_of_rotated_values,
                 kToy,
                 false,
                 kWithoutWeights},
    PictureEntry{{"clipping", "Soft cap and hard clip", "Two ways to limit a number, and what each leaves of its gradient"},
                 0,
                 data_of_clipping,
                 kToy,
                 false,
                 kWithoutWeights},
    PictureEntry{{"beyond-training", "Longer than in training", "Loss by place in texts longer than those of training"},
                 0,
                 data_of_beyond_training,
                 kLog,
                 false,
                 kWithoutWeights},
    PictureEntry{
        {"targets", "Two targets", "The word that came beside the distribution of a teacher"}, kNeedLogits, data_of_targets},
    PictureEntry{
        {"distillation", "Taught by a text and by a teacher", "Loss of the same student by tokens, trained in both ways"},
        0,
        data_of_distillation,
        kLog,
        false,
        kWithoutWeights},
};

}  // namespace

std::span<const PictureEntry> gemma2_pictures() { return kGemma2Pictures; }

}  // namespace vitrine
