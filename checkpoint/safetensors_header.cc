#include "lockstep/checkpoint/safetensors_header.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/json.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/utf8.h"

namespace lockstep::internal_checkpoint {
namespace {

using ::lockstep::internal_base::AppendJson;
using ::lockstep::internal_base::Utf8Of;

constexpr char kMetadata[] = "__metadata__";

// The package writes arrays in the order of their types in this table. Types
// with larger elements come first, so all arrays are aligned.
struct Type {
  absl::string_view name;
  DType dtype;
};
constexpr Type kTypes[] = {
    {"U64", DType::kU64},   {"I64", DType::kI64}, {"F64", DType::kF64},
    {"F32", DType::kF32},   {"U32", DType::kU32}, {"I32", DType::kI32},
    {"BF16", DType::kBF16}, {"F16", DType::kF16}, {"U16", DType::kU16},
    {"I16", DType::kI16},   {"I8", DType::kI8},   {"U8", DType::kU8},
    {"BOOL", DType::kBool},
};

std::string TypeNames() {
  return absl::StrJoin(kTypes, ", ", [](std::string* out, const Type& type) {
    absl::StrAppend(out, type.name);
  });
}

uint64_t LittleEndian(absl::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) {
    value = value << 8 | static_cast<uint8_t>(bytes[i - 1]);
  }
  return value;
}

void AppendUtf8(uint32_t code, std::string& out) {
  const auto append = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    append(code);
    return;
  }
  if (code < 0x800) {
    append(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      append(0xe0 | code >> 12);
    } else {
      append(0xf0 | code >> 18);
      append(0x80 | (code >> 12 & 0x3f));
    }
    append(0x80 | (code >> 6 & 0x3f));
  }
  append(0x80 | (code & 0x3f));
}

// Parses an object such as
// {"bias":{"dtype":"F32","shape":[10],"data_offsets":[0,40]}}
// Positions are those of the file.
// Thread-safety: thread-compatible.
class Parser {
 public:
  Parser(absl::string_view header, int64_t file_bytes)
      : text_(header),
        data_begin_(static_cast<int64_t>(header.size())),
        data_bytes_(file_bytes - data_begin_),
        at_(kSafetensorsPrefixBytes) {}

  absl::StatusOr<std::vector<SafetensorsArray>> Parse() {
    if (at_ == text_.size() || text_[at_] != '{') {
      return absl::InvalidArgumentError(
          absl::StrCat("is no .safetensors file: byte ", at_,
                       " should be '{', but is ", Shown()));
    }
    LOCKSTEP_RETURN_IF_ERROR(ParseObject(
        names_, [this](const std::string& name) { return ParseEntry(name); }));
    SkipBlanks();
    if (at_ < text_.size()) return Wrong("a blank, up to the header's end");
    LOCKSTEP_RETURN_IF_ERROR(CheckPlaces());
    return std::move(arrays_);
  }

 private:
  // Describes the next byte.
  std::string Shown() const {
    return at_ < text_.size()
               ? absl::StrCat("'", absl::CHexEscape(text_.substr(at_, 1)), "'")
               : "the header's end";
  }

  absl::Status Wrong(absl::string_view expected) const {
    return absl::DataLossError(absl::StrCat("byte ", at_, " should be ",
                                            expected, ", but is ", Shown(),
                                            ": the file is corrupt"));
  }

  static absl::Status Corrupt(size_t at, absl::string_view how) {
    return absl::DataLossError(
        absl::StrCat("byte ", at, ": ", how, ": the file is corrupt"));
  }

  void SkipBlanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' ||
                                  text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool Accept(char c) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  absl::Status Expect(char c) {
    if (Accept(c)) return absl::OkStatus();
    const char expected[] = {'\'', c, '\''};
    return Wrong(absl::string_view(expected, sizeof(expected)));
  }

  // Calls `parse_value` for each key of an object, and adds the keys to `keys`.
  template <typename ParseValue>
  absl::Status ParseObject(std::set<std::string>& keys,
                           ParseValue parse_value) {
    LOCKSTEP_RETURN_IF_ERROR(Expect('{'));
    if (Accept('}')) return absl::OkStatus();
    do {
      SkipBlanks();
      const size_t begin = at_;
      std::string key;
      LOCKSTEP_RETURN_IF_ERROR(ParseString("a name in quotes", key));
      if (!keys.insert(key).second) {
        return Corrupt(begin, absl::StrCat("the name '", absl::CHexEscape(key),
                                           "' comes twice"));
      }
      LOCKSTEP_RETURN_IF_ERROR(Expect(':'));
      LOCKSTEP_RETURN_IF_ERROR(parse_value(key));
    } while (Accept(','));
    return Expect('}');
  }

