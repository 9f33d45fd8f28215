// These tests check what a TarWalk refuses, and what it says then.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/tar_archive.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep::internal_loader {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

const TokenFolder& Folder() {
  static const TokenFolder& folder = *new TokenFolder();
  return folder;
}

// Returns the number of members that a walk finds.
absl::StatusOr<int> Walk(absl::string_view bytes,
                         FileAccess access = FileAccess::kRead) {
  const OpenTar file(Folder().Write("a.tar", bytes), access);
  TarWalk walk(*file, file.path(), file.size(), 0);
  int count = 0;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const TarMember* const member, walk.Next());
    if (member == nullptr) return count;
    // No member lies outside of the file, whatever follows.
    EXPECT_GE(member->size, 0);
    EXPECT_GE(member->offset, 512);
    EXPECT_LE(member->size, file.size() - member->offset);
    ++count;
  }
}

// Expects an error that names the file and the byte.
void ExpectTorn(absl::string_view bytes, int64_t byte, const std::string& words,
                absl::StatusCode code = kDataLoss) {
  EXPECT_THAT(Walk(bytes),
              StatusIs(code, AllOf(StartsWith(absl::StrCat("'", Folder().path(),
                                                           "/a.tar', byte ",
                                                           byte, ": ")),
                                   HasSubstr(words))));
}

// An archive that has all kinds of headers.
const TarWriter& Mixed() {
  static const TarWriter& tar = *[] {
    auto* const tar = new TarWriter();
    tar->Records({{"comment", "for tests"}}, 'g').Folder("a/");
    tar->Add("a/1.txt", "one").Add("a/2.txt").Add("b", std::string(600, 'x'));
    tar->GnuName(std::string(150, 'n')).Add("n", "long");
    tar->Records({{"path", "c.txt"}, {"size", "3"}}).Add("c", "pax");
    tar->Sparse("d", "sparse", 2).Link("e", "a/1.txt");
    tar->Add("full", std::string(512, '\0'));  // as the end of an archive
    return tar;
  }();
  return tar;
}

TEST(TarWalkErrors, ACutArchiveIsNeverAccepted) {
  const std::string whole = Mixed().Finish();
  EXPECT_THAT(Walk(whole), IsOkAndHolds(9));
  for (size_t block = 0; block <= whole.size(); block += 512) {
    for (const int more : {0, 1, 7, 257, 511}) {
      const size_t cut = block + more;
      if (cut >= whole.size()) continue;
      for (const FileAccess access : {FileAccess::kRead, FileAccess::kMapped}) {
        if (cut == 0 && access == FileAccess::kMapped) continue;
        const absl::Status status =
            Walk(absl::string_view(whole).substr(0, cut), access).status();
        ASSERT_EQ(status.code(), kDataLoss) << cut << ": " << status;
        // The message names the file and a byte of it.
        absl::string_view rest = status.message();
        const std::string start =
            absl::StrCat("'", Folder().path(), "/a.tar', byte ");
        ASSERT_TRUE(absl::StartsWith(rest, start)) << status;
        rest.remove_prefix(start.size());
        size_t byte = 0;
        ASSERT_TRUE(absl::SimpleAtoi(rest.substr(0, rest.find(':')), &byte));
        EXPECT_LE(byte, cut);
        EXPECT_GE(byte + 2048, cut);  // It lies within the last member.
      }
    }
  }
}

TEST(TarWalkErrors, ACutInContentNamesItsMember) {
  TarWriter tar;
  tar.Add("a.txt", "1").Add("b\n.txt", std::string(600, 'x'));
  const absl::string_view bytes = tar.bytes();
  ExpectTorn(bytes.substr(0, 2135), 1024, "'b\\n.txt' should have 600 bytes");
  ExpectTorn(bytes.substr(0, 2135), 1024, "the file ends at byte 2135");
  // All bytes of the content are there, and not those up to a block.
  ExpectTorn(bytes.substr(0, 2136), 2136, "it was cut");
  ExpectTorn(bytes.substr(0, 2559), 2559, "it was cut");
  ExpectTorn(bytes, 2560, "without the two blocks of zeros");
  ExpectTorn(tar.Finish(1), 2560, "two blocks of zeros and nothing else");
  ExpectTorn(tar.Finish(2).substr(0, tar.size() + 1023), 2560, "two blocks");
  EXPECT_THAT(Walk(tar.Finish()), IsOkAndHolds(2));
}

TEST(TarWalkErrors, NothingButZerosFollowsTheEnd) {
  TarWriter tar;
  tar.Add("a.txt", "1");
  ExpectTorn(tar.Finish() + "x", 1024, "nothing else");
  ExpectTorn(tar.Finish(3) + std::string(511, '\0') + "x", 1024, "");
  ExpectTorn(tar.Finish(3000) + "x", 1024, "");
  ExpectTorn(tar.Finish(3000) + "x" + std::string(1 << 20, '\0'), 1024, "");
  // A block of zeros alone, or two archives.
  ExpectTorn(tar.Finish(1) + tar.Finish(), 1024, "archives were joined");
  ExpectTorn(tar.Finish() + tar.Finish(), 1024, "archives were joined");
  ExpectTorn(tar.Finish(20) + tar.Finish(20), 1024, "archives were joined");
  ExpectTorn(std::string(512, '\0') + tar.Finish(), 0, "");
  ExpectTorn(std::string(512, '\0'), 0, "");
  EXPECT_THAT(Walk(tar.bytes() + tar.Finish()), IsOkAndHolds(2));
}

