#include "lockstep/base/npy_header.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/status_macros.h"

namespace lockstep {
namespace internal_base {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);

// The arrays of NumPy have fewer dimensions, and headers of about 100 bytes.
constexpr size_t kMostDimensions = 64;
constexpr int64_t kMostHeaderBytes = 1 << 20;

// The names that NumPy has for the types of elements, without the byte order.
struct Kind {
  absl::string_view kind;
  DType dtype;
};
constexpr Kind kKinds[] = {
    {"f8", DType::kF64}, {"f4", DType::kF32}, {"f2", DType::kF16},
    {"i1", DType::kI8},  {"i2", DType::kI16}, {"i4", DType::kI32},
    {"i8", DType::kI64}, {"u1", DType::kU8},  {"u2", DType::kU16},
    {"u4", DType::kU32}, {"u8", DType::kU64}, {"b1", DType::kBool},
};

struct Prefix {
  int version = 0;
  int64_t dictionary = 0;  // where it begins
  int64_t bytes = 0;       // of all
};

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | static_cast<uint8_t>(bytes[i - 1]);
  }
  return value;
}

absl::Status EndsEarly(size_t bytes) {
  return absl::DataLossError(
      absl::StrCat("ends at byte ", bytes,
                   ", within the header of a .npy file: it was truncated; "
                   "restore it"));
}

absl::StatusOr<Prefix> ParsePrefix(absl::string_view bytes) {
  const absl::string_view magic = bytes.substr(0, kMagic.size());
  if (magic != kMagic.substr(0, magic.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is no .npy file: it begins with '", absl::CHexEscape(magic),
        "', and should with '\\x93NUMPY'. Write it by numpy.save"));
  }
  if (bytes.size() < 8) return EndsEarly(bytes.size());
  const int version = static_cast<uint8_t>(bytes[6]);
  if (version < 1 || version > 3 || bytes[7] != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "byte 6: is of version ", version, ".", static_cast<uint8_t>(bytes[7]),
        " of the .npy format, and should be of 1.0, 2.0 or 3.0"));
  }
  Prefix prefix;
  prefix.version = version;
  prefix.dictionary = version == 1 ? 10 : 12;
  if (static_cast<int64_t>(bytes.size()) < prefix.dictionary) {
    return EndsEarly(bytes.size());
  }
  const auto length = static_cast<int64_t>(
      LittleEndian(bytes.substr(8, prefix.dictionary - 8)));
  if (length > kMostHeaderBytes) {
    return absl::DataLossError(
        absl::StrCat("byte 8: the header says that it has ", length,
                     " bytes, and can have ", kMostHeaderBytes, " at most"));
  }
  prefix.bytes = prefix.dictionary + length;
  return prefix;
}

// Returns the type that a text such as "<f4" means.
absl::StatusOr<DType> ParseDescription(absl::string_view text,
                                       std::optional<bool> bf16) {
  const absl::string_view kind = text.empty() ? text : text.substr(1);
  if (bf16 != false && (text == "<V2" || text == "|V2")) return DType::kBF16;
  if (bf16 == true) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has elements of '", absl::CHexEscape(text),
        "', and the option bf16 is for '<V2' and '|V2' alone; leave it out"));
  }
  for (const Kind& entry : kKinds) {
    if (entry.kind != kind) continue;
    const char order = text[0];
    if (order == '<' || order == '|' || order == '=') return entry.dtype;
    if (order != '>') break;
    if (SizeOf(entry.dtype) == 1) return entry.dtype;
    return absl::InvalidArgumentError(
        absl::StrCat("has big-endian elements, '", text,
                     "'; save it as little-endian: "
                     "numpy.save(path, array.astype('<",
                     kind, "'))"));
  }
  absl::string_view advice = "; convert it by array.astype before saving";
  if (kind == "V2") {
    advice = bf16.has_value()
                 ? "; if these are bfloat16, set the option bf16 of this file"
                 : "; if these are bfloat16, save them as little-endian";
  } else if (!kind.empty() && kind[0] == 'O') {
    advice =
        ", Python objects, which only Python can read; convert it to an array "
        "of numbers before saving";
  } else if (!kind.empty() && (kind[0] == 'U' || kind[0] == 'S')) {
    advice =
        ", strings; save numbers, such as the UTF-8 bytes padded to one length";
  }
  return absl::InvalidArgumentError(
      absl::StrCat("has elements of '", absl::CHexEscape(text), "'", advice,
                   ". Accepted are f8, f4, f2, i1, i2, i4, i8, u1, u2, u4, u8 "
                   "and b1 after '<', '|' or '='"));
}