  absl::Status ParseString(absl::string_view what, std::string& out) {
    SkipBlanks();
    const size_t begin = at_;
    if (at_ == text_.size() || text_[at_] != '"') return Wrong(what);
    ++at_;
    out.clear();
    for (;; ++at_) {
      if (at_ == text_.size()) return Wrong("a quote that ends a string");
      const char c = text_[at_];
      if (c == '"') break;
      if (static_cast<unsigned char>(c) < 0x20) {
        return Wrong("escaped, as a control character");
      }
      if (c == '\\') {
        LOCKSTEP_RETURN_IF_ERROR(ParseEscape(out));
      } else {
        out += c;
      }
    }
    ++at_;
    if (Utf8Of(out) != out) return Corrupt(begin, "the string is not in UTF-8");
    return absl::OkStatus();
  }

  // Parses from a backslash on, and stays at the last byte of the escape.
  absl::Status ParseEscape(std::string& out) {
    constexpr absl::string_view kEscapes = "\"\\/bfnrt";
    constexpr absl::string_view kMeanings = "\"\\/\b\f\n\r\t";
    ++at_;
    const char c = at_ < text_.size() ? text_[at_] : '\0';
    if (const size_t found = kEscapes.find(c); found != kEscapes.npos) {
      out += kMeanings[found];
      return absl::OkStatus();
    }
    if (c != 'u') return Wrong("one of \"\\/bfnrtu behind a backslash");
    const size_t begin = at_ - 1;
    uint32_t code = 0;
    LOCKSTEP_RETURN_IF_ERROR(ParseHexadecimal(code));
    // A character beyond 0xffff is a pair of surrogates.
    if (code >= 0xd800 && code < 0xdc00 &&
        text_.substr(at_ + 1, 2) == absl::string_view("\\u")) {
      at_ += 2;
      uint32_t second = 0;
      LOCKSTEP_RETURN_IF_ERROR(ParseHexadecimal(second));
      if (second >= 0xdc00 && second < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (second - 0xdc00);
      }
    }
    if (code >= 0xd800 && code < 0xe000) {
      return Corrupt(begin, "half of a pair of surrogates stands alone");
    }
    AppendUtf8(code, out);
    return absl::OkStatus();
  }

