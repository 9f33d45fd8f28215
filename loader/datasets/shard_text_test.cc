// These tests check which texts are accepted as the index of a tar file, and
// that what is written can be read.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/datasets/shard_index.h"
#include "lockstep/loader/datasets/shard_testing.h"
#include "lockstep/loader/datasets/tar_testing.h"
#include "lockstep/loader/datasets/token_files_testing.h"

namespace lockstep::internal_loader {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

const ShardFields& Fields() {
  static const ShardFields& fields =
      *new ShardFields(FieldsOf({{"txt"}, {"cls"}}));
  return fields;
}

// Two samples of two members each, and the text of their index.
TarWriter Small() {
  TarWriter tar;
  tar.Add("a.cls", "1").Add("a.txt", "sixteen bytes...");
  return tar.Add("b.cls", "2").Add("b.txt", "x");
}
constexpr absl::string_view kSmall =
    "v1.2 2\n"
    "cls 512 1 a.cls txt 1536 16 a.txt\n"
    "cls 2560 1 b.cls txt 3584 1 b.txt\n";

// Returns the text with a part of it replaced.
std::string With(absl::string_view part, absl::string_view other) {
  EXPECT_NE(kSmall.find(part), absl::string_view::npos) << part;
  return absl::StrReplaceAll(kSmall, {{part, other}});
}

void ExpectRefused(const std::string& text, const std::string& words,
                   const std::string& bytes = Small().Finish()) {
  EXPECT_THAT(ParseText(text, bytes, Fields()),
              StatusIs(kDataLoss, HasSubstr(words)))
      << text;
}

// ---- What is written.

TEST(ShardText, HasTheFormOfDali) {
  std::string text;
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex scanned,
                                ScanTar(Small().Finish(), Fields(), &text));
  EXPECT_EQ(text, kSmall);
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex parsed,
                                ParseText(text, Small().Finish(), Fields()));
  ExpectSameIndex(scanned, parsed);
  for (const std::string name : {"webdataset", "gnu_ustar"}) {
    LOCKSTEP_EXPECT_OK(ScanTar(FileBytes(GoldenTarPath(name + ".tar")),
                               FieldsOf({{"none"}}), &text));
    EXPECT_EQ(text, FileBytes(GoldenTarPath(name + ".idx")));
  }
}

TEST(ShardText, IsReadAsItIsWritten) {
  TarWriter tar;
  const std::string name = std::string(150, 'n') + "/7.txt";
  const std::string slash = std::string(99, 'n') + "/7.txt";
  tar.Folder("f").Add("f/1.cls", "1").Add("f/.hidden").Add("f/1.txt", "2");
  tar.GnuName(name).Add(name, "3").Add("f/1.seg.png", "4").Add("f/README");
  tar.Records({{"path", "ä.txt"}}).Add("header", "5").Add("ö.cls", "6");
  tar.GnuName(slash).Add(slash, "7").Link("f/3.gif", "f/1.cls");
  TarHeader header;
  header.name = "n.txt";
  header.prefix = std::string(120, 'p');
  tar.Add(header, "8").Add("f/1.cls").Add("last.", "9").Link("g.gif", "f");
  ShardFields fields = Fields();
  for (const bool skips : {false, true}) {
    fields.skips = {skips, false};
    std::string text;
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex scanned,
                                  ScanTar(tar.Finish(), fields, &text));
    EXPECT_EQ(scanned.unnamed, 5);
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex parsed,
                                  ParseText(text, tar.Finish(), fields));
    ExpectSameIndex(scanned, parsed);
  }
}

TEST(ShardText, HasNoPlaceForSomeNames) {
  for (const char* const name :
       {"a b.txt", "a.t xt", "a\tb.txt", "a\nb.txt", "a\r.txt", "a\v.txt",
        "a\x01.txt", "a\x7f.txt", "a\\b.txt"}) {
    TarWriter tar;
    tar.Add("1.txt").Add(name);
    std::string text;
    EXPECT_THAT(ScanTar(tar.Finish(), Fields(), &text),
                StatusIs(kInvalid, AllOf(HasSubstr("/a.tar', byte 512: "),
                                         HasSubstr("set index = \"read\""))));
    // Such names do no harm without a text.
    LOCKSTEP_EXPECT_OK(ScanTar(tar.Finish(), Fields()));
    // Neither are they if they belong to no sample.
    TarWriter hidden;
    hidden.Add("1.txt").Add(absl::StrCat(".", name)).Folder(name);
    LOCKSTEP_EXPECT_OK(ScanTar(hidden.Finish(), Fields(), &text));
  }
}

