#include "lockstep/checkpoint/exchange.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/npy_header.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/checkpoint/checkpoint_file.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The name, the type and the bytes of a section.
using Section = std::tuple<std::string, std::optional<DType>, std::string>;

// Returns bytes that differ from those at other places and in other pieces of
// 1 MiB, and are 0 or 1 for bool. The files in testdata have the same.
std::string Bytes(DType dtype, int64_t elements) {
  std::string bytes;
  for (int64_t k = 0; k < elements * SizeOf(dtype); ++k) {
    bytes += static_cast<char>(
        dtype == DType::kBool ? k % 2 : 7 * k + 1 + (k >> 12) % 251);
  }
  return bytes;
}

Section Array(const std::string& name, DType dtype, int64_t elements) {
  return {name, dtype, Bytes(dtype, elements)};
}

std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void Put(const std::string& path, absl::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Each test has a folder of its own, which is empty at first.
class Exchange : public testing::Test {
 protected:
  Exchange()
      : folder_(testing::TempDir() + "/exchange_test." +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  ~Exchange() override { std::filesystem::remove_all(folder_); }

  std::string In(absl::string_view name) const {
    return absl::StrCat(folder_, "/", name);
  }

  // Returns the names of the files in a folder.
  static std::vector<std::string> Names(const std::string& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  // Writes a checkpoint, and opens it.
  std::unique_ptr<CheckpointReader> Checkpoint(
      const std::vector<Section>& sections) const {
    const std::string path = In("checkpoint");
    auto writer = CheckpointWriter::Create(path);
    LOCKSTEP_EXPECT_OK(writer);
    for (const auto& [name, dtype, bytes] : sections) {
      LOCKSTEP_EXPECT_OK((*writer)->Begin(name, 1, dtype));
      LOCKSTEP_EXPECT_OK((*writer)->Append(bytes));
    }
    LOCKSTEP_EXPECT_OK((*writer)->Finish());
    auto reader = CheckpointReader::Open(path);
    LOCKSTEP_EXPECT_OK(reader);
    return *std::move(reader);
  }

  static absl::StatusOr<std::vector<Section>> Read(const std::string& path) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto reader, CheckpointReader::Open(path));
    std::vector<Section> sections;
    for (const CheckpointSection& section : reader->sections()) {
      EXPECT_EQ(section.version, 1);
      std::string bytes(section.bytes, '\0');
      LOCKSTEP_RETURN_IF_ERROR(reader->Read(section, 0, absl::MakeSpan(bytes)));
      sections.emplace_back(section.name, section.dtype, bytes);
    }
    return sections;
  }

  const std::string folder_;
};

ExchangeOptions WithPrefix(const std::string& prefix) {
  ExchangeOptions options;
  options.prefix = prefix;
  return options;
}

// All sections of testdata/safetensors/plain.safetensors, in its order.
std::vector<Section> PlainSections() {
  std::vector<Section> sections;
  const auto add = [&](const std::string& name, DType dtype, int64_t elements) {
    sections.push_back(Array("parameters/" + name, dtype, elements));
  };
  add("u64", DType::kU64, 3);
  add("i64", DType::kI64, 3);
  add("f64", DType::kF64, 3);
  add("number", DType::kF64, 1);
  add("empty", DType::kF32, 0);
  add("f32", DType::kF32, 3);
  add("layer.0/weight", DType::kF32, 6);
  add("u32", DType::kU32, 3);
  add("i32", DType::kI32, 3);
  add("bf16", DType::kBF16, 3);
  add("f16", DType::kF16, 3);
  add("u16", DType::kU16, 3);
  add("i16", DType::kI16, 3);
  add("i8", DType::kI8, 3);
  add("m\xc3\xa9trica \"\\\n\x01\xf0\x9f\x98\x80", DType::kU8, 5);
  add("u8", DType::kU8, 3);
  add("bool", DType::kBool, 3);
  return sections;
}

ExchangeOptions PlainShapes() {
  ExchangeOptions options;
  options.shapes = {
      {"layer.0/weight", {2, 3}}, {"number", {}}, {"empty", {0, 4}}};
  return options;
}

// The file was written by the safetensors package:
// testdata/generate/safetensors_files.py.
TEST_F(Exchange, ReadsAndWritesTheFileOfThePackage) {
  const std::string golden = "testdata/safetensors/plain.safetensors";
  LOCKSTEP_ASSERT_OK(ImportSafetensors(golden, In("imported")));
  EXPECT_THAT(Read(In("imported")), IsOkAndHolds(PlainSections()));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto reader,
                                CheckpointReader::Open(In("imported")));
  LOCKSTEP_ASSERT_OK(ExportSafetensors(*reader, In("exported"), PlainShapes()));
  EXPECT_EQ(Contents(In("exported")), Contents(golden));
  EXPECT_THAT(Names(folder_), ElementsAre("exported", "imported"));
}

