#include "lockstep/collective/nccl/nccl_types.h"

#include <cstdint>
#include <cstring>
#include <optional>

#include "lockstep/base/float16.h"

namespace lockstep::internal_collective {

std::optional<NcclDataType> NcclTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return NcclDataType::kInt8;
    case DType::kU8:
      return NcclDataType::kUint8;
    case DType::kI32:
      return NcclDataType::kInt32;
    case DType::kU32:
      return NcclDataType::kUint32;
    case DType::kI64:
      return NcclDataType::kInt64;
    case DType::kU64:
      return NcclDataType::kUint64;
    case DType::kF16:
      return NcclDataType::kFloat16;
    case DType::kBF16:
      return NcclDataType::kBfloat16;
    case DType::kF32:
      return NcclDataType::kFloat32;
    case DType::kF64:
      return NcclDataType::kFloat64;
    default:
      return std::nullopt;
  }
}

std::optional<NcclRedOp> NcclRedOpOf(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return NcclRedOp::kSum;
    case ReduceOp::kAvg:
      return NcclRedOp::kAvg;
    case ReduceOp::kMin:
      return NcclRedOp::kMin;
    case ReduceOp::kMax:
      return NcclRedOp::kMax;
    case ReduceOp::kProd:
      return NcclRedOp::kProd;
    default:
      return std::nullopt;
  }
}

uint64_t NcclScalarOf(DType dtype, double value) {
  uint64_t scalar = 0;
  const auto set = [&scalar](auto typed) {
    std::memcpy(&scalar, &typed, sizeof(typed));
  };
  switch (dtype) {
    case DType::kF16:
      set(Float16(static_cast<float>(value)));
      break;
    case DType::kBF16:
      set(BFloat16(static_cast<float>(value)));
      break;
    case DType::kF32:
      set(static_cast<float>(value));
      break;
    default:
      set(value);
  }
  return scalar;
}

}  // namespace lockstep::internal_collective
