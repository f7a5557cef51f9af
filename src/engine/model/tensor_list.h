#pragma once
// A family's tensors as data: a line each, with its names, its shape, its layout in the files and the place it fills.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ops/weight.h"

namespace vitrine {

/// One size of a tensor and where it comes from, for messages: {"n_kv_heads * head_dim", 1024}.
struct Dim {
  std::string_view formula;
  int64_t size = 0;
};

/// Heads in GGUF's order: those that are first under their key head, then all that are second … A Hugging Face file has all of
/// the first key head, then all of the second …. `each` 0: the order is the same, and GGUF holds the vector as `groups` rows.
struct HeadTiles {
  int64_t groups = 0, each = 0;  // key heads, and heads under each of them
  int64_t size = 0;              // rows of one head (of a vector: numbers)
  int64_t first = 0;             // rows before them, which stay
  bool inputs = false;           // the columns of a matrix are in this order, not its rows
  int64_t together = 1;          // as many heads are first under their key head, side by side, and count as one of `each`
  explicit operator bool() const { return groups > 1 && each > 1; }
};

/// A matrix with the rows of each head's keys and then of its values, which the file holds as two tensors, the keys with rows and
/// columns exchanged: GGUF's attn_k_b [heads, in, keys] and attn_v_b [heads, values, in].
struct KeysAndValues {
  int64_t heads = 0, keys = 0, values = 0;  // rows of one head
  explicit operator bool() const { return heads > 0; }
};

/// Factors of a product that a Hugging Face model applies to its result, and that the GGUF file holds in the matrix (Falcon-H1's
/// multipliers): GGUF's values are those of the Hugging Face file times first, second and of_output, one after the other.
struct GgufFactors {
  float first = 1, second = 1;
  const float* of_output = nullptr;  // [out]; null: none
  explicit operator bool() const { return first != 1 || second != 1 || of_output != nullptr; }
  float apply(float value, int64_t output) const {
    value = value * first * second;
    return of_output != nullptr ? value * of_output[output] : value;
  }
};

/// How the files store a tensor, where that is not [out, in] on its own.
struct StoredLayout {
  bool by_columns = false;         // the Hugging Face file stores [in, out]
  int part = 0, parts = 1;         // this is one of `parts` parts of the outputs of a stacked tensor
  int64_t before = 0;              // outputs of the parts before it
  Dim whole = {};                  // outputs of all parts; size 0: they are equal
  bool gguf_apart = false;         // GGUF stores the parts on their own
  int expert = 0, experts = 0;     // above 0: it is expert number `expert`'s. GGUF stacks those of all: [experts, out, in]
  bool experts_stacked = false;    // so does the Hugging Face file: [experts, outputs of all parts, in]
  bool gguf_pairs = false;         // GGUF orders a head's rows so that neighbors rotate together (Llama's queries and keys)
  std::string_view gguf_odd = {};  // GGUF holds outputs 1, 3, 5, … apart, under this name; 0, 2, 4, … under the line's
  Dim taps = {};  // size above 0: this vector is a convolution's kernel, row by row [channels, taps]; out.formula
                  // names the channels. A Hugging Face file has it as Conv1d does: [channels, 1, taps]
  HeadTiles tiles = {};
  KeysAndValues split = {};     // in this file
  bool gguf_minus_exp = false;  // GGUF holds -exp of the values
  bool gguf_flat = false;       // the Hugging Face file has it as a matrix with one row, GGUF as a vector
  bool constant = false;        // no parameter: it is not learned
  int64_t rows = 0;             // above 0: files hold this vector as a matrix with so many rows
  GgufFactors gguf_factors = {};
  float gguf_offset = 0;  // what GGUF's values exceed those of the Hugging Face file by (Gemma's norms hold 1 + w)
};

struct TensorLine {
  std::string ours, huggingface, gguf;  // names
  std::string gguf_odd;                 // of the tensor with every second output, if GGUF has it apart
  Dim out;                              // of a vector: its size
  Dim in;                               // size 0: a vector
  StoredLayout layout;
  Weight* weight = nullptr;  // what it fills: one of the two
  Vector* vector = nullptr;

  const std::string& file_name(bool in_gguf) const { return in_gguf ? gguf : huggingface; }
  /// Of the tensor in the file, which may hold several parts.
  std::vector<int64_t> file_shape(bool in_gguf) const;
  /// The same as a formula, for messages: "[3 * d_model, d_model]".
  std::string file_formula(bool in_gguf) const;
  bool stored_by_columns(bool in_gguf) const { return layout.by_columns && !in_gguf; }
  /// Whether the file's tensor holds other parts beside this one.
  bool stacked(bool in_gguf) const { return layout.parts > 1 && !(in_gguf && layout.gguf_apart); }
  /// Whether it holds this matrix of all experts, one after the other.
  bool experts_in_one(bool in_gguf) const { return layout.experts > 0 && (in_gguf || layout.experts_stacked); }
  /// Tensors that hold the outputs by turns.
  int64_t turns(bool in_gguf) const { return in_gguf && !gguf_odd.empty() ? 2 : 1; }
  /// Outputs of the tensor in the file; of each expert, if it holds several.
  int64_t file_outputs(bool in_gguf) const {
    if (!stacked(in_gguf)) return out.size / turns(in_gguf);
    return layout.whole.size > 0 ? layout.whole.size : out.size * layout.parts;
  }
  /// Where this part begins in the file's tensor, seen as rows of its last axis (of vectors: as numbers).
  int64_t first_row(bool in_gguf) const;
  int64_t first_column(bool in_gguf) const { return lies_by_columns(in_gguf) ? first_output(in_gguf) : 0; }
  bool is_first(bool in_gguf) const { return first_row(in_gguf) == 0 && first_column(in_gguf) == 0; }

 private:
  bool lies_by_columns(bool in_gguf) const { return in.size > 0 && stored_by_columns(in_gguf); }
  // Of this part, among the outputs of all.
  int64_t first_output(bool in_gguf) const {
    if (!stacked(in_gguf)) return 0;
    return layout.whole.size > 0 ? layout.before : layout.part * out.size;
  }
};

/// Collects the lines of a family.
class TensorList {
 public:
  /// Until the next call, names begin with "blocks.<layer>." and with these prefixes and the layer: {"model.layers.", "blk."}.
  void layer(int64_t layer, std::string_view huggingface, std::string_view gguf = "blk.");
  /// No prefix again.
  void end_layers();
  void add(Weight& weight, std::string_view ours, std::string_view huggingface, std::string_view gguf, Dim out, Dim in,
           StoredLayout layout = {});
  void add(Vector& vector, std::string_view ours, std::string_view huggingface, std::string_view gguf, Dim size,
           StoredLayout layout = {});
  /// A matrix and its bias: "attn.O" is "attn.W_O" and "attn.b_O", and the files' names get ".weight" and ".bias".
  void add_with_bias(Weight& weight, std::string_view ours, std::string_view huggingface, std::string_view gguf, Dim out, Dim in,
                     StoredLayout layout = {});
  std::vector<TensorLine> take() { return std::move(lines_); }

 private:
  TensorLine& line(std::string_view ours, std::string_view huggingface, std::string_view gguf, StoredLayout layout);
  std::string ours_, huggingface_, gguf_;  // prefixes
  std::vector<TensorLine> lines_;
};

}  // namespace vitrine
