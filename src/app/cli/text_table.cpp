#include "cli/text_table.h"

#include <algorithm>
#include <numeric>

#include "cli/output.h"

namespace vitrine::cli {
namespace {

constexpr int kLeastWords = 24;  // columns in which words are still broken beside the others; else they stand below
constexpr int kBelow = 6;        // indent of these

const std::string& cell_of(const std::vector<std::string>& row, size_t column) {
  static const std::string none;
  return column < row.size() ? row[column] : none;
}

class Layout {
 public:
  Layout(const TextTable& table, int columns) : table_(table), columns_(columns), gap_(width_of(table.gap)) {
    for (size_t c = 0; c < table.columns.size(); ++c) {
      widths_.push_back(width_of(table.columns[c].name));
      for (const auto& row : table.rows) widths_[c] = std::max(widths_[c], width_of(cell_of(row, c)));
    }
  }

  std::vector<size_t> all() const {
    std::vector<size_t> list(widths_.size());
    std::iota(list.begin(), list.end(), size_t{0});
    return list;
  }
  int width() const { return width(all()); }

  std::string text() const {
    const size_t n = widths_.size();
    if (n == 0) return "";
    std::vector<size_t> all = this->all();
    if (columns_ <= 0 || width(all) <= columns_) return lines(all, 0);
    if (n > 1 && table_.columns.back().words) {
      all.pop_back();
      if (width(all) <= columns_) return lines(all, std::max(1, columns_ - width(all) - gap_));
    }
    std::string text;
    for (size_t from = 1; from < n;) {
      std::vector<size_t> block = {0, from};
      while (block.back() + 1 < n && width(block) + gap_ + widths_[block.back() + 1] <= columns_)
        block.push_back(block.back() + 1);
      if (!text.empty()) text += "\n";
      text += lines(block, 0);
      from = block.back() + 1;
    }
    return n == 1 ? lines({0}, 0) : text;
  }

 private:
  int width(const std::vector<size_t>& block) const {
    int sum = gap_ * static_cast<int>(block.size() - 1);
    for (const size_t c : block) sum += widths_[c];
    return sum;
  }
  std::string line(const std::vector<std::string>& cells, const std::vector<size_t>& block) const {
    std::string text;
    for (const size_t c : block) {
      const std::string& cell = cell_of(cells, c);
      if (c != block.front()) text += table_.gap;
      text += table_.columns[c].words ? pad_right(cell, widths_[c]) : pad_left(cell, widths_[c]);
    }
    return text;
  }
  static void finish(std::string& text) {
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }

  // room: columns for the words of the last column, which is none of the block; 0: it is one, or there is none.
  std::string lines(const std::vector<size_t>& block, int room) const {
    const bool apart = block.size() < widths_.size() && room != 0 && block.back() + 2 == widths_.size();
    const bool below = apart && room < kLeastWords;
    const int beside = width(block) + gap_;
    const auto add = [&](const std::vector<std::string>& cells, std::string& text) {
      std::string row = line(cells, block);
      const std::string& words = cell_of(cells, widths_.size() - 1);
      if (apart && !words.empty()) {
        if (below) {
          finish(row);
          row += wrapped(std::string(kBelow, ' ') + words, columns_, kBelow);
        } else {
          row += table_.gap + words;
          row = wrapped_behind(row, beside, words);
        }
      }
      finish(row);
      text += row;
    };
    std::vector<std::string> names;
    for (const TextTable::Column& column : table_.columns) names.push_back(column.name);
    std::string text, head;
    if (below && !names.empty()) names.back().clear();
    add(names, head);
    head.pop_back();
    if (head.find_first_not_of(" \n") != std::string::npos) text += dim(head) + "\n";
    for (size_t r = 0; r < table_.rows.size(); ++r) {
      if (r < table_.before.size() && !table_.before[r].empty()) text += wrapped(table_.before[r], columns_, 2) + "\n";
      add(table_.rows[r], text);
    }
    return text;
  }
  // The row with its words broken in the columns from `beside` on.
  std::string wrapped_behind(const std::string& row, int beside, const std::string& words) const {
    const std::string broken = wrapped(words, columns_ - beside);
    std::string text = row.substr(0, row.size() - words.size());
    for (const char c : broken) {
      text += c;
      if (c == '\n') text += std::string(static_cast<size_t>(beside), ' ');
    }
    return text;
  }

  const TextTable& table_;
  int columns_, gap_;
  std::vector<int> widths_;
};

}  // namespace

int table_width(const TextTable& table) { return Layout(table, 0).width(); }

std::string text_table(const TextTable& table, int terminal_columns) { return Layout(table, terminal_columns).text(); }

void print_table(const TextTable& table) { write_out(text_table(table, terminal().columns)); }

}  // namespace vitrine::cli
