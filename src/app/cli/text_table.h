#pragma once
// A table of words and numbers in the terminal.
#include <string>
#include <vector>

namespace vitrine::cli {

struct TextTable {
  struct Column {
    std::string name;
    bool words = false;  // from the left; numbers stand at the right
  };
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // cells may have colors; a row may end early
  std::string gap = "  ";
  std::vector<std::string> before = {};  // for each row, a line that stands above it; "" or no entry: none
};

/// Columns of the terminal that it takes.
int table_width(const TextTable& table);
/// Lines with newlines; the names of the columns are dim. A table that is wider than the terminal (0: no limit) breaks the words
/// of its last column, or gets blocks of columns, one below the other, each with the first column.
std::string text_table(const TextTable& table, int terminal_columns);
/// Writes it to standard output.
void print_table(const TextTable& table);

}  // namespace vitrine::cli
