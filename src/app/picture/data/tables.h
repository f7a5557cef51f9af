#pragma once
// A picture's tables with their cells, from its declaration (TableSpec in web/src/data.ts).
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "picture/data/values.h"

namespace vitrine {

/// Numbers of one kind over rows and columns, for cells colored from middle - reach to middle + reach.
struct PictureGrid {
  std::string corner;  // names the rows
  std::vector<std::string> rows, columns;
  std::vector<std::optional<double>> values;  // [row, column]; nothing: no such cell; NaN: not known
  double middle = 0, reach = 1;
};

/// What a cell shows, and its number with all digits of the data where it shows a rounded one.
struct PictureCell : std::string {
  PictureCell(std::string text) : std::string(std::move(text)), full(*this) {}
  PictureCell(const char* text) : PictureCell(std::string(text)) {}
  PictureCell(std::string text, std::string number) : std::string(std::move(text)), full(std::move(number)) {}
  std::string full;
};

/// Either rows of cells under named columns, or a grid.
struct PictureTable {
  struct Column {
    std::string name;
    bool words = false;  // words begin at the left, numbers end at the right
  };
  std::string note;  // what it tells, in a line; may be empty
  std::vector<Column> columns;
  std::vector<std::vector<PictureCell>> rows;
  std::optional<PictureGrid> grid;
  size_t left_out = 0;  // rows that the data has beside these
};

/// Rows that a terminal shows of all tables of a picture together, at most about so many.
constexpr size_t kTableRows = 25;

/// The tables as comma-separated values (RFC 4180): the names of the columns, then the rows, numbers in full, cells without a
/// number empty. An empty line stands between two tables.
std::string csv_text(const std::vector<PictureTable>& tables);

/// The main numbers of the picture `name` of a document; with `every`, all of its tables with all their rows.
/// Errors: InputError with the picture's reason if it is absent.
std::vector<PictureTable> picture_tables(const PictureJson& document, std::string_view name, bool every = false);

}  // namespace vitrine
