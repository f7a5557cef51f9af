#include "model/packed_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>

#include "base/error.h"
#include "base/thread_pool.h"
#include "ops/layout.h"

namespace vitrine {
namespace {

constexpr std::string_view kBlocks = "_blocks", kScales = "_scales", kFloat8 = "F8_E4M3";
constexpr int64_t kPerBlock = 32, kPacked = 16;  // values of an MXFP4 block, and their bytes

int64_t product(const std::vector<int64_t>& shape, size_t first, size_t last) {
  int64_t n = 1;
  for (size_t i = first; i < last; ++i) n *= shape[i];
  return n;
}

std::string described(std::string_view name, size_t at) {
  return "tensor \"" + std::string(name) + "\" (header byte " + std::to_string(at) + ") ";
}

// Gives back the whole pages of bytes that are not read again, if they are of a mapped file.
void give_back(const Checkpoint& checkpoint, const std::byte* data, size_t bytes) {
  const std::less_equal<const std::byte*> up_to;
  const bool mapped = std::any_of(checkpoint.files().begin(), checkpoint.files().end(), [&](const MappedFile& file) {
    return up_to(file.bytes().data(), data) && up_to(data + bytes, file.bytes().data() + file.bytes().size());
  });
  static const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t first = (begin + page - 1) / page * page, last = (begin + bytes) / page * page;
  if (mapped && first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

// The first of n chunks' answers that is not below 0, or -1: f(chunk) is the place of what is wrong, or -1.
template <class F>
int64_t first_wrong(ThreadPool& pool, int64_t chunks, F&& f) {
  std::atomic<int64_t> wrong{INT64_MAX};
  pool.run(chunks, [&](int64_t chunk, int) {
    const int64_t at = f(chunk);
    for (int64_t seen = wrong; at >= 0 && at < seen && !wrong.compare_exchange_weak(seen, at);) {
    }
  });
  return wrong == INT64_MAX ? -1 : wrong.load();
}

// In what follows `pool` is null where nothing is to be read.

// MXFP4 ---------------------------------------------------------------------------------------------------------------

// Byte j of a stored block holds values 2 j and 2 j + 1, of ours j and j + 16; the low four bits come first.
void order_block(uint8_t scale, const uint8_t* pairs, uint8_t* block) {
  block[0] = scale;
  for (int j = 0; j < 8; ++j) {
    const uint8_t low = pairs[j], high = pairs[j + 8];
    block[1 + 2 * j] = static_cast<uint8_t>((low & 15) | (high & 15) << 4);
    block[2 + 2 * j] = static_cast<uint8_t>((low >> 4) | (high & 0xf0));
  }
}

// The scales of such blocks: [..., outputs, inputs / 32].
const StoredTensor& scales_beside(const Checkpoint& checkpoint, const StoredTensor& blocks, const std::string& name) {
  const StoredTensor* const scales = checkpoint.find(name);
  const auto of = [](const StoredTensor& tensor) {
    return described(tensor.name, tensor.described_at) + "is " + shape_text(tensor.shape) + " of " +
           std::string(name_of(tensor.dtype)) + "; expected ";
  };
  if (scales == nullptr)
    throw FileError(*blocks.file, described(blocks.name, blocks.described_at) + "has no scales: expected \"" + name +
                                      "\", one for each 32 numbers. Is the download complete?");
  if (blocks.dtype != DType::u8 || blocks.shape.size() < 3 || blocks.shape.back() != kPacked || blocks.bytes == 0)
    throw FileError(*blocks.file, of(blocks) + "[..., outputs, inputs / 32, 16] of u8, as quant_method mxfp4 stores it");
  const std::vector<int64_t> shape(blocks.shape.begin(), blocks.shape.end() - 1);
  if (scales->dtype != DType::u8 || scales->shape != shape)
    throw FileError(*scales->file,
                    of(*scales) + shape_text(shape) + " of u8, one number for each block of \"" + blocks.name + "\"");
  return *scales;
}

// Returns the first block whose scale is NaN, or -1.
int64_t order_blocks(ThreadPool& pool, int64_t count, const uint8_t* scales, const uint8_t* pairs, uint8_t* to) {
  constexpr int64_t kChunk = 1 << 14;
  return first_wrong(pool, ceil_div(count, kChunk), [=](int64_t chunk) -> int64_t {
    for (int64_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
      if (scales[i] == 255) return i;
      order_block(scales[i], pairs + i * kPacked, to + i * (kPacked + 1));
    }
    return -1;
  });
}

void order_experts(Checkpoint& checkpoint, const StoredTensor& blocks, ThreadPool* pool) {
  const std::string name = blocks.name.substr(0, blocks.name.size() - kBlocks.size());
  const StoredTensor& scales = scales_beside(checkpoint, blocks, name + std::string(kScales));
  const auto count = static_cast<int64_t>(scales.bytes);
  std::vector<int64_t> shape = scales.shape;
  shape.back() *= kPerBlock;
  const size_t bytes = row_bytes(DType::mxfp4, static_cast<size_t>(count * kPerBlock));
  StoredTensor made{name, DType::mxfp4, std::move(shape), nullptr, bytes, blocks.file, blocks.described_at};
  if (pool == nullptr) return checkpoint.add(std::move(made));
  std::byte* const to = checkpoint.add_new(std::move(made));
  const int64_t wrong = order_blocks(*pool, count, reinterpret_cast<const uint8_t*>(scales.data),
                                     reinterpret_cast<const uint8_t*>(blocks.data), reinterpret_cast<uint8_t*>(to));
  if (wrong >= 0)
    throw FileError(*scales.file, described(scales.name, scales.described_at) + "holds 255, which is NaN, at " +
                                      std::to_string(wrong) + "; expected powers of two. Is the file damaged?");
  give_back(checkpoint, blocks.data, blocks.bytes);
  give_back(checkpoint, scales.data, scales.bytes);
}

void unpack_mxfp4(Checkpoint& checkpoint, ThreadPool* pool) {
  std::vector<std::string> packed;
  for (const auto& [name, tensor] : checkpoint.tensors())
    if (name.ends_with(kBlocks)) packed.push_back(name);
  for (const std::string& name : packed) {
    order_experts(checkpoint, *checkpoint.find(name), pool);
    checkpoint.remove(name);
    checkpoint.remove(name.substr(0, name.size() - kBlocks.size()) + std::string(kScales));
  }
}

// FP8 -----------------------------------------------------------------------------------------------------------------

// No infinities, and NaN is all ones (arXiv:2209.05433, table 1).
constexpr bool is_nan(uint8_t code) { return (code & 127) == 127; }

// Where the scale of an element of a matrix [out, in] lies: row i, column j has scale (i / rows) * across + j / columns.
struct Scales {
  const StoredTensor* tensor = nullptr;
  int64_t rows = 0, columns = 0, across = 0, down = 0;

  float at(int64_t matrix, int64_t row, int64_t column) const {
    return element_at(tensor->dtype, tensor->data, static_cast<size_t>((matrix * down + row / rows) * across + column / columns));
  }
};

// One scale for all, for each row, or for each block.
Scales scales_of(const std::string& name, const UnreadableTensor& weight, const StoredTensor& scales,
                 const std::vector<int64_t>& block) {
  const size_t axes = weight.shape.size();
  const int64_t out = weight.shape[axes - 2], in = weight.shape[axes - 1];
  std::vector<int64_t> each(weight.shape.begin(), weight.shape.end() - 1), column = each, blocks = each;
  column.push_back(1);
  std::string expected = "[1], " + shape_text(column);
  Scales found{&scales, out, in, 1, 1};
  bool fits = product(scales.shape, 0, scales.shape.size()) == 1;
  if (fits) found.down = 0;  // all matrices share it
  if (!fits && (scales.shape == each || scales.shape == column)) {
    found = {&scales, 1, in, 1, out};
    fits = true;
  }
  if (block.size() == 2) {
    blocks.back() = ceil_div(out, block[0]);
    blocks.push_back(ceil_div(in, block[1]));
    expected = shape_text(blocks) + ", one for each block of " + shape_text(block);
    fits = scales.shape == blocks;
    found = {&scales, block[0], block[1], blocks[axes - 1], blocks[axes - 2]};
  }
  const bool floats = scales.dtype == DType::f32 || scales.dtype == DType::f16 || scales.dtype == DType::bf16;
  if (!fits || !floats)
    throw FileError(*scales.file, described(scales.name, scales.described_at) + "is " + shape_text(scales.shape) + " of " +
                                      std::string(name_of(scales.dtype)) + "; expected " + expected +
                                      " in f32, f16 or bf16, as \"" + name + "\" is " + shape_text(weight.shape));
  const auto count = static_cast<size_t>(product(scales.shape, 0, scales.shape.size()));
  for (size_t i = 0; i < count; ++i)
    if (const float value = element_at(scales.dtype, scales.data, i); !std::isfinite(value) || value < 0)
      throw FileError(*scales.file, described(scales.name, scales.described_at) + "holds " + std::to_string(value) + " at " +
                                        std::to_string(i) + "; expected a finite scale. Is the file damaged?");
  return found;
}

const StoredTensor* find_scales(const Checkpoint& checkpoint, const std::string& weight) {
  for (const char* ending : {"_scale_inv", "_scale"})
    if (const StoredTensor* found = checkpoint.find(weight + ending)) return found;
  return nullptr;
}

// Block `block` of a row: 32 codes after their scale.
void put_block(const uint8_t* codes, float scale, uint8_t* block) {
  std::memcpy(block, &scale, sizeof scale);
  std::memcpy(block + sizeof scale, codes, kBlock);
}

// The rows of a matrix in blocks of f8_e4m3, or as f32 where scales change within such a block or a row ends in one. Returns the
// first element that is NaN, or -1.
int64_t pack_rows(ThreadPool& pool, const Scales& scales, DType type, int64_t rows, int64_t out, int64_t in, const uint8_t* codes,
                  std::byte* to) {
  return first_wrong(pool, rows, [=](int64_t row) -> int64_t {
    const uint8_t* const from = codes + row * in;
    const auto wrong = std::find_if(from, from + in, is_nan);
    if (wrong != from + in) return row * in + (wrong - from);
    std::byte* const line = to + static_cast<size_t>(row) * row_bytes(type, static_cast<size_t>(in));
    uint8_t block[block_bytes(DType::f8_e4m3)];
    uint8_t part[kBlock] = {};
    float wide[kBlock];
    for (int64_t first = 0, n = 0; first < in; first += n) {
      n = std::min({static_cast<int64_t>(kBlock), in - first, scales.columns - first % scales.columns});
      const float scale = scales.at(row / out, row % out, first);
      if (type == DType::f8_e4m3) {
        put_block(from + first, scale, reinterpret_cast<uint8_t*>(line) + row_bytes(type, static_cast<size_t>(first)));
        continue;
      }
      std::copy_n(from + first, n, part);
      put_block(part, scale, block);
      decode_block(DType::f8_e4m3, block, wide);
      std::copy_n(wide, n, reinterpret_cast<float*>(line) + first);
    }
    return -1;
  });
}

void pack_float8(Checkpoint& checkpoint, const std::string& name, const std::vector<int64_t>& block, ThreadPool* pool) {
  const UnreadableTensor weight = checkpoint.unreadable().find(name)->second;
  if (weight.shape.size() < 2 || weight.bytes == 0)
    throw FileError(*weight.file,
                    described(name, weight.described_at) + "of F8_E4M3 is " + shape_text(weight.shape) + "; expected a matrix");
  const StoredTensor* const stored = find_scales(checkpoint, name);
  if (stored == nullptr)
    throw FileError(*weight.file, described(name, weight.described_at) + "of F8_E4M3 has no scales: expected \"" + name +
                                      "_scale_inv\" or \"" + name + "_scale\". Is the download complete?");
  const Scales scales = scales_of(name, weight, *stored, block);
  const size_t axes = weight.shape.size();
  const int64_t out = weight.shape[axes - 2], in = weight.shape[axes - 1], rows = product(weight.shape, 0, axes - 1);
  checkpoint.remove(name);
  const auto per_block = static_cast<int64_t>(kBlock);
  const bool fits = in % per_block == 0 && (scales.columns >= in || scales.columns % per_block == 0);
  const DType type = fits ? DType::f8_e4m3 : DType::f32;
  const size_t bytes = row_bytes(type, weight.bytes);
  StoredTensor made{name, type, weight.shape, nullptr, bytes, weight.file, weight.described_at};
  if (pool == nullptr) {
    checkpoint.add(std::move(made));
  } else {
    std::byte* const to = checkpoint.add_new(std::move(made));
    const int64_t wrong = pack_rows(*pool, scales, type, rows, out, in, reinterpret_cast<const uint8_t*>(weight.data), to);
    if (wrong >= 0)
      throw FileError(*weight.file, described(name, weight.described_at) + "holds a NaN at " + std::to_string(wrong) +
                                        "; expected numbers. Is the file damaged?");
    give_back(checkpoint, weight.data, weight.bytes);
  }
  checkpoint.remove(std::string(stored->name));
}

// Scales of what the reference rounds while it runs: activations and the cache, which are floats here.
bool is_of_activations(std::string_view name) {
  for (const std::string_view end : {".input_scale", ".output_scale", ".k_scale", ".v_scale"})
    if (name.ends_with(end)) return true;
  return false;
}

void unpack_float8(Checkpoint& checkpoint, const std::vector<int64_t>& block, ThreadPool* pool) {
  std::vector<std::string> packed, left_out;
  for (const auto& [name, tensor] : checkpoint.unreadable())
    if (tensor.type == kFloat8) packed.push_back(name);
  for (const auto& [name, tensor] : checkpoint.tensors())
    if (is_of_activations(name)) left_out.push_back(name);
  for (const std::string& name : packed) pack_float8(checkpoint, name, block, pool);
  for (const std::string& name : left_out) checkpoint.remove(name);
}

// Configurations ------------------------------------------------------------------------------------------------------

struct Packing {
  std::string method;          // empty: the weights are not packed
  std::vector<int64_t> block;  // fp8: rows and columns that share a scale; empty: a scale for each row or the tensor
};

// Of blocks: two sizes above 0.
std::vector<int64_t> read_block(const ConfigReader& keys, std::string_view key) {
  std::vector<int64_t> block = keys.counts(key);
  if (!block.empty() && (block.size() != 2 || block[0] == 0 || block[1] == 0))
    keys.fail(key, "is not supported; expected the rows and columns of a block, such as [128, 128]");
  return block;
}

Packing read_fp8(const ConfigReader& keys) {
  Packing packing{"fp8", read_block(keys, "weight_block_size")};
  if (keys.string("fmt", {}, "e4m3") != "e4m3") keys.fail("fmt", "is not supported; expected e4m3");
  keys.ignore({"activation_scheme", "scale_fmt", "dequantize", "ignored_layers"});
  return packing;
}

// One entry of config_groups.
std::vector<int64_t> read_group(const ConfigReader& group) {
  group.ignore({"targets", "input_activations", "output_activations", "format"});
  const auto weights = group.find_object("weights");
  if (!weights) group.fail("weights", "is missing; expected how the weights are packed");
  if (weights->string("type", {}, "int") != "float" || weights->count("num_bits", {}, 8) != 8)
    weights->fail("num_bits",
                  "with this type is not supported; expected 8 and float. Use the original model, or a GGUF file of it");
  const std::string strategy = weights->string("strategy", {}, "tensor");
  if (strategy != "tensor" && strategy != "channel" && strategy != "block")
    weights->fail("strategy", "is not supported; expected tensor, channel or block");
  if (!weights->flag("symmetric", {}, true)) weights->fail("symmetric", "is not supported; expected true");
  if (weights->flag("dynamic", {}, false)) weights->fail("dynamic", "is not supported; expected false");
  weights->ignore({"actorder", "group_size", "observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
  const std::vector<int64_t> block = read_block(*weights, "block_structure");
  return strategy == "block" ? block : std::vector<int64_t>();
}

Packing read_compressed_tensors(const ConfigReader& keys) {
  const std::string format = keys.string("format", {}, "dense");
  if (format != "float-quantized" && format != "naive-quantized")
    keys.fail("format",
              "is a form of compressed-tensors that vitrine does not read; expected float-quantized (FP8). Use the "
              "original model with f32, f16 or bf16 weights, or a GGUF file of it");
  keys.ignore({"ignore", "kv_cache_scheme", "quantization_status", "global_compression_ratio", "version"});
  if (const auto sparse = keys.find_object("sparsity_config"))
    if (sparse->string("format", {}, "dense") != "dense") sparse->fail("format", "is not supported; expected dense");
  keys.find_object("transform_config");  // usually empty; refuse_unread names what is in it
  Packing packing{"compressed-tensors", {}};
  const auto groups = keys.find_object("config_groups");
  if (!groups) keys.fail("config_groups", "is missing; expected how the weights are packed");
  for (int i = 0;; ++i) {
    const auto group = groups->find_object("group_" + std::to_string(i));
    if (!group) return packing;
    const std::vector<int64_t> block = read_group(*group);
    if (i > 0 && block != packing.block)
      keys.fail("config_groups", "has groups whose weights have other blocks; expected one kind of scales for all");
    packing.block = block;
  }
}

Packing read_packing(const ConfigReader& config) {
  const auto keys = config.find_object("quantization_config");
  if (!keys) return {};
  const std::string method = keys->string("quant_method", {}, "unknown");
  keys->ignore({"modules_to_not_convert"});
  if (method == "mxfp4") return {method, {}};
  if (method == "fp8") return read_fp8(*keys);
  if (method == "compressed-tensors") return read_compressed_tensors(*keys);
  config.fail("quantization_config", "says that the weights are packed by the method " + method +
                                         ", which vitrine does not read; expected none, mxfp4, fp8 or compressed-tensors (FP8). "
                                         "Use the original model with f32, f16 or bf16 weights, or a GGUF file of it");
}

}  // namespace

std::string packing_method(const ConfigReader& config) { return read_packing(config).method; }
std::string packing_method(const ModelFiles& files) {
  return files.config.is_object() ? packing_method(ConfigReader(files.config, files.config_path)) : std::string();
}

void unpack_weights(Checkpoint& checkpoint, const ConfigReader& config, bool read) {
  const Packing packing = read_packing(config);
  if (packing.method.empty()) return;
  const std::unique_ptr<ThreadPool> pool = read ? std::make_unique<ThreadPool>() : nullptr;
  packing.method == "mxfp4" ? unpack_mxfp4(checkpoint, pool.get()) : unpack_float8(checkpoint, packing.block, pool.get());
}

}  // namespace vitrine
