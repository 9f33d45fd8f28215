#include "lockstep/examples/trainer/digits.h"

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/dataset_conformance.h"
#include "lockstep/loader/loader.h"
#include "lockstep/sampler/cut.h"
#include "lockstep/sampler/sampler.h"
#include "lockstep/sampler/sequential_order.h"

namespace trainer {
namespace {

using ::lockstep::Dataset;
using ::lockstep::Loader;
using ::lockstep::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Part = DigitsOptions::Part;

absl::StatusOr<std::shared_ptr<Dataset>> Open(
    Part part = Part::kTraining, float noise = 0,
    const std::string& path = DigitsOptions().path) {
  DigitsOptions options;
  options.path = path;
  options.part = part;
  options.noise = noise;
  return Digits::Create({}, options);
}

std::string FileOf(const std::string& text) {
  std::string path = testing::TempDir() + "/digitsXXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  path += "/digits.csv";
  std::ofstream(path) << text;
  return path;
}

// Returns a loader of the samples in their order.
absl::StatusOr<std::unique_ptr<Loader>> MakeLoader(
    const std::shared_ptr<Dataset>& digits, int64_t batch_size) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto order,
                            lockstep::SequentialOrder::Create(digits->size()));
  lockstep::SamplerOptions options;
  options.cut.batch_size = batch_size;
  options.cut.tail = lockstep::Tail::kMask;
  LOCKSTEP_ASSIGN_OR_RETURN(auto sampler,
                            lockstep::Sampler::Create(order, options));
  return Loader::Create(digits, std::move(sampler), {});
}

// The first samples, as a batch.
// Thread-safety: thread-compatible.
struct First {
  First(const std::shared_ptr<Dataset>& digits, int64_t count)
      : loader(*MakeLoader(digits, count)) {
    LOCKSTEP_EXPECT_OK(loader->StartEpoch(0));
    EXPECT_TRUE(*loader->Next(batch));
  }
  DigitRows rows() const { return *RowsOf(batch); }

  std::unique_ptr<Loader> loader;
  lockstep::Batch batch;
};

TEST(Digits, HoldsOutEveryFifthLine) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto training, Open());
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto held_out, Open(Part::kHeldOut));
  EXPECT_EQ(training->size(), 1438);
  EXPECT_EQ(held_out->size(), 359);
  // The file begins with the digits from 0 to 9, twice.
  EXPECT_THAT(First(training, 9).rows().digits,
              ElementsAre(0, 1, 2, 3, 5, 6, 7, 8, 0));
  EXPECT_THAT(First(held_out, 1).rows().digits, ElementsAre(4));
}

TEST(Digits, HaveAllPixelsFrom0To1) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto digits, Open());
  const First all(digits, digits->size());
  const auto pixels = all.rows().pixels;
  ASSERT_EQ(pixels.size(), digits->size() * kPixels);
  EXPECT_GE(pixels.minCoeff(), 0);
  EXPECT_LE(pixels.maxCoeff(), 1);
  // The first row of the image in the file's first line is 0, 0, 5, 13, 9, 1,
  // 0, 0.
  EXPECT_THAT(
      std::vector<float>(pixels.data(), pixels.data() + 8),
      ElementsAre(0, 0, 5 / 16.0F, 13 / 16.0F, 9 / 16.0F, 1 / 16.0F, 0, 0));
}

TEST(Digits, Conform) {
  for (const float noise : {0.0F, 0.5F}) {
    LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto digits,
                                  Open(Part::kHeldOut, noise));
    lockstep::ExpectConforms(*digits);
    lockstep::ExpectThreadSafe(*digits);
  }
}

TEST(Digits, AreNoisyAsAsked) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto plain, Open(Part::kTraining));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto noisy, Open(Part::kTraining, 0.25F));
  const First clean(plain, plain->size()), changed(noisy, noisy->size());
  const Matrix noise = changed.rows().pixels - clean.rows().pixels;
  EXPECT_NEAR(noise.squaredNorm() / noise.size(), 0.25 * 0.25, 0.001);
}

// The 359 digits come in batches of 100, so the last batch has padding.
TEST(Digits, AreRowsWithoutPaddingAndWithNewNoise) {
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto digits, Open(Part::kHeldOut, 0.1F));
  LOCKSTEP_ASSERT_OK_AND_ASSIGN(const auto loader, MakeLoader(digits, 100));
  std::vector<std::vector<float>> firsts;
  for (const int64_t epoch : {0, 1, 0}) {
    int64_t count = 0;
    for (auto& batch : loader->Epoch(epoch)) {
      LOCKSTEP_ASSERT_OK(batch);
      LOCKSTEP_ASSERT_OK_AND_ASSIGN(const DigitRows rows, RowsOf(*batch));
      EXPECT_EQ(rows.pixels.rows(), rows.digits.size());
      EXPECT_EQ(rows.pixels.cols(), kPixels);
      if (count == 0) {
        firsts.emplace_back(rows.pixels.data(), rows.pixels.data() + kPixels);
      }
      count += rows.pixels.rows();
    }
    EXPECT_EQ(count, digits->size());
  }
  EXPECT_NE(firsts[0], firsts[1]);
  EXPECT_EQ(firsts[0], firsts[2]);
}

TEST(Digits, SayWhichLineIsWrong) {
  std::string line;
  for (int i = 0; i < 64; ++i) line += "16,";
  LOCKSTEP_EXPECT_OK(Open(Part::kTraining, 0, FileOf(line + "9\n")));
  for (const std::string& wrong :
       {line + "10", line + "-1", line + "1,1", line, "17," + line.substr(3),
        std::string("\x01"), std::string("pixels")}) {
    EXPECT_THAT(
        Open(Part::kTraining, 0,
             FileOf(absl::StrCat(line, "9\n", wrong, "\n"))),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 HasSubstr("digits.csv:2: a line should have 64 pixels from 0 "
                           "to 16 and a digit from 0 to 9")));
  }
}

TEST(Digits, SayWhatCanNotBeRead) {
  EXPECT_THAT(
      Open(Part::kTraining, 0, "/nowhere/digits.csv"),
      StatusIs(absl::StatusCode::kNotFound, HasSubstr("/nowhere/digits.csv")));
  EXPECT_THAT(Open(Part::kTraining, 0, testing::TempDir()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("should be a file, and is none")));
  EXPECT_THAT(Open(Part::kTraining, 0, FileOf("")),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("there are no digits")));
  EXPECT_THAT(Open(Part::kTraining, -1),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("noise should be 0 or more, but is -1")));
}

}  // namespace
}  // namespace trainer
