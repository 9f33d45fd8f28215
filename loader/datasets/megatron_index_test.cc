#include "lockstep/loader/datasets/megatron_index.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/file.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep {
namespace internal_loader {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;

const TokenFolder& Folder() {
  static const TokenFolder& folder = *new TokenFolder();
  return folder;
}

absl::StatusOr<MegatronIndex> ReadIndex(const std::string& bytes,
                                        int64_t data_bytes,
                                        bool with_ends = true) {
  const std::string path = Folder().Write("index", bytes);
  LOCKSTEP_ASSIGN_OR_RETURN(const File file, File::Open(path.c_str()));
  return ReadMegatronIndex(file, data_bytes, with_ends);
}

// Two documents of sequences of 3 and 1, and of 2 tokens, each of 2 bytes. The
// header has 34 bytes. Lengths begin at byte 34, begins at byte 46, and
// documents at byte 70.
const TokenDocuments& Small() {
  static const TokenDocuments& documents = *new TokenDocuments{{3, 1}, {2}};
  return documents;
}
constexpr int64_t kDataBytes = 12;
constexpr size_t kLengths = 34, kBegins = 46, kDocuments = 70, kAll = 94;

// Returns the index with a number at a byte replaced.
template <typename T>
std::string With(size_t byte, T number) {
  std::string bytes = MegatronIndexBytes(Small(), 8, 2);
  EXPECT_EQ(bytes.size(), kAll);
  std::memcpy(&bytes[byte], &number, sizeof(number));
  return bytes;
}

// Expects DATA_LOSS that names the file, the byte and what is said there.
void ExpectTorn(const std::string& bytes, size_t byte,
                const std::string& words) {
  for (const bool with_ends : {true, false}) {
    EXPECT_THAT(
        ReadIndex(bytes, kDataBytes, with_ends),
        StatusIs(kDataLoss,
                 AllOf(HasSubstr(absl::StrCat("/index', byte ", byte, ": ")),
                       HasSubstr(words), HasSubstr("make the file again"))));
  }
}

TEST(MegatronIndex, HasTheDocuments) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const MegatronIndex index,
      ReadIndex(MegatronIndexBytes(Small(), 8, 2), kDataBytes));
  EXPECT_EQ(index.dtype, DType::kU16);
  EXPECT_EQ(index.tokens, 6);
  EXPECT_EQ(index.documents, 2);
  EXPECT_THAT(index.ends, ElementsAre(4, 6));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const MegatronIndex without,
      ReadIndex(MegatronIndexBytes(Small(), 8, 2), kDataBytes, false));
  EXPECT_EQ(without.tokens, 6);
  EXPECT_EQ(without.documents, 2);
  EXPECT_THAT(without.ends, IsEmpty());
}

TEST(MegatronIndex, DocumentsAndSequencesMayBeEmpty) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const MegatronIndex index,
      ReadIndex(MegatronIndexBytes(
                    {{}, {0}, {2, 0, 1}, {}, {}, {0, 0}, {4}, {}}, 3, 2),
                14));
  EXPECT_THAT(index.ends, ElementsAre(0, 0, 3, 3, 3, 3, 7, 7));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const MegatronIndex nothing,
                                ReadIndex(MegatronIndexBytes({}, 1, 1), 0));
  EXPECT_EQ(nothing.documents, 0);
  EXPECT_EQ(nothing.tokens, 0);
}

// Numbers are read in pieces of 8,192.
TEST(MegatronIndex, MayHaveMoreSequencesThanAreReadAtATime) {
  Random random(3);
  for (const int64_t sequences : {8191, 8192, 8193, 20000}) {
    TokenDocuments documents;
    std::vector<int64_t> ends;
    int64_t tokens = 0;
    for (int64_t left = sequences; left > 0;) {
      documents.emplace_back();
      for (int64_t i = random.Integer(0, 4); i > 0 && left > 0; --i, --left) {
        documents.back().push_back(static_cast<int32_t>(random.Below(9)));
      }
      tokens += std::accumulate(documents.back().begin(),
                                documents.back().end(), int64_t{0});
      ends.push_back(tokens);
    }
    std::string bytes = MegatronIndexBytes(documents, 5, 8);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const MegatronIndex index,
                                  ReadIndex(bytes, tokens * 8));
    EXPECT_EQ(index.tokens, tokens);
    EXPECT_EQ(index.ends, ends);
    // The byte of an error counts the pieces before.
    const size_t byte = 34 + 4 * (sequences - 1);
    std::memset(&bytes[byte], 0xff, 4);
    EXPECT_THAT(ReadIndex(bytes, tokens * 8),
                StatusIs(kDataLoss, HasSubstr(absl::StrCat(
                                        "byte ", byte, ": sequence ",
                                        sequences - 1, " should have"))));
  }
}

TEST(MegatronIndex, ModesMayFollow) {
  const std::string bytes = MegatronIndexBytes(Small(), 8, 2);
  LOCKSTEP_EXPECT_OK(ReadIndex(bytes + std::string(3, '\1'), kDataBytes));
  for (const size_t more : {1, 2, 4, 8}) {
    ExpectTorn(bytes + std::string(more, '\1'), kAll,
               absl::StrCat(more, " bytes follow the documents"));
  }
}

