// An .idx file has a header of 34 bytes, and behind it the lengths of all
// sequences (i32), the bytes of the .bin where they begin (i64), and the
// documents (i64): the number of the first sequence of each, and in the end the
// number of sequences. A byte for each sequence, its mode, may follow. So the
// numbers are not aligned. docs/formats.md has a table.
#include "lockstep/loader/datasets/megatron_index.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/status_macros.h"

namespace lockstep::internal_loader {
namespace {

constexpr char kMagic[] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0};
constexpr int64_t kHeaderBytes = 34;

constexpr DType kTypes[] = {DType::kU8,  DType::kI8,  DType::kI16, DType::kI32,
                            DType::kI64, DType::kF64, DType::kF32, DType::kU16};

// The numbers that are read at a time.
constexpr int64_t kChunk = 8192;

template <typename T>
T NumberAt(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

absl::Status Torn(const File& file, int64_t byte, absl::string_view what) {
  return absl::DataLossError(absl::StrCat("'", file.path(), "', byte ", byte,
                                          ": ", what, "; make the file again"));
}

// Reads numbers of a file one after the other. Thread-safety:
// thread-compatible.
template <typename T>
class Numbers {
 public:
  Numbers(const File& file, int64_t begin, int64_t count)
      : file_(file), at_(begin), left_(count) {}

  // Requires that fewer than `count` numbers were read.
  absl::Status Next(T& number) {
    if (next_ == chunk_.size()) {
      const int64_t count = std::min(left_, kChunk);
      chunk_.resize(static_cast<size_t>(count));
      next_ = 0;
      const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
      LOCKSTEP_RETURN_IF_ERROR(file_.ReadAt(
          at_, absl::MakeSpan(reinterpret_cast<char*>(chunk_.data()),
                              static_cast<size_t>(bytes))));
      at_ += bytes;
      left_ -= count;
    }
    number = chunk_[next_++];
    return absl::OkStatus();
  }

  // Returns the byte of the number that was read last.
  int64_t byte() const {
    return at_ - static_cast<int64_t>((chunk_.size() - next_ + 1) * sizeof(T));
  }

 private:
  const File& file_;
  int64_t at_;
  int64_t left_;
  std::vector<T> chunk_;
  size_t next_ = 0;
};

// The header of an index.
struct Header {
  DType dtype = DType::kU16;
  int64_t sequences = 0;
  int64_t documents = 0;  // the length of their list, which is one more
};

absl::StatusOr<Header> ReadHeader(const File& file) {
  LOCKSTEP_ASSIGN_OR_RETURN(const int64_t size, file.Size());
  char bytes[kHeaderBytes] = {};
  const auto read = static_cast<size_t>(std::min(size, kHeaderBytes));
  LOCKSTEP_RETURN_IF_ERROR(file.ReadAt(0, absl::MakeSpan(bytes, read)));
  if (std::memcmp(bytes, kMagic, sizeof(kMagic)) != 0) {
    return absl::DataLossError(absl::StrCat(
        "'", file.path(),
        "' does not begin as an index of Megatron's does (MMIDIDX): make it "
        "again, or rename it if it does not belong to the .bin of its name"));
  }
  if (size < kHeaderBytes) {
    return Torn(file, size, "the file ends within its header of 34 bytes");
  }
  const auto version = NumberAt<uint64_t>(bytes + 9);
  if (version != 1) {
    return absl::UnimplementedError(
        absl::StrCat("'", file.path(), "' has version ", version,
                     " of Megatron's index, and this release reads version 1"));
  }
  const auto type = NumberAt<uint8_t>(bytes + 17);
  if (type < 1 || type > std::size(kTypes)) {
    return Torn(
        file, 17,
        absl::StrCat("the type of the tokens should be 1 to ",
                     std::size(kTypes), ", and is ", static_cast<int>(type)));
  }
  const auto sequences = NumberAt<uint64_t>(bytes + 18);
  const auto documents = NumberAt<uint64_t>(bytes + 26);
  const auto room = static_cast<uint64_t>(size - kHeaderBytes);
  if (sequences > room / 12 || documents > (room - 12 * sequences) / 8) {
    return Torn(file, 18,
                absl::StrCat("there should be ", sequences, " sequences and ",
                             documents, " documents, for which the file of ",
                             size, " bytes has no room"));
  }
  const uint64_t rest = room - 12 * sequences - 8 * documents;
  if (rest != 0 && rest != sequences) {
    return Torn(file, size - static_cast<int64_t>(rest),
                absl::StrCat(rest,
                             " bytes follow the documents, where there "
                             "should be none, or a mode for each of the ",
                             sequences, " sequences"));
  }
  if (documents == 0) {
    return Torn(file, 26,
                "the list of documents is empty, and should begin "
                "with 0");
  }
  return Header{kTypes[type - 1], static_cast<int64_t>(sequences),
                static_cast<int64_t>(documents)};
}

}  // namespace

absl::StatusOr<MegatronIndex> ReadMegatronIndex(const File& file,
                                                int64_t data_bytes,
                                                bool with_ends) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Header header, ReadHeader(file));
  const int64_t token_bytes = SizeOf(header.dtype);
  MegatronIndex index;
  index.dtype = header.dtype;
  index.documents = header.documents - 1;
  if (with_ends) index.ends.reserve(static_cast<size_t>(index.documents));
  int64_t at = kHeaderBytes;
  Numbers<int32_t> lengths(file, at, header.sequences);
  at += header.sequences * 4;
  Numbers<int64_t> begins(file, at, header.sequences);
  at += header.sequences * 8;
  Numbers<int64_t> documents(file, at, header.documents);

  // Reads the sequence behind the next document.
  int64_t end = 0;
  const auto next_document = [&]() -> absl::Status {
    const int64_t begin = end;
    LOCKSTEP_RETURN_IF_ERROR(documents.Next(end));
    if (begin <= end && end <= header.sequences) return absl::OkStatus();
    return Torn(
        file, documents.byte(),
        absl::StrCat("a document should begin with one of sequences ", begin,
                     " to ", header.sequences, ", and begins with ", end));
  };
  LOCKSTEP_RETURN_IF_ERROR(next_document());
  if (end != 0) {
    return Torn(file, documents.byte(),
                "the first document should begin with sequence 0");
  }
  int64_t left = index.documents;
  if (left > 0) LOCKSTEP_RETURN_IF_ERROR(next_document());
  for (int64_t sequence = 0;; ++sequence) {
    while (left > 0 && end == sequence) {
      if (with_ends) index.ends.push_back(index.tokens);
      if (--left > 0) LOCKSTEP_RETURN_IF_ERROR(next_document());
    }
    if (sequence == header.sequences) break;
    int32_t length = 0;
    LOCKSTEP_RETURN_IF_ERROR(lengths.Next(length));
    int64_t begin = 0;
    LOCKSTEP_RETURN_IF_ERROR(begins.Next(begin));
    const int64_t expected = index.tokens * token_bytes;
    if (begin != expected) {
      return Torn(file, begins.byte(),
                  absl::StrCat("sequence ", sequence, " should begin at byte ",
                               expected,
                               " of the .bin, where the one before it ends, "
                               "and begins at byte ",
                               begin));
    }
    if (length < 0 || length > (data_bytes - expected) / token_bytes) {
      return Torn(file, lengths.byte(),
                  absl::StrCat("sequence ", sequence, " should have 0 to ",
                               (data_bytes - expected) / token_bytes,
                               " tokens, which the .bin has from byte ", begin,
                               " on, and has ", length));
    }
    index.tokens += length;
  }
  if (end != header.sequences) {
    return Torn(
        file, documents.byte(),
        absl::StrCat("the last document should end with the last of ",
                     header.sequences, " sequences, and ends before ", end));
  }
  if (index.tokens * token_bytes != data_bytes) {
    return Torn(file, kHeaderBytes,
                absl::StrCat("the sequences have ", index.tokens, " tokens of ",
                             token_bytes, " bytes, and the .bin has ",
                             data_bytes, " bytes"));
  }
  return index;
}

}  // namespace lockstep::internal_loader
