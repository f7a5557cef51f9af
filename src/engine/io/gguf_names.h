#pragma once
// The GGUF files of a repository by their names, which say the type of the weights: model-Q4_K_M.gguf, Model.Q8_0.gguf,
// BF16/model-BF16-00001-of-00002.gguf.
#include <string>
#include <string_view>
#include <vector>

namespace vitrine {

/// One model of a folder: a file, or all parts of a split one.
struct GgufModel {
  std::string type;                // "Q4_K_M", "UD-Q2_K_XL", as the name spells it; empty if it tells none
  std::vector<std::string> files;  // the first part first
  int parts = 1;                   // as the names say: files may lack some
};

/// The models among `names` (with slashes), in the order of their first files. Files that go beside a model (mmproj-…, imatrix)
/// are none.
std::vector<GgufModel> gguf_models(std::vector<std::string> names);

/// Those of a type, in whatever case: "q4_k_m". "Q2_K_XL" means "UD-Q2_K_XL", too, if nothing has that type alone.
std::vector<GgufModel> of_type(const std::vector<GgufModel>& models, std::string_view type);

/// The types that there are, each once, for messages: "Q4_K_M, Q8_0".
std::string types_text(const std::vector<GgufModel>& models);

}  // namespace vitrine
