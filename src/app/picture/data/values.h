#pragma once
// How pictures' data is written: rounded numbers and packed grids, as web/src/data.ts states them.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

using PictureJson = nlohmann::ordered_json;

/// Rounded to 7 significant digits; null for NaN and infinity.
PictureJson number(double value);
PictureJson numbers(std::span<const double> values);
PictureJson numbers(std::span<const float> values);
inline PictureJson numbers(const std::vector<double>& values) { return numbers(std::span(values)); }
inline PictureJson numbers(const std::vector<float>& values) { return numbers(std::span(values)); }
/// A list of lists.
PictureJson table(const std::vector<std::vector<double>>& rows);

/// data.ts' Packed. value = scale * stored. shape is that of the whole grid, also where `causal` leaves the upper triangle out.
PictureJson packed(std::span<const float> values, const std::vector<int64_t>& shape);
PictureJson packed(std::span<const uint16_t> stored, const std::vector<int64_t>& shape, double scale, bool causal);
PictureJson packed(std::span<const uint8_t> stored, const std::vector<int64_t>& shape, double scale, bool causal);

/// Cells of a causal square of side n, and where cell (target, source) is.
constexpr size_t causal_cells(size_t n) { return n * (n + 1) / 2; }
constexpr size_t causal_index(size_t target, size_t source) { return target * (target + 1) / 2 + source; }

/// JSON that may stand inside <script>: no "<", which could begin "</script>" or "<!--", and no U+2028 and U+2029, which end
/// lines in old scripts; both as \u escapes. Bytes that are not UTF-8 become U+FFFD.
std::string script_json(const PictureJson& document);

/// Text inside an element or a quoted attribute of HTML and XML: & < > " ' as references; what XML has no form for (control
/// characters other than tab and line breaks, U+FFFE, U+FFFF, broken UTF-8) becomes U+FFFD.
std::string markup_text(std::string_view text);

}  // namespace vitrine
