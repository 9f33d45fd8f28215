#include "lockstep/checkpoint/exchange.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/npy_header.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/disk.h"
#include "lockstep/checkpoint/safetensors_header.h"

namespace lockstep {
namespace {

using ::lockstep::internal_base::FormatNpyHeader;
using ::lockstep::internal_base::kMostNpyDimensions;
using ::lockstep::internal_base::kNpyPrefixBytes;
using ::lockstep::internal_base::NpyHeader;
using ::lockstep::internal_base::NpyHeaderBytes;
using ::lockstep::internal_base::ParseNpyHeader;
using ::lockstep::internal_checkpoint::CheckFree;
using ::lockstep::internal_checkpoint::Draft;
using ::lockstep::internal_checkpoint::InputFile;
using ::lockstep::internal_checkpoint::kPiece;
using ::lockstep::internal_checkpoint::kSafetensorsPrefixBytes;
using ::lockstep::internal_checkpoint::kSectionVersion;
using ::lockstep::internal_checkpoint::LayOutSafetensors;
using ::lockstep::internal_checkpoint::OutputFile;
using ::lockstep::internal_checkpoint::ParseSafetensorsHeader;
using ::lockstep::internal_checkpoint::SafetensorsArray;
using ::lockstep::internal_checkpoint::SafetensorsHeaderBytes;
using ::lockstep::internal_checkpoint::SyncFolder;

constexpr char kNpy[] = ".npy";

// The maximum length of a file's name on Linux.
constexpr size_t kMostFileName = 255;

// A message lists at most so many names.
constexpr size_t kMostListed = 8;

std::string Quoted(absl::string_view name) {
  return absl::StrCat("'", absl::CHexEscape(name), "'");
}

// Returns the path without slashes at its end.
std::string WithoutSlashes(absl::string_view path) {
  while (path.size() > 1 && absl::ConsumeSuffix(&path, "/")) {
  }
  return std::string(path);
}

// ---- Exporting.

// A section that is to be exported.
struct Exported {
  const CheckpointSection* section = nullptr;
  std::string name;
  std::vector<int64_t> shape;
};

// Returns the error for a prefix with which no section begins.
absl::Status NoSection(const CheckpointReader& from,
                       const std::string& prefix) {
  // A name such as "parameters/weights" is shown by its folder.
  std::set<std::string> beginnings;
  for (const CheckpointSection& section : from.sections()) {
    if (!section.dtype.has_value()) continue;
    const size_t slash = section.name.find('/');
    beginnings.insert(Quoted(slash == section.name.npos
                                 ? section.name
                                 : section.name.substr(0, slash + 1)));
  }
  std::vector<std::string> shown(beginnings.begin(), beginnings.end());
  const size_t all = shown.size();
  shown.resize(std::min(all, kMostListed));
  return absl::NotFoundError(absl::StrCat(
      "the checkpoint ", from.path(), " has no section whose name begins with ",
      Quoted(prefix),
      all == 0 ? ", and no other section with elements"
               : absl::StrCat(": give another prefix; names of sections with "
                              "elements begin with ",
                              absl::StrJoin(shown, ", ")),
      all > kMostListed ? absl::StrCat(" and ", all - kMostListed, " others")
                        : ""));
}

// Returns the number of elements, or nullopt if that is larger than any file.
std::optional<int64_t> ElementsOf(absl::Span<const int64_t> shape) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 16;
  int64_t elements = 1;
  bool is_empty = false;
  for (const int64_t dimension : shape) {
    if (dimension == 0) {
      is_empty = true;
    } else if (elements > kMost / dimension) {
      return std::nullopt;
    } else {
      elements *= dimension;
    }
  }
  return is_empty ? 0 : elements;
}

absl::Status CheckShape(const Exported& exported, int64_t elements) {
  const std::string shown =
      absl::StrCat("the shape (", absl::StrJoin(exported.shape, ", "), ") of ",
                   Quoted(exported.name));
  for (const int64_t dimension : exported.shape) {
    if (dimension >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(shown, " has the dimension ", dimension,
                     "; accepted are whole numbers from 0 on"));
  }
  if (exported.shape.size() > kMostNpyDimensions) {
    return absl::InvalidArgumentError(absl::StrCat(
        shown, " has ", exported.shape.size(), " dimensions; accepted are ",
        kMostNpyDimensions, " at most, as NumPy's arrays have"));
  }
  const std::optional<int64_t> product = ElementsOf(exported.shape);
  if (product == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      shown, " has ",
      product.has_value() ? absl::StrCat(*product, " elements")
                          : "more elements than any file",
      ", but the section has ", elements, ": give a shape of ", elements));
}

