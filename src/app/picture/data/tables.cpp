#include "picture/data/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "picture/data/paths.h"

namespace vitrine {
namespace {

constexpr size_t kNameCharacters = 14, kColumnCharacters = 7;  // of a grid's rows and columns

// Which of n rows are shown.
std::vector<size_t> kept(size_t n, size_t most, std::string_view keep) {
  std::vector<size_t> rows(std::min(n, most));
  for (size_t i = 0; i < rows.size(); ++i)
    rows[i] = keep == "last" ? n - rows.size() + i : keep == "spread" && n > most ? i * (n - 1) / (most - 1) : i;
  return rows;
}

size_t wildcards(const std::string& path) {
  size_t stars = static_cast<size_t>(std::count(path.begin(), path.end(), '*'));
  for (size_t at = path.find("::"); at != std::string::npos; at = path.find("::", at + 1)) ++stars;
  return stars;
}

class Reader {
 public:
  Reader(const PictureView& view, bool every) : paths_(view), every_(every) {}

  /// Nothing for a table that has no rows.
  std::optional<PictureTable> table(const PictureJson& declared) {
    if (declared.contains("if") && paths_.value(declared.at("if").get<std::string>(), {}).is_null()) return {};
    PictureTable table;
    table.note = paths_.text(declared.value("note", ""), {});
    table.left_out = static_cast<size_t>(number(declared, "beside", 0));
    if (declared.contains("grid"))
      read_grid(table, declared);
    else
      read_rows(table, declared);
    if (table.grid ? table.grid->values.empty() : table.rows.empty()) return {};
    return table;
  }

 private:
  // A number of a declaration, or at the path that stands there.
  double number(const PictureJson& declared, const char* key, double usual) {
    const PictureJson value = declared.value(key, PictureJson(usual));
    return value.is_string() ? paths_.number(value, {}) : value.get<double>();
  }
  size_t most(const PictureJson& declared, size_t usual) const { return every_ ? SIZE_MAX : declared.value("most", usual); }

  // A column is [name, where its cells lie, how they are written].
  void read_rows(PictureTable& table, const PictureJson& declared) {
    const PictureJson& columns = declared.at("columns");
    std::vector<Places> rows = rows_of(columns);
    if (const std::string largest = declared.value("largest", ""); !largest.empty()) paths_.largest_first(rows, largest);
    const std::vector<size_t> shown = kept(rows.size(), most(declared, kTableRows), declared.value("keep", "first"));
    table.left_out += rows.size() - shown.size();
    table.rows.resize(shown.size());
    const std::string rest =
        shown.size() < rows.size() ? declared.value("rest", "") : "";  // a last row with the sums of those left out
    std::vector<PictureCell> sums;
    for (const PictureJson& column : columns) {
      const PictureJson& cells = column[1];
      if (cells.is_string() && wildcards(cells) > 0 && paths_.places(cells).empty()) continue;  // not in this data
      const std::string as = column.size() > 2 ? column[2].get<std::string>() : "";
      bool words = as == "token" || as == "at";
      for (size_t i = 0; i < shown.size(); ++i) {
        const PictureJson value = cells.is_object()  ? cells.at("cells")[shown[i]]
                                  : cells.is_array() ? paths_.value(cells[shown[i]], {})
                                                     : paths_.value(cells, rows[shown[i]]);
        words = words || value.is_string() || value.is_boolean() || value.is_array();
        std::string text = paths_.written(value, as);
        table.rows[i].push_back(value.is_number() && as != "token" && as != "at" && as != "ordinal"
                                    ? PictureCell(std::move(text), value.dump())
                                : value.is_null() ? PictureCell(std::move(text), "")
                                                  : PictureCell(std::move(text)));
      }
      table.columns.push_back({paths_.text(column[0].get<std::string>(), {}), words});
      if (rest.empty()) continue;
      double sum = 0;
      for (size_t i = shown.size(); i < rows.size(); ++i) sum += paths_.number(cells, rows[i]);
      sums.emplace_back(sums.empty() ? rest : paths_.written(sum, as));
    }
    if (!sums.empty()) table.rows.push_back(std::move(sums));
  }

