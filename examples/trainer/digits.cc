#include "lockstep/examples/trainer/digits.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <memory>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/plugin/registry.h"

namespace trainer {
namespace {

constexpr int64_t kMostInk = 16;      // the maximum of a pixel in the file
constexpr int64_t kHeldOutEvery = 5;  // every fifth line is held out

bool ReadNumber(absl::string_view text, int64_t most, int64_t* number) {
  return absl::SimpleAtoi(text, number) && *number >= 0 && *number <= most;
}

// Adds the digit of a line. Returns false if the line is invalid.
bool AddDigit(absl::string_view line, std::vector<float>& pixels,
              std::vector<int64_t>& digits) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(line, ',');
  if (numbers.size() != kPixels + 1) return false;
  for (int64_t i = 0; i < kPixels; ++i) {
    int64_t ink = 0;
    if (!ReadNumber(numbers[i], kMostInk, &ink)) return false;
    pixels.push_back(static_cast<float>(ink) / kMostInk);
  }
  int64_t digit = 0;
  if (!ReadNumber(numbers[kPixels], kDigits - 1, &digit)) return false;
  digits.push_back(digit);
  return true;
}

}  // namespace

void BindOptions(DigitsOptions& options, lockstep::OptionTable& table) {
  using Part = DigitsOptions::Part;
  table.Add("path", &options.path, "The file of digits.");
  table.Add("part", &options.part, "Which digits of the file are taken.",
            {{"training", Part::kTraining}, {"held_out", Part::kHeldOut}});
  table.Add("noise", &options.noise,
            "The standard deviation of what is added to each pixel anew each "
            "time, where the blackest has 1.");
}

absl::StatusOr<std::shared_ptr<lockstep::Dataset>> Digits::Create(
    const lockstep::PluginContext&, const DigitsOptions& options) {
  if (options.noise < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("noise should be 0 or more, but is ", options.noise));
  }
  // Each rank and each loader reads the file, which a pipe would not allow.
  std::error_code error;
  const std::filesystem::file_status found =
      std::filesystem::status(options.path, error);
  if (std::filesystem::exists(found) &&
      !std::filesystem::is_regular_file(found)) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.path, " should be a file, and is none"));
  }
  std::ifstream file(options.path);
  if (!file) {
    return absl::ErrnoToStatus(
        errno,
        absl::StrCat("the file of digits can't be opened: ", options.path));
  }
  std::vector<float> pixels;
  std::vector<int64_t> digits;
  std::string line;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    const bool is_held_out = number % kHeldOutEvery == 0;
    if (is_held_out != (options.part == DigitsOptions::Part::kHeldOut)) {
      continue;
    }
    if (!AddDigit(line, pixels, digits)) {
      return absl::InvalidArgumentError(absl::StrCat(
          options.path, ":", number, ": a line should have ", kPixels,
          " pixels from 0 to ", kMostInk, " and a digit from 0 to ",
          kDigits - 1, ", separated by commas, but is '",
          absl::CHexEscape(line.substr(0, 200)), "'"));
    }
  }
  if (file.bad()) {
    return absl::DataLossError(absl::StrCat(
        options.path, ": reading has failed: ", std::strerror(errno)));
  }
  if (digits.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.path, ": there are no digits in this file"));
  }
  return std::shared_ptr<lockstep::Dataset>(
      new Digits(std::move(pixels), std::move(digits), options.noise));
}

absl::Status Digits::Read(int64_t index, lockstep::SampleContext& context,
                          lockstep::SampleRow& row) {
  if (index < 0 || index >= size()) {
    return absl::OutOfRangeError(absl::StrCat(
        "there are ", size(), " digits, and none has the index ", index));
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<float> pixels,
                            row.Mutable<float>(0));
  // The noise depends on the position in the stream. So it is the same for any
  // worker and rank and after a restart, and differs between epochs.
  if (noise_ > 0) context.rng().FillNormal(pixels);
  for (int64_t i = 0; i < kPixels; ++i) {
    const float pixel = pixels_[index * kPixels + i];
    pixels[i] = noise_ > 0 ? pixel + noise_ * pixels[i] : pixel;
  }
  return row.Set<int64_t>(1, digits_[index]);
}

absl::StatusOr<DigitRows> RowsOf(const lockstep::Batch& batch) {
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<const float> pixels,
                            batch.Values<float>("pixels"));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<const int64_t> digits,
                            batch.Values<int64_t>("digit"));
  return DigitRows{{pixels.data(), batch.valid(), kPixels},
                   digits.first(batch.valid())};
}

}  // namespace trainer