// The header of a member is compared with its name and size when it is read,
// and what a text says of them is all that is known then.
TEST(ShardText, HasNoPlaceForRecordsThatDifferFromTheHeader) {
  TarHeader header;
  header.name = "2.txt";
  TarWriter size;
  size.Add("1.txt").Records({{"size", "3"}}).Header(header).Content("123");
  TarWriter name;
  name.Add("1.txt").Records({{"path", "2.txt"}}).Add("3.txt");
  for (const TarWriter* const tar : {&size, &name}) {
    std::string text;
    EXPECT_THAT(ScanTar(tar->Finish(), Fields(), &text),
                StatusIs(kInvalid, AllOf(HasSubstr("/a.tar', byte 1536: "),
                                         HasSubstr("set index = \"read\""))));
    LOCKSTEP_EXPECT_OK(ScanTar(tar->Finish(), Fields()));
  }
}

// ---- What is read.

TEST(ShardText, WordsMayBePartedAsDaliAcceptsIt) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex scanned,
                                ScanTar(Small().Finish(), Fields()));
  const std::string last(kSmall.substr(0, kSmall.size() - 1));
  for (const std::string& text :
       {std::string(kSmall), last, With(" ", "\t"), With(" ", "  "),
        With(" ", " \t "), With("\n", "\r\n"), With("\n", " \n"),
        With("\n", "\t\r\n"), last + "\r", last + "  ",
        " " + With("\ncls", "\n cls"), With("a.txt\n", "a.txt "),
        With("txt 1536", "\ntxt 1536")}) {
    std::string counted = text;
    if (text == With("a.txt\n", "a.txt ")) counted[5] = '1';
    if (text == With("txt 1536", "\ntxt 1536")) counted[5] = '3';
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const ShardIndex parsed,
        ParseText(counted, Small().Finish(), Fields()));
    ExpectSameIndex(scanned, parsed);
  }
}

TEST(ShardText, OfDaliIsRead) {
  const ShardFields fields = FieldsOf({{"cls"}, {"jpg"}, {"txt"}, {"json"}});
  for (const std::string name : {"webdataset", "gnu_ustar"}) {
    const std::string bytes = FileBytes(GoldenTarPath(name + ".tar"));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex scanned,
                                  ScanTar(bytes, fields));
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(
        const ShardIndex parsed,
        ParseText(FileBytes(GoldenTarPath(name + ".idx")), bytes, fields));
    ExpectSameIndex(scanned, parsed);
  }
}

// wds2idx writes the place of a long name instead of that of the content.
TEST(ShardText, OfDaliIsNotReadIfItHasThePlacesOfNames) {
  const std::string bytes = FileBytes(GoldenTarPath("gnu_gnu.tar"));
  EXPECT_THAT(ParseText(FileBytes(GoldenTarPath("gnu_gnu.idx")), bytes,
                        FieldsOf({{"cls"}})),
              StatusIs(kDataLoss, HasSubstr("before byte 4096 of the tar")));
  const std::string name = std::string(150, 'n') + ".txt";
  TarWriter tar;
  tar.Add("a.txt", "1").GnuName(name).Add(name, "2").Add("b.txt", "3");
  const std::string start = "v1.2 3\ntxt 512 1 a.txt\ntxt ";
  const std::string end = absl::StrCat(" 1 ", name, "\ntxt 3584 1 b.txt\n");
  LOCKSTEP_EXPECT_OK(ParseText(start + "2560" + end, tar.Finish(), Fields()));
  ExpectRefused(start + "1536" + end, "@LongLink", tar.Finish());
  ExpectRefused(start + "2048" + end, "no header", tar.Finish());
  // The same with PAX.
  TarWriter pax;
  pax.Add("a.txt", "1").Records({{"path", name}}).Add(name, "2");
  pax.Add("b.txt", "3");
  LOCKSTEP_EXPECT_OK(ParseText(start + "2560" + end, pax.Finish(), Fields()));
  ExpectRefused(start + "1536" + end, "PaxHeader", pax.Finish());
}

