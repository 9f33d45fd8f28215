#include "lockstep/tools/gpu_check/gradient_steps.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>  // NOLINT: to yield
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/annotate.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gpu/stream.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/tools/gpu_check/known_numbers.h"

namespace lockstep {
namespace {

using Place = GradientSetup::Place;

// The longest time for which a stream is held up.
constexpr absl::Duration kHeldUp = absl::Milliseconds(50);

constexpr int64_t kAlignment = 64;  // of gradients, in bytes
constexpr int64_t kGap = 256;       // between scattered gradients, in bytes

// A parameter of the model. With Place::kBlock, it has so many elements that
// gradients have no gaps. Otherwise it has one element less, so that they have.
struct Shape {
  const char* name;
  DType values;
  DType gradient;
  int64_t count;
};

// Some of these do not fit into a bucket. The gradients of three have the type
// f32.
constexpr Shape kShapes[] = {
    {"f32", DType::kF32, DType::kF32, 20'032},
    {"f16 with f32", DType::kF16, DType::kF32, 9'024},
    {"bf16 with f32", DType::kBF16, DType::kF32, 448},
    {"f16", DType::kF16, DType::kF16, 33'088},
    {"bf16", DType::kBF16, DType::kBF16, 5'056},
    {"f64", DType::kF64, DType::kF64, 9'024},
    {"empty", DType::kF32, DType::kF32, 0},
};
constexpr int kParameters = std::size(kShapes);
constexpr int kTypes = 4;    // of gradients
constexpr int kFrozen = 1;   // between others of its type
constexpr int kLeftOut = 2;  // in steps that leave a gradient out

// The kinds of known numbers.
enum class Known : uint64_t { kValues, kQueued, kWritten, kGradients };

uint64_t StreamOf(Known known, int64_t step, int parameter) {
  return (static_cast<uint64_t>(known) * 1000 + step) * kParameters + parameter;
}

// A Gate is work of the host in a stream. It holds up what is queued behind it
// until the gate is opened, or for kHeldUp. So an operation that should wait
// for the stream, and does not, reads memory too early, and its result is
// wrong. The time is limited since the driver may wait for the stream.
// Thread-safety: thread-compatible.
class Gate {
 public:
  Gate() = default;
  ~Gate() { Open(); }

  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  absl::Status Close(const Card& card) {
    auto argument = std::make_unique<std::shared_ptr<std::atomic<bool>>>(open_);
    LOCKSTEP_RETURN_IF_ERROR(
        card.device().Check(card.device().cuda().LaunchHostFunc(
                                card.stream(), Hold, argument.get()),
                            "cuLaunchHostFunc"));
    static_cast<void>(argument.release());  // Hold deletes it
    return absl::OkStatus();
  }
  void Open() { *open_ = true; }

 private:
  static void Hold(void* argument) {
    const std::unique_ptr<std::shared_ptr<std::atomic<bool>>> open(
        static_cast<std::shared_ptr<std::atomic<bool>>*>(argument));
    const SteadyTime until = After(kHeldUp);
    while (!**open && SteadyNow() < until) std::this_thread::yield();
  }

  const std::shared_ptr<std::atomic<bool>> open_ =
      std::make_shared<std::atomic<bool>>(false);
};

// The plan of a step.
struct Plan {
  std::string what;
  int parts = 1;                 // of rank 0; if more than 1, rank r has r more
  bool last_is_idle = false;     // one of several ranks has no rows
  bool last_leaves_out = false;  // the gradient of kLeftOut
  bool all_leave_out = false;
  bool has_rows = true;
};

// A step that was taken, and its page-locked memory. The gradients lie there
// one after another.
struct Taken {
  Plan plan;
  int64_t number = 0;
  std::vector<bool> frozen;
  char* in = nullptr;
  char* out = nullptr;
};

absl::Status Expect(bool is_so, absl::string_view what) {
  return is_so ? absl::OkStatus() : absl::DataLossError(what);
}

absl::Status ExpectBytes(absl::string_view got, absl::string_view due,
                         absl::string_view what) {
  return Expect(got == due, absl::StrCat(what, " differ from what is due"));
}

absl::Status ExpectZeros(absl::string_view got, absl::string_view what) {
  return Expect(
      std::all_of(got.begin(), got.end(), [](char each) { return each == 0; }),
      absl::StrCat(what, " are not 0"));
}

// ---- The trainer.

// The trainer of one rank. It works without kernels: it copies gradients to the
// card, where a trainer would add them.
// Thread-safety: use it on one thread.
class Trainer {
 public:
  Trainer(const GradientSetup& setup, const GpuOptions& options, int rank,
          int size, Card& card, GradientsSeen& seen)
      : setup_(setup),
        options_(options),
        rank_(rank),
        size_(size),
        card_(card),
        seen_(seen) {}

  absl::Status Make(Communicator& group, Communicator& host);
  absl::Status CheckValues();
  absl::Status TakeSteps();
  absl::Status CheckValuesAgain();

 private:
  int64_t CountOf(int parameter) const;
  DType TypeOf(int parameter) const {  // of the gradient
    const DType type = kShapes[parameter].gradient;
    return setup_.overlaps && type == DType::kF16 ? DType::kF32 : type;
  }
  int64_t BytesOf(int parameter) const {  // of the gradient
    return CountOf(parameter) * SizeOf(TypeOf(parameter));
  }
  int64_t PlaceOf(int parameter) const;
  std::string ValuesOf(Known known, int rank, int parameter) const {
    return KnownNumbers(kShapes[parameter].values,
                        StreamOf(known, 0, parameter), rank,
                        CountOf(parameter));
  }
  std::string GradientOf(const Taken& taken, int rank, int parameter) const {
    return KnownNumbers(TypeOf(parameter),
                        StreamOf(Known::kGradients, taken.number, parameter),
                        rank, CountOf(parameter));
  }
  bool IsLast(int rank) const { return rank + 1 == size_; }
  bool IsIdle(const Plan& plan, int rank) const {
    return plan.last_is_idle && size_ > 1 && IsLast(rank);
  }
  bool Writes(const Plan& plan, int rank, int parameter) const;
  int64_t WeightOf(const Plan& plan, int rank) const;

  absl::StatusOr<std::string> Get(const void* from, int64_t bytes);

  // ---- Making.
  absl::StatusOr<std::vector<Parameter>> MakeParameters();
  absl::Status PlaceGradients(std::vector<Parameter>& parameters);
  GradientsOptions MakeOptions(Communicator& host) const;

  absl::Status CheckValuesOf(int parameter);

  // ---- Steps.
  absl::Status PutGradient(const Taken& taken, int parameter);
  absl::Status Take(const Plan& plan, Taken& taken);
  absl::Status CheckResult(const Plan& plan, const StepResult& result,
                           absl::Span<const double> sums) const;
  absl::Status Check(const Taken& taken);
  absl::Status CheckGradient(const Taken& taken, int parameter,
                             absl::string_view got);
  absl::Status TakeAndCheck(const Plan& plan);
  absl::Status DiscardAndCheck();

  const GradientSetup& setup_;
  const GpuOptions& options_;
  const int rank_;
  const int size_;
  Card& card_;
  GradientsSeen& seen_;

  char* staged_ = nullptr;            // page-locked memory for values
  std::vector<std::string> written_;  // the values, by parameter
  Taken taken_[2];
  std::vector<bool> frozen_ = std::vector<bool>(kParameters);
  int64_t steps_ = 0;
  std::unique_ptr<Gradients> gradients_;
};

int64_t Trainer::CountOf(int parameter) const {
  const int64_t count = kShapes[parameter].count;
  return setup_.place == Place::kBlock ? count
                                       : std::max<int64_t>(count - 1, 0);
}

// Returns where the gradient is in the page-locked memory of a step.
int64_t Trainer::PlaceOf(int parameter) const {
  int64_t place = 0;
  for (int i = 0; i < parameter; ++i) place += BytesOf(i);
  return place;
}

bool Trainer::Writes(const Plan& plan, int rank, int parameter) const {
  if (IsIdle(plan, rank)) return false;
  return parameter != kLeftOut ||
         !(plan.all_leave_out || (plan.last_leaves_out && IsLast(rank)));
}

int64_t Trainer::WeightOf(const Plan& plan, int rank) const {
  return !plan.has_rows || IsIdle(plan, rank) ? 0 : 3 + 2 * rank;
}

// Copies from the card.
absl::StatusOr<std::string> Trainer::Get(const void* from, int64_t bytes) {
  if (bytes == 0) return "";
  LOCKSTEP_RETURN_IF_ERROR(card_.Copy(staged_, from, bytes));
  LOCKSTEP_RETURN_IF_ERROR(card_.Await());
  return std::string(staged_, bytes);
}

// ---- Making.

// Queues copies of the values, without waiting for them. No value needs more
// memory than its gradient.
absl::StatusOr<std::vector<Parameter>> Trainer::MakeParameters() {
  const Device device = {Device::Kind::kCuda, kGpuDevice};
  std::vector<Parameter> parameters;
  for (int i = 0; i < kParameters; ++i) {
    const Shape& shape = kShapes[i];
    Parameter parameter;
    parameter.name = shape.name;
    parameter.values = {nullptr, CountOf(i), shape.values, device};
    parameter.gradient_dtype = TypeOf(i);
    if (CountOf(i) > 0) {
      const std::string values =
          ValuesOf(Known::kValues, setup_.share_values ? rank_ : 0, i);
      const auto bytes = static_cast<int64_t>(values.size());
      char* const from = taken_[0].in + PlaceOf(i);
      std::copy(values.begin(), values.end(), from);
      LOCKSTEP_ASSIGN_OR_RETURN(parameter.values.data,
                                card_.TakeDeviceMemory(bytes));
      LOCKSTEP_RETURN_IF_ERROR(card_.Copy(parameter.values.data, from, bytes));
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

// Gives parameters memory of the trainer's for their gradients.
absl::Status Trainer::PlaceGradients(std::vector<Parameter>& parameters) {
  if (setup_.place == Place::kOwn) return absl::OkStatus();
  const bool is_scattered = setup_.place == Place::kScattered;
  std::map<DType, char*> next;  // the place of each type's next gradient
  for (int i = 0; i < kParameters; ++i) {
    if (is_scattered && i % 3 == 2) continue;
    char*& place = next[TypeOf(i)];
    if (place == nullptr) {
      LOCKSTEP_ASSIGN_OR_RETURN(
          void* const memory,
          card_.TakeDeviceMemory(PlaceOf(kParameters) +
                                 kParameters * (kAlignment + kGap)));
      place = static_cast<char*>(memory);
    }
    parameters[i].gradient = {place, CountOf(i), TypeOf(i),
                              parameters[i].values.device};
    place += (BytesOf(i) + kAlignment - 1) / kAlignment * kAlignment +
             (is_scattered ? kGap : 0);
  }
  return absl::OkStatus();
}

GradientsOptions Trainer::MakeOptions(Communicator& host) const {
  GradientsOptions options;
  options.bucket_bytes = setup_.bucket_bytes;
  options.share_values = setup_.share_values;
  options.compare_every = setup_.compare_every;
  options.overwrite = setup_.overwrite;
  if (setup_.overwrite) options.unused = GradientsOptions::Unused::kSkip;
  if (setup_.overlaps) options.overlap = GradientsOptions::Overlap::kOn;
  options.host_group = &host;
  options.stream = Stream(card_.stream());
  options.cuda_library = options_.cuda_library;
  return options;
}

absl::Status Trainer::Make(Communicator& group, Communicator& host) {
  const int64_t all = PlaceOf(kParameters);
  LOCKSTEP_ASSIGN_OR_RETURN(void* const staged, card_.TakeLockedMemory(all));
  staged_ = static_cast<char*>(staged);
  for (Taken& taken : taken_) {
    LOCKSTEP_ASSIGN_OR_RETURN(void* const in, card_.TakeLockedMemory(all));
    LOCKSTEP_ASSIGN_OR_RETURN(void* const out, card_.TakeLockedMemory(all));
    taken.in = static_cast<char*>(in);
    taken.out = static_cast<char*>(out);
  }
  Gate gate;
  LOCKSTEP_RETURN_IF_ERROR(gate.Close(card_));
  LOCKSTEP_ASSIGN_OR_RETURN(std::vector<Parameter> parameters,
                            MakeParameters());
  LOCKSTEP_RETURN_IF_ERROR(PlaceGradients(parameters));
  LOCKSTEP_ASSIGN_OR_RETURN(
      gradients_,
      Gradients::Create(group, std::move(parameters), MakeOptions(host)));
  const int64_t buckets = gradients_->collectives() - (size_ > 1 ? 1 : 0);
  return Expect(
      setup_.bucket_bytes == 0 ? buckets == kTypes : buckets > kTypes,
      absl::StrCat("there are ", buckets, " buckets of ", kTypes, " types"));
}

// ---- Values.

absl::Status Trainer::CheckValues() {
  for (int i = 0; i < kParameters; ++i) {
    const absl::Status status = CheckValuesOf(i);
    if (status.ok()) continue;
    return Annotate(status, absl::StrCat("parameter '", kShapes[i].name, "'"));
  }
  return absl::OkStatus();
}

// Expects that the values are those of rank 0 and the gradient is 0. Then reads
// and writes values.
absl::Status Trainer::CheckValuesOf(int parameter) {
  const Buffer& values = gradients_->views()[parameter].values;
  const int64_t size = SizeOf(values.dtype);
  const int64_t bytes = values.count * size;
  std::string due = ValuesOf(Known::kValues, 0, parameter);
  LOCKSTEP_ASSIGN_OR_RETURN(std::string got, Get(values.data, bytes));
  LOCKSTEP_RETURN_IF_ERROR(ExpectBytes(got, due, "rank 0's values"));
  LOCKSTEP_ASSIGN_OR_RETURN(
      got,
      Get(gradients_->views()[parameter].gradient.data, BytesOf(parameter)));
  LOCKSTEP_RETURN_IF_ERROR(ExpectZeros(got, "the first gradients"));

  // ReadValues and WriteValues come after what is queued on the stream. One
  // wait for the gate is enough.
  due = ValuesOf(Known::kQueued, 0, parameter);
  std::copy(due.begin(), due.end(), staged_);
  Gate gate;
  if (parameter == 0) LOCKSTEP_RETURN_IF_ERROR(gate.Close(card_));
  if (bytes > 0) {
    LOCKSTEP_RETURN_IF_ERROR(card_.Copy(values.data, staged_, bytes));
  }
  const auto read = [&](int64_t first, int64_t count) -> absl::Status {
    // Nothing waits for a copy to page-locked memory by itself.
    const absl::Span<char> to(taken_[0].out, count);
    std::fill(to.begin(), to.end(), '\0');
    LOCKSTEP_RETURN_IF_ERROR(gradients_->ReadValues(parameter, first, to));
    return ExpectBytes({to.data(), to.size()}, due.substr(first, count),
                       "the values that were read");
  };
  LOCKSTEP_RETURN_IF_ERROR(read(0, bytes));
  const int64_t first = values.count / 3 * size;
  const int64_t count = values.count / 2 * size;
  due.replace(first, count,
              ValuesOf(Known::kWritten, 0, parameter).substr(first, count));
  LOCKSTEP_RETURN_IF_ERROR(
      gradients_->WriteValues(parameter, first, due.substr(first, count)));
  LOCKSTEP_RETURN_IF_ERROR(read(first / 2, bytes - first / 2));
  LOCKSTEP_ASSIGN_OR_RETURN(got, Get(values.data, bytes));
  LOCKSTEP_RETURN_IF_ERROR(
      ExpectBytes(got, due, "the values that were written"));
  seen_.elements += 5 * values.count;
  written_.push_back(std::move(due));
  return absl::OkStatus();
}

// Expects that nothing has changed the values since CheckValues.
absl::Status Trainer::CheckValuesAgain() {
  for (int i = 0; i < kParameters; ++i) {
    const Buffer& values = gradients_->views()[i].values;
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::string got,
        Get(values.data, values.count * SizeOf(values.dtype)));
    LOCKSTEP_RETURN_IF_ERROR(ExpectBytes(
        got, written_[i],
        absl::StrCat("the values of '", kShapes[i].name, "' in the end")));
    seen_.elements += values.count;
  }
  return absl::OkStatus();
}

// ---- Steps.

absl::Status Trainer::PutGradient(const Taken& taken, int parameter) {
  if (!Writes(taken.plan, rank_, parameter)) return absl::OkStatus();
  const std::string numbers = GradientOf(taken, rank_, parameter);
  if (!numbers.empty()) {
    char* const from = taken.in + PlaceOf(parameter);
    std::copy(numbers.begin(), numbers.end(), from);
    LOCKSTEP_RETURN_IF_ERROR(
        card_.Copy(gradients_->views()[parameter].gradient.data, from,
                   static_cast<int64_t>(numbers.size())));
  }
  if (setup_.overwrite) gradients_->MarkReady(parameter);
  return absl::OkStatus();
}

// Takes a step. The host does not wait for the card: it queues copies of the
// means, which Check looks at.
absl::Status Trainer::Take(const Plan& plan, Taken& taken) {
  taken.plan = plan;
  taken.number = ++steps_;
  taken.frozen = frozen_;
  const int parts = plan.parts == 1 ? 1 : plan.parts + rank_;
  LOCKSTEP_RETURN_IF_ERROR(gradients_->BeginStep(parts));
  Gate gate;
  LOCKSTEP_RETURN_IF_ERROR(gate.Close(card_));
  for (int part = 0; part < parts; ++part) {
    if (parts > 1) LOCKSTEP_RETURN_IF_ERROR(gradients_->BeginPart(part));
    for (int i = part; i < kParameters; i += parts) {
      LOCKSTEP_RETURN_IF_ERROR(PutGradient(taken, i));
    }
  }
  double sums[] = {0.5, rank_ + 1.0};
  StepInput input;
  input.weight = WeightOf(plan, rank_);
  input.stop = rank_ == 0;
  input.has_more = IsLast(rank_);
  input.sums = absl::MakeSpan(sums);
  LOCKSTEP_ASSIGN_OR_RETURN(const StepResult result,
                            gradients_->Average(input));
  gate.Open();
  LOCKSTEP_RETURN_IF_ERROR(CheckResult(plan, result, sums));
  for (int i = 0; i < kParameters; ++i) {
    if (BytesOf(i) == 0) continue;
    LOCKSTEP_RETURN_IF_ERROR(card_.Copy(taken.out + PlaceOf(i),
                                        gradients_->views()[i].gradient.data,
                                        BytesOf(i)));
  }
  return absl::OkStatus();
}

absl::Status Trainer::CheckResult(const Plan& plan, const StepResult& result,
                                  absl::Span<const double> sums) const {
  int64_t weight = 0;
  double ranks = 0;
  for (int rank = 0; rank < size_; ++rank) {
    weight += WeightOf(plan, rank);
    ranks += rank + 1;
  }
  LOCKSTEP_RETURN_IF_ERROR(Expect(
      result.weight == weight,
      absl::StrCat("the weight is ", result.weight, " and not ", weight)));
  LOCKSTEP_RETURN_IF_ERROR(Expect(result.skipped == (weight == 0),
                                  absl::StrCat("skipped is ", result.skipped)));
  LOCKSTEP_RETURN_IF_ERROR(Expect(
      result.stops == 1 && result.any_more &&
          std::isnan(result.norm) == (weight > 0) && result.not_finite.empty(),
      "the result is wrong in stops, any_more, norm or not_finite"));
  LOCKSTEP_RETURN_IF_ERROR(
      Expect(sums[0] == 0.5 * size_ && sums[1] == ranks, "the sums are wrong"));
  for (int i = 0; i < kParameters; ++i) {
    bool used = !setup_.overwrite;
    for (int rank = 0; rank < size_; ++rank) {
      used = used || Writes(plan, rank, i);
    }
    const GradientView& view = gradients_->views()[i];
    LOCKSTEP_RETURN_IF_ERROR(
        Expect(view.used == used && view.frozen == frozen_[i],
               absl::StrCat("used or frozen are wrong for '", view.name, "'")));
  }
  return absl::OkStatus();
}

absl::Status Trainer::Check(const Taken& taken) {
  LOCKSTEP_RETURN_IF_ERROR(card_.Await());
  for (int i = 0; i < kParameters; ++i) {
    const absl::string_view got(taken.out + PlaceOf(i), BytesOf(i));
    const absl::Status status = CheckGradient(taken, i, got);
    if (status.ok()) continue;
    return Annotate(status,
                    absl::StrCat("the gradient of '", kShapes[i].name, "'"));
  }
  return absl::OkStatus();
}

absl::Status Trainer::CheckGradient(const Taken& taken, int parameter,
                                    absl::string_view got) {
  seen_.elements += CountOf(parameter);
  if (!taken.plan.has_rows) return ExpectZeros(got, "its elements");
  if (taken.frozen[parameter]) {
    return ExpectBytes(got, GradientOf(taken, rank_, parameter),
                       "its elements, as they are frozen,");
  }
  const DType dtype = TypeOf(parameter);
  Means means(dtype, CountOf(parameter));
  int64_t weight = 0;
  for (int rank = 0; rank < size_; ++rank) {
    weight += WeightOf(taken.plan, rank);
    if (!Writes(taken.plan, rank, parameter)) continue;
    means.Add(GradientOf(taken, rank, parameter));
  }
  LOCKSTEP_RETURN_IF_ERROR(means.Compare(static_cast<double>(weight), got));
  double& largest = seen_.largest_errors[dtype];
  largest = std::max(largest, means.largest_error());
  return absl::OkStatus();
}

absl::Status Trainer::TakeAndCheck(const Plan& plan) {
  absl::Status status = Take(plan, taken_[0]);
  if (status.ok()) status = Check(taken_[0]);
  return Annotate(status, plan.what);
}

// Writes gradients, and throws them away.
absl::Status Trainer::DiscardAndCheck() {
  LOCKSTEP_RETURN_IF_ERROR(gradients_->BeginStep());
  for (int i = 0; i < kParameters; ++i) {
    LOCKSTEP_RETURN_IF_ERROR(PutGradient(taken_[0], i));
  }
  LOCKSTEP_RETURN_IF_ERROR(gradients_->Discard());
  // The next step sets them to 0 if they overlap.
  if (setup_.overlaps) return absl::OkStatus();
  for (int i = 0; i < kParameters; ++i) {
    LOCKSTEP_ASSIGN_OR_RETURN(
        const std::string got,
        Get(gradients_->views()[i].gradient.data, BytesOf(i)));
    LOCKSTEP_RETURN_IF_ERROR(ExpectZeros(got, "gradients after Discard"));
    seen_.elements += CountOf(i);
  }
  return absl::OkStatus();
}

absl::Status Trainer::TakeSteps() {
  Plan parts = {"a step of several parts"};
  parts.parts = 2;
  Plan idle = {"a step in which a rank has no rows"};
  idle.last_is_idle = true;
  Plan one_leaves_out = {"a step in which a rank leaves a gradient out"};
  one_leaves_out.last_leaves_out = true;
  Plan all_leave_out = {"a step in which all ranks leave a gradient out"};
  all_leave_out.all_leave_out = true;
  Plan empty = {"a step without rows"};
  empty.has_rows = false;
  for (const Plan& plan : {Plan{"the first step"}, parts, idle, one_leaves_out,
                           all_leave_out, empty}) {
    LOCKSTEP_RETURN_IF_ERROR(TakeAndCheck(plan));
  }
  LOCKSTEP_RETURN_IF_ERROR(
      Expect(absl::IsUnimplemented(gradients_->ClipByNorm(1)),
             "ClipByNorm does not say that a device has no kernel for it"));

  LOCKSTEP_RETURN_IF_ERROR(gradients_->SetFrozen(kShapes[kFrozen].name, true));
  frozen_[kFrozen] = true;
  LOCKSTEP_RETURN_IF_ERROR(TakeAndCheck({"a step with a frozen parameter"}));
  LOCKSTEP_RETURN_IF_ERROR(gradients_->SetFrozen(kShapes[kFrozen].name, false));
  frozen_[kFrozen] = false;
  LOCKSTEP_RETURN_IF_ERROR(DiscardAndCheck());

  // The second step is queued before the first one is known to have ended.
  for (Taken& taken : taken_) {
    LOCKSTEP_RETURN_IF_ERROR(Take({"two steps at once"}, taken));
  }
  LOCKSTEP_RETURN_IF_ERROR(gradients_->Await());
  for (const Taken& taken : taken_) {
    LOCKSTEP_RETURN_IF_ERROR(Annotate(Check(taken), taken.plan.what));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<GradientSetup> GradientSetups() {
  constexpr int64_t kBucket = 64 * kKiB;
  std::vector<GradientSetup> setups(6);
  setups[0].name = "memory of Gradients, one bucket a type";
  setups[1].name = "memory of Gradients, several buckets";
  setups[1].bucket_bytes = kBucket;
  setups[2].name = "a block of the trainer's, several buckets";
  setups[2].place = Place::kBlock;
  setups[2].bucket_bytes = kBucket;
  setups[3].name = "scattered memory of the trainer's, compared values";
  setups[3].place = Place::kScattered;
  setups[3].bucket_bytes = kBucket;
  setups[3].compare_every = 2;
  setups[4].name = "overwritten gradients, on the default stream";
  setups[4].place = Place::kScattered;
  setups[4].overwrite = true;
  setups[4].share_values = false;
  setups[4].stream = CardStream::kDefault;
  setups[5].name = "overlapped gradients, several buckets";
  setups[5].bucket_bytes = kBucket;
  setups[5].overwrite = true;
  setups[5].overlaps = true;
  return setups;
}

absl::Status CheckGradientSteps(const GradientSetup& setup,
                                const GpuOptions& options, Communicator& group,
                                Communicator& host, Card& card,
                                GradientsSeen& seen) {
  Trainer trainer(setup, options, group.rank(), group.size(), card, seen);
  absl::Status status = trainer.Make(group, host);
  if (status.ok()) status = trainer.CheckValues();
  if (status.ok()) status = trainer.TakeSteps();
  if (status.ok()) status = trainer.CheckValuesAgain();
  return Annotate(status, setup.name);
}

}  // namespace lockstep