  // Parses four digits behind the 'u', and stays at the last one.
  absl::Status ParseHexadecimal(uint32_t& code) {
    for (int i = 0; i < 4; ++i) {
      ++at_;
      if (at_ == text_.size() ||
          !absl::ascii_isxdigit(static_cast<unsigned char>(text_[at_]))) {
        return Wrong("one of four hexadecimal digits");
      }
      const char c = absl::ascii_tolower(text_[at_]);
      code =
          code << 4 | static_cast<uint32_t>(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return absl::OkStatus();
  }

  absl::Status ParseNumber(int64_t& value) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    SkipBlanks();
    const size_t begin = at_;
    value = 0;
    for (; at_ < text_.size() && absl::ascii_isdigit(text_[at_]); ++at_) {
      const int digit = text_[at_] - '0';
      if (value > (kMost - digit) / 10) {
        return Corrupt(begin, "the number is larger than any file");
      }
      value = value * 10 + digit;
    }
    if (at_ == begin) return Wrong("a whole number of 0 or more");
    if (text_[begin] == '0' && at_ - begin > 1) {
      at_ = begin;
      return Wrong("a number without leading zeros");
    }
    return absl::OkStatus();
  }

  absl::Status ParseNumbers(std::vector<int64_t>& out) {
    LOCKSTEP_RETURN_IF_ERROR(Expect('['));
    if (Accept(']')) return absl::OkStatus();
    do {
      LOCKSTEP_RETURN_IF_ERROR(ParseNumber(out.emplace_back()));
    } while (Accept(','));
    return Expect(']');
  }

  absl::Status ParseType(const std::string& name, DType& dtype) {
    SkipBlanks();
    const size_t begin = at_;
    std::string text;
    LOCKSTEP_RETURN_IF_ERROR(ParseString("a type in quotes", text));
    for (const Type& type : kTypes) {
      if (type.name != text) continue;
      dtype = type.dtype;
      return absl::OkStatus();
    }
    return absl::UnimplementedError(
        absl::StrCat("byte ", begin, ": the array '", absl::CHexEscape(name),
                     "' has elements of the type '", absl::CHexEscape(text),
                     "'; convert it to one of ", TypeNames()));
  }

  absl::Status ParseMetadata() {
    std::set<std::string> keys;
    return ParseObject(keys, [this](const std::string&) {
      std::string ignored;
      return ParseString("a text in quotes", ignored);
    });
  }

  absl::Status ParseEntry(const std::string& name) {
    SkipBlanks();
    const size_t begin = at_;
    if (name == kMetadata) return ParseMetadata();
    SafetensorsArray array;
    array.name = name;
    std::vector<int64_t> offsets;
    std::set<std::string> keys;
    LOCKSTEP_RETURN_IF_ERROR(
        ParseObject(keys, [&](const std::string& key) -> absl::Status {
          if (key == "dtype") return ParseType(name, array.dtype);
          if (key == "shape") return ParseNumbers(array.shape);
          if (key == "data_offsets") return ParseNumbers(offsets);
          return Corrupt(begin,
                         absl::StrCat("the array '", absl::CHexEscape(name),
                                      "' has the key '", absl::CHexEscape(key),
                                      "', but should have 'dtype', 'shape' and "
                                      "'data_offsets'"));
        }));
    if (keys.size() != 3 || offsets.size() != 2) {
      return Corrupt(begin,
                     absl::StrCat("the array '", absl::CHexEscape(name),
                                  "' should have 'dtype', 'shape', and two "
                                  "numbers as 'data_offsets'"));
    }
    LOCKSTEP_RETURN_IF_ERROR(Place(offsets[0], offsets[1], begin, array));
    arrays_.push_back(std::move(array));
    return absl::OkStatus();
  }

  // Checks the offsets of an array, which count from the end of the header, and
  // that there are as many bytes as the shape says.
  absl::Status Place(int64_t first, int64_t end, size_t at,
                     SafetensorsArray& array) const {
    if (first > end) {
      return Corrupt(at,
                     absl::StrCat("the array '", absl::CHexEscape(array.name),
                                  "' begins at ", first,
                                  " of the data, and ends before, at ", end));
    }
    if (end > data_bytes_) {
      return absl::DataLossError(absl::StrCat(
          "byte ", at, ": the array '", absl::CHexEscape(array.name),
          "' ends at ", end, " of the data, which has ", data_bytes_,
          " bytes: the file was truncated; restore it"));
    }
    array.offset = data_begin_ + first;
    array.bytes = end - first;
    // Dimensions of 0 are counted as 1 here, so that no product of some of the
    // dimensions overflows.
    bool is_empty = false;
    int64_t bytes = SizeOf(array.dtype);
    for (const int64_t dimension : array.shape) {
      is_empty = is_empty || dimension == 0;
      if (dimension > 0 && bytes > kMostBytes / dimension) {
        return Corrupt(at, absl::StrCat("the shape of the array '",
                                        absl::CHexEscape(array.name),
                                        "' has more elements than any file"));
      }
      bytes *= std::max<int64_t>(dimension, 1);
    }
    if (is_empty) bytes = 0;
    if (bytes == array.bytes) return absl::OkStatus();
    return Corrupt(
        at, absl::StrCat("the array '", absl::CHexEscape(array.name), "' has ",
                         array.bytes, " bytes, but its shape says ", bytes));
  }

  // Checks that the arrays fill the rest of the file, one after another.
  absl::Status CheckPlaces() {
    std::sort(arrays_.begin(), arrays_.end(),
              [](const SafetensorsArray& a, const SafetensorsArray& b) {
                return std::tie(a.offset, a.bytes, a.name) <
                       std::tie(b.offset, b.bytes, b.name);
              });
    int64_t end = data_begin_;
    for (const SafetensorsArray& array : arrays_) {
      if (array.offset != end) {
        return Corrupt(end,
                       absl::StrCat("the array '", absl::CHexEscape(array.name),
                                    "' should begin there, but begins at byte ",
                                    array.offset));
      }
      end += array.bytes;
    }
    if (end == data_begin_ + data_bytes_) return absl::OkStatus();
    return Corrupt(
        end, absl::StrCat("no array has the ", data_begin_ + data_bytes_ - end,
                          " bytes from there on"));
  }

  static constexpr int64_t kMostBytes = std::numeric_limits<int64_t>::max() / 2;

  const absl::string_view text_;
  const int64_t data_begin_;
  const int64_t data_bytes_;
  size_t at_;
  std::set<std::string> names_;
  std::vector<SafetensorsArray> arrays_;
};

absl::Status CheckName(const std::string& name) {
  if (name == kMetadata) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no array of a .safetensors file can have the name '", kMetadata,
        "', which is for metadata: rename it, or export .npy files"));
  }
  if (Utf8Of(name) != name) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the name '", absl::CHexEscape(name),
        "' is not in UTF-8, as the names in a .safetensors file should be: "
        "rename it, or export .npy files"));
  }
  return absl::OkStatus();
}