TEST(ShardText, MayListOrLeaveOutWhatBelongsToNoSample) {
  TarWriter tar;
  tar.Add("README", "r").Add("a.txt", "1").Add(".b.txt", "2").Folder("f");
  tar.Add("c.", "3").Link("d.gif", "a");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex scanned,
                                ScanTar(tar.Finish(), Fields()));
  for (const auto& [text, unnamed] : std::vector<std::pair<std::string, int>>{
           {"v1.2 1\ntxt 1536 1 a.txt\n", 0},
           {"v1.2 1\nREADME 512 1 README txt 1536 1 a.txt\n", 1},
           {"v1.2 4\nREADME 512 1 README\ntxt 1536 1 a.txt\n"
            "b.txt 2560 1 .b.txt\nx 4096 1 c.\n",
            3}}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex parsed,
                                  ParseText(text, tar.Finish(), Fields()));
    ExpectSameIndex(scanned, parsed);
    EXPECT_EQ(parsed.unnamed, unnamed);
  }
}

// ---- What is refused.

TEST(ShardText, BeginsWithAVersionAndACount) {
  for (const char* const line :
       {"", "v1.2", "v1.2 ", "v1.1 2", "v1.3 2", "v1.2x 2", "1.2 2", "V1.2 2",
        "v1.2 x", "v1.2 2x", "v1.2 2 2", "v1.2 2.0", "v1.22", "v1.2,2",
        "v1.2 9223372036854775808", "# v1.2 2"}) {
    ExpectRefused(With("v1.2 2", line), "its first line is not");
  }
  for (const char* const count :
       {"0", "1", "3", "-2", "9223372036854775807", "-9223372036854775808"}) {
    ExpectRefused(With("v1.2 2", absl::StrCat("v1.2 ", count)),
                  "it has 2 lines of samples, and says ");
  }
  ExpectRefused("", "its first line is not");
  ExpectRefused("v1.2 0\n", "it does not have the member 'a.cls'");
  ExpectRefused("v1.2 1\n", "it has 0 lines of samples, and says 1");
}

TEST(ShardText, HasFourWordsForEachMember) {
  for (const auto& [part, other] :
       std::vector<std::pair<std::string, std::string>>{
           {"cls 2560", "\ncls 2560"},
           {"cls 512 1 a.cls txt 1536 16 a.txt", ""},
           {"cls 512 1 a.cls txt 1536 16 a.txt", "cls 512 1"},
           {"cls 512 1 a.cls", "cls 512 a.cls"},
           {"cls 512 1 a.cls", "512 1 a.cls"},
           {"cls 512 1 a.cls", "cls 512 1 a.cls a"},
           {"cls 512", "cls x"},
           {"cls 512", "cls 0x200"},
           {"cls 512", "cls 512.0"},
           {"cls 512", "cls 9223372036854775808"},
           {"512 1 a", "512 x a"},
           {"512 1 a", "512 18446744073709551617 a"},
           {"a.cls", "a\\b.cls"},
           {"1 a.cls", "1 a.b.cls"},
           // The extension is that of the name, as it is written there.
           {"cls 512", "jpg 512"},
           {"cls 512", "CLS 512"},
           {"cls 512", ".cls 512"},
           {"cls 512", "ls 512"}}) {
    ExpectRefused(With(part, other), "should have an extension, a byte, a ");
  }
  ExpectRefused(With("b.cls", "b\\.cls"), "line 3 should have");
  ExpectRefused(With("a.cls", ""), "there is 'a.cls', and not");
  ExpectRefused(With("a.cls", "a b.cls"), "there is 'a.cls', and not");
  ExpectRefused(With("b.cls", ""), "should have an extension");
}

