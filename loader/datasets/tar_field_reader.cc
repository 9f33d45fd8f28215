#include "lockstep/loader/datasets/tar_field_reader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/npy_header.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/datasets/json_number.h"

namespace lockstep::internal_loader {
namespace {

using ::lockstep::internal_base::kNpyPrefixBytes;
using ::lockstep::internal_base::NpyHeader;
using ::lockstep::internal_base::NpyHeaderBytes;
using ::lockstep::internal_base::ParseNpyHeader;

// The most bytes of a number as text, and of the header of an array.
constexpr int64_t kMostNumber = 512;
constexpr int64_t kMostNpyHeader = 65536;

absl::Status Wrong(const TarField& options, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tar: field '", options.field, "': ", what));
}

TarContent ContentOf(const TarField& options) {
  if (options.content.has_value()) return *options.content;
  if (!options.json_key.empty()) return TarContent::kNumber;
  const std::string& extension = options.extensions[0];
  if (absl::EqualsIgnoreCase(extension, "npy")) return TarContent::kArray;
  for (const char* const number : {"cls", "cls2", "id", "index", "inx"}) {
    if (absl::EqualsIgnoreCase(extension, number)) return TarContent::kNumber;
  }
  return TarContent::kBytes;
}

template <typename T>
bool StoreInteger(absl::string_view text, char* to) {
  // Some programs write 7 as 7.0.
  const size_t zeros = text.find_last_not_of('0') + 1;
  if (zeros > 1 && zeros < text.size() && text[zeros - 1] == '.') {
    text = text.substr(0, zeros - 1);
  }
  using Wide = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  Wide wide = 0;
  if (!absl::SimpleAtoi(text, &wide) || wide < std::numeric_limits<T>::min() ||
      wide > std::numeric_limits<T>::max()) {
    return false;
  }
  const auto value = static_cast<T>(wide);
  std::memcpy(to, &value, sizeof(value));
  return true;
}

// Returns false for digits that stand for a number too large for the type, and
// for those of base 16.
template <typename T>
bool StoreFloat(T value, absl::string_view text, char* to) {
  if ((std::isinf(value) && text.find_first_of("0123456789") != text.npos) ||
      text.find_first_of("xX") != text.npos) {
    return false;
  }
  std::memcpy(to, &value, sizeof(value));
  return true;
}

// Writes a number of that type. Returns false if the text is none.
bool StoreNumber(absl::string_view text, DType dtype, char* to) {
  switch (dtype) {
    case DType::kI8:
      return StoreInteger<int8_t>(text, to);
    case DType::kI16:
      return StoreInteger<int16_t>(text, to);
    case DType::kI32:
      return StoreInteger<int32_t>(text, to);
    case DType::kI64:
      return StoreInteger<int64_t>(text, to);
    case DType::kU8:
      return StoreInteger<uint8_t>(text, to);
    case DType::kU16:
      return StoreInteger<uint16_t>(text, to);
    case DType::kU32:
      return StoreInteger<uint32_t>(text, to);
    case DType::kU64:
      return StoreInteger<uint64_t>(text, to);
    case DType::kF32: {
      float value = 0;
      return absl::SimpleAtof(text, &value) && StoreFloat(value, text, to);
    }
    case DType::kF64: {
      double value = 0;
      return absl::SimpleAtod(text, &value) && StoreFloat(value, text, to);
    }
    case DType::kBool:
      *to = text == "true" || text == "1" ? 1 : 0;
      return *to == 1 || text == "false" || text == "0";
    default:
      return false;
  }
}

bool HasNumbers(DType dtype) {
  return dtype != DType::kF16 && dtype != DType::kBF16;
}

// Returns true if an array has such a shape, in which -1 stands for any number.
bool Fits(const std::vector<int64_t>& array,
          const std::vector<int64_t>& shape) {
  return std::equal(array.begin(), array.end(), shape.begin(), shape.end(),
                    [](int64_t a, int64_t b) { return b == -1 || a == b; });
}

std::string PlaceOf(const TarSource& source, const ShardMember& member,
                    absl::Span<const char> header) {
  return absl::StrCat("'", source.path, "', byte ", member.offset - kTarBlock,
                      ", member ", ShownName(header));
}

absl::Status InMember(const TarSource& source, const ShardMember& member,
                      absl::Span<const char> header,
                      const absl::Status& status) {
  return Annotate(status, PlaceOf(source, member, header));
}

absl::Status Moved(const TarSource& source, const ShardMember& member,
                   absl::Span<const char> header) {
  const std::string index = IndexPath(source.path);
  return absl::DataLossError(absl::StrCat(
      "'", source.path, "', byte ", member.offset - kTarBlock, ": there is ",
      ShownName(header), ", and not the header of the member of ", member.size,
      " bytes that should be there: ",
      source.has_index
          ? absl::StrCat("remove its index '", index,
                         "', which belongs to another file, and start again")
          : "the file was changed; start again"));
}

absl::Status CheckHeader(const TarSource& source, const ShardMember& member,
                         absl::Span<const char> header) {
  return IsHeaderOf(header, member.mark, member.has_size ? member.size : -1)
             ? absl::OkStatus()
             : Moved(source, member, header);
}

// Reads the header of a member and the begin of its content.
absl::Status ReadMember(const TarSource& source, const ShardMember& member,
                        absl::Span<char> header, absl::Span<char> content) {
  const absl::Span<char> parts[] = {header, content};
  LOCKSTEP_RETURN_IF_ERROR(
      source.file.ReadAt(member.offset - kTarBlock, parts));
  return CheckHeader(source, member, header);
}

// Reads the header of the array in a member.
absl::StatusOr<std::string> ReadNpyHeader(const TarSource& source,
                                          const ShardMember& member) {
  char prefix[kNpyPrefixBytes];
  const absl::Span<char> begin(
      prefix, static_cast<size_t>(std::min(member.size, kNpyPrefixBytes)));
  LOCKSTEP_RETURN_IF_ERROR(source.file.ReadAt(member.offset, begin));
  LOCKSTEP_ASSIGN_OR_RETURN(
      const int64_t bytes,
      NpyHeaderBytes(absl::string_view(begin.data(), begin.size())));
  if (bytes > std::min(member.size, kMostNpyHeader)) {
    return absl::DataLossError(absl::StrCat(
        "the header of its array should have ", bytes, " bytes, and there are ",
        member.size, ", of which at most ", kMostNpyHeader, " are read"));
  }
  std::string header(static_cast<size_t>(bytes), '\0');
  LOCKSTEP_RETURN_IF_ERROR(source.file.ReadAt(
      member.offset, absl::MakeSpan(&header[0], header.size())));
  return header;
}

}  // namespace

// ---- Making it.

absl::Status TarFieldReader::Check(const TarField& options) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (options.extensions.empty()) {
    return Wrong(options,
                 "there are no extensions: say which members it has, "
                 "such as [\"jpg\", \"png\"]");
  }
  for (const std::string& extension : options.extensions) {
    if (extension.empty() || extension[0] == '.' ||
        absl::StrContains(extension, "/")) {
      return Wrong(options,
                   absl::StrCat("the extension '", absl::CHexEscape(extension),
                                "' should be what follows the first dot of a "
                                "name, such as 'jpg' or 'seg.png'"));
    }
  }
  if (options.max_bytes < 0 || options.max_bytes > kMost) {
    return Wrong(options, absl::StrCat("max_bytes should be 0 (as the largest "
                                       "member) to 2^40, and is ",
                                       options.max_bytes));
  }
  const TarContent content = ContentOf(options);
  if (content != TarContent::kNumber && !options.json_key.empty()) {
    return Wrong(options,
                 "json_key is for numbers: leave out `content`, or set it to "
                 "number");
  }
  if (content == TarContent::kBytes &&
      options.dtype.value_or(DType::kU8) != DType::kU8) {
    return Wrong(options, absl::StrCat("bytes have the dtype u8, and dtype is ",
                                       Name(*options.dtype),
                                       ": set content = \"number\" "
                                       "for numbers as text"));
  }
  if (content == TarContent::kNumber &&
      !HasNumbers(options.dtype.value_or(DType::kI64))) {
    return Wrong(options,
                 absl::StrCat("numbers are integers, f32, f64 or bool, "
                              "and dtype is ",
                              Name(*options.dtype)));
  }
  if (content != TarContent::kArray && options.shape.has_value()) {
    return Wrong(options,
                 "shape is for arrays: leave it out, or set content = "
                 "\"array\"");
  }
  return absl::OkStatus();
}

