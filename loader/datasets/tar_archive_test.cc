// These tests check which members a TarWalk finds in archives that are whole.
// Those of what it refuses are in tar_archive_errors_test.cc.
#include "lockstep/loader/datasets/tar_archive.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/file_access.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep::internal_loader {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

using Members = std::vector<TarMember>;

const std::string& GnuMagic() {
  static const std::string& magic = *new std::string("ustar  \0", 8);
  return magic;
}

absl::StatusOr<Members> WalkFile(const OpenTar& file, int64_t begin) {
  TarWalk walk(*file, file.path(), file.size(), begin);
  Members members;
  while (true) {
    LOCKSTEP_ASSIGN_OR_RETURN(const TarMember* const member, walk.Next());
    if (member == nullptr) return members;
    members.push_back(*member);
  }
}

// Walks over an archive by both kinds of access.
absl::StatusOr<Members> Walk(const std::string& bytes, int64_t begin = 0) {
  static const TokenFolder& folder = *new TokenFolder();
  const std::string path = folder.Write("a.tar", bytes);
  const OpenTar mapped(path, FileAccess::kMapped);
  const OpenTar read(path, FileAccess::kRead);
  LOCKSTEP_ASSIGN_OR_RETURN(Members members, WalkFile(mapped, begin));
  LOCKSTEP_ASSIGN_OR_RETURN(const Members others, WalkFile(read, begin));
  EXPECT_EQ(members.size(), others.size());
  for (size_t i = 0; i < others.size(); ++i) {
    EXPECT_EQ(members[i].name, others[i].name);
    EXPECT_EQ(members[i].offset, others[i].offset);
    EXPECT_EQ(members[i].size, others[i].size);
    EXPECT_EQ(members[i].mark, others[i].mark);
  }
  return members;
}

auto Is(const std::string& name, TarKind kind, int64_t offset, int64_t size,
        bool has_size = true) {
  return AllOf(Field(&TarMember::name, name), Field(&TarMember::kind, kind),
               Field(&TarMember::offset, offset), Field(&TarMember::size, size),
               Field(&TarMember::has_size, has_size));
}

auto IsFile(const std::string& name, int64_t offset, int64_t size) {
  return Is(name, TarKind::kFile, offset, size);
}

TEST(TarWalk, FindsMembersAndTheirBytes) {
  TarWriter tar;
  tar.Add("a.txt", "seven").Add("empty.txt").Add("full", std::string(512, 'x'));
  tar.Add("more", std::string(513, 'y')).Add("last.txt", "z");
  const auto all =
      ElementsAre(IsFile("a.txt", 512, 5), IsFile("empty.txt", 1536, 0),
                  IsFile("full", 2048, 512), IsFile("more", 3072, 513),
                  IsFile("last.txt", 4608, 1));
  EXPECT_THAT(Walk(tar.Finish()), IsOkAndHolds(all));
  // Programs fill up their last record, and a record may be torn in zeros.
  EXPECT_THAT(Walk(tar.Finish(20)), IsOkAndHolds(all));
  EXPECT_THAT(Walk(tar.Finish(2000)), IsOkAndHolds(all));
  EXPECT_THAT(Walk(tar.Finish() + std::string(7, '\0')), IsOkAndHolds(all));
  // A walk may begin at any header, and at the end.
  EXPECT_THAT(Walk(tar.Finish(), 2560),
              IsOkAndHolds(ElementsAre(IsFile("more", 3072, 513),
                                       IsFile("last.txt", 4608, 1))));
  EXPECT_THAT(Walk(tar.Finish(), tar.size()), IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(Walk(std::string(1024, '\0')), IsOkAndHolds(IsEmpty()));
}

TEST(TarWalk, StaysAtTheEnd) {
  const TokenFolder folder;
  const OpenTar file(folder.Write("a.tar", TarWriter().Add("a").Finish()));
  TarWalk walk(*file, file.path(), file.size(), 0);
  EXPECT_THAT(walk.Next(), IsOkAndHolds(::testing::NotNull()));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(walk.Next(), IsOkAndHolds(nullptr));
}

// ---- Names.

TEST(TarWalk, NamesAreJoinedOfTwoPartsInPosixFormatOnly) {
  TarHeader header;
  header.name = std::string(100, 'n');
  header.prefix = std::string(155, 'p');
  TarWriter tar;
  tar.Add(header, "");
  header.name = "n.txt";
  header.prefix = "a/b";
  tar.Add(header, "");
  header.magic = GnuMagic();  // has times at that place
  tar.Add(header, "");
  header.magic = "";
  tar.Add(header, "");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Members members, Walk(tar.Finish()));
  ASSERT_EQ(members.size(), 4);
  EXPECT_EQ(members[0].name,
            std::string(155, 'p') + "/" + std::string(100, 'n'));
  EXPECT_EQ(members[1].name, "a/b/n.txt");
  EXPECT_EQ(members[2].name, "n.txt");
  EXPECT_EQ(members[3].name, "n.txt");
  // The mark of a header is that of the whole name which it has.
  for (const TarMember& member : members) {
    EXPECT_EQ(member.mark, MarkOfName(member.name));
    EXPECT_NE(member.mark, 0);
  }
  EXPECT_NE(members[1].mark, members[2].mark);
}