TEST(ShardText, MembersFollowEachOtherInTheFile) {
  for (const char* const bytes :
       {"16 a", "-1 a", "1 a", "0 a", "511 a", "2048 a"}) {
    EXPECT_NE(kSmall.find("16 a"), absl::string_view::npos);
    if (absl::string_view(bytes) == "16 a") continue;
    // The members still lie apart with another size, or they do not.
    const auto parsed =
        ParseText(With("16 a", bytes), Small().Finish(), Fields());
    const int size = std::atoi(bytes);
    EXPECT_EQ(parsed.ok(), size >= 0 && size <= 512) << bytes;
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const int64_t offset :
       {int64_t{0}, int64_t{511}, int64_t{513}, int64_t{1024}, int64_t{-512},
        int64_t{1536 + 1}, int64_t{1536 + 4096}, kMost - 511, kMost,
        std::numeric_limits<int64_t>::min()}) {
    ExpectRefused(With("1536", absl::StrCat(offset)), "can't be at byte");
  }
  ExpectRefused(With("512 1", "0 1"), "the 1 bytes of 'a.cls' can't be at");
  ExpectRefused(With("2560", "1536"), "can't be at byte 1536");
  for (const int64_t size : {int64_t{-1}, int64_t{2049}, int64_t{5633}, kMost,
                             kMost - 511, kMost - 4095}) {
    ExpectRefused(With("3584 1", absl::StrCat("3584 ", size)),
                  "can't be at byte 3584");
  }
}

TEST(ShardText, FitsToTheFirstAndTheLastHeader) {
  ExpectRefused(With("512 1", "512 2"), "before byte 512 of the tar file");
  ExpectRefused(With("512 1 a", "512 1 c"), "there is 'a.cls', and not");
  ExpectRefused(With("512 1 a.cls txt", "1024 1 a.cls txt"), "");
  ExpectRefused(With("3584 1", "3584 2"), "before byte 3584");
  ExpectRefused(With("3584 1 b", "3584 1 c"), "there is 'b.txt', and not");
  // There is no header, or one of no file.
  ExpectRefused(With("3584 1", "4096 1"), "before byte 4096");
  TarWriter tar;
  tar.Link("a.txt", "b").Add("c.txt", "1").Link("b.txt", "c");
  ExpectRefused("v1.2 2\ntxt 512 0 a.txt\ntxt 1024 1 c.txt\n", "byte 512",
                tar.Finish());
  ExpectRefused("v1.2 2\ntxt 1024 1 c.txt\ntxt 2048 0 b.txt\n", "byte 2048",
                tar.Finish());
}

TEST(ShardText, ListsTheFirstAndTheLastMembers) {
  const std::string second = "v1.2 1\ncls 2560 1 b.cls txt 3584 1 b.txt\n";
  ExpectRefused(second, "it does not have the member 'a.cls'");
  const std::string first = "v1.2 1\ncls 512 1 a.cls txt 1536 16 a.txt\n";
  ExpectRefused(first, "it does not have the member 'b.cls'");
  ExpectRefused(With(" txt 3584 1 b.txt", ""), "not have the member 'b.txt'");
  // The end of the file is checked too.
  ExpectRefused(std::string(kSmall), "it was cut", Small().bytes());
  ExpectRefused(std::string(kSmall), "cut", Small().Finish() + "x");
  ExpectRefused(std::string(kSmall), "header",
                Small().bytes() + std::string(1024, 'x'));
}

// A shard that was written again has other members at the places of a text.
TEST(ShardText, OfAnotherShardIsRefused) {
  TarWriter longer = Small();
  longer.Add("c.txt");
  ExpectRefused(std::string(kSmall), "'c.txt'", longer.Finish());
  TarWriter shorter;
  shorter.Add("a.cls", "1").Add("a.txt", "sixteen bytes...");
  ExpectRefused(std::string(kSmall), "byte 3584", shorter.Finish());
  TarWriter shifted;
  shifted.Folder("f").Raw(Small().bytes());
  ExpectRefused(std::string(kSmall), "byte 512", shifted.Finish());
  TarWriter renamed;
  renamed.Add("a.cls", "1").Add("a.txt", "sixteen bytes...");
  renamed.Add("b.cls", "2").Add("c.txt", "x");
  ExpectRefused(std::string(kSmall), "byte 3584", renamed.Finish());
}