absl::StatusOr<TarFieldReader> TarFieldReader::Create(
    const TarField& options, int64_t largest, const TarSource& source,
    const ShardMember& first) {
  TarFieldReader reader;
  reader.content_ = ContentOf(options);
  reader.json_key_ = options.json_key;
  FieldSpec& spec = reader.spec_;
  spec.name = options.field;
  const int64_t most = options.max_bytes > 0 ? options.max_bytes : largest;
  switch (reader.content_) {
    case TarContent::kBytes:
      spec.dtype = DType::kU8;
      spec.shape = {-1};
      spec.max_elements = std::max(most, int64_t{1});
      break;
    case TarContent::kNumber: {
      spec.dtype = options.dtype.value_or(DType::kI64);
      reader.may_be_empty_ = options.missing == TarMissing::kEmpty;
      // Mistakes in the settings show at the first number.
      char number[8];
      LOCKSTEP_RETURN_IF_ERROR(
          reader.ReadNumber(source, first, absl::MakeSpan(number)));
      break;
    }
    case TarContent::kArray:
      LOCKSTEP_RETURN_IF_ERROR(reader.Learn(options, most, source, first));
      break;
  }
  reader.is_ragged_ = spec.ragged();
  return reader;
}

// Takes the type and the shape of arrays from the first one.
absl::Status TarFieldReader::Learn(const TarField& options, int64_t largest,
                                   const TarSource& source,
                                   const ShardMember& first) {
  char header[kTarBlock];
  LOCKSTEP_RETURN_IF_ERROR(
      ReadMember(source, first, absl::MakeSpan(header), {}));
  const auto learn = [&]() -> absl::Status {
    LOCKSTEP_ASSIGN_OR_RETURN(npy_header_, ReadNpyHeader(source, first));
    LOCKSTEP_ASSIGN_OR_RETURN(
        first_, ParseNpyHeader(npy_header_, /*bf16=*/std::nullopt));
    spec_.dtype = options.dtype.value_or(first_.dtype);
    spec_.shape = options.shape.value_or(first_.shape);
    if (spec_.ragged()) {
      std::vector<int64_t> least = spec_.shape;
      std::replace(least.begin(), least.end(), int64_t{-1}, int64_t{1});
      spec_.max_elements =
          std::max(largest / SizeOf(spec_.dtype), CountElements(least));
    }
    const absl::Status status = CheckArray(
        first_, first.size - static_cast<int64_t>(npy_header_.size()));
    // The settings are wrong, and not the file.
    return absl::IsDataLoss(status) &&
                   (options.dtype.has_value() || options.shape.has_value())
               ? Wrong(options, status.message())
               : status;
  };
  const absl::Status status = learn();
  return status.ok() ? status : InMember(source, first, header, status);
}