// Returns the error for a shape of an array that is not exported.
absl::Status CheckShapesAreUsed(const std::vector<Exported>& all,
                                const ExchangeOptions& options) {
  std::set<absl::string_view> names;
  for (const Exported& exported : all) names.insert(exported.name);
  for (const auto& [name, shape] : options.shapes) {
    if (names.count(name) > 0) continue;
    const std::vector<std::string> known(names.begin(), names.end());
    const std::optional<std::string> nearest = NearestWord(name, known);
    return absl::InvalidArgumentError(absl::StrCat(
        "a shape (", absl::StrJoin(shape, ", "), ") is given for ",
        Quoted(name), ", which is not exported",
        nearest.has_value()
            ? absl::StrCat("; did you mean ", Quoted(*nearest), "?")
            : absl::StrCat(": give the name without the prefix ",
                           Quoted(options.prefix))));
  }
  return absl::OkStatus();
}

// Returns the sections to export, with their names and shapes.
absl::StatusOr<std::vector<Exported>> Select(const CheckpointReader& from,
                                             const ExchangeOptions& options) {
  std::vector<Exported> all;
  for (const CheckpointSection& section : from.sections()) {
    if (!absl::StartsWith(section.name, options.prefix) ||
        !section.dtype.has_value()) {
      continue;
    }
    const auto refused = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(
          "section ", Quoted(section.name), " of the checkpoint ", from.path(),
          " ", why, ": give another prefix than ", Quoted(options.prefix)));
    };
    if (section.name.size() == options.prefix.size()) {
      return refused("has no name after the prefix");
    }
    const int64_t size = SizeOf(*section.dtype);
    if (section.bytes % size != 0) {
      return refused(absl::StrCat("has ", section.bytes,
                                  " bytes, which is no multiple of the ", size,
                                  " bytes of an element"));
    }
    Exported exported = {
        &section, section.name.substr(options.prefix.size()), {}};
    const int64_t elements = section.bytes / size;
    const auto shape = options.shapes.find(exported.name);
    if (shape == options.shapes.end()) {
      exported.shape = {elements};
    } else {
      exported.shape = shape->second;
      LOCKSTEP_RETURN_IF_ERROR(CheckShape(exported, elements));
    }
    all.push_back(std::move(exported));
  }
  if (all.empty()) return NoSection(from, options.prefix);
  LOCKSTEP_RETURN_IF_ERROR(CheckShapesAreUsed(all, options));
  return all;
}

absl::Status CopySection(const CheckpointReader& from,
                         const CheckpointSection& section, OutputFile& to) {
  std::string piece;
  for (int64_t done = 0; done < section.bytes;) {
    piece.resize(std::min(kPiece, section.bytes - done));
    LOCKSTEP_RETURN_IF_ERROR(from.Read(section, done, absl::MakeSpan(piece)));
    LOCKSTEP_RETURN_IF_ERROR(to.Write(piece));
    done += static_cast<int64_t>(piece.size());
  }
  return absl::OkStatus();
}

// ---- Names of files.

