// These tests read the columns of the ready-made datasets.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/float16.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/cache_dataset.h"
#include "lockstep/loader/datasets/combinators.h"
#include "lockstep/loader/datasets/file_folder.h"
#include "lockstep/loader/datasets/npy_dataset.h"
#include "lockstep/loader/datasets/tensor_dataset.h"
#include "lockstep/loader/field.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename T>
std::shared_ptr<Dataset> Tensor(const std::string& name,
                                std::vector<T> values) {
  const auto size = static_cast<int64_t>(values.size());
  return *TensorDataset::Create(
      {NamedTensor::Own<T>(name, {size}, std::move(values))});
}

std::shared_ptr<Dataset> Labels() {
  return Tensor<int32_t>("label", {4, 5, 6});
}

template <typename T>
void ExpectIntegers() {
  EXPECT_THAT(ReadIntegers(*Tensor<T>("x", {T{0}, T{1}, T{100}}), "x"),
              IsOkAndHolds(ElementsAre(0, 1, 100)));
}

template <typename T>
void ExpectNumbers() {
  const auto dataset = Tensor<T>("x", {T(0.5F), T(-2.0F)});
  EXPECT_THAT(ReadNumbers(*dataset, "x"), IsOkAndHolds(ElementsAre(0.5, -2)));
  EXPECT_THAT(ReadIntegers(*dataset, "x"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("column 'x' should have integers")));
}

TEST(Columns, OfTensorsOfAnyType) {
  ExpectIntegers<int8_t>();
  ExpectIntegers<int16_t>();
  ExpectIntegers<int32_t>();
  ExpectIntegers<int64_t>();
  ExpectIntegers<uint8_t>();
  ExpectIntegers<uint16_t>();
  ExpectIntegers<uint32_t>();
  ExpectIntegers<uint64_t>();
  ExpectNumbers<float>();
  ExpectNumbers<double>();
  ExpectNumbers<Float16>();
  ExpectNumbers<BFloat16>();
  EXPECT_THAT(ReadNumbers(*Labels(), "label"),
              IsOkAndHolds(ElementsAre(4.0, 5.0, 6.0)));
  EXPECT_THAT(ReadIntegers(*Tensor<int64_t>("x", {}), "x"),
              IsOkAndHolds(IsEmpty()));
  EXPECT_THAT(ReadIntegers(*Tensor<uint64_t>("x", {7, uint64_t{1} << 63}), "x"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("sample 1 has 9223372036854775808")));
}

TEST(Columns, AreFieldsOfOneNumber) {
  const auto images = *TensorDataset::Create(
      {NamedTensor::Own<float>("image", {2, 3}, std::vector<float>(6))});
  EXPECT_THAT(
      images->ReadColumn("image"),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("no column 'image'")));
  EXPECT_THAT(images->ReadColumn("x\ny"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("'x\\ny'")));
}

TEST(Columns, OfNpyFiles) {
  const std::string path = absl::StrCat(testing::TempDir(), "/labels.npy");
  const std::string header =
      "{'descr': '<i2', 'fortran_order': False, 'shape': (3,), }";
  std::string bytes("\x93NUMPY\x01\x00\x76\x00", 10);
  bytes += header + std::string(0x76 - 1 - header.size(), ' ') + "\n";
  bytes += std::string("\x07\x00\xff\xff\x00\x01", 6);
  std::ofstream(path, std::ios::binary) << bytes;
  for (const NpyAccess access : {NpyAccess::kMapped, NpyAccess::kRead}) {
    NpyDatasetOptions options;
    options.files = {{"label", path}};
    options.access = access;
    const auto dataset = NpyDataset::Create(options);
    LOCKSTEP_ASSERT_OK(dataset);
    EXPECT_THAT(ReadIntegers(**dataset, "label"),
                IsOkAndHolds(ElementsAre(7, -1, 256)));
    EXPECT_THAT((*dataset)->ReadColumn("x"),
                StatusIs(absl::StatusCode::kNotFound));
  }
}