// ---- Reading.

absl::StatusOr<absl::Span<char>> TarFieldReader::Begin(
    const ShardMember& member, int field, SampleRow& row,
    absl::Span<char> scratch) const {
  if (content_ == TarContent::kBytes) {
    return row.MutableRaggedBytes(field, {member.size});
  }
  return scratch.first(static_cast<size_t>(std::min(member.size, kScratch)));
}

absl::Status TarFieldReader::End(const TarSource& source,
                                 const ShardMember& member,
                                 absl::Span<const char> header,
                                 absl::Span<const char> content, int field,
                                 SampleRow& row) const {
  LOCKSTEP_RETURN_IF_ERROR(CheckHeader(source, member, header));
  if (content_ == TarContent::kBytes) return absl::OkStatus();
  absl::Status status;
  if (content_ == TarContent::kArray) {
    status = WriteArray(source, member, content, field, row);
  } else {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> out,
                              row.MutableBytes(field));
    status = WriteNumber(source, member, content, out);
  }
  return status.ok() ? status : InMember(source, member, header, status);
}

absl::Status TarFieldReader::WriteEmpty(int field, SampleRow& row) const {
  if (!is_ragged_) {
    LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> out,
                              row.MutableBytes(field));
    std::fill(out.begin(), out.end(), '\0');
    return absl::OkStatus();
  }
  std::array<int64_t, kMaxDimensions> shape = {};
  for (size_t i = 0; i < spec_.shape.size(); ++i) {
    shape[i] = std::max<int64_t>(spec_.shape[i], 0);
  }
  return row
      .MutableRaggedBytes(field,
                          absl::MakeConstSpan(shape).first(spec_.shape.size()))
      .status();
}

std::string TarFieldReader::PlaceOfMember(const TarSource& source,
                                          const ShardMember& member) {
  if (member.size < 0) return absl::StrCat("'", source.path, "'");
  std::array<char, kTarBlock> header = {};
  absl::Span<char> none;
  if (!ReadMember(source, member, absl::MakeSpan(header), none).ok()) {
    return absl::StrCat("'", source.path, "', byte ",
                        member.offset - kTarBlock);
  }
  return PlaceOf(source, member, header);
}

absl::Status TarFieldReader::ReadNumber(const TarSource& source,
                                        const ShardMember& member,
                                        absl::Span<char> out) const {
  if (member.size < 0) {
    std::fill(out.begin(), out.end(), '\0');
    return absl::OkStatus();
  }
  char header[kTarBlock];
  char scratch[kScratch];
  const absl::Span<char> content(
      scratch, static_cast<size_t>(std::min(member.size, kScratch)));
  LOCKSTEP_RETURN_IF_ERROR(
      ReadMember(source, member, absl::MakeSpan(header), content));
  const absl::Status status = WriteNumber(source, member, content, out);
  return status.ok() ? status : InMember(source, member, header, status);
}