const Type* TypeOf(DType dtype) {
  return std::find_if(std::begin(kTypes), std::end(kTypes),
                      [&](const Type& type) { return type.dtype == dtype; });
}

}  // namespace

absl::StatusOr<int64_t> SafetensorsHeaderBytes(absl::string_view prefix,
                                               int64_t file_bytes) {
  if (prefix.size() < kSafetensorsPrefixBytes) {
    return absl::DataLossError(absl::StrCat(
        "ends at byte ", prefix.size(),
        ", but a .safetensors file begins with 8 bytes of the length of its "
        "header: it was truncated; restore it"));
  }
  const uint64_t json = LittleEndian(prefix.substr(0, kSafetensorsPrefixBytes));
  if (json > kMostSafetensorsJson) {
    return absl::InvalidArgumentError(absl::StrCat(
        "is no .safetensors file: by its first 8 bytes, its header has ", json,
        " bytes; accepted are ", kMostSafetensorsJson, " at most"));
  }
  const int64_t bytes = kSafetensorsPrefixBytes + static_cast<int64_t>(json);
  if (bytes > file_bytes) {
    return absl::DataLossError(absl::StrCat(
        "ends at byte ", file_bytes, ", but its header ends at byte ", bytes,
        ": it was truncated, or is no .safetensors file"));
  }
  return bytes;
}

absl::StatusOr<std::vector<SafetensorsArray>> ParseSafetensorsHeader(
    absl::string_view header, int64_t file_bytes) {
  return Parser(header, file_bytes).Parse();
}

absl::StatusOr<std::string> LayOutSafetensors(
    std::vector<SafetensorsArray>& arrays) {
  std::sort(
      arrays.begin(), arrays.end(),
      [](const SafetensorsArray& a, const SafetensorsArray& b) {
        return std::make_tuple(TypeOf(a.dtype), absl::string_view(a.name)) <
               std::make_tuple(TypeOf(b.dtype), absl::string_view(b.name));
      });
  std::string json = "{";
  int64_t end = 0;
  for (SafetensorsArray& array : arrays) {
    LOCKSTEP_RETURN_IF_ERROR(CheckName(array.name));
    array.offset = end;  // within the data, until the header's length is known
    end += array.bytes;
    if (json.size() > 1) json += ',';
    AppendJson(array.name, json);
    absl::StrAppend(&json, ":{\"dtype\":\"", TypeOf(array.dtype)->name,
                    "\",\"shape\":[", absl::StrJoin(array.shape, ","),
                    "],\"data_offsets\":[", array.offset, ",", end, "]}");
  }
  json += '}';
  json.append((8 - json.size() % 8) % 8, ' ');
  if (json.size() > kMostSafetensorsJson) {
    return absl::InvalidArgumentError(
        absl::StrCat("the header of a .safetensors file with ", arrays.size(),
                     " arrays has ", json.size(), " bytes; accepted are ",
                     kMostSafetensorsJson, " at most: export .npy files"));
  }
  std::string header;
  for (size_t i = 0; i < kSafetensorsPrefixBytes; ++i) {
    header += static_cast<char>(json.size() >> (8 * i) & 0xff);
  }
  header += json;
  for (SafetensorsArray& array : arrays) {
    array.offset += static_cast<int64_t>(header.size());
  }
  return header;
}

}  // namespace lockstep::internal_checkpoint
