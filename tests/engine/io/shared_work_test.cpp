// Work that several processes share: parts that are interrupted, joined, of other runs and damaged.
#include "io/shared_work.h"

#include <algorithm>
#include <numeric>

#include "base/mapped_file.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

const WorkIdentity kIdentity = {{{"command", "test"}, {"--context", "64"}}, {{"kernels", "avx2"}}};

struct Stopped {};

// What the units give, of a text of numbers; throws Stopped in unit number `stop`.
std::vector<std::vector<double>> go_over(SharedWork& work, const std::vector<uint64_t>& text, size_t stop = SIZE_MAX) {
  std::vector<std::vector<double>> all;
  for (size_t i = 0; i < text.size(); ++i) {
    std::vector<double> values;
    const bool here = work.unit(
        text[i],
        [&] {
          if (i == stop) throw Stopped();
          values.assign(i % 5, 1.0 / static_cast<double>(text[i]));
        },
        [&](UnitBytes& bytes) { bytes.values(values); });
    if (here) all.push_back(values);
  }
  work.finish();
  return all;
}

std::vector<uint64_t> text_of(size_t n) {
  std::vector<uint64_t> text(n);
  std::iota(text.begin(), text.end(), 7);
  return text;
}

void make_parts(const std::string& folder, int64_t count, const std::vector<uint64_t>& text,
                const WorkIdentity& identity = kIdentity) {
  for (int64_t i = count; i-- > 0;) {
    SharedWork work = SharedWork::shard(folder, {i, count}, identity);
    go_over(work, text);
  }
}

std::string join_error(const std::string& folder, const std::vector<uint64_t>& text, const WorkIdentity& identity = kIdentity) {
  return message_of<InputError>([&] {
    SharedWork work = SharedWork::join(folder, identity);
    go_over(work, text);
  });
}

TEST(SharedWork, JoinsToTheValuesOfARunAlone) {
  for (const size_t n : {0, 1, 3, 4, 21}) {
    SharedWork alone = SharedWork::alone();
    const auto expected = go_over(alone, text_of(n));
    EXPECT_EQ(expected.size(), n);
    for (const int64_t count : {1, 4, 7}) {
      const Scratch scratch;
      make_parts(scratch.path(), count, text_of(n));
      SharedWork joined = SharedWork::join(scratch.path(), kIdentity);
      EXPECT_TRUE(joined.gives_all());
      EXPECT_EQ(go_over(joined, text_of(n)), expected) << n << " units in " << count;
      EXPECT_EQ(joined.computed(), 0U);
    }
  }
}