// Writes the number of a member that begins with `content`.
absl::Status TarFieldReader::WriteNumber(const TarSource& source,
                                         const ShardMember& member,
                                         absl::Span<const char> content,
                                         absl::Span<char> out) const {
  absl::string_view text(content.data(), content.size());
  std::string whole;
  if (!json_key_.empty()) {
    if (member.size > kScratch) {
      whole.resize(static_cast<size_t>(member.size));
      LOCKSTEP_RETURN_IF_ERROR(source.file.ReadAt(
          member.offset, absl::MakeSpan(&whole[0], whole.size())));
      text = whole;
    }
    const absl::StatusOr<absl::string_view> found =
        FindJsonNumber(text, json_key_);
    if (absl::IsNotFound(found.status())) {
      if (may_be_empty_) {
        std::fill(out.begin(), out.end(), '\0');
        return absl::OkStatus();
      }
      return absl::DataLossError(absl::StrCat(
          found.status().message(), " for field '", spec_.name,
          "': correct its json_key, or set missing = \"empty\" to have 0 "
          "there"));
    }
    LOCKSTEP_RETURN_IF_ERROR(found.status());
    text = *found;
  } else if (member.size > kMostNumber) {
    return absl::DataLossError(
        absl::StrCat("field '", spec_.name, "' is a number of type ",
                     Name(spec_.dtype), ", and there are more than ",
                     kMostNumber, " bytes: set content = \"bytes\" for texts"));
  } else {
    text = absl::StripAsciiWhitespace(text);
  }
  if (StoreNumber(text, spec_.dtype, out.data())) return absl::OkStatus();
  double number = 0;
  const char* remedy = ": store a number there";
  if (absl::SimpleAtod(text, &number)) {
    remedy = ": set its dtype, such as \"f32\", to one that holds all numbers";
  } else if (json_key_.empty()) {
    remedy = ": store a number there, or set content = \"bytes\" for texts";
  }
  return absl::DataLossError(absl::StrCat(
      "field '", spec_.name, "' is a number of type ", Name(spec_.dtype),
      ", and there is '", absl::CHexEscape(text.substr(0, 64)), "'",
      json_key_.empty() ? "" : absl::StrCat(" at '", json_key_, "'"), remedy));
}

// Checks that an array, which has `bytes` bytes, is of the field.
absl::Status TarFieldReader::CheckArray(const NpyHeader& array,
                                        int64_t bytes) const {
  if (array.dtype != spec_.dtype || !Fits(array.shape, spec_.shape)) {
    return absl::DataLossError(absl::StrCat(
        "it has an array of ", Name(array.dtype), "[",
        absl::StrJoin(array.shape, ","), "], and the field is ",
        spec_.ToString(),
        is_ragged_ ? "" : ": set its shape, with -1 for what differs"));
  }
  if (array.fortran_order && array.shape.size() > 1) {
    return absl::UnimplementedError(
        "its array is in Fortran order: save it by numpy.ascontiguousarray");
  }
  if (array.data_bytes != bytes) {
    return absl::DataLossError(absl::StrCat("its array has ", array.data_bytes,
                                            " bytes, and ", bytes,
                                            " follow the header"));
  }
  return absl::OkStatus();
}

// Writes the array of a member that begins with `head`.
absl::Status TarFieldReader::WriteArray(const TarSource& source,
                                        const ShardMember& member,
                                        absl::Span<const char> head, int field,
                                        SampleRow& row) const {
  auto header_bytes = static_cast<int64_t>(npy_header_.size());
  const NpyHeader* array = &first_;
  NpyHeader other;
  if (!absl::StartsWith(absl::string_view(head.data(), head.size()),
                        npy_header_)) {
    LOCKSTEP_ASSIGN_OR_RETURN(const std::string header,
                              ReadNpyHeader(source, member));
    LOCKSTEP_ASSIGN_OR_RETURN(other,
                              ParseNpyHeader(header, /*bf16=*/std::nullopt));
    header_bytes = static_cast<int64_t>(header.size());
    array = &other;
  }
  LOCKSTEP_RETURN_IF_ERROR(CheckArray(*array, member.size - header_bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(const absl::Span<char> out,
                            row.MutableRaggedBytes(field, array->shape));
  const auto skip = std::min(static_cast<size_t>(header_bytes), head.size());
  const absl::Span<const char> begun = head.subspan(skip);
  std::copy(begun.begin(), begun.end(), out.begin());
  const int64_t at = std::max(header_bytes, static_cast<int64_t>(head.size()));
  LOCKSTEP_RETURN_IF_ERROR(
      source.file.ReadAt(member.offset + at, out.subspan(begun.size())));
  if (spec_.dtype == DType::kBool) {
    // Other bytes than 0 and 1 are true in NumPy, and undefined in C++.
    for (char& byte : out) byte = byte != 0 ? 1 : 0;
  }
  return absl::OkStatus();
}

}  // namespace lockstep::internal_loader