  // By the path with the most wildcards; cells of a column's own, or of a path each, are as many rows.
  std::vector<Places> rows_of(const PictureJson& columns) {
    std::string longest;
    for (const PictureJson& column : columns) {
      const PictureJson& cells = column[1];
      if (!cells.is_string()) {
        std::vector<Places> rows;
        for (size_t i = 0; i < (cells.is_array() ? cells : cells.at("cells")).size(); ++i) rows.push_back({i});
        return rows;
      }
      const std::string path = cells;
      if (longest.empty() || longest[0] == '#' || wildcards(path) > wildcards(longest)) longest = path;
    }
    return paths_.places(longest);
  }

  void read_grid(PictureTable& table, const PictureJson& declared) {
    const PictureJson& g = declared.at("grid");
    const std::string values = g.at("values"), keep = declared.value("keep", "first");
    const bool across = g.value("across", false), blank = g.value("blank", false);
    const double factor = g.value("as", "") == "%" && !every_ ? 100 : 1;
    PictureGrid grid{g.at("corner"), {}, {}, {}, factor * g.value("middle", 0.0), factor * number(g, "reach", 1)};
    const auto [first, second] = paths_.sizes(values);
    const std::vector<size_t> rows = kept(across ? second : first, most(declared, kTableRows - 1), keep),
                              columns = kept(across ? first : second,
                                             g.value("square", false) ? most(declared, kTableRows - 1) : SIZE_MAX, keep);
    const auto places = [&](size_t row, size_t column) { return across ? Places{column, row} : Places{row, column}; };
    const auto name = [&](const char* names, const Places& at, size_t characters) {
      return cut(paths_.text(g.at(names).get<std::string>(), at), every_ ? std::string::npos : characters);
    };
    for (const size_t column : columns) grid.columns.push_back(name("columns", places(0, column), kColumnCharacters));
    for (const size_t row : rows) {
      grid.rows.push_back(name("rows", places(row, 0), kNameCharacters));
      for (const size_t column : columns) {
        const double value = factor * paths_.number(values, places(row, column));
        grid.values.push_back(blank && std::isnan(value) ? std::nullopt : std::optional(value));
      }
    }
    table.left_out += (across ? second : first) - rows.size();
    table.grid = std::move(grid);
  }

  Paths paths_;
  bool every_;
};

}  // namespace

std::string csv_text(const std::vector<PictureTable>& tables) {
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0) text += ',';
      if (cells[i].find_first_of(",\"\r\n") == std::string::npos) {
        text += cells[i];
        continue;
      }
      text += '"';
      for (const char c : cells[i]) text += c == '"' ? std::string("\"\"") : std::string(1, c);
      text += '"';
    }
    text += "\r\n";
  };
  for (const PictureTable& table : tables) {
    if (!text.empty()) text += "\r\n";
    std::vector<std::string> cells;
    if (table.grid) {
      const PictureGrid& grid = *table.grid;
      cells = {grid.corner};
      cells.insert(cells.end(), grid.columns.begin(), grid.columns.end());
      line(cells);
      for (size_t r = 0; r < grid.rows.size(); ++r) {
        cells = {grid.rows[r]};
        for (size_t i = r * grid.columns.size(); i < (r + 1) * grid.columns.size(); ++i)
          cells.push_back(grid.values[i] && std::isfinite(*grid.values[i]) ? fmt::format("{}", *grid.values[i]) : "");
        line(cells);
      }
    }
    if (table.columns.empty()) continue;
    cells.clear();
    for (const PictureTable::Column& column : table.columns) cells.push_back(column.name);
    line(cells);
    for (const auto& row : table.rows) {
      cells.clear();
      for (const PictureCell& cell : row) cells.push_back(cell.full);
      line(cells);
    }
  }
  return text;
}

std::vector<PictureTable> picture_tables(const PictureJson& document, std::string_view name, bool every) {
  const PictureJson& picture = document.at("pictures").at(std::string(name));
  if (!picture.at("available").get<bool>()) throw InputError(picture.at("reason").get<std::string>());
  const PictureOptions options;
  Reader reader({document, picture, options}, every);
  std::vector<PictureTable> tables;
  for (const PictureJson& declared : picture.at("tables"))
    if (every || !declared.value("detail", false))
      if (std::optional<PictureTable> table = reader.table(declared)) tables.push_back(std::move(*table));
  return tables;
}

}  // namespace vitrine