TEST(TarWalkErrors, OtherFilesAreNoArchives) {
  ExpectTorn("", 0, "the file is empty");
  ExpectTorn("a text", 6, "it was cut");
  ExpectTorn(std::string(511, '\0'), 511, "it was cut");
  ExpectTorn(std::string(512, 'x'), 0, "this is no tar archive");
  ExpectTorn(std::string(2000, ' '), 0, "this is no tar archive");
  ExpectTorn(std::string(2000, '\xff'), 0, "this is no tar archive");
  ExpectTorn(TarWriter().Add("a").bytes() + std::string(512, 'x'), 512,
             "there should be the header of a member");
}

// Each bit of a header counts, except those behind the digits of its sum.
TEST(TarWalkErrors, AHeaderHasItsSum) {
  TarWriter tar;
  tar.Add("a.txt", "1").Add("b.txt", "2");
  for (size_t i = 0; i < 512; ++i) {
    if (i >= 148 && i < 156) continue;
    std::string bytes = tar.Finish();
    bytes[1024 + i] ^= static_cast<char>(1 << i % 8);
    ExpectTorn(bytes, 1024, "there should be the header of a member");
  }
  for (const char* const sum : {"", "0", "7777777", "x", "-1", "0000000"}) {
    std::string bytes = tar.Finish();
    PutTarField(bytes, 148, 8, std::string(8, '\0'));
    PutTarField(bytes, 148, 8, sum);
    ExpectTorn(bytes, 0, "this is no tar archive");
  }
}

// ---- Sizes.

TEST(TarWalkErrors, SizesLieInTheFile) {
  std::vector<std::string> bad = {
      "0000000000x", "8", "-1", "+1", "0x1", "1.", "1,", TarBase256(-1),
      TarBase256(-512), TarBase256(std::numeric_limits<int64_t>::min()),
      std::string(12, '\xff'),
      // These have more than 63 bits.
      std::string("\x80\0\0\x01\0\0\0\0\0\0\0\0", 12),
      std::string("\x80\0\0\0\x80\0\0\0\0\0\0\0", 12),
      std::string("\x80\x01\0\0\0\0\0\0\0\0\0\0", 12),
      std::string("\x81\0\0\0\0\0\0\0\0\0\0\0", 12), "\xc0"};
  for (const std::string& size : bad) {
    for (const char type : {'0', 'S', 'L', 'x', 'g', 'V'}) {
      TarHeader header;
      header.name = "b";
      header.type = type;
      header.size = size;
      const std::string bytes =
          TarWriter().Add("a", "1").Header(header).Finish(4);
      ExpectTorn(bytes, 1024, "should have a size");
    }
  }
  for (const int64_t size :
       {int64_t{2049}, int64_t{2560}, int64_t{1} << 40, kMost / 2, kMost - 2048,
        kMost - 1536, kMost - 1535, kMost - 511, kMost - 1, kMost}) {
    for (const bool in_pax : {false, true}) {
      TarHeader header;
      header.name = "b";
      TarWriter tar;
      tar.Add("a", "1");
      if (in_pax) tar.Records({{"size", absl::StrCat(size)}});
      const int64_t at = tar.size();
      header.size = in_pax ? TarOctal(0) : TarBase256(size);
      tar.Header(header);
      ExpectTorn(tar.Finish(4), at,
                 absl::StrCat("'b' should have ", size, " bytes"));
    }
  }
  TarHeader header;
  header.name = "b";
  header.size = "777777777777";
  ExpectTorn(TarWriter().Header(header).Finish(), 0, "have 68719476735 bytes");
}

TEST(TarWalkErrors, ASizeInPaxIsANumber) {
  for (const char* const size :
       {"", "x", "-1", "1x", "0x10", "1.5", "9223372036854775808",
        "18446744073709551617", "-9223372036854775808"}) {
    TarWriter tar;
    tar.Add("a", "1").Records({{"size", size}}).Add("b", "1");
    ExpectTorn(tar.Finish(), 1024, "the size of a member in a PAX header is");
  }
}

// ---- Headers in front of others.