TEST_F(Exchange, SkipsMetadata) {
  LOCKSTEP_ASSERT_OK(
      ImportSafetensors("testdata/safetensors/metadata.safetensors",
                        In("imported"), WithPrefix("x.")));
  EXPECT_THAT(Read(In("imported")),
              IsOkAndHolds(ElementsAre(Array("x.a", DType::kI16, 4),
                                       Array("x.b", DType::kBool, 3))));
}

// The file was written by NumPy: testdata/generate/npy_files.py.
TEST_F(Exchange, ReadsTheFilesOfNumPy) {
  std::filesystem::create_directory(In("arrays"));
  for (const char* const name :
       {"f8", "bf16", "bool", "rank_0", "no_rows", "version_2", "version_3"}) {
    std::filesystem::copy_file(absl::StrCat("testdata/npy/", name, ".npy"),
                               In(absl::StrCat("arrays/", name, ".npy")));
  }
  Put(In("arrays/.hidden.npy"), "no array");
  Put(In("arrays/notes.txt"), "no array");
  LOCKSTEP_ASSERT_OK(ImportNpy(In("arrays/"), In("imported")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto sections, Read(In("imported")));
  std::map<std::string, std::string> bytes;
  std::vector<std::string> shown;
  for (const auto& [name, dtype, content] : sections) {
    bytes[name] = content;
    shown.push_back(absl::StrCat(name, " ", Name(*dtype), " ", content.size()));
  }
  EXPECT_THAT(
      shown,
      ElementsAre("parameters/bf16 bf16 8", "parameters/bool bool 24",
                  "parameters/f8 f64 192", "parameters/no_rows f32 0",
                  "parameters/rank_0 f64 8", "parameters/version_2 i32 48",
                  "parameters/version_3 i32 48"));
  EXPECT_EQ(bytes["parameters/bf16"],
            std::string("\x80\x3f\x00\xc0\x00\x00\x80\x7f", 8));
  EXPECT_EQ(bytes["parameters/version_2"], bytes["parameters/version_3"]);
  EXPECT_EQ(bytes["parameters/version_2"].substr(0, 8),
            "\xfb\xff\xff\xff\xfc\xff\xff\xff");
  // NumPy's header is as long as ours.
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto reader,
                                CheckpointReader::Open(In("imported")));
  ExchangeOptions options;
  options.shapes["f8"] = {4, 2, 3};
  options.shapes["rank_0"] = {};
  options.shapes["no_rows"] = {0, 3};
  LOCKSTEP_ASSERT_OK(ExportNpy(*reader, In("exported"), options));
  for (const char* const name : {"f8", "bf16", "bool", "rank_0", "no_rows"}) {
    const std::string ours =
        Contents(In(absl::StrCat("exported/", name, ".npy")));
    const std::string theirs =
        Contents(absl::StrCat("testdata/npy/", name, ".npy"));
    EXPECT_EQ(ours.size(), theirs.size()) << name;
    EXPECT_EQ(ours.substr(128), theirs.substr(128)) << name;
  }
  EXPECT_EQ(Contents(In("exported/f8.npy")), Contents("testdata/npy/f8.npy"));
}