TEST(TarWalk, LongNamesOfGnuAreForTheNextMemberOnly) {
  const std::string name = "long/" + std::string(300, 'n') + ".txt";
  TarWriter tar;
  tar.GnuName(name).Add(name, "1").Add("short.txt", "2");
  tar.GnuName("target", 'K').GnuName(name).Link("n", "t");
  tar.GnuName(name).GnuName(std::string(600, 't'), 'K').Link("n", "t", '1');
  tar.GnuName("target", 'K').Link("link", "t");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Members members, Walk(tar.Finish()));
  EXPECT_THAT(members,
              ElementsAre(IsFile(name, 1536, 1), IsFile("short.txt", 2560, 1),
                          Is(name, TarKind::kLink, 5632, 0),
                          Is(name, TarKind::kLink, 8704, 0),
                          Is("link", TarKind::kLink, 10240, 0)));
  EXPECT_EQ(members[0].mark, MarkOfName(name.substr(0, 100)));
}

TEST(TarWalk, TheNameEndsAtAZeroAndMayLackIt) {
  TarHeader header;
  header.type = 'L';
  TarWriter tar;
  tar.Add(header, absl::string_view("a.txt\0more", 10)).Add("n", "1");
  tar.Add(header, "b.txt").Add("n", "2");
  tar.Add(header, "").Add("n", "3");  // says nothing
  EXPECT_THAT(Walk(tar.Finish()),
              IsOkAndHolds(ElementsAre(IsFile("a.txt", 1536, 1),
                                       IsFile("b.txt", 3584, 1),
                                       IsFile("n", 5120, 1))));
}

TEST(TarWalk, RecordsOfPaxAreForTheNextMemberOnly) {
  TarWriter tar;
  tar.Records({{"path", "ä/b.txt"}, {"mtime", "1.5"}}).Add("b.txt", "1");
  tar.Add("c.txt", "2");
  tar.Records({{"SCHILY.xattr.user.x", "1\n9 path=no\n"}, {"path", "a\nb=c"}});
  tar.Add("d.txt", "3");
  tar.Records({{"xpath", "no"}, {"linkpath", "no"}, {"comment", ""}}, 'X');
  tar.Add("e.txt", "4");
  tar.Records({{"path", "x.txt"}}, 'X').Add("f.txt", "5");  // Solaris
  tar.Records({{"path", ""}}).Add("g.txt", "6");
  tar.Records({}).Add("h.txt", "7");
  tar.Records({{"path", "no"}, {"path", "i.txt"}}).Add("i", "8");
  EXPECT_THAT(Walk(tar.Finish()),
              IsOkAndHolds(ElementsAre(
                  IsFile("ä/b.txt", 1536, 1), IsFile("c.txt", 2560, 1),
                  IsFile("a\nb=c", 4608, 1), IsFile("e.txt", 6656, 1),
                  IsFile("x.txt", 8704, 1), IsFile("g.txt", 10752, 1),
                  IsFile("h.txt", 12288, 1), IsFile("i.txt", 14336, 1))));
}

