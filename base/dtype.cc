#include "lockstep/base/dtype.h"

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {
namespace {

struct Properties {
  absl::string_view name;
  int64_t size;
};

Properties PropertiesOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return {"f64", 8};
    case DType::kF32:
      return {"f32", 4};
    case DType::kF16:
      return {"f16", 2};
    case DType::kBF16:
      return {"bf16", 2};
    case DType::kI8:
      return {"i8", 1};
    case DType::kI16:
      return {"i16", 2};
    case DType::kI32:
      return {"i32", 4};
    case DType::kI64:
      return {"i64", 8};
    case DType::kU8:
      return {"u8", 1};
    case DType::kU16:
      return {"u16", 2};
    case DType::kU32:
      return {"u32", 4};
    case DType::kU64:
      return {"u64", 8};
    case DType::kBool:
      return {"bool", 1};
  }
  return {"invalid", 0};
}

}  // namespace

int64_t SizeOf(DType dtype) { return PropertiesOf(dtype).size; }

absl::string_view Name(DType dtype) { return PropertiesOf(dtype).name; }

absl::StatusOr<DType> ParseDType(absl::string_view name) {
  for (const DType dtype : kAllDTypes) {
    if (Name(dtype) == name) return dtype;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown dtype '", name, "'; known: ",
      absl::StrJoin(kAllDTypes, ", ", [](std::string* out, DType dtype) {
        absl::StrAppend(out, Name(dtype));
      })));
}

bool IsFloatingPoint(DType dtype) {
  return dtype >= DType::kF64 && dtype <= DType::kBF16;
}

bool IsInteger(DType dtype) {
  return dtype >= DType::kI8 && dtype <= DType::kU64;
}

}  // namespace lockstep