TEST_F(Exchange, RoundTripsOfAllTypes) {
  // The pieces are of 1 MiB.
  std::vector<Section> sections = PlainSections();
  sections.push_back(Array("parameters/large", DType::kF16, (3 << 19) + 3));
  sections.push_back(Array("parameters/piece", DType::kI8, 1 << 20));
  const auto reader = Checkpoint(sections);
  LOCKSTEP_ASSERT_OK(ExportSafetensors(*reader, In("a"), PlainShapes()));
  LOCKSTEP_ASSERT_OK(ImportSafetensors(In("a"), In("b")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(auto back, Read(In("b")));
  std::sort(sections.begin(), sections.end());
  std::sort(back.begin(), back.end());
  EXPECT_TRUE(back == sections);

  LOCKSTEP_ASSERT_OK(ExportNpy(*reader, In("c"), PlainShapes()));
  LOCKSTEP_ASSERT_OK(ImportNpy(In("c"), In("d")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(back, Read(In("d")));
  std::sort(back.begin(), back.end());
  EXPECT_TRUE(back == sections);
  EXPECT_THAT(Names(folder_), ElementsAre("a", "b", "c", "checkpoint", "d"));
}

// A session has written this checkpoint: testdata/README.md.
TEST_F(Exchange, ExportsTheCheckpointOfASession) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(
      const auto reader,
      CheckpointReader::Open("testdata/checkpoint/model.000000000005"));
  LOCKSTEP_ASSERT_OK(ExportNpy(*reader, In("arrays")));
  LOCKSTEP_ASSERT_OK(ImportNpy(In("arrays"), In("warm")));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto all, Read(reader->path()));
  std::vector<Section> parameters;
  for (const Section& section : all) {
    if (absl::StartsWith(std::get<0>(section), "parameters/")) {
      parameters.push_back(section);
    }
  }
  EXPECT_THAT(parameters, Not(IsEmpty()));
  EXPECT_THAT(Read(In("warm")), IsOkAndHolds(parameters));
}

TEST_F(Exchange, ExportsTheSectionsOfAPrefix) {
  const auto reader = Checkpoint({Array("parameters/w", DType::kF32, 2),
                                  Array("parameters.1/w", DType::kF32, 3),
                                  Array("my/parameters/w", DType::kF32, 3),
                                  Array("momentum", DType::kF64, 1),
                                  {"step", std::nullopt, "12345678"}});
  LOCKSTEP_ASSERT_OK(
      ExportNpy(*reader, In("one"), WithPrefix("parameters.1/")));
  EXPECT_THAT(Names(In("one")), ElementsAre("w.npy"));
  EXPECT_EQ(Contents(In("one/w.npy")).size(), 128 + 12);
  LOCKSTEP_ASSERT_OK(ExportNpy(*reader, In("two"), WithPrefix("parameters")));
  EXPECT_THAT(Names(In("two")), ElementsAre("%2E1%2Fw.npy", "%2Fw.npy"));
}

TEST_F(Exchange, NamesOfFilesAreReversible) {
  std::string every;
  for (int byte = 0; byte < 80; ++byte) every += static_cast<char>(byte);
  const std::vector<Section> sections = {
      Array("parameters/layer.0/weight", DType::kI8, 1),
      Array("parameters/layer.0_weight-A", DType::kI8, 2),
      Array("parameters/.hidden", DType::kI8, 3),
      Array("parameters/a%2Fb", DType::kI8, 4),
      Array("parameters/a/b", DType::kI8, 5),
      Array("parameters/..", DType::kI8, 6),
      Array("parameters/x.npy", DType::kI8, 7),
      Array("parameters/\xff", DType::kI8, 8),
      Array("parameters/" + every, DType::kI8, 9),
  };
  const auto reader = Checkpoint(sections);
  LOCKSTEP_ASSERT_OK(ExportNpy(*reader, In("arrays")));
  const std::vector<std::string> names = Names(In("arrays"));
  EXPECT_EQ(names.size(), sections.size());
  for (const char* const name :
       {"layer.0%2Fweight.npy", "layer.0_weight-A.npy", "%2Ehidden.npy",
        "a%252Fb.npy", "a%2Fb.npy", "%2E..npy", "x.npy.npy", "%FF.npy"}) {
    EXPECT_THAT(names, testing::Contains(name));
  }
  LOCKSTEP_ASSERT_OK(ImportNpy(In("arrays"), In("back")));
  EXPECT_THAT(Read(In("back")),
              IsOkAndHolds(testing::UnorderedElementsAreArray(sections)));
}

TEST_F(Exchange, TakesNamesOfFilesThatOthersWrite) {
  std::filesystem::create_directory(In("arrays"));
  const std::string array =
      internal_base::FormatNpyHeader(DType::kI8, {1}) + "x";
  Put(In("arrays/my weights (1).npy"), array);
  Put(In("arrays/a%2fb.npy"), array);
  LOCKSTEP_ASSERT_OK(ImportNpy(In("arrays"), In("back")));
  EXPECT_THAT(Read(In("back")),
              IsOkAndHolds(ElementsAre(
                  Section("parameters/a/b", DType::kI8, "x"),
                  Section("parameters/my weights (1)", DType::kI8, "x"))));
  std::filesystem::remove(In("back"));
  Put(In("arrays/a%2Fb.npy"), array);
  EXPECT_THAT(ImportNpy(In("arrays"), In("back")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("a%2fb.npy: is called 'a/b', and so is "
                                       "a%2Fb.npy"))));
  std::filesystem::remove(In("arrays/a%2fb.npy"));
  for (const char* const name : {"a%.npy", "a%2.npy", "a%2x.npy", "a% 2.npy"}) {
    Put(In(absl::StrCat("arrays/", name)), array);
    EXPECT_THAT(ImportNpy(In("arrays"), In("back")),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(name), HasSubstr("write '%25'"))));
    std::filesystem::remove(In(absl::StrCat("arrays/", name)));
  }
  EXPECT_THAT(Names(folder_), ElementsAre("arrays"));
}

