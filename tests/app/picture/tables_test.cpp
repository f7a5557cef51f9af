// Pictures as text tables: the numbers of their data, in few rows.
#include "picture/data/tables.h"

#include <gtest/gtest.h>

#include "support.h"
#include "support/random_model.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

size_t rows_of(const std::vector<PictureTable>& tables) {
  size_t rows = 0;
  for (const PictureTable& table : tables) rows += table.grid ? table.grid->rows.size() : table.rows.size();
  return rows;
}

void expect_whole(const PictureTable& table, const std::string& name) {
  if (table.grid) {
    EXPECT_EQ(table.grid->values.size(), table.grid->rows.size() * table.grid->columns.size()) << name;
    EXPECT_TRUE(table.columns.empty() && table.rows.empty()) << name;
  }
  for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.columns.size()) << name;
}

class Tables : public testing::Test {
 protected:
  Engine engine{std::string(VITRINE_SOURCE) + "/models/tales9m", kF32};
  const PictureJson document = explain_document(engine, text_prompt(engine, "Once upon a time there was a king"));
  const PictureJson& picture(const char* name) const { return document.at("pictures").at(name); }
  PictureTable only(const char* name) const {
    const std::vector<PictureTable> tables = picture_tables(document, name);
    EXPECT_EQ(tables.size(), 1u) << name;
    return tables.front();
  }
};

TEST(Chapters, EveryPictureHasATableOfFewRows) {
  for (const Chapter& chapter : chapters()) {
    SCOPED_TRACE(chapter.name);
    const PictureJson document = chapter_document(chapter);
    for (const auto& [name, picture] : document.at("pictures").items()) {
      if (!picture.at("available").get<bool>()) {
        EXPECT_EQ(message_of<InputError>([&] { picture_tables(document, name); }), picture.at("reason").get<std::string>());
        continue;
      }
      const std::vector<PictureTable> tables = picture_tables(document, name);
      for (const PictureTable& table : tables) {
        expect_whole(table, name);
        EXPECT_LE(rows_of({table}), kTableRows + 1) << name;
      }
      EXPECT_GE(rows_of(tables), 2u) << name;
    }
  }
}

TEST_F(Tables, HoldTheDatasNumbers) {
  const PictureTable scales = only("update-scale");
  ASSERT_EQ(scales.rows.size(), picture("update-scale").at("sublayers").size() / 2);
  EXPECT_EQ(scales.left_out, 0u);
  for (size_t l = 0; l < scales.rows.size(); ++l)
    for (size_t i = 0; i < 2; ++i) {
      const PictureJson& sub = picture("update-scale").at("sublayers")[2 * l + i];
      EXPECT_NEAR(std::stod(scales.rows[l][1 + 3 * i]), sub.at("scale").get<double>(), 6e-4);
      EXPECT_NEAR(std::stod(scales.rows[l][2 + 3 * i]), sub.at("sigmaUpdate").get<double>(),
                  1e-3 * sub.at("sigmaUpdate").get<double>());
    }

  const PictureTable next = only("next-tokens");
  ASSERT_EQ(next.rows.size(), document.at("tokens").size());
  EXPECT_EQ(next.rows.back()[1], document.at("tokens").back().at("piece").get<std::string>());
  EXPECT_EQ(next.rows.back()[2], document.at("pieces").at(picture("next-tokens").at("ids").back()[0].dump()).get<std::string>());
  EXPECT_EQ(next.rows.back()[8], "-");  // nothing came yet
  EXPECT_EQ(next.rows.front()[8], document.at("tokens")[1].at("piece").get<std::string>());

  const std::vector<PictureTable> sum = picture_tables(document, "logit-attribution", true);
  ASSERT_EQ(sum.size(), 2u);
  double parts = std::stod(sum[1].rows[0][1].full);  // what rounding leaves over
  for (size_t i = 0; i < sum[0].rows.size(); ++i) {
    parts += std::stod(sum[0].rows[i][1].full);
    EXPECT_LE(std::abs(std::stod(sum[0].rows[i][1])), std::abs(std::stod(sum[0].rows[i > 0 ? i - 1 : 0][1])));
  }
  EXPECT_EQ(sum[1].columns[2].name, "logit before the cap");
  EXPECT_NEAR(parts, std::stod(sum[1].rows[0][2].full), 1e-5);

  const PictureTable lens = only("logit-lens");
  EXPECT_EQ(lens.rows.size(), picture("logit-lens").at("depths").size());
  EXPECT_EQ(lens.left_out, lens.rows.size() * (picture("logit-lens").at("positions").size() - 1));
  EXPECT_EQ(lens.rows.back()[1], next.rows.back()[2]);  // at the last depth it is the prediction
  EXPECT_EQ(lens.rows.back()[8], "1");
  EXPECT_EQ(lens.rows.back()[9], "0.000");

  const PictureTable merges = only("merges");
  EXPECT_EQ(merges.rows.size() + merges.left_out, picture("merges").at("steps").size());
  EXPECT_EQ(merges.rows[0][2] + merges.rows[0][3], merges.rows[0][4]);
  const PictureTable splits = only("splits");
  EXPECT_EQ(splits.rows.size(), picture("splits").at("splits").size());
  EXPECT_EQ(std::count_if(splits.rows.begin(), splits.rows.end(), [](const auto& row) { return row[3] == "*"; }), 1);

  const PictureTable cosine = only("embedding-cosine");
  ASSERT_TRUE(cosine.grid);
  EXPECT_EQ(cosine.grid->values[0], 1.0);
  EXPECT_EQ(cosine.grid->values[1], picture("embedding-cosine").at("cosine")[0][1].get<double>());
}