// Returns the name of the file for an array.
std::string FileNameOf(absl::string_view name) {
  std::string file;
  for (const char c : name) {
    const bool is_plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                          c == '_' || c == '-' || (c == '.' && !file.empty());
    if (is_plain) {
      file += c;
    } else {
      absl::StrAppendFormat(&file, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return file + kNpy;
}

// Returns the name of the array in a file whose name ends with ".npy".
absl::StatusOr<std::string> NameIn(const std::string& file) {
  absl::string_view rest = absl::StripSuffix(file, kNpy);
  std::string name;
  while (!rest.empty()) {
    if (rest[0] != '%') {
      name += rest[0];
      rest.remove_prefix(1);
      continue;
    }
    const absl::string_view digits = rest.substr(1, 2);
    int byte = 0;
    if (digits.size() < 2 || !absl::ascii_isxdigit(digits[0]) ||
        !absl::ascii_isxdigit(digits[1]) ||
        !absl::SimpleHexAtoi(digits, &byte)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the file's name has '", absl::CHexEscape(rest.substr(0, 3)),
          "', but two hexadecimal digits should follow a '%': write '%25' for "
          "the character itself"));
    }
    name += static_cast<char>(byte);
    rest.remove_prefix(3);
  }
  return name;
}

// ---- Importing.

// Copies `bytes` bytes of a file from `offset` on to a new section.
absl::Status CopyToSection(const InputFile& from, int64_t offset, int64_t bytes,
                           const std::string& name, DType dtype,
                           CheckpointWriter& to) {
  LOCKSTEP_RETURN_IF_ERROR(to.Begin(name, kSectionVersion, dtype));
  std::string piece;
  for (int64_t done = 0; done < bytes;) {
    piece.resize(std::min(kPiece, bytes - done));
    LOCKSTEP_RETURN_IF_ERROR(from.Read(offset + done, absl::MakeSpan(piece)));
    if (dtype == DType::kBool) {
      // Views of other types can leave other bytes than 0 and 1. They are true
      // in NumPy, and undefined in C++.
      for (char& byte : piece) byte = byte != 0 ? 1 : 0;
    }
    LOCKSTEP_RETURN_IF_ERROR(to.Append(piece));
    done += static_cast<int64_t>(piece.size());
  }
  return absl::OkStatus();
}

// Returns the first bytes of a file, or all of a shorter one.
absl::StatusOr<std::string> ReadFirst(const InputFile& file, int64_t most) {
  std::string bytes(std::min(most, file.bytes()), '\0');
  LOCKSTEP_RETURN_IF_ERROR(file.Read(0, absl::MakeSpan(bytes)));
  return bytes;
}

absl::Status NothingToImport(const std::string& from, absl::string_view what) {
  return absl::NotFoundError(
      absl::StrCat(from, " has no ", what, ", so there is nothing to import"));
}

// A file and the name of its array.
struct NpyInput {
  std::string path;
  std::string name;
};

// Returns the .npy files of a folder, in the order of their names.
absl::StatusOr<std::vector<NpyInput>> ListNpy(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::vector<std::string> files;
  for (fs::directory_iterator entry(folder, error), end; entry != end;
       entry.increment(error)) {
    if (error) break;
    std::string file = entry->path().filename().string();
    if (file[0] != '.' && absl::EndsWith(file, kNpy)) {
      files.push_back(std::move(file));
    }
  }
  if (error) {
    return absl::ErrnoToStatus(error.value(),
                               absl::StrCat("can't read the folder ", folder));
  }
  if (files.empty()) return NothingToImport(folder, "files NAME.npy");
  std::sort(files.begin(), files.end());
  std::vector<NpyInput> inputs;
  std::map<std::string, std::string> names;
  for (const std::string& file : files) {
    NpyInput input = {absl::StrCat(folder, "/", file), ""};
    absl::StatusOr<std::string> name = NameIn(file);
    if (!name.ok()) return Annotate(name.status(), input.path);
    if (const auto [other, is_new] = names.emplace(*name, file); !is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat(input.path, ": is called ", Quoted(*name),
                       ", and so is ", other->second, ": rename one of them"));
    }
    input.name = *std::move(name);
    inputs.push_back(std::move(input));
  }
  return inputs;
}

// Reads the header of a .npy file, and checks that its array fills the rest of
// the file. Sets `header_bytes` to the place of the array.
absl::StatusOr<NpyHeader> ReadNpyHeader(const InputFile& file,
                                        int64_t& header_bytes) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::string bytes,
                            ReadFirst(file, kNpyPrefixBytes));
  LOCKSTEP_ASSIGN_OR_RETURN(header_bytes, NpyHeaderBytes(bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(bytes, ReadFirst(file, header_bytes));
  LOCKSTEP_ASSIGN_OR_RETURN(NpyHeader header,
                            ParseNpyHeader(bytes, std::nullopt));
  // Both orders are the same if at most one dimension is larger than 1.
  const auto large =
      std::count_if(header.shape.begin(), header.shape.end(),
                    [](int64_t dimension) { return dimension > 1; });
  if (header.fortran_order && large > 1 && header.data_bytes > 0) {
    return absl::InvalidArgumentError(
        "is in Fortran order, and the elements of a section are in C order; "
        "save it by numpy.save(path, numpy.ascontiguousarray(array))");
  }
  if (header.data_bytes != file.bytes() - header_bytes) {
    return absl::DataLossError(absl::StrCat(
        "ends at byte ", file.bytes(), ", but its header announces ",
        header.data_bytes, " bytes of data from byte ", header_bytes,
        " on: it was truncated, or has more than one array; restore it"));
  }
  return header;
}

}  // namespace