TEST(SharedWork, GoesOnAfterTheLastWholeUnit) {
  const Scratch scratch;
  const std::vector<uint64_t> text = text_of(21);
  const WorkShard shard{1, 4};
  const std::string path = part_path(scratch.path(), shard), unfinished = path + ".unfinished";
  {
    SharedWork work = SharedWork::shard(scratch.path(), shard, kIdentity);
    EXPECT_THROW(go_over(work, text, 13), Stopped);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  const std::string begun = read_file(unfinished);
  {
    SharedWork work = SharedWork::shard(scratch.path(), shard, kIdentity);
    go_over(work, text);
    EXPECT_EQ(work.found(), 3U);     // 1, 5, 9
    EXPECT_EQ(work.computed(), 2U);  // 13, 17
    EXPECT_FALSE(work.gives_all());
  }
  EXPECT_FALSE(std::filesystem::exists(unfinished));
  const std::string whole = read_file(path);
  for (size_t size = 0; size < begun.size(); size += 13) {  // killed at any byte; each ends with an fsync
    std::filesystem::remove(path);
    scratch.write("part-00001-of-00004.unfinished", begun.substr(0, size));
    SharedWork work = SharedWork::shard(scratch.path(), shard, kIdentity);
    go_over(work, text);
    EXPECT_EQ(read_file(path), whole) << size;
  }
  // After a power failure.
  for (const std::string& zeros : {std::string(64, '\0'), std::string(begun.size(), '\0')}) {
    std::filesystem::remove(path);
    scratch.write("part-00001-of-00004.unfinished", zeros);
    SharedWork again = SharedWork::shard(scratch.path(), shard, kIdentity);
    go_over(again, text);
    EXPECT_EQ(read_file(path), whole);
  }
  std::filesystem::remove(path);
  scratch.write("part-00001-of-00004.unfinished", begun + std::string(64, '\0'));
  SharedWork work = SharedWork::shard(scratch.path(), shard, kIdentity);
  go_over(work, text);
  EXPECT_EQ(read_file(path), whole);
}

TEST(SharedWork, DoesNotContinueAnotherPart) {
  const Scratch scratch;
  const WorkShard shard{1, 4};
  const std::string path = part_path(scratch.path(), shard), unfinished = path + ".unfinished";
  const auto error = [&](const WorkShard& one, const WorkIdentity& identity = kIdentity) {
    const std::string message =
        message_of<InputError>([&] { static_cast<void>(SharedWork::shard(scratch.path(), one, identity)); });
    return message;
  };
  {
    PartWriter writer(path, shard, kIdentity);
    writer.add(1, 7, {});
    writer.add(9, 7, {});  // the unit between is not there
  }
  EXPECT_CONTAINS(error(shard), "a record of unit 9; expected 5");
  std::filesystem::remove(unfinished);
  {
    PartWriter writer(path, shard, kIdentity);
  }
  WorkIdentity longer = kIdentity;
  longer.made_from.emplace_back("--hooks", std::string(1000, 'h'));
  EXPECT_CONTAINS(error(shard, longer), "was made with no --hooks");
  std::filesystem::rename(unfinished, part_path(scratch.path(), {2, 4}) + ".unfinished");
  EXPECT_CONTAINS(error({2, 4}), "holds shard 1/4; give it its own name back");
}

TEST(SharedWork, MakesACompletePartOnlyOnce) {
  const Scratch scratch;
  make_parts(scratch.path(), 4, text_of(21));
  const std::string path = part_path(scratch.path(), {2, 4}), whole = read_file(path);
  SharedWork again = SharedWork::shard(scratch.path(), {2, 4}, kIdentity);
  EXPECT_TRUE(again.was_complete());
  EXPECT_TRUE(go_over(again, text_of(21)).empty());
  EXPECT_EQ(again.computed(), 0U);
  EXPECT_EQ(read_file(path), whole);
  for (const size_t other : {20, 22, 30}) {  // of another length
    SharedWork work = SharedWork::shard(scratch.path(), {2, 4}, kIdentity);
    EXPECT_CONTAINS(message_of<InputError>([&] { go_over(work, text_of(other)); }), path + ": was made from a");
  }
}

TEST(SharedWork, OneProcessAtATimeWritesAPart) {
  const Scratch scratch;
  SharedWork first = SharedWork::shard(scratch.path(), {0, 2}, kIdentity);
  EXPECT_CONTAINS(message_of<UsageError>([&] { SharedWork::shard(scratch.path(), {0, 2}, kIdentity); }),
                  "part-00000-of-00002: another process computes this shard");
  SharedWork second = SharedWork::shard(scratch.path(), {1, 2}, kIdentity);
  go_over(second, text_of(5));
  go_over(first, text_of(5));
}

TEST(SharedWork, RefusesPartsThatDoNotBelongTogether) {
  const std::vector<uint64_t> text = text_of(21);
  const Scratch empty;
  EXPECT_CONTAINS(join_error(empty.path(), text), "holds no complete part");
  EXPECT_CONTAINS(join_error(empty / "none", text), "none: cannot be read");

  const Scratch missing;
  make_parts(missing.path(), 4, text);
  std::filesystem::remove(part_path(missing.path(), {1, 4}));
  std::filesystem::rename(part_path(missing.path(), {3, 4}), part_path(missing.path(), {3, 4}) + ".unfinished");
  EXPECT_CONTAINS(join_error(missing.path(), text), "shards 1/4, 3/4 are missing");
  EXPECT_CONTAINS(message_of<InputError>([&] { SharedWork::shard(missing.path(), {1, 5}, kIdentity); }),
                  "holds shard 0/4, and this is 1/5");

  const Scratch mixed;
  make_parts(mixed.path(), 4, text);
  const Scratch other;
  make_parts(other.path(), 2, text);
  std::filesystem::copy(part_path(other.path(), {0, 2}), part_path(mixed.path(), {0, 2}));
  EXPECT_CONTAINS(join_error(mixed.path(), text), "parts of several divisions, 0/2, 3/4");
  std::filesystem::remove(part_path(mixed.path(), {0, 2}));
  std::filesystem::rename(part_path(mixed.path(), {0, 4}), mixed / "kept");
  std::filesystem::copy(part_path(mixed.path(), {1, 4}), part_path(mixed.path(), {0, 4}));
  EXPECT_CONTAINS(join_error(mixed.path(), text), "part-00000-of-00004: holds shard 1/4");
}

TEST(SharedWork, RefusesPartsOfOtherOptionsMachinesAndTexts) {
  const std::vector<uint64_t> text = text_of(21);
  const Scratch scratch;
  make_parts(scratch.path(), 4, text);
  const std::string part = part_path(scratch.path(), {2, 4});
  WorkIdentity other = kIdentity;
  other.made_from[1].second = "128";
  EXPECT_CONTAINS(join_error(scratch.path(), text, other),
                  "part-00000-of-00004: was made with --context 64, this command line with --context 128");
  other.made_from.pop_back();
  EXPECT_CONTAINS(join_error(scratch.path(), text, other), "was made with --context 64, this command line with no --context");
  EXPECT_CONTAINS(message_of<InputError>([&] { SharedWork::shard(scratch.path(), {2, 4}, other); }), part + ": was made with");
  other = kIdentity;
  other.machine[0].second = "amx";  // of the machine that joins
  SharedWork joined = SharedWork::join(scratch.path(), other);
  EXPECT_EQ(go_over(joined, text).size(), 21U);

  std::vector<uint64_t> changed = text;
  ++changed[9];
  EXPECT_CONTAINS(join_error(scratch.path(), changed), "part-00001-of-00004: was made from another text: its unit 9");
  EXPECT_CONTAINS(join_error(scratch.path(), text_of(20)), "was made from another text, of 21 units; here are 20");
  EXPECT_CONTAINS(join_error(scratch.path(), text_of(22)), "was made from a shorter text: it ends before unit 21");

  std::filesystem::remove(part);
  SharedWork one = SharedWork::shard(scratch.path(), {2, 4}, other);
  go_over(one, text);
  EXPECT_CONTAINS(join_error(scratch.path(), text),
                  "with kernels amx, " + part_path(scratch.path(), {0, 4}) + " with kernels avx2");
  EXPECT_CONTAINS(join_error(scratch.path(), text), "VITRINE_TARGET");
  std::filesystem::remove(part);
  SharedWork two = SharedWork::shard(scratch.path(), {2, 4}, kIdentity);
  go_over(two, text_of(23));
  EXPECT_CONTAINS(join_error(scratch.path(), text), "part-00002-of-00004: was made from another text than");
}

TEST(SharedWork, RefusesAPartWithAnyDamage) {
  const Scratch scratch;
  const std::vector<uint64_t> text = text_of(5);
  make_parts(scratch.path(), 2, text);
  const std::string path = part_path(scratch.path(), {0, 2}), whole = read_file(path);
  for (size_t at = 0; at < whole.size(); at += 3) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    scratch.write("part-00000-of-00002", damaged);
    EXPECT_THROW(SharedWork::join(scratch.path(), kIdentity), InputError) << at;
    scratch.write("part-00000-of-00002", whole.substr(0, at));
    EXPECT_THROW(SharedWork::join(scratch.path(), kIdentity), InputError) << at;
  }
  scratch.write("part-00000-of-00002", whole.substr(0, whole.size() - 1));
  const std::string message = message_of<FileError>([&] { SharedWork::join(scratch.path(), kIdentity); });
  EXPECT_CONTAINS(message, path + ": is damaged: byte ");
  EXPECT_CONTAINS(message, "Remove it, and run its shard again");
  scratch.write("part-00000-of-00002", whole + whole);
  EXPECT_CONTAINS(message_of<FileError>([&] { SharedWork::join(scratch.path(), kIdentity); }), "is damaged");
  scratch.write("part-00000-of-00002", whole);
  SharedWork joined = SharedWork::join(scratch.path(), kIdentity);
  EXPECT_EQ(go_over(joined, text).size(), 5U);
}