TEST(TarWalk, AGlobalHeaderMayHaveWhatConcernsNoPlace) {
  TarWriter tar;
  tar.Records({{"comment", "path=a"}, {"mtime", "7"}}, 'g').Add("a.txt", "1");
  tar.Records({{"path", "b.txt"}}).Records({{"comment", "x"}}, 'g');
  tar.Add("no", "2");
  EXPECT_THAT(Walk(tar.Finish()),
              IsOkAndHolds(ElementsAre(IsFile("a.txt", 1536, 1),
                                       IsFile("b.txt", 4608, 1))));
}

TEST(TarWalk, NamesAndRecordsMayHaveTheMostBytes) {
  const std::string name(65535, 'n');  // with a zero: 64 KiB
  TarWriter tar;
  tar.GnuName(name).Add("n", "1");
  const std::string start = TarRecord("path", "p.txt");
  const std::string rest = TarRecord("x", std::string((1 << 20) - 25, 'x'));
  ASSERT_EQ(start.size() + rest.size(), 1 << 20);
  tar.Add("records", start + rest, 'x').Add("n", "2");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Members members, Walk(tar.Finish()));
  EXPECT_THAT(members, ElementsAre(IsFile(name, 512 + 65536 + 512, 1),
                                   IsFile("p.txt", tar.size() - 512, 1)));
}

// ---- Numbers.

TEST(TarWalk, ReadsSizesAsProgramsWriteThem) {
  const std::vector<std::string> sevens = {"00000000007",
                                           "000000000007",
                                           "          7 ",
                                           "7",
                                           "          07",
                                           "7 ",
                                           std::string("7\0garbage", 9),
                                           "       7 xyz",
                                           TarBase256(7)};
  for (const std::string& size : sevens) {
    TarHeader header;
    header.name = "a";
    header.size = size;
    TarWriter tar;
    tar.Header(header).Content("1234567").Add("b");
    EXPECT_THAT(
        Walk(tar.Finish()),
        IsOkAndHolds(ElementsAre(IsFile("a", 512, 7), IsFile("b", 1536, 0))))
        << size;
  }
  for (const std::string& size : {std::string(12, '\0'), std::string(12, ' '),
                                  std::string("0"), TarBase256(0)}) {
    TarHeader header;
    header.name = "a";
    header.size = size;
    EXPECT_THAT(
        Walk(TarWriter().Header(header).Add("b").Finish()),
        IsOkAndHolds(ElementsAre(IsFile("a", 512, 0), IsFile("b", 1024, 0))))
        << size;
  }
}

TEST(TarWalk, AcceptsSumsOfSignedBytes) {
  for (const bool has_signed_sum : {false, true}) {
    TarHeader header;
    header.name = "\xc3\xa4\xff.txt";
    header.has_signed_sum = has_signed_sum;
    const std::string bytes = TarWriter().Add(header, "1").Finish();
    EXPECT_THAT(Walk(bytes),
                IsOkAndHolds(ElementsAre(IsFile(header.name, 512, 1))));
    EXPECT_TRUE(IsHeaderOf(absl::MakeConstSpan(bytes).first(512), 0, 1));
  }
}

TEST(TarWalk, TheSizeOfPaxCounts) {
  TarWriter tar;
  TarHeader header;
  header.name = "a.txt";  // says that it has no bytes
  tar.Records({{"size", "600"}}).Header(header).Content(std::string(600, 'x'));
  tar.Records({{"size", "2"}}).Add("b.txt", "xy");
  tar.Add("c.txt", "z");
  tar.Records({{"size", "600"}}).GnuName("d.txt").Header(header);
  tar.Content(std::string(600, 'x'));
  tar.Records({{"size", "600"}}).Link("e", "a.txt", '1').Add("f.txt", "1");
  EXPECT_THAT(Walk(tar.Finish()),
              IsOkAndHolds(ElementsAre(
                  Is("a.txt", TarKind::kFile, 1536, 600, false),
                  IsFile("b.txt", 4096, 2), IsFile("c.txt", 5120, 1),
                  Is("d.txt", TarKind::kFile, 8192, 600, false), ::testing::_,
                  IsFile("f.txt", 11264, 1))));
}