absl::Status ExportSafetensors(const CheckpointReader& from,
                               const std::string& to,
                               const ExchangeOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Exported> all,
                            Select(from, options));
  std::vector<SafetensorsArray> arrays;
  std::map<std::string, const CheckpointSection*> sections;
  for (const Exported& exported : all) {
    SafetensorsArray& array = arrays.emplace_back();
    array.name = exported.name;
    array.dtype = *exported.section->dtype;
    array.shape = exported.shape;
    array.bytes = exported.section->bytes;
    sections[exported.name] = exported.section;
  }
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string header,
                            LayOutSafetensors(arrays));
  Draft draft(to);
  LOCKSTEP_ASSIGN_OR_RETURN(const auto file, draft.CreateFile());
  LOCKSTEP_RETURN_IF_ERROR(file->Write(header));
  for (const SafetensorsArray& array : arrays) {
    LOCKSTEP_RETURN_IF_ERROR(CopySection(from, *sections[array.name], *file));
  }
  LOCKSTEP_RETURN_IF_ERROR(file->Finish());
  return draft.Finish();
}

absl::Status ExportNpy(const CheckpointReader& from, const std::string& folder,
                       const ExchangeOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<Exported> all,
                            Select(from, options));
  for (const Exported& exported : all) {
    const size_t length = FileNameOf(exported.name).size();
    if (length <= kMostFileName) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the file for ", Quoted(exported.name),
                     " would have a name of ", length, " bytes; accepted are ",
                     kMostFileName, " at most: export a .safetensors file"));
  }
  Draft draft(WithoutSlashes(folder));
  LOCKSTEP_RETURN_IF_ERROR(draft.CreateFolder());
  for (const Exported& exported : all) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const auto file, OutputFile::Create(absl::StrCat(
                             draft.fresh(), "/", FileNameOf(exported.name))));
    LOCKSTEP_RETURN_IF_ERROR(
        file->Write(FormatNpyHeader(*exported.section->dtype, exported.shape)));
    LOCKSTEP_RETURN_IF_ERROR(CopySection(from, *exported.section, *file));
    LOCKSTEP_RETURN_IF_ERROR(file->Finish());
  }
  LOCKSTEP_RETURN_IF_ERROR(SyncFolder(draft.fresh()));
  return draft.Finish();
}

absl::Status ImportSafetensors(const std::string& from, const std::string& to,
                               const ExchangeOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFree(to));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto file, InputFile::Open(from));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string prefix,
                            ReadFirst(*file, kSafetensorsPrefixBytes));
  const absl::StatusOr<int64_t> header_bytes =
      SafetensorsHeaderBytes(prefix, file->bytes());
  if (!header_bytes.ok()) return Annotate(header_bytes.status(), from);
  LOCKSTEP_ASSIGN_OR_RETURN(const std::string header,
                            ReadFirst(*file, *header_bytes));
  const absl::StatusOr<std::vector<SafetensorsArray>> arrays =
      ParseSafetensorsHeader(header, file->bytes());
  if (!arrays.ok()) return Annotate(arrays.status(), from);
  if (arrays->empty()) return NothingToImport(from, "arrays");
  LOCKSTEP_ASSIGN_OR_RETURN(const auto writer, CheckpointWriter::CreateNew(to));
  for (const SafetensorsArray& array : *arrays) {
    if (array.name.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(from,
                       ": an array has the name ''; accepted are names "
                       "of 1 byte or more: rename it"));
    }
    LOCKSTEP_RETURN_IF_ERROR(CopyToSection(*file, array.offset, array.bytes,
                                           options.prefix + array.name,
                                           array.dtype, *writer));
  }
  return writer->Finish();
}

absl::Status ImportNpy(const std::string& folder, const std::string& to,
                       const ExchangeOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFree(to));
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<NpyInput> inputs,
                            ListNpy(WithoutSlashes(folder)));
  LOCKSTEP_ASSIGN_OR_RETURN(const auto writer, CheckpointWriter::CreateNew(to));
  for (const NpyInput& input : inputs) {
    LOCKSTEP_ASSIGN_OR_RETURN(const auto file, InputFile::Open(input.path));
    int64_t header_bytes = 0;
    const absl::StatusOr<NpyHeader> header = ReadNpyHeader(*file, header_bytes);
    if (!header.ok()) return Annotate(header.status(), input.path);
    LOCKSTEP_RETURN_IF_ERROR(
        CopyToSection(*file, header_bytes, header->data_bytes,
                      options.prefix + input.name, header->dtype, *writer));
  }
  return writer->Finish();
}

}  // namespace lockstep
