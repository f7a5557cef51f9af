#include "io/npz.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "base/mapped_file.h"
#include "support/golden.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const std::string kFolder = std::string(VITRINE_GOLDEN) + "/io/npz/";

// tests/golden/io/make_npz.py
TEST(Npz, ReadsWhatNumPyWrites) {
  const Json expected = read_json(kFolder + "expected.json");
  for (const char* file : {"stored.npz", "compressed.npz"}) {
    SCOPED_TRACE(file);
    const Checkpoint arrays = open_npz(kFolder + file);
    EXPECT_EQ(arrays.tensors().size(), expected.size());
    for (const auto& [name, written] : expected.items()) {
      const StoredTensor* tensor = arrays.find(name);
      ASSERT_NE(tensor, nullptr) << name;
      EXPECT_EQ(tensor->shape, written.at("shape").get<std::vector<int64_t>>()) << name;
      EXPECT_EQ(as_floats(*tensor).values, written.at("values").get<std::vector<float>>()) << name;
    }
    EXPECT_THROW(arrays.find("flags"), FileError);
  }
}

TEST(Npz, AFileThatIsCutOrChangedIsAnError) {
  const Scratch scratch;
  for (const char* file : {"stored.npz", "compressed.npz"}) {
    const std::string whole = read_file(kFolder + file);
    for (size_t size = 0; size < whole.size(); size += 41)
      EXPECT_THROW(open_npz(scratch.write("cut.npz", whole.substr(0, size))), FileError) << size;
    // Any byte changed: read, or refused by name; never a crash.
    for (size_t at = 0; at < whole.size(); at += 11) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 0x5a);
      try {
        open_npz(scratch.write("changed.npz", changed));
      } catch (const FileError& error) {
        EXPECT_CONTAINS(error.what(), "changed.npz");
      }
    }
  }
  EXPECT_CONTAINS(message_of([&] { open_npz(scratch.write("text.npz", std::string(100, 'x'))); }), "no end record");
}

TEST(Npz, AChangedNumberIsAnError) {
  const Scratch scratch;
  std::string whole = read_file(kFolder + "stored.npz");
  const Checkpoint arrays = open_npz(kFolder + "stored.npz");
  const StoredTensor* tensor = arrays.find("W_enc");
  ASSERT_NE(tensor, nullptr);
  const std::string numbers(reinterpret_cast<const char*>(tensor->data), tensor->bytes);
  const size_t at = whole.find(numbers);
  ASSERT_NE(at, std::string::npos);
  whole[at + 6] = static_cast<char>(whole[at + 6] ^ 1);
  EXPECT_CONTAINS(message_of([&] { open_npz(scratch.write("damaged.npz", whole)); }),
                  "W_enc.npy does not match the archive's checksum");
}

TEST(Npz, ASizeThatNoArrayHasIsAnError) {
  const Scratch scratch;
  std::string whole = read_file(kFolder + "stored.npz");
  const std::string before = "(0, 4), }", huge = "(0, 18446744073709551615), }";
  const size_t at = whole.find(before);
  ASSERT_NE(at, std::string::npos);
  const size_t room = huge.size() - before.size();
  ASSERT_EQ(whole.substr(at + before.size(), room), std::string(room, ' '));  // as NumPy fills headers up
  whole.replace(at, huge.size(), huge);
  EXPECT_CONTAINS(message_of([&] { open_npz(scratch.write("huge.npz", whole)); }), "expected descr, fortran_order and shape");
}

}  // namespace
}  // namespace vitrine
