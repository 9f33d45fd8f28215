// This tests what becomes of an image for which there is no memory. One
// allocation fails after the other: those of the code and, unless a sanitizer
// has replaced malloc, those of the decoders' libraries. The sample is an error
// or has the right pixels, and can be read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/catch_all.h"
#include "lockstep/base/memory_testing.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/images/image_dataset.h"
#include "lockstep/loader/images/image_dataset_testing.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/loader/row_buffer.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LOCKSTEP_MALLOC_IS_REPLACED_ 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LOCKSTEP_MALLOC_IS_REPLACED_ 1
#endif
#endif

namespace {

// The fewest errors that a new dataset and one that has read an image give. The
// libraries' own allocations fail only if no sanitizer has replaced malloc.
#ifdef LOCKSTEP_MALLOC_IS_REPLACED_
constexpr int64_t kErrorsIfNew = 1;
constexpr int64_t kErrorsLater = 0;
#else
constexpr int64_t kErrorsIfNew = 6;
constexpr int64_t kErrorsLater = 1;
#endif

// The allocation of this thread that fails, counted down; 0: none.
thread_local int64_t countdown = 0;

// The size from which on the allocations of this thread fail; 0: none does.
thread_local size_t too_large = 0;

bool Fails(size_t size) {
  if (countdown > 0 && --countdown == 0) return true;
  return too_large > 0 && size >= too_large;
}

}  // namespace

#ifndef LOCKSTEP_MALLOC_IS_REPLACED_
// These take the place of the C library's for all libraries of the program.
extern "C" {
void* __libc_malloc(size_t size);                // NOLINT: its name
void* __libc_calloc(size_t count, size_t size);  // NOLINT: its name
void* __libc_realloc(void* from, size_t size);   // NOLINT: its name

void* malloc(size_t size) noexcept {
  return Fails(size) ? nullptr : __libc_malloc(size);
}
void* calloc(size_t count, size_t size) noexcept {
  return Fails(count * size) ? nullptr : __libc_calloc(count, size);
}
void* realloc(void* from, size_t size) noexcept {
  return Fails(size) ? nullptr : __libc_realloc(from, size);
}
}
#endif

namespace lockstep {
namespace {

using ::testing::StartsWith;

// Calls `call` while the allocation of that number fails. Sets `failed` to
// whether there were so many.
template <typename Call>
absl::Status WithoutOne(int64_t number, const Call& call, bool& failed) {
#ifdef LOCKSTEP_MALLOC_IS_REPLACED_
  FailAllocations([] { return Fails(0); });
#endif
  countdown = number;
  absl::Status status = CatchAll("call", call);
  failed = countdown == 0;
  countdown = 0;
  FailAllocations(nullptr);
  return status;
}

struct Case {
  std::string name;
  std::string file;
};

// An EXIF block that says that the image is to be turned by 90 degrees.
std::string TurnedExif() {
  return std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0",
                     22) +
         std::string(4, '\0');
}

std::string TurnedJpeg() {
  const std::string exif = std::string("Exif\0\0", 6) + TurnedExif();
  const auto size = static_cast<char>(exif.size() + 2);
  std::string bytes = GoodJpeg();
  return bytes.insert(2, std::string("\xFF\xE1\0", 3) + size + exif);
}

std::vector<Case> Cases() {
  return {{"JPEG", GoodJpeg()},
          {"JPEG with a warning", JpegWithWarning()},
          {"turned JPEG", TurnedJpeg()},
          {"PNG", NoisePng(50, 30, 1)},
          {"turned PNG", PngOf(50, 30, NoisePixels(50, 30, 2),
                               PngChunk("eXIf", TurnedExif()))}};
}

std::vector<ImageOptions> Kinds() {
  std::vector<ImageOptions> kinds(3);
  kinds[0].max_pixels = 5000;
  kinds[1].height = kinds[2].height = 20;
  kinds[1].width = kinds[2].width = 10;
  kinds[1].crop = ImageCrop::kRandom;
  kinds[2].layout = ImageLayout::kChannelsFirst;
  kinds[2].crop = ImageCrop::kCenter;
  return kinds;
}

absl::StatusOr<std::shared_ptr<ImageDataset>> Make(
    const std::shared_ptr<Dataset>& files, const ImageOptions& options) {
  return ImageDataset::Create(files, options);
}

std::string PixelsOf(RowBuffer& buffer) {
  const absl::Span<char> bytes = *buffer.row().WrittenBytes(1);
  return {bytes.begin(), bytes.end()};
}

TEST(ImageOutOfMemory, ASampleIsAnErrorOrRightAndCanBeReadAgain) {
  for (const Case& c : Cases()) {
    for (const ImageOptions& options : Kinds()) {
      SCOPED_TRACE(c.name);
      const auto files =
          std::make_shared<ImagesInMemory>(std::vector<std::string>{c.file});
      const auto warm = *Make(files, options);
      const auto buffer = *RowBuffer::Create(warm->fields());
      LOCKSTEP_ASSERT_OK(buffer->Read(*warm, 0));
      const std::string expected = PixelsOf(*buffer);
      // A dataset that has read an image makes fewer allocations than a new
      // one.
      for (const bool is_new : {true, false}) {
        int64_t errors = 0;
        bool failed = true;
        for (int64_t number = 1; failed && !HasFailure(); ++number) {
          SCOPED_TRACE(number);
          const auto dataset = is_new ? *Make(files, options) : warm;
          const absl::Status status = WithoutOne(
              number, [&] { return buffer->Read(*dataset, 0); }, failed);
          if (status.ok()) {
            EXPECT_EQ(PixelsOf(*buffer), expected);
          } else {
            EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
            ++errors;
          }
          LOCKSTEP_EXPECT_OK(buffer->Read(*dataset, 0));
          EXPECT_EQ(PixelsOf(*buffer), expected);
        }
        EXPECT_GE(errors, is_new ? kErrorsIfNew : kErrorsLater);
      }
    }
  }
}

TEST(ImageOutOfMemory, CreateIsAnErrorOrRight) {
  const auto files =
      std::make_shared<ImagesInMemory>(std::vector<std::string>{GoodJpeg()});
  for (const ImageOptions& options : Kinds()) {
    int64_t errors = 0;
    bool failed = true;
    for (int64_t number = 1; failed && !HasFailure(); ++number) {
      SCOPED_TRACE(number);
      const absl::Status status = WithoutOne(
          number, [&] { return Make(files, options).status(); }, failed);
      if (status.ok()) continue;
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted));
      ++errors;
    }
    EXPECT_GT(errors, 10);
  }
}

TEST(ImageOutOfMemory, ErrorsOfTheDecodersSaySo) {
#ifdef LOCKSTEP_MALLOC_IS_REPLACED_
  GTEST_SKIP() << "a sanitizer has replaced malloc";
#endif
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    const auto dataset = *Make(
        std::make_shared<ImagesInMemory>(std::vector<std::string>{c.file}),
        Kinds()[0]);
    const auto buffer = *RowBuffer::Create(dataset->fields());
    LOCKSTEP_ASSERT_OK(buffer->Read(*dataset, 0));
    too_large = 256;  // Texts are smaller.
    const absl::Status status = buffer->Read(*dataset, 0);
    too_large = 0;
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted,
                                 StartsWith("file 0 of field 1: there is no "
                                            "memory to decode a ")));
    LOCKSTEP_EXPECT_OK(buffer->Read(*dataset, 0));
  }
}

}  // namespace
}  // namespace lockstep