TEST_F(Exchange, NothingIsOverwritten) {
  const auto reader = Checkpoint({Array("parameters/w", DType::kF32, 2)});
  LOCKSTEP_ASSERT_OK(ExportSafetensors(*reader, In("file")));
  LOCKSTEP_ASSERT_OK(ExportNpy(*reader, In("folder/")));
  std::filesystem::create_symlink(In("nothing"), In("link"));
  Put(In("other.new"), "other");
  const auto refused = [](absl::string_view message) {
    return StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr(message));
  };
  for (const char* const name : {"file", "folder", "link", "other"}) {
    const std::string to = In(name);
    const auto is_refused = refused(
        name == absl::string_view("other")
            ? absl::StrCat(to, ".new is there already: another process")
            : absl::StrCat(to, " is there already, and nothing is over"));
    EXPECT_THAT(ExportSafetensors(*reader, to), is_refused);
    EXPECT_THAT(ExportNpy(*reader, to + "/"), is_refused);
    EXPECT_THAT(ImportSafetensors(In("file"), to), is_refused);
    EXPECT_THAT(ImportNpy(In("folder"), to), is_refused);
  }
  EXPECT_THAT(Names(folder_),
              ElementsAre("checkpoint", "file", "folder", "link", "other.new"));
  EXPECT_EQ(Contents(In("other.new")), "other");
}