// Parses a dictionary such as
// {'descr': '<f4', 'fortran_order': False, 'shape': (4, 2, 3), }
// Thread-safety: thread-compatible.
class Parser {
 public:
  Parser(absl::string_view text, const Prefix& prefix, std::optional<bool> bf16)
      : text_(text),
        at_(prefix.dictionary),
        // Python 2 wrote numbers such as 3L.
        long_numbers_(prefix.version < 3),
        bf16_(bf16) {}

  absl::StatusOr<NpyHeader> Parse() {
    LOCKSTEP_RETURN_IF_ERROR(Expect('{'));
    while (!Accept('}')) {
      LOCKSTEP_RETURN_IF_ERROR(ParseEntry());
      if (Accept(',')) continue;
      LOCKSTEP_RETURN_IF_ERROR(Expect('}'));
      break;
    }
    SkipBlanks();
    if (at_ < text_.size()) return Wrong("blanks up to the end of the header");
    if (!has_descr_) return Missing("descr");
    if (!has_order_) return Missing("fortran_order");
    if (!has_shape_) return Missing("shape");
    LOCKSTEP_RETURN_IF_ERROR(CountBytes());
    return header_;
  }

 private:
  absl::Status Wrong(absl::string_view expected) const {
    return absl::DataLossError(absl::StrCat(
        "byte ", at_, " of the header should be ", expected, ", but is ",
        at_ < text_.size()
            ? absl::StrCat("'", absl::CHexEscape(text_.substr(at_, 1)), "'")
            : std::string("its end"),
        ": it is corrupt, or not NumPy's"));
  }

  static absl::Status Missing(absl::string_view key) {
    return absl::DataLossError(
        absl::StrCat("the header has no '", key,
                     "', but should have 'descr', 'fortran_order' and 'shape': "
                     "it is corrupt, or not NumPy's"));
  }

  void SkipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' ||
                                  text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  // Returns the next byte after blanks, or 0 at the end.
  char Peek() {
    SkipBlanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  bool Accept(char c) {
    if (Peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }

  absl::Status Expect(char c) {
    if (Accept(c)) return absl::OkStatus();
    const char expected[] = {'\'', c, '\''};
    return Wrong(absl::string_view(expected, sizeof(expected)));
  }

  absl::Status ParseString(absl::string_view what, absl::string_view& out) {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return Wrong(what);
    const size_t begin = ++at_;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\' || text_[at_] == '\n') {
        return Wrong("a character without escapes");
      }
      ++at_;
    }
    if (at_ == text_.size()) return Wrong("the closing quote of a string");
    out = text_.substr(begin, at_ - begin);
    ++at_;
    return absl::OkStatus();
  }

  absl::Status ParseEntry() {
    SkipBlanks();
    const size_t begin = at_;
    absl::string_view key;
    LOCKSTEP_RETURN_IF_ERROR(ParseString("a key in quotes, or '}'", key));
    bool* const seen = key == "descr"           ? &has_descr_
                       : key == "fortran_order" ? &has_order_
                       : key == "shape"         ? &has_shape_
                                                : nullptr;
    if (seen == nullptr || *seen) {
      return absl::DataLossError(absl::StrCat(
          "byte ", begin, " of the header: the key '", absl::CHexEscape(key),
          seen == nullptr ? "' is not one of 'descr', 'fortran_order' and "
                            "'shape': it is corrupt, or not NumPy's"
                          : "' comes twice"));
    }
    *seen = true;
    LOCKSTEP_RETURN_IF_ERROR(Expect(':'));
    if (seen == &has_descr_) return ParseDescr();
    return seen == &has_order_ ? ParseOrder() : ParseShape();
  }

  absl::Status ParseDescr() {
    const char next = Peek();
    if (next == '[' || next == '(') {
      return absl::InvalidArgumentError(
          absl::StrCat("byte ", at_,
                       " of the header: has structured elements; save each of "
                       "their fields as a file of its own"));
    }
    const size_t begin = at_;
    absl::string_view text;
    LOCKSTEP_RETURN_IF_ERROR(ParseString("the dtype in quotes", text));
    const absl::StatusOr<DType> dtype = ParseDescription(text, bf16_);
    if (!dtype.ok()) {
      return Annotate(dtype.status(),
                      absl::StrCat("byte ", begin, " of the header"));
    }
    header_.dtype = *dtype;
    return absl::OkStatus();
  }