TEST_F(Tables, OneHeadsWeights) {
  PictureOptions options;
  options.layer = 3;
  options.head = 1;
  const PicturePrompt prompt = text_prompt(engine, "Once upon a time there was a king");
  const PictureTable weights = picture_tables(picture_document(engine, prompt, "attention", options), "attention").front();
  ASSERT_TRUE(weights.grid);
  const size_t n = document.at("tokens").size();
  ASSERT_EQ(weights.grid->rows.size(), n);
  EXPECT_EQ(weights.note, "weights of layer 3, head 1");
  for (size_t t = 0; t < n; ++t) {
    double row = 0;
    for (size_t s = 0; s < n; ++s) {
      EXPECT_EQ(weights.grid->values[t * n + s].has_value(), s <= t);
      row += weights.grid->values[t * n + s].value_or(0);
    }
    EXPECT_NEAR(row, 1, 1e-3);
  }
}

TEST_F(Tables, OfOneTokenHaveNoFlatness) {
  const PictureJson one = explain_document(engine, ids_prompt({2}));
  const std::vector<PictureTable> tables = picture_tables(one, "attention");
  ASSERT_EQ(tables.size(), 2u);
  ASSERT_TRUE(tables[0].grid);
  for (const std::optional<double>& value : tables[0].grid->values) EXPECT_TRUE(value && std::isnan(*value));
  for (const auto& row : tables[1].rows) EXPECT_EQ(row, (std::vector<PictureCell>{row[0], "-", "-", "-", "-", "-", "-"}));
  EXPECT_NE(picture_svg(one, "attention").find("heads of a layer by number"), std::string::npos);
}

// Comma-separated values (RFC 4180) read back: tables, rows, cells.
std::vector<std::vector<std::vector<std::string>>> read_csv(const std::string& text) {
  std::vector<std::vector<std::vector<std::string>>> tables(1);
  std::vector<std::string> row(1);
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (quoted && text[i] == '"' && text.substr(i + 1, 1) == "\"") {
      row.back() += text[++i];
    } else if (text[i] == '"') {
      quoted = !quoted;
    } else if (!quoted && text[i] == ',') {
      row.emplace_back();
    } else if (!quoted && text.substr(i, 2) == "\r\n") {
      if (row == std::vector<std::string>{""}) {
        tables.emplace_back();
      } else {
        tables.back().push_back(row);
      }
      row = {""};
      ++i;
    } else {
      row.back() += text[i];
    }
  }
  EXPECT_EQ(row, std::vector<std::string>{""}) << "the last line has no end";
  return tables;
}

