#pragma once
// The classes of 64 bytes at once, by which gpt2_words.cpp finds the words of GPT-2's pattern.
#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace vitrine {

/// The classes of 64 characters of ASCII, one bit each. A character beyond it has no class yet.
struct ClassBits {
  uint64_t letter, number, white, space, beyond;
};

// Eight bytes at a time in the bytes of one word: the upper bit of each tells what holds for it.
constexpr uint64_t every_byte(int byte) { return 0x0101010101010101u * uint64_t(byte); }
inline constexpr uint64_t kUpperBits = every_byte(0x80);

// Which of the bytes, whose upper bits are 0, lie in [first, last].
constexpr uint64_t bytes_within(uint64_t bytes, int first, int last) {
  return (bytes + every_byte(0x80 - first)) & ~(bytes + every_byte(0x7F - last)) & kUpperBits;
}
constexpr uint64_t upper_bits(uint64_t marked) { return (marked >> 7) * 0x0102040810204080u >> 56; }

inline ClassBits classes_by_eights(const char* text) {
  ClassBits out{};
  for (size_t at = 0; at < 64; at += 8) {
    uint64_t bytes = 0;
    std::memcpy(&bytes, text + at, 8);
    const uint64_t beyond = bytes & kUpperBits, low = bytes & ~kUpperBits;
    const uint64_t space = bytes_within(low, ' ', ' ') & ~beyond;
    out.letter |= upper_bits(bytes_within(low | every_byte(0x20), 'a', 'z') & ~beyond) << at;
    out.number |= upper_bits(bytes_within(low, '0', '9') & ~beyond) << at;
    out.white |= upper_bits((space | bytes_within(low, '\t', '\r')) & ~beyond) << at;
    out.space |= upper_bits(space) << at;
    out.beyond |= upper_bits(beyond) << at;
  }
  return out;
}

#ifdef __SSE2__
// Sixteen bytes at a time; as signed numbers, those beyond ASCII are below all others.
inline ClassBits classes_by_sixteens(const char* text) {
  ClassBits out{};
  const auto within = [](__m128i bytes, char first, char last) {
    return _mm_and_si128(_mm_cmpgt_epi8(bytes, _mm_set1_epi8(char(first - 1))),
                         _mm_cmplt_epi8(bytes, _mm_set1_epi8(char(last + 1))));
  };
  const auto bits = [](__m128i marked, size_t at) { return uint64_t(uint32_t(_mm_movemask_epi8(marked))) << at; };
  for (size_t at = 0; at < 64; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + at));
    const __m128i space = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(' '));
    out.letter |= bits(within(_mm_or_si128(bytes, _mm_set1_epi8(0x20)), 'a', 'z'), at);
    out.number |= bits(within(bytes, '0', '9'), at);
    out.white |= bits(_mm_or_si128(space, within(bytes, '\t', '\r')), at);
    out.space |= bits(space, at);
    out.beyond |= bits(bytes, at);
  }
  return out;
}
#endif

/// The faster of the two.
inline ClassBits classes_of(const char* text) {
#ifdef __SSE2__
  return classes_by_sixteens(text);
#else
  return classes_by_eights(text);
#endif
}

}  // namespace vitrine
