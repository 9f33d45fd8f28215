// Registers datasets.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "lockstep/base/config.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/datasets/cache_dataset.h"
#include "lockstep/loader/datasets/combinators.h"
#include "lockstep/loader/datasets/file_folder.h"
#include "lockstep/loader/datasets/npy_dataset.h"
#include "lockstep/loader/datasets/tar_files.h"
#include "lockstep/loader/datasets/tar_options.h"
#include "lockstep/loader/datasets/tfrecord_dataset.h"
#include "lockstep/loader/datasets/token_files.h"
#include "lockstep/loader/images/image_dataset.h"
#include "lockstep/loader/images/image_options.h"
#include "lockstep/plugin/options.h"
#include "lockstep/plugin/parts.h"
#include "lockstep/plugin/registry.h"

namespace lockstep {

void BindOptions(FileFolderOptions& options, OptionTable& table) {
  table.Add("path", &options.path,
            "The folder, which has a sub-folder for each class.");
  table.Add(
      "extensions", &options.extensions,
      "The endings of the files to read, such as \".jpg\"; none: all files.");
  table.AddSize("max_file_bytes", &options.max_file_bytes,
                "The most bytes that a file may have, which is the memory of "
                "each sample; 0: the size of the largest file.");
}

void BindOptions(TfRecordDatasetOptions& options, OptionTable& table) {
  table.Add("files", &options.files,
            "The paths of the TFRecord files, which are not compressed.");
  table.Add("verify", &options.verify,
            "If true, each read checks the CRC of the record.");
  table.AddSize("max_record_bytes", &options.max_record_bytes,
                "The most bytes that a record may have, which is the memory of "
                "each sample; 0: the size of the longest record.");
}

namespace {

// Binds the way in which files are read.
void AddAccess(FileAccess* access, OptionTable& table) {
  table.Add("access", access,
            "The way to read: mapped into memory; or by system calls, for "
            "files that others may truncate; auto chooses the second one for "
            "more than 256 files and for files on a network.",
            {{"auto", FileAccess::kAuto},
             {"mapped", FileAccess::kMapped},
             {"read", FileAccess::kRead}});
}

}  // namespace

void BindOptions(TokenFilesOptions& options, OptionTable& table) {
  table.Add("files", &options.files,
            "The paths of the files, or patterns with * and ?: Megatron's .bin "
            "with an .idx, llm.c's .bin, or files of tokens alone.");
  table.Add("dtype", &options.dtype,
            "The type of the tokens in files that do not say it, such as "
            "\"u16\".");
  table.Add("as", &options.as,
            "The type of the fields; unset: that of the files.");
  table.Add(
      "sample", &options.sample,
      "What a sample is: `length` tokens and the one that follows; or a "
      "document.",
      {{"window", TokenSample::kWindow}, {"document", TokenSample::kDocument}});
  table.Add("length", &options.length,
            "The tokens of a window, without the one that follows; or the most "
            "tokens of a document, 0: of the longest one.");
  table.Add("stride", &options.stride,
            "The tokens from one window to the next; 0: `length`.");
  table.Add("across_documents", &options.across_documents,
            "If false, no window goes from one document into the next.");
  table.Add("min_length", &options.min_length,
            "The tokens below which a document is left out.");
  table.Add("cut", &options.cut,
            "If true, documents with more than `length` tokens lose their "
            "ends.");
  table.Add("targets", &options.targets,
            "If true, the field `targets` has the token that follows each one "
            "of `tokens`.");
  table.Add("document", &options.document,
            "If true, the field `document` has the number of the document "
            "where the sample begins.");
  table.Add("position", &options.position,
            "If true, the field `position` has the number of tokens before "
            "the sample in that document.");
  table.Add("vocabulary", &options.vocabulary,
            "The number of different tokens, which each sample is checked "
            "for; 0: no check.");
  AddAccess(&options.access, table);
}

void BindOptions(TarField& options, OptionTable& table) {
  table.Add("field", &options.field, "The name of the field.");
  table.Add("extensions", &options.extensions,
            "What follows the first dot in the names of its members, such as "
            "\"jpg\"; of those that a sample has, the first one is read.");
  table.Add("content", &options.content,
            "What the members are: bytes as they are; a number as text; or an "
            "array in a .npy. Unset: as the first extension says, which is an "
            "array for npy, and a number for cls, cls2, id, index and inx.",
            {{"bytes", TarContent::kBytes},
             {"number", TarContent::kNumber},
             {"array", TarContent::kArray}});
  table.Add("json_key", &options.json_key,
            "The place of the number in a JSON object, such as \"label\" or "
            "\"size.width\"; none: the member is the number.");
  table.Add("dtype", &options.dtype,
            "The type of a number, unset: i64; for an array it is a check.");
  table.Add("shape", &options.shape,
            "The shape of an array, with -1 for a dimension that differs; "
            "unset: that of the first sample, which all must have.");
  table.AddSize("max_bytes", &options.max_bytes,
                "The most bytes that a member may have, which is the memory of "
                "each sample; 0: the size of the largest member.");
  table.Add("missing", &options.missing,
            "If a sample has no such member: an error at the start; the sample "
            "is left out; or the field is empty, or zero.",
            {{"error", TarMissing::kError},
             {"skip", TarMissing::kSkip},
             {"empty", TarMissing::kEmpty}});
}

void BindOptions(TarFilesOptions& options, OptionTable& table) {
  table.Add("files", &options.files,
            "The paths of the files, or patterns with *, ? and braces, such "
            "as \"train-{000..127}.tar\".");
  table.AddTables(
      "fields", &options.fields,
      "One table for each field, with its name as `field` and the "
      "endings of its members' names as `extensions`; and, if needed, "
      "content, json_key, dtype, shape, max_bytes and missing.");
  table.Add("key", &options.key,
            "If true, the field `key` has the part of the names that the "
            "members of a sample share.");
  table.Add("index", &options.index,
            "The index beside each file (DALI's .idx): read it if it is there "
            "and fits; the same, and write it if not; or ignore it.",
            {{"read", TarIndex::kRead},
             {"write", TarIndex::kWrite},
             {"ignore", TarIndex::kIgnore}});
  AddAccess(&options.access, table);
}

void BindOptions(NpyFile& options, OptionTable& table) {
  table.Add("field", &options.field, "The name of the field.");
  table.Add("path", &options.path, "The path of the .npy file.");
  table.Add("bf16", &options.bf16, "If true, the elements are bfloat16.");
}

void BindOptions(NpyDatasetOptions& options, OptionTable& table) {
  table.AddTables(
      "files", &options.files,
      "One table for each field, with field, path and, for bfloat16, bf16.");
  table.Add("access", &options.access,
            "The way to read: the files are mapped into memory; or they are "
            "read row by row, for files that other programs may truncate.",
            {{"mapped", NpyAccess::kMapped}, {"read", NpyAccess::kRead}});
}

void BindOptions(CacheOptions& options, OptionTable& table) {
  table.AddSize("max_bytes", &options.max_bytes,
                "The most memory for the samples that are kept.");
}

void BindOptions(ImageOptions& options, OptionTable& table) {
  table.Add("field", &options.field,
            "The field with the files, which becomes the field with the "
            "pixels.");
  table.Add("height", &options.height,
            "The height of the result; 0, with width=0: images keep their "
            "sizes.");
  table.Add("width", &options.width, "The width of the result.");
  table.Add("crop", &options.crop,
            "The part of an image that is used: all of it; its middle, for "
            "evaluation; or a random rectangle, for training.",
            {{"none", ImageCrop::kNone},
             {"center", ImageCrop::kCenter},
             {"random", ImageCrop::kRandom}});
  table.Add("resize", &options.resize,
            "For crop=center: the pixels of the shorter side before the middle "
            "is cut out; 0: 8/7 of the larger one of height and width.");
  table.Add("min_area", &options.min_area,
            "For crop=random: the smallest part of the image's area.");
  table.Add("max_area", &options.max_area,
            "For crop=random: the largest part of the image's area.");
  table.Add("min_aspect", &options.min_aspect,
            "For crop=random: the smallest width of a rectangle divided by its "
            "height.");
  table.Add("max_aspect", &options.max_aspect,
            "For crop=random: the largest width of a rectangle divided by its "
            "height.");
  table.Add("flip", &options.flip,
            "If true, half of the images are mirrored: left is right.");
  table.Add("filter", &options.filter, "The way to resize.",
            {{"bilinear", ImageFilter::kBilinear},
             {"bicubic", ImageFilter::kBicubic}});
  table.Add("scaled_decoding", &options.scaled_decoding,
            "If true, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size where "
            "this has enough pixels: faster, with other bits.");
  table.Add("dtype", &options.dtype,
            "The type of the pixels: u8, from 0 to 255; or f32, which are "
            "(pixel / 255 - mean) / deviation.",
            {{"u8", DType::kU8}, {"f32", DType::kF32}});
  table.Add(
      "mean", &options.mean,
      "For dtype=f32: a mean from -1 to 1 for each of red, green and blue; "
      "none: 0.");
  table.Add("deviation", &options.deviation,
            "For dtype=f32: a deviation for each of red, green and blue; none: "
            "1.");
  table.AddHint("std", "it is `deviation`");
  table.Add("layout", &options.layout,
            "The order of the dimensions: [height, width, 3], or "
            "[3, height, width].",
            {{"channels_last", ImageLayout::kChannelsLast},
             {"channels_first", ImageLayout::kChannelsFirst}});
  table.Add("max_pixels", &options.max_pixels,
            "The most pixels that an image may have; 0: 100 million. It must "
            "be given if images keep their sizes.");
}

namespace internal_plugin {
namespace {

using DatasetPtr = std::shared_ptr<Dataset>;
using DatasetResult = absl::StatusOr<DatasetPtr>;

DatasetResult MakeFileFolder(const PluginContext&,
                             const FileFolderOptions& options) {
  return FileFolder::Create(options);
}

DatasetResult MakeTokenFiles(const PluginContext&,
                             const TokenFilesOptions& options) {
  return TokenFiles::Create(options);
}

DatasetResult MakeTfRecord(const PluginContext&,
                           const TfRecordDatasetOptions& options) {
  return TfRecordDataset::Create(options);
}

DatasetResult MakeTarFiles(const PluginContext& context,
                           const TarFilesOptions& settings) {
  TarFilesOptions options = settings;
  if (context.tell != nullptr) {
    options.progress = [tell = context.tell](const TarProgress& progress) {
      tell(absl::StrCat("looking for the members of tar files: ",
                        progress.files, " of ", progress.all_files,
                        " files done, ", progress.members, " members found"));
    };
  }
  return TarFiles::Create(std::move(options));
}

DatasetResult MakeNpy(const PluginContext&, const NpyDatasetOptions& options) {
  return NpyDataset::Create(options);
}

// ---- Datasets made of others.

struct InnerOptions {
  Config dataset;
};

void BindOptions(InnerOptions& options, OptionTable& table) {
  AddPart<Dataset>(
      table, "dataset", &options.dataset,
      "The inner dataset: a table with its name and its settings.");
}

DatasetResult MakeInner(const PluginContext& context,
                        const InnerOptions& options) {
  if (options.dataset.IsEmptyTable()) {
    return absl::InvalidArgumentError(
        "it needs an inner dataset: set `dataset` to a table with its name and "
        "its settings, such as {name = \"tar\", files = [\"train-*.tar\"]}");
  }
  return context.registry->CreateFrom<Dataset>(options.dataset, context);
}

struct CacheSettings {
  InnerOptions inner;
  CacheOptions cache;
};

void BindOptions(CacheSettings& options, OptionTable& table) {
  BindOptions(options.inner, table);
  BindOptions(options.cache, table);
}

DatasetResult MakeCache(const PluginContext& context,
                        const CacheSettings& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(DatasetPtr inner,
                            MakeInner(context, options.inner));
  return CacheDataset::Create(std::move(inner), options.cache);
}

struct ImageSettings {
  InnerOptions inner;
  ImageOptions image;
};

void BindOptions(ImageSettings& options, OptionTable& table) {
  BindOptions(options.inner, table);
  BindOptions(options.image, table);
}

DatasetResult MakeImages(const PluginContext& context,
                         const ImageSettings& settings) {
  LOCKSTEP_ASSIGN_OR_RETURN(DatasetPtr inner,
                            MakeInner(context, settings.inner));
  ImageOptions options = settings.image;
  options.warn = context.tell;
  return ImageDataset::Create(std::move(inner), std::move(options));
}

struct SubsetSettings {
  InnerOptions inner;
  int64_t begin = 0;
  std::optional<int64_t> end;
  std::optional<std::vector<int64_t>> indices;
};

void BindOptions(SubsetSettings& options, OptionTable& table) {
  BindOptions(options.inner, table);
  table.Add("begin", &options.begin,
            "The index of the first sample of the subset.");
  table.Add("end", &options.end,
            "The index after the last sample of the subset; unset: the size of "
            "the dataset.");
  table.Add(
      "indices", &options.indices,
      "In place of begin and end: the indices of the samples of the subset.");
}

DatasetResult MakeSubset(const PluginContext& context,
                         const SubsetSettings& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(DatasetPtr inner,
                            MakeInner(context, options.inner));
  if (options.indices.has_value()) {
    if (options.begin != 0 || options.end.has_value()) {
      return absl::InvalidArgumentError(
          "either indices or begin and end should be set, but both are");
    }
    return SubsetDataset::Create(std::move(inner), *options.indices);
  }
  const int64_t end = options.end.value_or(inner->size());
  if (options.begin < 0 || end > inner->size() || options.begin > end) {
    return absl::InvalidArgumentError(absl::StrCat(
        "begin and end should be from 0 to the ", inner->size(),
        " samples there are, in this order, but got begin=", options.begin,
        ", end=", end));
  }
  std::vector<int64_t> indices;
  for (int64_t i = options.begin; i < end; ++i) indices.push_back(i);
  return SubsetDataset::Create(std::move(inner), std::move(indices));
}

struct PartsOptions {
  std::vector<Config> datasets;
};

void BindOptions(PartsOptions& options, OptionTable& table) {
  AddPart<Dataset>(
      table, "datasets", &options.datasets,
      "The inner datasets: tables with their names and their settings.");
}

absl::StatusOr<std::vector<DatasetPtr>> MakeParts(const PluginContext& context,
                                                  const PartsOptions& options) {
  std::vector<DatasetPtr> parts;
  for (const Config& table : options.datasets) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        DatasetPtr part, context.registry->CreateFrom<Dataset>(table, context));
    parts.push_back(std::move(part));
  }
  return parts;
}

DatasetResult MakeConcat(const PluginContext& context,
                         const PartsOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<DatasetPtr> parts,
                            MakeParts(context, options));
  return ConcatDataset::Create(std::move(parts));
}