  absl::Status ParseOrder() {
    SkipBlanks();
    for (const bool value : {false, true}) {
      const absl::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      header_.fortran_order = value;
      return absl::OkStatus();
    }
    return Wrong("True or False");
  }

  absl::Status ParseShape() {
    LOCKSTEP_RETURN_IF_ERROR(Expect('('));
    while (!Accept(')')) {
      LOCKSTEP_RETURN_IF_ERROR(ParseDimension());
      if (Accept(',')) continue;
      // In Python, (3) is a number and not a tuple.
      if (header_.shape.size() == 1) return Wrong("','");
      LOCKSTEP_RETURN_IF_ERROR(Expect(')'));
      break;
    }
    return absl::OkStatus();
  }

  absl::Status ParseDimension() {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    SkipBlanks();
    const size_t begin = at_;
    int64_t value = 0;
    while (at_ < text_.size() && absl::ascii_isdigit(text_[at_])) {
      const int digit = text_[at_] - '0';
      if (value > (kMost - digit) / 10) return TooLarge(begin);
      value = value * 10 + digit;
      ++at_;
    }
    if (at_ == begin) return Wrong("a number of 0 or more, or ')'");
    if (text_[begin] == '0' && at_ - begin > 1) {
      at_ = begin;
      return Wrong("a number without leading zeros");
    }
    if (long_numbers_ && at_ < text_.size() && text_[at_] == 'L') ++at_;
    if (header_.shape.size() == kMostDimensions) {
      return absl::DataLossError(absl::StrCat("byte ", begin,
                                              " of the header: has more than ",
                                              kMostDimensions, " dimensions"));
    }
    header_.shape.push_back(value);
    return absl::OkStatus();
  }

  static absl::Status TooLarge(size_t at) {
    return absl::DataLossError(
        absl::StrCat("byte ", at,
                     " of the header: the shape has more elements than any "
                     "file: it is corrupt"));
  }

  // Dimensions of 0 are counted as 1 here, so that no product of some of the
  // dimensions overflows.
  absl::Status CountBytes() {
    int64_t bytes = SizeOf(header_.dtype);
    bool empty = false;
    for (const int64_t dimension : header_.shape) {
      if (dimension == 0) {
        empty = true;
      } else if (bytes > std::numeric_limits<int64_t>::max() / 2 / dimension) {
        return TooLarge(text_.find("shape"));
      } else {
        bytes *= dimension;
      }
    }
    header_.data_bytes = empty ? 0 : bytes;
    return absl::OkStatus();
  }

  const absl::string_view text_;
  size_t at_;
  const bool long_numbers_;
  const std::optional<bool> bf16_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
  NpyHeader header_;
};

}  // namespace

absl::StatusOr<int64_t> NpyHeaderBytes(absl::string_view prefix) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Prefix parsed, ParsePrefix(prefix));
  return parsed.bytes;
}

absl::StatusOr<NpyHeader> ParseNpyHeader(absl::string_view header,
                                         std::optional<bool> bf16) {
  LOCKSTEP_ASSIGN_OR_RETURN(const Prefix prefix, ParsePrefix(header));
  if (static_cast<int64_t>(header.size()) < prefix.bytes) {
    return EndsEarly(header.size());
  }
  return Parser(header.substr(0, prefix.bytes), prefix, bf16).Parse();
}

std::string FormatNpyHeader(DType dtype, absl::Span<const int64_t> shape) {
  absl::string_view kind = "V2";
  for (const Kind& entry : kKinds) {
    if (entry.dtype == dtype) kind = entry.kind;
  }
  std::string dictionary = absl::StrCat(
      "{'descr': '", SizeOf(dtype) == 1 ? "|" : "<", kind,
      "', 'fortran_order': False, 'shape': (", absl::StrJoin(shape, ", "),
      // In Python, (3) is a number and not a tuple.
      shape.size() == 1 ? ",), }" : "), }");
  // The array begins at a multiple of 64 bytes, behind the end of a line.
  constexpr size_t kBefore = 10;
  constexpr size_t kAlignment = 64;
  const size_t used = (kBefore + dictionary.size() + 1) % kAlignment;
  dictionary.append(used == 0 ? 0 : kAlignment - used, ' ');
  dictionary += '\n';
  const char version_and_length[] = {1, 0, static_cast<char>(dictionary.size()),
                                     static_cast<char>(dictionary.size() >> 8)};
  return absl::StrCat(
      kMagic, absl::string_view(version_and_length, sizeof(version_and_length)),
      dictionary);
}

}  // namespace internal_base
}  // namespace lockstep