TEST_F(Exchange, NothingIsLeftAfterAnError) {
  const auto reader = Checkpoint({Array("parameters/a", DType::kF32, 2),
                                  Array("parameters/b", DType::kF32, 100000)});
  LOCKSTEP_ASSERT_OK(ExportSafetensors(*reader, In("file")));
  LOCKSTEP_ASSERT_OK(ExportNpy(*reader, In("folder")));
  // A limit of the size of files stands for a full disk.
  signal(SIGXFSZ, SIG_IGN);
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const struct rlimit small = {300000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<absl::Status> results = {
      ExportSafetensors(*reader, In("x")), ExportNpy(*reader, In("x")),
      ImportSafetensors(In("file"), In("x")), ImportNpy(In("folder"), In("x"))};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  for (const absl::Status& result : results) {
    EXPECT_THAT(result.message(), HasSubstr("can't write " + In("x.new")));
  }
  EXPECT_THAT(Names(folder_), ElementsAre("checkpoint", "file", "folder"));

  const auto missing = [&](const absl::Status& result) {
    EXPECT_THAT(result, StatusIs(absl::StatusCode::kNotFound,
                                 HasSubstr(In("missing"))));
  };
  missing(ExportSafetensors(*reader, In("missing/x")));
  missing(ExportNpy(*reader, In("missing/x")));
  missing(ImportSafetensors(In("missing"), In("x")));
  missing(ImportSafetensors(In("file"), In("missing/x")));
  missing(ImportNpy(In("missing"), In("x")));
  missing(ImportNpy(In("folder"), In("missing/x")));
}

TEST_F(Exchange, SaysWhichPrefixesThereAre) {
  const auto refused = [&](const std::string& prefix,
                           const std::vector<Section>& sections) {
    const auto reader = Checkpoint(sections);
    absl::Status result =
        ExportSafetensors(*reader, In("x"), WithPrefix(prefix));
    EXPECT_EQ(ExportNpy(*reader, In("x"), WithPrefix(prefix)), result);
    return result;
  };
  EXPECT_THAT(
      refused("parameter/", {Array("parameters/v", DType::kF32, 2),
                             Array("parameters/w", DType::kF32, 2),
                             Array("momentum", DType::kF32, 2),
                             {"job", std::nullopt, "bytes"}}),
      StatusIs(absl::StatusCode::kNotFound,
               absl::StrCat("the checkpoint ", In("checkpoint"),
                            " has no section whose name begins with "
                            "'parameter/': give another prefix; names of "
                            "sections with elements begin with 'momentum', "
                            "'parameters/'")));
  EXPECT_THAT(refused("parameters/", {{"job", std::nullopt, "bytes"}}),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("and no other section with elements")));
  std::vector<Section> many;
  for (int i = 0; i < 12; ++i) {
    many.push_back(Array(absl::StrCat("s", i, "/x"), DType::kF32, 0));
  }
  EXPECT_THAT(
      refused("parameters/", many),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("'s5/' and 4 others")));
  EXPECT_THAT(refused("", {{"job", std::nullopt, "bytes"}}),
              StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(refused("a", {Array("a", DType::kF32, 1)}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("has no name after the prefix: give another "
                                 "prefix than 'a'")));
  EXPECT_THAT(refused("", {{"a", DType::kF32, "12345"}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("section 'a' of")));
  EXPECT_THAT(Names(folder_), ElementsAre("checkpoint"));
}

TEST_F(Exchange, SaysWhichShapeIsWrong) {
  const auto reader = Checkpoint({Array("parameters/weights", DType::kF32, 6),
                                  Array("parameters/none", DType::kF32, 0)});
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const struct {
    const char* name;
    std::vector<int64_t> shape;
    const char* message;
  } cases[] = {
      {"weights",
       {2, 4},
       "the shape (2, 4) of 'weights' has 8 elements, but the section has 6"},
      {"weights", {}, "the shape () of 'weights' has 1 elements, but the"},
      {"weights", {6, 0}, "has 0 elements, but the section has 6"},
      {"weights",
       {-2, -3},
       "the shape (-2, -3) of 'weights' has the dimension -2; accepted are"},
      {"weights", {0, -1}, "has the dimension -1"},
      {"weights", {kMost, 3}, "has more elements than any file, but the"},
      {"weights", {kMost, kMost, 6}, "has more elements than any file"},
      {"none", {kMost, 0}, "has more elements than any file"},
      {"none", {1}, "has 1 elements, but the section has 0"},
      {"weights", std::vector<int64_t>(33, 1), "has 33 dimensions; accepted"},
      {"weight",
       {2, 3},
       "a shape (2, 3) is given for 'weight', which is not exported; did you "
       "mean 'weights'?"},
      {"parameters/weights",
       {2, 3},
       "which is not exported: give the name without the prefix "
       "'parameters/'"},
  };
  for (const auto& c : cases) {
    ExchangeOptions options;
    options.shapes[c.name] = c.shape;
    const auto refused =
        StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(c.message));
    EXPECT_THAT(ExportSafetensors(*reader, In("x"), options), refused);
    EXPECT_THAT(ExportNpy(*reader, In("x"), options), refused);
  }
  EXPECT_THAT(Names(folder_), ElementsAre("checkpoint"));
  ExchangeOptions options;
  options.shapes["weights"] = {1, 2, 3};
  options.shapes["none"] = {7, 0, 5};
  options.shapes["weights"].resize(32, 1);
  LOCKSTEP_EXPECT_OK(ExportNpy(*reader, In("x"), options));
}