// The file has a hole instead of most bytes.
TEST(TarWalk, FindsMembersBehindLargeOnes) {
  constexpr int64_t kLarge = (int64_t{9} << 30) + 1;  // needs the base 256
  TarHeader header;
  header.name = "large.bin";
  header.size = TarBase256(kLarge);
  const TokenFolder folder;
  const std::string path = folder.Write("a.tar", header.Bytes());
  const int64_t next = TarEnd(512, kLarge);
  EXPECT_EQ(next % 512, 0);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(next);
    const std::string rest = TarWriter().Add("b.txt", "x").Finish();
    file.write(rest.data(), static_cast<std::streamsize>(rest.size()));
    ASSERT_TRUE(file.flush());
  }
  EXPECT_THAT(WalkFile(OpenTar(path), 0),
              IsOkAndHolds(ElementsAre(IsFile("large.bin", 512, kLarge),
                                       IsFile("b.txt", next + 512, 1))));
}

// ---- Kinds.

TEST(TarWalk, TellsKindsAndWhichHaveContent) {
  TarHeader header;
  header.size = TarOctal(512);  // is only a hint for those without content
  TarWriter tar;
  const auto add = [&](const std::string& name, char type, bool has_content) {
    header.name = name;
    header.type = type;
    tar.Header(header);
    if (has_content) tar.Raw(std::string(512, 'x'));
  };
  using Kind = TarKind;
  add("a", '0', true);
  add("b", '\0', true);
  add("c", '7', true);
  add("d/", '\0', true);  // v7's folder
  add("e/", '0', true);
  add("f", '5', false);
  add("g", '1', false);
  add("h", '2', false);
  add("i", '3', false);
  add("j", '4', false);
  add("k", '6', false);
  add("l", 'D', true);
  add("m", 'V', true);
  add("n", 'S', true);
  add("o", 'Z', true);
  header.size = TarOctal(0);
  add("p", '0', false);
  EXPECT_THAT(
      Walk(tar.Finish()),
      IsOkAndHolds(ElementsAre(
          Is("a", Kind::kFile, 512, 512), Is("b", Kind::kFile, 1536, 512),
          Is("c", Kind::kFile, 2560, 512), Is("d/", Kind::kFolder, 3584, 512),
          Is("e/", Kind::kFolder, 4608, 512), Is("f", Kind::kFolder, 5632, 0),
          Is("g", Kind::kLink, 6144, 0), Is("h", Kind::kLink, 6656, 0),
          Is("i", Kind::kOther, 7168, 0), Is("j", Kind::kOther, 7680, 0),
          Is("k", Kind::kOther, 8192, 0), Is("l", Kind::kOther, 8704, 512),
          Is("m", Kind::kOther, 9728, 512), Is("n", Kind::kSparse, 10752, 512),
          Is("o", Kind::kOther, 11776, 512), Is("p", Kind::kFile, 12800, 0))));
}

TEST(TarWalk, GoesPastTheBlocksOfSparseMembers) {
  TarWriter tar;
  tar.Sparse("a.bin", "1").Sparse("b.bin", "2", 1).Sparse("c.bin", "3", 3);
  tar.Add("d.bin", "4");
  tar.Records({{"GNU.sparse.major", "1"}, {"GNU.sparse.name", "e.bin"}});
  tar.Add("GNUSparseFile.1/e.bin", "5").Add("f.bin", "6");
  tar.GnuName(std::string(200, 'g')).Sparse("g", std::string(512, 'g'), 2);
  tar.Add("h.bin", "7");
  using Kind = TarKind;
  EXPECT_THAT(Walk(tar.Finish()),
              IsOkAndHolds(ElementsAre(
                  Is("a.bin", Kind::kSparse, 512, 1),
                  Is("b.bin", Kind::kSparse, 2048, 1),
                  Is("c.bin", Kind::kSparse, 4608, 1), IsFile("d.bin", 5632, 1),
                  Is("e.bin", Kind::kSparse, 7680, 1), IsFile("f.bin", 8704, 1),
                  Is(std::string(200, 'g'), Kind::kSparse, 11776, 512),
                  IsFile("h.bin", 12800, 1))));
}

// ---- Pieces that are read at once.