TEST(Columns, OfAFolder) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/columns");
  for (const char* const name : {"cat", "dog"}) {
    std::filesystem::create_directories(absl::StrCat(folder, "/", name));
  }
  std::ofstream(folder + "/cat/a") << "12";
  std::ofstream(folder + "/dog/b") << "123";
  FileFolderOptions options;
  options.path = folder;
  const auto dataset = FileFolder::Create(options);
  LOCKSTEP_ASSERT_OK(dataset);
  EXPECT_THAT(ReadIntegers(**dataset, "label"),
              IsOkAndHolds(ElementsAre(0, 1)));
  EXPECT_THAT(ReadIntegers(**dataset, "bytes"),
              IsOkAndHolds(ElementsAre(2, 3)));
  EXPECT_THAT((*dataset)->ReadColumn("data"),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST(Columns, OfDatasetsMadeOfOthers) {
  const auto subset = *SubsetDataset::Create(Labels(), {2, 0, 2});
  EXPECT_THAT(ReadIntegers(*subset, "label"),
              IsOkAndHolds(ElementsAre(6, 4, 6)));
  const auto concat = *ConcatDataset::Create({Labels(), Labels()});
  EXPECT_THAT(ReadIntegers(*concat, "label"),
              IsOkAndHolds(ElementsAre(4, 5, 6, 4, 5, 6)));
  const auto zip =
      *ZipDataset::Create({Labels(), Tensor<float>("weight", {1, 2, 0.5})});
  EXPECT_THAT(ReadIntegers(*zip, "label"), IsOkAndHolds(ElementsAre(4, 5, 6)));
  EXPECT_THAT(ReadNumbers(*zip, "weight"),
              IsOkAndHolds(ElementsAre(1, 2, 0.5)));
  EXPECT_THAT(zip->ReadColumn("x"), StatusIs(absl::StatusCode::kNotFound));
  const auto map = *MapDataset::Create(
      Labels(), [](SampleContext&, SampleRow&) { return absl::OkStatus(); });
  EXPECT_THAT(ReadIntegers(*map, "label"), IsOkAndHolds(ElementsAre(4, 5, 6)));
  const auto made = *MapDataset::Create(
      *ZipDataset::Create({Labels(), Tensor<float>("weight", {1, 2, 0.5})}),
      {{"label", DType::kI32, {}}},
      [](SampleContext&, SampleRow&, SampleRow&) { return absl::OkStatus(); });
  EXPECT_THAT(made->ReadColumn("label"), StatusIs(absl::StatusCode::kNotFound));
  EXPECT_THAT(ReadNumbers(*made, "weight"),
              IsOkAndHolds(ElementsAre(1, 2, 0.5)));
  const auto cache = *CacheDataset::Create(Labels(), {1000});
  EXPECT_THAT(ReadIntegers(*cache, "label"),
              IsOkAndHolds(ElementsAre(4, 5, 6)));
}

// Integers of one part are numbers where another part has numbers.
TEST(Columns, OfMixedParts) {
  class Numbered : public Dataset {
   public:
    explicit Numbered(Column column) : column_(std::move(column)) {}
    int64_t size() const override { return 2; }
    absl::Span<const FieldSpec> fields() const override { return fields_; }
    absl::Status Read(int64_t, SampleContext&, SampleRow& row) override {
      return row.Set<int64_t>(0, 0);
    }
    absl::StatusOr<Column> ReadColumn(absl::string_view) override {
      return column_;
    }

   private:
    const std::vector<FieldSpec> fields_ = {{"x", DType::kI64, {}}};
    const Column column_;
  };
  const auto integers = std::make_shared<Numbered>(std::vector<int64_t>{1, 2});
  const auto numbers = std::make_shared<Numbered>(std::vector<double>{0.5, 2});
  const auto mixed = *ConcatDataset::Create({integers, numbers});
  EXPECT_THAT(ReadNumbers(*mixed, "any"),
              IsOkAndHolds(ElementsAre(1, 2, 0.5, 2)));
  Numbered short_one(std::vector<int64_t>{1});
  EXPECT_THAT(ReadIntegers(short_one, "any"),
              StatusIs(absl::StatusCode::kInternal,
                       HasSubstr("has 1 values, and the dataset 2 samples")));
  EXPECT_THAT(ReadNumbers(short_one, "any"),
              StatusIs(absl::StatusCode::kInternal));
  const auto shared = std::make_shared<Numbered>(std::vector<int64_t>{1});
  const auto longer = std::make_shared<Numbered>(std::vector<int64_t>{1, 2, 3});
  EXPECT_THAT((*SubsetDataset::Create(shared, {1}))->ReadColumn("any"),
              StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT((*ConcatDataset::Create({shared, longer}))->ReadColumn("any"),
              StatusIs(absl::StatusCode::kInternal));
}

}  // namespace
}  // namespace lockstep
