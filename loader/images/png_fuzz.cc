// Reads the input as a PNG, behind 8 bytes of options and one that says how to
// mend it: so that a mutation gets further than to the next checksum, those of
// chunks are put right, and rows may be given as they are, for which a zlib
// stream is made that does not compress. fuzz_image.h says what must hold.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/loader/images/fuzz_image.h"
#include "lockstep/loader/images/png_file.h"

namespace lockstep::internal_loader {
namespace {

constexpr size_t kSignatureBytes = 8;
constexpr size_t kLengthBytes = 4;
constexpr size_t kNameBytes = 4;
constexpr size_t kChecksumBytes = 4;

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) {
    bytes.push_back(static_cast<char>(value >> shift & 0xFF));
  }
  return bytes;
}

// Returns the CRC-32 of a chunk's name and data.
uint32_t Crc32(absl::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> table;
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) {
        value = value >> 1 ^ ((value & 1) != 0 ? 0xEDB88320U : 0);
      }
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = 0xFFFFFFFF;
  for (const char byte : bytes) {
    crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  }
  return ~crc;
}

std::string Chunk(absl::string_view name_and_data) {
  return absl::StrCat(
      BigEndian(static_cast<uint32_t>(name_and_data.size() - kNameBytes)),
      name_and_data, BigEndian(Crc32(name_and_data)));
}

// Makes zlib streams of stored blocks.
// Thread-safety: thread-compatible.
class Stored {
 public:
  // Returns the next part of the stream, with so many bytes of `data` as a
  // block can have.
  std::string Part(absl::string_view data, bool is_last) {
    data = data.substr(0, 0xFFFF);
    for (const char byte : data) {
      low_ = (low_ + static_cast<uint8_t>(byte)) % kModulus;
      high_ = (high_ + low_) % kModulus;
    }
    const auto size = static_cast<uint32_t>(data.size());
    std::string part = began_ ? "" : "\x78\x01";
    began_ = true;
    part.push_back(is_last ? 1 : 0);
    for (const uint32_t number : {size, ~size}) {
      part.push_back(static_cast<char>(number & 0xFF));
      part.push_back(static_cast<char>(number >> 8 & 0xFF));
    }
    absl::StrAppend(&part, data);
    if (is_last) absl::StrAppend(&part, BigEndian(high_ << 16 | low_));
    return part;
  }

 private:
  static constexpr uint32_t kModulus = 65521;  // of Adler-32

  bool began_ = false;
  uint32_t low_ = 1;
  uint32_t high_ = 0;
};

// Returns the file with the right checksums. If `stores`, the data of its IDAT
// chunks are the rows.
std::string Mend(absl::string_view file, bool stores) {
  std::string mended(file.substr(0, kSignatureBytes));
  file.remove_prefix(mended.size());
  Stored stored;
  while (file.size() >= kLengthBytes + kNameBytes) {
    size_t length = 0;
    for (size_t i = 0; i < kLengthBytes; ++i) {
      length = length << 8 | static_cast<uint8_t>(file[i]);
    }
    file.remove_prefix(kLengthBytes);
    const absl::string_view chunk = file.substr(0, kNameBytes + length);
    file.remove_prefix(chunk.size());
    file.remove_prefix(std::min(kChecksumBytes, file.size()));
    const absl::string_view name = chunk.substr(0, kNameBytes);
    if (stores && name == "IDAT") {
      absl::StrAppend(&mended,
                      Chunk(absl::StrCat(
                          name, stored.Part(chunk.substr(kNameBytes), false))));
      continue;
    }
    if (stores && name == "IEND") {
      absl::StrAppend(&mended,
                      Chunk(absl::StrCat("IDAT", stored.Part("", true))));
    }
    absl::StrAppend(&mended, Chunk(chunk));
  }
  return mended;
}

}  // namespace
}  // namespace lockstep::internal_loader

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::internal_loader;  // NOLINT: the only function
  lockstep::FuzzInput input(data, size);
  const ImageCase image = TakeImageCase(input);
  const int mends = input.Byte();
  std::string file(input.Rest());
  if ((mends & 1) != 0) file = Mend(file, (mends & 2) != 0);
  CheckImage(image, file, [] { return std::make_unique<PngFile>(); });
  return 0;
}