TEST_F(Exchange, SaysWhichNameDoesNotFit) {
  auto reader = Checkpoint({Array("__metadata__", DType::kF32, 1)});
  EXPECT_THAT(ExportSafetensors(*reader, In("x"), WithPrefix("")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'__metadata__', which is for metadata")));
  LOCKSTEP_EXPECT_OK(ExportNpy(*reader, In("x"), WithPrefix("")));
  EXPECT_THAT(
      ImportNpy(In("x"), In("y"), WithPrefix(std::string(1020, 'a'))),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("1032 bytes")));
  std::filesystem::remove_all(In("x"));

  reader = Checkpoint({Array("parameters/a\xff", DType::kF32, 1)});
  EXPECT_THAT(ExportSafetensors(*reader, In("x")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'a\\xff' is not in UTF-8")));

  reader = Checkpoint(
      {Array("parameters/" + std::string(251, 'a'), DType::kF32, 1)});
  LOCKSTEP_EXPECT_OK(ExportNpy(*reader, In("x")));
  std::filesystem::remove_all(In("x"));
  reader = Checkpoint(
      {Array("parameters/" + std::string(250, 'a') + "/", DType::kF32, 1)});
  EXPECT_THAT(ExportNpy(*reader, In("x")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("a name of 257 bytes; accepted are 255")));

  const absl::string_view json =
      R"({"":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})";
  Put(In("unnamed"),
      absl::StrCat(absl::string_view("\x34\0\0\0\0\0\0\0", 8), json));
  EXPECT_THAT(ImportSafetensors(In("unnamed"), In("x")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("unnamed: an array has the name ''")));
  EXPECT_THAT(Names(folder_), ElementsAre("checkpoint", "unnamed"));
}

TEST_F(Exchange, SaysWhichSafetensorsFileIsDamaged) {
  const std::string good = Contents("testdata/safetensors/plain.safetensors");
  ASSERT_GT(good.size(), 1000);
  for (size_t bytes = 0; bytes < good.size(); bytes += 1 + bytes % 7) {
    Put(In("cut"), good.substr(0, bytes));
    EXPECT_THAT(ImportSafetensors(In("cut"), In("x")),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr(In("cut: ")), HasSubstr("byte"))))
        << bytes;
  }
  Put(In("cut"), good + "x");
  EXPECT_THAT(ImportSafetensors(In("cut"), In("x")),
              StatusIs(absl::StatusCode::kDataLoss,
                       HasSubstr("byte 1218: no array has the 1 bytes")));
  EXPECT_THAT(ImportSafetensors("testdata/npy/f4.npy", In("x")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("f4.npy: is no .safetensors file")));
  EXPECT_THAT(ImportSafetensors("testdata", In("x")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("testdata is no regular file")));
  Put(In("cut"), absl::string_view("\x02\0\0\0\0\0\0\0{}", 10));
  EXPECT_THAT(
      ImportSafetensors(In("cut"), In("x")),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("cut has no arrays")));
  EXPECT_THAT(Names(folder_), ElementsAre("cut"));
}