TEST(TarWalkErrors, RecordsAreWhole) {
  for (const char* const bad : {"x",
                                " ",
                                "9",
                                "9 path=a",
                                "9 path=ab\n",
                                "7 path=a\n",
                                "8 path=a\n",
                                "11 path=a\n",
                                "0 path=a\n",
                                "1 path=a\n",
                                "2 path=a\n",
                                "-9 path=a\n",
                                "9path=a\n",
                                "x9 path=a\n",
                                " 9 path=a\n",
                                "99 path=a\n",
                                "18446744073709551625 path=a\n",
                                "000000000000000000009 path=a\n",
                                "9 path=a\n9",
                                "9 path=a\n9 path=a",
                                "9 path=a\n\n",
                                "2 \n2 "}) {
    for (const char type : {'x', 'X', 'g'}) {
      if (type == 'g' && absl::StartsWith(bad, "9 path=a\n")) continue;
      TarWriter tar;
      tar.Add("a", "1").Add("records", bad, type).Add("b", "1");
      ExpectTorn(tar.Finish(), 1024, "a record of a PAX header is torn");
    }
  }
  // These are unusual, and say nothing.
  for (const char* const good : {"4 a\n", "5 a=\n", "4 =\n", "3 \n"}) {
    TarWriter tar;
    tar.Add("records", good, 'x').Add("b", "1");
    EXPECT_THAT(Walk(tar.Finish()), IsOkAndHolds(1)) << good;
  }
}

TEST(TarWalkErrors, NamesAndRecordsHaveNotTooManyBytes) {
  TarWriter tar;
  tar.Add("a", "1").GnuName(std::string(65536, 'n')).Add("b", "1");
  ExpectTorn(tar.Finish(), 1024,
             "the name of a member should have at most 65536 bytes, and have "
             "65537");
  TarWriter link;
  link.GnuName(std::string(65536, 'n'), 'K').Link("a", "b");
  ExpectTorn(link.Finish(), 0, "65537");
  for (const char type : {'x', 'X', 'g'}) {
    TarWriter records;
    records.Add("a", "1");
    records.Records({{"comment", std::string(1 << 20, 'x')}}, type);
    ExpectTorn(records.Add("b").Finish(), 1024, "at most 1048576 bytes");
  }
}

TEST(TarWalkErrors, AGlobalHeaderDoesNotPlaceMembers) {
  for (const char* const key : {"path", "size", "GNU.sparse.major"}) {
    TarWriter tar;
    tar.Add("a", "1").Records({{"comment", "x"}, {key, "1"}}, 'g').Add("b");
    ExpectTorn(tar.Finish(), 1024,
               absl::StrCat("a global header sets the ", key),
               absl::StatusCode::kUnimplemented);
  }
}

TEST(TarWalkErrors, AMemberFollowsWhatDescribesIt) {
  const std::string zeros(1024, '\0');
  TarWriter name;
  name.Add("a").GnuName("b");
  ExpectTorn(name.Finish(), 1536, "ends where a member should follow");
  ExpectTorn(name.bytes(), 1536, "it was cut");
  TarWriter records;
  records.Add("a").Records({{"path", "b"}}).GnuName("target", 'K');
  ExpectTorn(records.Finish(), 2560, "ends where a member should follow");
  ExpectTorn(records.Finish() + "x", 2560, "nothing else");
  ExpectTorn(records.bytes() + std::string(2000, 'x'), 2560,
             "there should be the header");
}

TEST(TarWalkErrors, TheBlocksOfASparseMemberEnd) {
  TarWriter tar;
  tar.Add("a").Sparse("b", "", 3);
  const std::string bytes = tar.bytes();
  ExpectTorn(bytes.substr(0, 1024), 512, "");
  ExpectTorn(bytes.substr(0, 1536), 1024, "within the header of a sparse");
  ExpectTorn(bytes.substr(0, 2047), 1024, "within the header of a sparse");
  // All blocks say that more follow.
  std::string endless = TarWriter().Add("a").Sparse("b", "", 1).bytes();
  endless += std::string(512 * 1000, 'x');
  endless[1024 + 504] = '\1';
  ExpectTorn(endless, 1024 + 512 * 1000, "within the header of a sparse");
}

// ---- Compressed files.

TEST(TarWalkErrors, CompressedFilesAreRefused) {
  for (const std::string program : {"gzip", "bzip2", "xz", "zstd"}) {
    std::ifstream file(GoldenTarPath(program + ".tar"), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    ASSERT_GT(bytes.size(), 100);
    for (const std::string& each :
         {bytes, bytes.substr(0, 6), bytes.substr(0, 100),
          bytes + std::string(5000, 'x')}) {
      EXPECT_THAT(Walk(each),
                  StatusIs(kInvalid, AllOf(HasSubstr("/a.tar'"),
                                           HasSubstr("by " + program + ","),
                                           HasSubstr("decompress it"))));
    }
    ExpectTorn(bytes.substr(0, 5), 5, "it was cut");
    ExpectTorn("x" + bytes + std::string(512, 'x'), 0, "no tar archive");
  }
  EXPECT_THAT(Walk("\x04\x22\x4d\x18" + std::string(600, 'x')),
              StatusIs(kInvalid, HasSubstr("by lz4,")));
  // An archive that begins so is none, and neither is a member.
  TarWriter tar;
  tar.Add("BZh", "\x1f\x8b\x08").Add("\x1f\x8b\x08.txt", "x");
  EXPECT_THAT(Walk(tar.Finish()), IsOkAndHolds(2));
  ExpectTorn(tar.bytes().substr(0, 1400), 1400, "it was cut");
}

}  // namespace
}  // namespace lockstep::internal_loader