TEST(ShardText, ASampleHasOneMemberOfAnExtension) {
  TarWriter tar;
  tar.Add("a.cls", "1").Add("a.CLS", "2");
  EXPECT_THAT(ParseText("v1.2 1\ncls 512 1 a.cls CLS 1536 1 a.CLS\n",
                        tar.Finish(), Fields()),
              StatusIs(kInvalid, HasSubstr("has a second member")));
}

// Each byte of the text matters, except for those of members in the middle,
// whose headers are compared when they are read, and for zeros before numbers.
// A name that is long or has other bytes than ASCII may be in a header before
// that of the member, or not.
TEST(ShardText, AnyNameThatAHeaderHasInPartOrNotIsCompared) {
  TarHeader header;
  header.name = "n.txt";
  header.prefix = std::string(120, 'p');
  TarWriter tar;
  tar.Add("ä.cls", "1").Add(header, "2").Add("c.cls", "3");
  const std::string text =
      absl::StrCat("v1.2 3\ncls 512 1 ä.cls\ntxt 1536 1 ", header.prefix,
                   "/n.txt\ncls 2560 1 c.cls\n");
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex scanned,
                                ScanTar(tar.Finish(), Fields()));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex parsed,
                                ParseText(text, tar.Finish(), Fields()));
  ExpectSameIndex(scanned, parsed);
  ExpectRefused(absl::StrReplaceAll(text, {{"ä", "ö"}}), "before byte 512",
                tar.Finish());
  ExpectRefused(absl::StrReplaceAll(text, {{"/n.txt", "/m.txt"}}),
                "before byte 1536", tar.Finish());
  // Another header has it, and a folder is not in the index.
  const std::string name = std::string(150, 'n') + ".txt";
  TarWriter more;
  more.Folder("f").GnuName(name).Add(name, "1").Folder("g");
  more.Records({{"path", "ä.txt"}}).Add("b.txt", "2").Add("c.txt", "3");
  const std::string lines = absl::StrCat(
      "v1.2 3\ntxt 2048 1 ", name, "\ntxt 4608 1 ä.txt\ntxt 5632 1 c.txt\n");
  LOCKSTEP_EXPECT_OK(ParseText(lines, more.Finish(), Fields()));
  ExpectRefused(absl::StrReplaceAll(lines, {{"n.txt", "m.txt"}}),
                "before byte 2048", more.Finish());
  ExpectRefused(absl::StrReplaceAll(lines, {{"ä", "ö"}}), "before byte 4608",
                more.Finish());
}

TEST(ShardText, WithAnyByteChangedItTellsTheSameOrIsRefused) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const ShardIndex scanned,
                                ScanTar(Small().Finish(), Fields()));
  const OpenTar file = OpenBytes(Small().Finish());
  std::atomic<int64_t> members{0};
  const auto parse = [&](absl::string_view text) {
    return ParseShardIndex(text, *file, file.path(), file.size(), Fields(),
                           members);
  };
  const size_t middle = kSmall.find("txt 1536");
  const size_t last = kSmall.find("txt 3584");
  int accepted = 0;
  for (size_t i = 0; i < kSmall.size(); ++i) {
    if (i >= middle && i < last) continue;
    for (int c = 0; c < 256; ++c) {
      std::string text(kSmall);
      text[i] = static_cast<char>(c);
      const auto parsed = parse(text);
      if (!parsed.ok()) continue;
      ++accepted;
      ExpectSameIndex(scanned, *parsed);
      if (HasFailure()) FAIL() << "byte " << i << " is " << c;
    }
  }
  EXPECT_GT(accepted, static_cast<int>(kSmall.size() - (last - middle)));
  // A part of the text is refused, except without its last newline.
  for (size_t i = 0; i + 1 < kSmall.size(); ++i) {
    EXPECT_FALSE(parse(kSmall.substr(0, i)).ok()) << i;
  }
}

}  // namespace
}  // namespace lockstep::internal_loader
