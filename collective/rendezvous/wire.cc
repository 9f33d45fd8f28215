#include "lockstep/collective/rendezvous/wire.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/check.h"

namespace lockstep::internal_collective {
namespace {

constexpr size_t kHeaderBytes = sizeof(uint32_t) + sizeof(FrameType);

template <typename T>
void Append(T value, std::string* bytes) {
  char copy[sizeof(value)];
  std::memcpy(copy, &value, sizeof(value));
  bytes->append(copy, sizeof(value));
}

template <typename T>
T Load(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

}  // namespace

std::string EncodeFrame(FrameType type, absl::string_view payload) {
  LOCKSTEP_CHECK(payload.size() <= kLargestFrame);
  std::string bytes;
  bytes.reserve(kHeaderBytes + payload.size());
  Append(static_cast<uint32_t>(payload.size()), &bytes);
  Append(type, &bytes);
  bytes.append(payload.data(), payload.size());
  return bytes;
}

absl::StatusOr<std::optional<Frame>> TakeFrame(absl::string_view& input,
                                               size_t largest) {
  if (input.size() < kHeaderBytes) return std::nullopt;
  const auto size = Load<uint32_t>(input.data());
  const auto type = Load<uint8_t>(input.data() + sizeof(uint32_t));
  if (size > largest) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a frame of ", size, " bytes, where ", largest, " are the most"));
  }
  if (type < static_cast<uint8_t>(FrameType::kProof) ||
      type > static_cast<uint8_t>(FrameType::kGoodbye)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a frame of type ", type, ", which does not exist"));
  }
  if (input.size() - kHeaderBytes < size) return std::nullopt;
  const Frame frame{static_cast<FrameType>(type),
                    input.substr(kHeaderBytes, size)};
  input.remove_prefix(kHeaderBytes + size);
  return frame;
}

WireWriter& WireWriter::Number(uint64_t value) {
  Append(value, &bytes_);
  return *this;
}

WireWriter& WireWriter::Text(absl::string_view text) {
  Number(text.size());
  bytes_.append(text.data(), text.size());
  return *this;
}

uint64_t WireReader::Number(uint64_t most) {
  uint64_t value = 0;
  if (bytes_.size() >= sizeof(value)) {
    value = Load<uint64_t>(bytes_.data());
    bytes_.remove_prefix(sizeof(value));
    if (value <= most) return value;
  }
  Refuse();
  return 0;
}

std::string WireReader::Text(size_t most) {
  const size_t size = Number(most);
  if (size > bytes_.size()) {
    Refuse();
    return "";
  }
  std::string text(bytes_.substr(0, size));
  bytes_.remove_prefix(size);
  return text;
}

size_t WireReader::Count(size_t bytes_each) {
  const size_t count = Number(SIZE_MAX);
  if (count <= bytes_.size() / bytes_each) return count;
  Refuse();
  return 0;
}

void WireReader::Refuse() {
  good_ = false;
  bytes_ = {};
}

}  // namespace lockstep::internal_collective