TEST(MegatronIndex, EachTypeHasANumber) {
  const DType types[] = {DType::kU8,  DType::kI8,  DType::kI16, DType::kI32,
                         DType::kI64, DType::kF64, DType::kF32, DType::kU16};
  for (uint8_t type = 1; type <= 8; ++type) {
    const int64_t token_bytes = SizeOf(types[type - 1]);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const MegatronIndex index,
        ReadIndex(MegatronIndexBytes(Small(), type, token_bytes),
                  6 * token_bytes));
    EXPECT_EQ(index.dtype, types[type - 1]);
    EXPECT_EQ(index.tokens, 6);
  }
  for (const uint8_t type : {0, 9, 255}) {
    ExpectTorn(With<uint8_t>(17, type), 17,
               absl::StrCat("1 to 8, and is ", static_cast<int>(type)));
  }
}

TEST(MegatronIndex, OfAnotherVersionIsNotRead) {
  for (const uint64_t version : {uint64_t{0}, uint64_t{2}, ~uint64_t{0}}) {
    EXPECT_THAT(ReadIndex(With(9, version), kDataBytes),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr("/index'"),
                               HasSubstr(absl::StrCat("version ", version)),
                               HasSubstr("reads version 1"))));
  }
}

TEST(MegatronIndex, TruncatedAnywhereIsTorn) {
  const std::string bytes = MegatronIndexBytes(Small(), 8, 2);
  for (size_t size = 0; size < kAll; ++size) {
    EXPECT_THAT(ReadIndex(bytes.substr(0, size), kDataBytes),
                StatusIs(kDataLoss, HasSubstr("/index'")))
        << size;
  }
  ExpectTorn(bytes.substr(0, 33), 33, "within its header of 34 bytes");
  ExpectTorn(bytes.substr(0, kAll - 1), 18, "has no room");
}

TEST(MegatronIndex, OfAnotherKindIsRefused) {
  std::string bytes = MegatronIndexBytes(Small(), 8, 2);
  for (size_t i = 0; i < 9; ++i) {
    std::string other = bytes;
    other[i] = 'x';
    EXPECT_THAT(
        ReadIndex(other, kDataBytes),
        StatusIs(kDataLoss, AllOf(HasSubstr("/index'"), HasSubstr("MMIDIDX"),
                                  HasSubstr("rename it"))));
  }
}

TEST(MegatronIndex, CountsMustFitTheFile) {
  for (const uint64_t count :
       {uint64_t{6}, uint64_t{1} << 60, uint64_t{1} << 63, ~uint64_t{0}}) {
    ExpectTorn(With(18, count), 18, absl::StrCat(count, " sequences"));
    ExpectTorn(With(26, count), 18, absl::StrCat(count, " documents"));
  }
  std::string none = MegatronIndexBytes({}, 8, 2).substr(0, 34);
  none[26] = 0;
  EXPECT_THAT(ReadIndex(none, 0),
              StatusIs(kDataLoss, AllOf(HasSubstr("byte 26: "),
                                        HasSubstr("begin with 0"))));
}

TEST(MegatronIndex, SequencesMustFollowEachOther) {
  for (const int64_t begin :
       {int64_t{-6}, int64_t{0}, int64_t{5}, int64_t{8}, INT64_MAX}) {
    ExpectTorn(With(kBegins + 8, begin), kBegins + 8,
               absl::StrCat("sequence 1 should begin at byte 6 of the .bin, "
                            "where the one before it ends, and begins at byte ",
                            begin));
  }
  ExpectTorn(With(kBegins, int64_t{2}), kBegins,
             "sequence 0 should begin at byte 0");
  for (const int32_t length : {-1, 4, INT32_MIN, INT32_MAX}) {
    ExpectTorn(With(kLengths + 4, length), kLengths + 4,
               absl::StrCat("sequence 1 should have 0 to 3 tokens, which the "
                            ".bin has from byte 6 on, and has ",
                            length));
  }
  // A shorter sequence is contradicted by the next one.
  ExpectTorn(With(kLengths, int32_t{2}), kBegins + 8, "begin at byte 4");
  // The last one must reach the end of the .bin.
  ExpectTorn(With(kLengths + 8, int32_t{1}), 34,
             "the sequences have 5 tokens of 2 bytes, and the .bin has 12");
}

TEST(MegatronIndex, DocumentsMustHaveAllSequencesInOrder) {
  for (const int64_t first : {-1, 1, 3, 4}) {
    ExpectTorn(With(kDocuments, first), kDocuments, "");
  }
  for (const int64_t second : {int64_t{-1}, int64_t{4}, INT64_MAX}) {
    ExpectTorn(With(kDocuments + 8, second), kDocuments + 8,
               absl::StrCat("sequences 0 to 3, and begins with ", second));
  }
  ExpectTorn(With(kDocuments + 16, int64_t{1}), kDocuments + 16,
             "sequences 2 to 3, and begins with 1");
  ExpectTorn(With(kDocuments + 16, int64_t{2}), kDocuments + 16,
             "the last document should end with the last of 3 sequences, and "
             "ends before 2");
}

}  // namespace
}  // namespace internal_loader
}  // namespace lockstep
