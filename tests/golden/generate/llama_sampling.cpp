// Writes llama_sampling.json: what llama.cpp's own samplers make of rows of logits. LLAMA is the folder of its source:
//   g++ -std=c++17 -O1 -w -I LLAMA/include -I LLAMA/ggml/include -I LLAMA/src -I LLAMA/common llama_sampling.cpp
//       -static -Wl,--unresolved-symbols=ignore-all -o llama_sampling && ./llama_sampling > llama_sampling.json
// Nothing that is left unresolved is called. Made with llama.cpp as of llama_cpp_python 0.3.36.
#include <cstdio>

#include "llama-sampler.cpp"

void llama_log_internal(ggml_log_level, const char*, ...) {}
struct llama_vocab::impl {};
llama_vocab::llama_vocab() {}
llama_vocab::~llama_vocab() {}

namespace {

constexpr int kTokens = 257;
using Row = std::vector<float>;

uint32_t state = 12345;
float uniform() { return static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-24f; }
float bell() { return 1.7f * (uniform() + uniform() + uniform() + uniform() - 2.0f); }

Row row(float width, float top) {
  Row r(kTokens);
  for (float& x : r) x = width * bell();
  if (top > 0) r[77] = top, r[30] = top - 0.7f, r[200] = top - 1.6f;
  return r;
}

std::vector<llama_token_data> data_of(const Row& r) {
  std::vector<llama_token_data> data;
  for (int i = 0; i < kTokens; ++i) data.push_back({i, r[i], 0.0f});
  return data;
}

template <class T>
void list(const T& values, const char* format) {
  std::printf("[");
  for (size_t i = 0; i < values.size(); ++i) std::printf("%s", i > 0 ? "," : ""), std::printf(format, values[i]);
  std::printf("]");
}

// Tokens that are left, by rising id.
std::vector<int> left(const llama_token_data_array& a) {
  std::vector<int> ids;
  for (size_t i = 0; i < a.size; ++i)
    if (a.data[i].logit > -INFINITY) ids.push_back(a.data[i].id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<int> cut(llama_sampler* sampler, const Row& r) {
  std::vector<llama_token_data> data = data_of(r);
  llama_token_data_array a = {data.data(), data.size(), -1, false};
  llama_sampler_apply(sampler, &a);
  llama_sampler_free(sampler);
  return left(a);
}

const char* separator = "";
void next() { std::printf("%s\n", separator), separator = ","; }

void mirostat(int version, float tau, float eta, const std::vector<Row>& rows) {
  llama_sampler* sampler =
      version == 1 ? llama_sampler_init_mirostat(kTokens, 7, tau, eta, 100) : llama_sampler_init_mirostat_v2(7, tau, eta);
  next();
  std::printf(R"({"version": %d, "tau": %g, "eta": %g, "steps": [)", version, tau, eta);
  for (int step = 0; step < 15; ++step) {
    std::vector<llama_token_data> data = data_of(rows[step % rows.size()]);
    llama_token_data_array a = {data.data(), data.size(), -1, false};
    llama_sampler_apply(sampler, &a);
    std::printf("%s{\"row\": %d, \"left\": ", step > 0 ? ", " : "", static_cast<int>(step % rows.size()));
    list(left(a), "%d");
    std::printf(", \"taken\": %d}", a.data[a.selected].id);
  }
  std::printf("]}");
  llama_sampler_free(sampler);
}

void dry(const std::vector<int>& text, float multiplier, float base, int allowed, int last_n,
         const std::vector<std::vector<llama_token>>& breakers) {
  llama_sampler* sampler = llama_sampler_init_dry_testing(multiplier, base, allowed, last_n, breakers);
  for (const int token : text) llama_sampler_accept(sampler, token);
  std::vector<llama_token_data> data = data_of(Row(kTokens, 0.0f));
  llama_token_data_array a = {data.data(), data.size(), -1, false};
  llama_sampler_apply(sampler, &a);
  next();
  std::printf(R"({"text": )");
  list(text, "%d");
  std::printf(R"(, "multiplier": %.9g, "base": %.9g, "allowed": %d, "last_n": %d, "breakers": [)", multiplier, base, allowed,
              last_n);
  for (size_t i = 0; i < breakers.size(); ++i) std::printf("%s", i > 0 ? "," : ""), list(breakers[i], "%d");
  std::printf(R"(], "penalties": [)");
  bool first = true;
  for (size_t i = 0; i < a.size; ++i)
    if (a.data[i].logit != 0) std::printf("%s[%d,%.9g]", first ? "" : ",", a.data[i].id, -a.data[i].logit), first = false;
  std::printf("]}");
  llama_sampler_free(sampler);
}

}  // namespace

int main() {
  std::vector<Row> rows = {row(3, 0), row(1, 14), row(1, 5), row(0.02f, 0), row(2, 0)};
  for (float& x : rows[4]) x = std::round(x);
  std::printf("{\"rows\": [");
  for (const Row& r : rows) next(), list(r, "%.9g");
  std::printf("],\n\"top_n_sigma\": [");
  separator = "";
  for (size_t i = 0; i < rows.size(); ++i)
    for (const float n : {-1.0f, 0.0f, 0.5f, 1.0f, 1.75f, 3.0f}) {
      next(), std::printf(R"({"row": %zu, "n": %g, "left": )", i, n);
      list(cut(llama_sampler_init_top_n_sigma(n), rows[i]), "%d");
      std::printf("}");
    }
  std::printf("],\n\"xtc\": [");
  separator = "";
  for (size_t i = 0; i < 4; ++i)  // equal scores are ordered as the sort happens to
    for (const float threshold : {0.003f, 0.02f, 0.1f, 0.3f, 0.5f, 0.6f})
      for (const float probability : {0.0f, 1.0f}) {
        next(), std::printf(R"({"row": %zu, "probability": %g, "threshold": %.9g, "left": )", i, probability, threshold);
        list(cut(llama_sampler_init_xtc(probability, threshold, 0, 3), rows[i]), "%d");
        std::printf("}");
      }
  std::printf("],\n\"mirostat\": [");
  separator = "";
  for (const int version : {1, 2})
    for (const float tau : {1.0f, 3.0f, 5.0f})
      for (const float eta : {0.1f, 0.6f})  // without ties; of a flat row the count of version 1 is beyond an int there
        mirostat(version, tau, eta, {rows.begin(), rows.begin() + (version == 1 ? 3 : 4)});
  std::printf("],\n\"dry\": [");
  separator = "";
  std::vector<std::vector<int>> texts = {
      {1, 2, 3, 3, 2, 3, 9, 1, 2, 3}, {5, 5, 5, 5, 5, 5}, {1, 2, 10, 3, 4, 7, 1, 2, 10, 3, 4}, {}, {8}};
  for (const int symbols : {2, 3, 6}) {
    std::vector<int> text;
    for (int i = 0; i < 60; ++i) text.push_back(static_cast<int>(uniform() * static_cast<float>(symbols)));
    texts.push_back(text);
  }
  for (const auto& text : texts)
    for (const auto& breakers :
         std::vector<std::vector<std::vector<llama_token>>>{{}, {{10}}, {{2, 3}, {4}}, {{1, 0}, {1, 0, 1}, {5}}})
      for (const int allowed : {0, 1, 2, 4})
        for (const int last_n : {7, 64}) dry(text, 0.8f, allowed == 4 ? 1.0f : 1.75f, allowed, last_n, breakers);
  dry(std::vector<int>(400, 6), 2.0f, 3.0f, 2, 1000, {});  // a power beyond f32
  std::printf("]}\n");
}