// Contents and names of many sizes, so that headers lie at all places of the
// pieces. What is expected is noted while the archive is written.
TEST(TarWalk, FindsAllMembersWhateverTheirSizesAre) {
  for (const int64_t most : {1, 700, 9000, 70000, 600000}) {
    TarWriter tar;
    Members expected;
    uint32_t random = 7;
    while (tar.size() < 10 * most + 600000) {
      random = random * 1664525 + 1013904223;
      const int64_t size = (random >> 8) % most;
      std::string name = absl::StrCat("a/", expected.size(), ".bin");
      if (random % 5 == 0) {
        name = absl::StrCat(std::string(random % 4096, 'n'), name);
        tar.GnuName(name);
      } else if (random % 5 == 1) {
        name = absl::StrCat(std::string(random % 4096, 'p'), name);
        tar.Records({{"path", name}, {"comment", name}});
      }
      TarMember member;
      member.name = name;
      member.offset = tar.size() + 512;
      member.size = size;
      expected.push_back(member);
      // The content looks like headers.
      std::string content;
      while (static_cast<int64_t>(content.size()) < size) {
        content += TarWriter().Add("no.bin", "x").bytes();
      }
      tar.Add(name, absl::string_view(content).substr(0, size));
    }
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Members members, Walk(tar.Finish()));
    ASSERT_EQ(members.size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(members[i].name, expected[i].name);
      ASSERT_EQ(members[i].offset, expected[i].offset);
      ASSERT_EQ(members[i].size, expected[i].size);
    }
  }
}

// ---- What is compared when a member is read.

TEST(TarHeader, IsThatOfAFile) {
  TarHeader header;
  header.name = "n.txt";
  header.prefix = "a/b";
  header.size = TarOctal(7);
  const auto is = [&](uint32_t mark, int64_t size) {
    return IsHeaderOf(header.Bytes(), mark, size);
  };
  const uint32_t mark = MarkOfName("a/b/n.txt");
  EXPECT_EQ(MarkOf(header.Bytes()), mark);
  EXPECT_TRUE(is(mark, 7));
  EXPECT_TRUE(is(0, 7));
  EXPECT_TRUE(is(mark, -1));
  EXPECT_FALSE(is(mark, 8));
  EXPECT_FALSE(is(mark + 1, 7));
  header.size = TarBase256(7);
  EXPECT_TRUE(is(mark, 7));
  for (const char type : {'1', '2', '5', 'S', 'L', 'K', 'x', 'g', 'X', 'V'}) {
    header.type = type;
    EXPECT_FALSE(is(mark, 7)) << type;
    EXPECT_FALSE(is(0, -1)) << type;
  }
  for (const char type : {'\0', '7'}) {
    header.type = type;
    EXPECT_TRUE(is(mark, 7)) << type;
  }
  std::string bytes = header.Bytes();
  bytes[300] ^= 1;
  // The sum counts only if the name is not known.
  EXPECT_TRUE(IsHeaderOf(bytes, mark, 7));
  EXPECT_FALSE(IsHeaderOf(bytes, 0, -1));
  EXPECT_EQ(ShownName(bytes), "no header");
  EXPECT_FALSE(IsHeaderOf(std::string(512, '\0'), 0, -1));
  EXPECT_EQ(ShownName(header.Bytes()), "'a/b/n.txt'");
  header.name = "n\n\xff";
  header.magic = "";
  EXPECT_EQ(ShownName(header.Bytes()), "'n\\n\\xff'");
}

// A header has the first 100 bytes of a long name, which may end with a slash.
TEST(TarHeader, OfALongNameMayEndWithASlash) {
  const std::string name = std::string(99, 'n') + "/7.txt";
  TarWriter tar;
  tar.GnuName(name).Add(name, "1").Records({{"path", name}}).Add(name, "2");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const Members members, Walk(tar.Finish()));
  EXPECT_THAT(members,
              ElementsAre(IsFile(name, 1536, 1), IsFile(name, 3584, 1)));
  for (const TarMember& member : members) {
    EXPECT_TRUE(IsHeaderOf(
        absl::MakeConstSpan(tar.bytes()).subspan(member.offset - 512, 512),
        member.mark, member.size));
  }
}

}  // namespace
}  // namespace lockstep::internal_loader