TEST_F(Exchange, SaysWhichNpyFileIsDamaged) {
  std::filesystem::create_directory(In("arrays"));
  EXPECT_THAT(ImportNpy(In("arrays"), In("x")),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr("arrays has no files NAME.npy")));
  const std::string good = Contents("testdata/npy/i4.npy");
  for (const size_t bytes : {0, 5, 11, 127, 128, 223}) {
    Put(In("arrays/cut.npy"), good.substr(0, bytes));
    EXPECT_THAT(
        ImportNpy(In("arrays"), In("x")),
        StatusIs(absl::StatusCode::kDataLoss,
                 AllOf(HasSubstr(In("arrays/cut.npy: ")),
                       HasSubstr(absl::StrCat("ends at byte ", bytes)))));
  }
  Put(In("arrays/cut.npy"), good + good);
  EXPECT_THAT(
      ImportNpy(In("arrays"), In("x")),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("more than one array")));
  const auto refused = [&](const char* name) {
    Put(In("arrays/cut.npy"),
        Contents(absl::StrCat("testdata/npy/", name, ".npy")));
    return ImportNpy(In("arrays"), In("x"));
  };
  for (const char* const name : {"fortran_2d", "fortran_3d", "fortran_4d"}) {
    EXPECT_THAT(refused(name),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         HasSubstr("cut.npy: is in Fortran order, and the "
                                   "elements of a section are in C order; "
                                   "save it by numpy.save(path, "
                                   "numpy.ascontiguousarray(array))")));
  }
  for (const char* const name : {"big_endian", "complex", "object", "string"}) {
    EXPECT_THAT(refused(name), StatusIs(absl::StatusCode::kInvalidArgument,
                                        HasSubstr("cut.npy: byte 20")));
  }
  std::filesystem::create_directory(In("arrays/folder.npy"));
  EXPECT_THAT(refused("f4"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("folder.npy is no regular file")));
  EXPECT_THAT(Names(folder_), ElementsAre("arrays"));
}

// With one dimension that is larger than 1, both orders are the same.
TEST_F(Exchange, TakesFortranOrderThatIsCOrder) {
  std::filesystem::create_directory(In("arrays"));
  std::string header = internal_base::FormatNpyHeader(DType::kI8, {1, 3, 1});
  const size_t at = header.find("False");
  header.replace(at, 5, "True ");
  Put(In("arrays/a.npy"), header + "xyz");
  header = internal_base::FormatNpyHeader(DType::kI8, {2, 3, 0});
  Put(In("arrays/b.npy"), header.replace(at, 5, "True "));
  LOCKSTEP_ASSERT_OK(ImportNpy(In("arrays"), In("x")));
  EXPECT_THAT(Read(In("x")), IsOkAndHolds(ElementsAre(
                                 Section("parameters/a", DType::kI8, "xyz"),
                                 Section("parameters/b", DType::kI8, ""))));
}

TEST_F(Exchange, BoolsAre0Or1) {
  std::filesystem::create_directory(In("arrays"));
  Put(In("arrays/a.npy"),
      absl::StrCat(internal_base::FormatNpyHeader(DType::kBool, {4}),
                   absl::string_view("\0\1\2\xff", 4)));
  LOCKSTEP_ASSERT_OK(ImportNpy(In("arrays"), In("x")));
  EXPECT_THAT(Read(In("x")),
              IsOkAndHolds(ElementsAre(Section("parameters/a", DType::kBool,
                                               std::string("\0\1\1\1", 4)))));
}

TEST_F(Exchange, ManySections) {
  std::vector<Section> sections;
  for (int i = 0; i < 3000; ++i) {
    sections.push_back(
        Array(absl::StrCat("parameters/", absl::Dec(i, absl::kZeroPad4)),
              DType::kF32, i % 3));
  }
  const auto reader = Checkpoint(sections);
  LOCKSTEP_ASSERT_OK(ExportSafetensors(*reader, In("a")));
  LOCKSTEP_ASSERT_OK(ImportSafetensors(In("a"), In("b")));
  EXPECT_THAT(Read(In("b")), IsOkAndHolds(sections));
}

}  // namespace
}  // namespace lockstep
