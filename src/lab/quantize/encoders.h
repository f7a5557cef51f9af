#pragma once
// One function for each block type: a block of values, with a weight for the squared error of each, into the block's bytes.
#include <cstdint>

namespace vitrine {

using EncodeBlock = void (*)(const float* x, const float* w, uint8_t* block);

void encode_q4_0(const float* x, const float* w, uint8_t* block);
void encode_q4_1(const float* x, const float* w, uint8_t* block);
void encode_q5_0(const float* x, const float* w, uint8_t* block);
void encode_q5_1(const float* x, const float* w, uint8_t* block);
void encode_q8_0(const float* x, const float* w, uint8_t* block);
void encode_q2_k(const float* x, const float* w, uint8_t* block);
void encode_q3_k(const float* x, const float* w, uint8_t* block);
void encode_q4_k(const float* x, const float* w, uint8_t* block);
void encode_q5_k(const float* x, const float* w, uint8_t* block);
void encode_q6_k(const float* x, const float* w, uint8_t* block);
void encode_iq2_xxs(const float* x, const float* w, uint8_t* block);
void encode_iq2_xs(const float* x, const float* w, uint8_t* block);
void encode_iq2_s(const float* x, const float* w, uint8_t* block);
void encode_iq3_xxs(const float* x, const float* w, uint8_t* block);
void encode_iq3_s(const float* x, const float* w, uint8_t* block);
void encode_iq1_s(const float* x, const float* w, uint8_t* block);
void encode_iq1_m(const float* x, const float* w, uint8_t* block);
void encode_iq4_nl(const float* x, const float* w, uint8_t* block);
void encode_iq4_xs(const float* x, const float* w, uint8_t* block);
void encode_tq1_0(const float* x, const float* w, uint8_t* block);
void encode_tq2_0(const float* x, const float* w, uint8_t* block);
void encode_mxfp4(const float* x, const float* w, uint8_t* block);

}  // namespace vitrine