TEST_F(Tables, AsCommaSeparatedValues) {
  for (const PictureInfo& info : chapter_pictures()) {
    if (!picture(info.name).at("available").get<bool>()) continue;
    const std::vector<PictureTable> tables = picture_tables(document, info.name, true);
    const auto read = read_csv(csv_text(tables));
    ASSERT_EQ(read.size(), tables.size()) << info.name;
    for (const auto& table : read) {
      EXPECT_GE(table.size(), 2u) << info.name;
      for (const auto& row : table) EXPECT_EQ(row.size(), table.front().size()) << info.name;
    }
  }
  const auto scales = read_csv(csv_text({only("update-scale")})).front();
  ASSERT_EQ(scales.size(), 9u);
  for (size_t l = 0; l < 8; ++l) {
    const PictureJson& attention = picture("update-scale").at("sublayers")[2 * l];
    EXPECT_EQ(std::stod(scales[l + 1][1]), attention.at("scale").get<double>());  // all digits
    EXPECT_EQ(std::stod(scales[l + 1][2]), attention.at("sigmaUpdate").get<double>());
  }
  const auto next = read_csv(csv_text({only("next-tokens")})).front();
  EXPECT_EQ(next[1][4], "\"");  // after <bos> a quotation mark is the second most likely
  EXPECT_EQ(std::stod(next[1][3]), std::stod(picture("next-tokens").at("probs")[0][0].dump()));
  const PictureCell none("-", "");
  EXPECT_EQ(csv_text({{"", {{"a,b"}, {"c", true}}, {{none, "x\ny"}, {"-", "\"q\""}}, {}, 0}}),
            "\"a,b\",c\r\n,\"x\ny\"\r\n-,\"\"\"q\"\"\"\r\n");
}

TEST(LongTables, SayWhatTheyLeaveOut) {
  const Scratch folder;
  write_random_model(folder.path(), {{"architectures", {"Gemma2ForCausalLM"}},
                                     {"model_type", "gemma2"},
                                     {"hidden_size", 8},
                                     {"num_hidden_layers", 30},
                                     {"num_attention_heads", 30},
                                     {"num_key_value_heads", 15},
                                     {"head_dim", 64},
                                     {"intermediate_size", 8},
                                     {"vocab_size", 40},
                                     {"max_position_embeddings", 512},
                                     {"sliding_window", 16},
                                     {"query_pre_attn_scalar", 64},
                                     {"attn_logit_softcapping", 50.0},
                                     {"final_logit_softcapping", 30.0},
                                     {"hidden_act", "gelu_pytorch_tanh"}});
  Engine engine(folder.path(), kF32);
  std::vector<int32_t> ids;
  for (int i = 0; i < 300; ++i) ids.push_back(i * 7 % 40);
  const PictureJson document = explain_document(engine, ids_prompt(ids));
  for (const PictureInfo& info : chapter_pictures()) {
    if (!document.at("pictures").at(info.name).at("available").get<bool>()) continue;
    const std::vector<PictureTable> tables = picture_tables(document, info.name);
    for (const PictureTable& table : tables) expect_whole(table, info.name);
    EXPECT_LE(rows_of(tables), kTableRows + 1) << info.name;
  }
  const auto first = [&](const char* name) { return picture_tables(document, name).front(); };
  EXPECT_EQ(first("update-scale").rows.size(), kTableRows);
  EXPECT_EQ(first("update-scale").left_out, 30 - kTableRows);
  EXPECT_EQ(first("update-scale").rows.back()[0], "29");  // from the first to the last
  EXPECT_EQ(first("next-tokens").left_out, 300 - kTableRows);
  EXPECT_EQ(first("next-tokens").rows.back()[0], "299");  // the last ones
  const auto every = read_csv(csv_text(picture_tables(document, "next-tokens", true))).front();
  EXPECT_EQ(every.size(), 301u);  // with the names of the columns
  EXPECT_EQ(every[1][0], "0");
  EXPECT_EQ(first("rope-wavelengths").left_out, 32 - kTableRows);
  EXPECT_EQ(first("attention").left_out, 30 - first("attention").grid->rows.size());
  EXPECT_EQ(first("soft-cap").left_out, 30 - first("soft-cap").grid->rows.size());
  PictureOptions options;
  options.layer = 29;
  options.head = 29;
  const PictureTable weights =
      picture_tables(picture_document(engine, ids_prompt(ids), "attention", options), "attention").front();
  EXPECT_EQ(weights.grid->rows.size() + weights.left_out,
            document.at("pictures").at("attention").at("level") == "full"
                ? 300u
                : document.at("pictures").at("attention").at("tiles").at("bins").get<size_t>());
}

}  // namespace
}  // namespace vitrine