DatasetResult MakeZip(const PluginContext& context,
                      const PartsOptions& options) {
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<DatasetPtr> parts,
                            MakeParts(context, options));
  return ZipDataset::Create(std::move(parts));
}

}  // namespace

absl::Status RegisterDatasets(PluginRegistry& registry) {
  absl::Status status;
  status.Update(registry.Add<Dataset>(
      "npy", "Arrays in .npy files; a row is a sample.", MakeNpy));
  status.Update(registry.Add<Dataset>(
      "tar", "The samples of tar files, as WebDataset stores them.",
      MakeTarFiles));
  status.Update(registry.Add<Dataset>(
      "tokens", "Windows or documents of files of tokens.", MakeTokenFiles));
  status.Update(registry.Add<Dataset>(
      "tfrecord", "The records of TFRecord files.", MakeTfRecord));
  status.Update(registry.Add<Dataset>(
      "file_folder",
      "The files of a folder, which has a sub-folder for each class.",
      MakeFileFolder));
  status.Update(registry.Add<Dataset>(
      "image", "The JPEG and PNG images of another dataset, decoded.",
      MakeImages));
  status.Update(registry.Add<Dataset>(
      "cache", "Another dataset, whose samples are kept in memory.",
      MakeCache));
  status.Update(registry.Add<Dataset>("subset", "A subset of another dataset.",
                                      MakeSubset));
  status.Update(registry.Add<Dataset>(
      "concat", "The samples of several datasets, one dataset after the other.",
      MakeConcat));
  status.Update(registry.Add<Dataset>(
      "zip", "The fields of several datasets side by side.", MakeZip));
  return status;
}

}  // namespace internal_plugin
}  // namespace lockstep
