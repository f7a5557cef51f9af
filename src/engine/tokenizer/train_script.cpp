#include "tokenizer/train_script.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <charconv>
#include <cstring>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/utf8.h"

namespace vitrine {
namespace {
// The scripts of Unicode 14, those with a constant first and the commonest next.
constexpr const char* kNames =
    "Common Inherited Han Hiragana Katakana Latin Cyrillic Greek Arabic Hebrew Devanagari Hangul Thai Adlam Ahom "
    "Anatolian_hieroglyphs Armenian Avestan Balinese Bamum Bassa_vah Batak Bengali Bhaiksuki Bopomofo Brahmi Braille "
    "Buginese Buhid Canadian_aboriginal Carian Caucasian_albanian Chakma Cham Cherokee Chorasmian Coptic Cuneiform "
    "Cypriot Cypro_minoan Deseret Dives_akuru Dogra Duployan Egyptian_hieroglyphs Elbasan Elymaic Ethiopic Georgian "
    "Glagolitic Gothic Grantha Gujarati Gunjala_gondi Gurmukhi Hanifi_rohingya Hanunoo Hatran Imperial_aramaic "
    "Inscriptional_pahlavi Inscriptional_parthian Javanese Kaithi Kannada Kayah_li Kharoshthi Khitan_small_script Khmer "
    "Khojki Khudawadi Lao Lepcha Limbu Linear_a Linear_b Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic "
    "Manichaean Marchen Masaram_gondi Medefaidrin Meetei_mayek Mende_kikakui Meroitic_cursive Meroitic_hieroglyphs Miao "
    "Modi Mongolian Mro Multani Myanmar Nabataean Nandinagari New_tai_lue Newa Nko Nushu Nyiakeng_puachue_hmong Ogham "
    "Ol_chiki Old_hungarian Old_italic Old_north_arabian Old_permic Old_persian Old_sogdian Old_south_arabian Old_turkic "
    "Old_uyghur Oriya Osage Osmanya Pahawh_hmong Palmyrene Pau_cin_hau Phags_pa Phoenician Psalter_pahlavi Rejang Runic "
    "Samaritan Saurashtra Sharada Shavian Siddham SignWriting Sinhala Sogdian Sora_sompeng Soyombo Sundanese "
    "Syloti_nagri Syriac Tagalog Tagbanwa Tai_le Tai_tham Tai_viet Takri Tamil Tangsa Tangut Telugu Thaana Tibetan "
    "Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Warang_citi Yezidi Yi Zanabazar_square";
}  // namespace

Scripts::Scripts() {
  // One alternative a script; the mark of the one that matches is its number.
  std::string pattern, name;
  std::istringstream names(kNames);
  for (int number = 0; names >> name; ++number)
    pattern += (number == 0 ? "" : "|") + ("\\p{sc:" + name) + "}(*MARK:" + std::to_string(number) + ")";
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_ANCHORED,
                                   &error, &at, nullptr);
  VITRINE_CHECK(code != nullptr, "PCRE2 10.40 and later know the scripts of Unicode 14");
  code_ = std::shared_ptr<void>(code, [](void* c) { pcre2_code_free(static_cast<pcre2_code*>(c)); });
}

int Scripts::of(uint32_t character) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> data(pcre2_match_data_create(1, nullptr),
                                                                            pcre2_match_data_free);
  const std::string text = to_utf8(character);
  const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(), nullptr);
  if (found < 0) return kCommon;
  const auto* mark = reinterpret_cast<const char*>(pcre2_get_mark(data.get()));
  int number = kCommon;
  std::from_chars(mark, mark + std::strlen(mark), number);
  return number;
}

}  // namespace vitrine
