#include "lockstep/session/gradients.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/session/gradient_memory.h"
#include "lockstep/session/tally.h"

namespace lockstep {
namespace {

int64_t SizeOf(const Parameter& parameter) {
  return static_cast<int64_t>(parameter.values.size());
}

int64_t BytesOf(const Parameter& parameter) {
  return SizeOf(parameter) * static_cast<int64_t>(sizeof(float));
}

absl::Status CheckParameters(absl::Span<const Parameter> parameters) {
  std::set<std::string> names;
  std::set<const void*> places;
  for (const Parameter& parameter : parameters) {
    if (parameter.name.empty()) {
      return absl::InvalidArgumentError("a parameter needs a name");
    }
    if (!names.insert(parameter.name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two parameters have the name '", parameter.name,
                       "'; each needs one of its own"));
    }
    if (parameter.gradient == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter '", parameter.name,
                       "' has no place for its gradient: give the address of "
                       "an absl::Span<float>"));
    }
    if (!places.insert(parameter.gradient).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("the gradient of parameter '", parameter.name,
                       "' has the place of another one's: give each an "
                       "absl::Span<float> of its own"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Gradients>> Gradients::Create(
    std::vector<Parameter> parameters, const GradientOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(CheckParameters(parameters));
  std::unique_ptr<Gradients> gradients(new Gradients());
  for (const Parameter& parameter : parameters) {
    gradients->size_ += SizeOf(parameter);
  }
  LOCKSTEP_ASSIGN_OR_RETURN(
      gradients->memory_,
      internal_session::GradientMemory::Create(
          gradients->size_ + internal_session::kMostElements, options.device,
          options.stream, options.cuda_library));
  float* next = gradients->memory_->data();
  for (const Parameter& parameter : parameters) {
    *parameter.gradient = absl::MakeSpan(next, parameter.values.size());
    next += parameter.values.size();
  }
  gradients->parameters_ = std::move(parameters);
  return gradients;
}

Gradients::Gradients() = default;
Gradients::~Gradients() = default;

absl::Span<float> Gradients::all() {
  return absl::MakeSpan(memory_->data(), static_cast<size_t>(size_));
}

bool Gradients::on_host() const {
  return memory_->device().kind == Device::Kind::kHost;
}

Buffer Gradients::buffer() const {
  return BufferOf(memory_->data(), size_, memory_->device());
}

absl::Status Gradients::SetToZero() { return memory_->SetToZero(size_); }

const std::string* Gradients::FindNotZero() const {
  if (!on_host()) return nullptr;
  const float* next = memory_->data();
  for (const Parameter& parameter : parameters_) {
    const float* const end = next + parameter.values.size();
    if (std::any_of(next, end, [](float value) { return value != 0; })) {
      return &parameter.name;
    }
    next = end;
  }
  return nullptr;
}

Fingerprint Gradients::Layout() const {
  Fingerprint layout;
  for (const Parameter& parameter : parameters_) {
    layout.Add(parameter.name, absl::StrCat(parameter.values.size()));
  }
  return layout;
}

absl::Status Gradients::TakeValues() {
  float* next = memory_->data();
  for (const Parameter& parameter : parameters_) {
    LOCKSTEP_RETURN_IF_ERROR(
        memory_->Copy(parameter.values.data(), next, BytesOf(parameter)));
    next += parameter.values.size();
  }
  return absl::OkStatus();
}

absl::Status Gradients::PutValues() const {
  const float* next = memory_->data();
  for (const Parameter& parameter : parameters_) {
    LOCKSTEP_RETURN_IF_ERROR(
        memory_->Copy(next, parameter.values.data(), BytesOf(parameter)));
    next += parameter.values.size();
  }
  return absl::OkStatus();
}

CheckpointMemory Gradients::MemoryOf(const Parameter& parameter) const {
  const auto data = reinterpret_cast<char*>(parameter.values.data());
  CheckpointMemory memory;
  memory.dtype = DType::kF32;
  memory.count = SizeOf(parameter);
  memory.read = [this, data](int64_t offset,
                             absl::Span<char> to) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(memory_->Copy(data + offset, to.data(),
                                           static_cast<int64_t>(to.size())));
    return memory_->Await();
  };
  memory.write = [this, data](int64_t offset,
                              absl::string_view from) -> absl::Status {
    LOCKSTEP_RETURN_IF_ERROR(memory_->Copy(from.data(), data + offset,
                                           static_cast<int64_t>(from.size())));
    return memory_->Await();
  };
  return memory;
}

}  // namespace lockstep