TEST(PartNames, AreReadAsTheyAreWritten) {
  const auto named = [](const std::string& file) {
    const auto shard = part_named(file);
    return shard ? std::to_string(shard->index) + "/" + std::to_string(shard->count) : "";
  };
  EXPECT_EQ(named("part-00002-of-00008"), "2/8");
  EXPECT_EQ(named("part-12345-of-99999"), "12345/99999");
  for (const char* other : {"part-2-of-8", "part-00008-of-00008", "part-00002-of-00008.unfinished", "part--0001-of-00008",
                            "part-", "part-00002-of-", "part-99999999999999999999-of-00008", "part-00000-of-9999999999", "other"})
    EXPECT_EQ(named(other), "") << other;
}

TEST(UnitBytes, GivesWhatWasWrittenAndRefusesTheRest) {
  struct Nested {
    std::string name;
    std::vector<int32_t> ids;
  };
  int64_t number = -3;
  std::vector<Nested> nested = {{"one", {1, 2, 3}}, {"", {}}};
  const auto fields = [&](UnitBytes& bytes) {
    bytes.value(number);
    bytes.each(nested, [&](Nested& one) {
      bytes.text(one.name);
      bytes.values(one.ids);
    });
  };
  UnitBytes to;
  fields(to);
  const std::vector<std::byte> written(to.written().begin(), to.written().end());
  number = 0;
  nested.clear();
  UnitBytes from(written, "a part");
  fields(from);
  from.require_end();
  EXPECT_EQ(number, -3);
  ASSERT_EQ(nested.size(), 2U);
  EXPECT_EQ(nested[0].name, "one");
  EXPECT_EQ(nested[0].ids, (std::vector<int32_t>{1, 2, 3}));
  for (size_t size = 0; size < written.size(); ++size) {
    UnitBytes cut(std::span<const std::byte>(written).first(size), "a part");
    EXPECT_THROW(fields(cut), FileError) << size;
  }
  std::vector<std::byte> large(16, std::byte{0xff});
  UnitBytes count(large, "a part");
  std::vector<double> values;
  EXPECT_CONTAINS(message_of<FileError>([&] { count.values(values); }), "a part: gives a count of 18446744073709551615");
  UnitBytes longer(written, "a part");
  longer.value(number);
  EXPECT_CONTAINS(message_of<FileError>([&] { longer.require_end(); }), "bytes; expected 8");
  UnitBytes other(written, "a part");
  other.value(number);
  EXPECT_CONTAINS(message_of<FileError>([&] { other.values(values, 5); }), "has 2 values; expected 5");
}

}  // namespace
}  // namespace vitrine
