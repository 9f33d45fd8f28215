// Steps of a training on the host, with and without Gradients, for
// tools/bench_training.py and tools/bench_overlap.py. One process is one rank
// of two:
//
//   training_benchmark RANK FOLDER [INTERFACE]
//   training_benchmark --once
//
// The ranks meet in FOLDER, which must be empty, and talk over the interface.
// With --once, two threads are the ranks, and each does small steps of all
// kinds, without figures.
//
// A rank reads requests from its standard input, and answers each with a line
// that has the nanoseconds of each step:
//
//   model shm 26 512 10
//
// A request has the kind of step, the way, the number of tensors, their size,
// and the number of steps. All ranks get the same request. The kinds are:
//
//   model      Layers x W + b of 32 rows, each of two tensors: forward, the
//              gradients of the mean squared error, and the update of SGD. The
//              size is the width of a layer.
//   gradients  Each element of the gradients is set, or, where a step begins
//              with zeros, added to. The size is the elements of a tensor.
//   parts      The gradients of four batches of a model are added up: as parts
//              of a step, without Average (shm), or without a step (plain).
//   paced      As gradients, but from the last tensor to the first, and each
//              takes a while before. A sixth word has the microseconds of all.
//
// These ways do a step: plain, without Gradients; shm and tcp, with BeginStep
// and Average over that backend. What may stand behind them: "_overwrite",
// where the options say so; "_on", "_auto" and "_off", which is
// GradientsOptions::overlap, with marks as soon as a gradient is whole. The
// other ways use a buffer of as many bytes, which was written before: raw_tcp,
// one all-reduce; copy, a copy to private memory; and pass, a multiplication.
#include <Eigen/Dense>
#include <algorithm>
#include <chrono>  // NOLINT: SteadyTime is of it
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/base/steady_time.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/collective/communicator.h"
#include "lockstep/collective/local/local_world.h"
#include "lockstep/collective/operation.h"
#include "lockstep/collective/work.h"
#include "lockstep/collective/world.h"
#include "lockstep/gradients/gradients.h"

namespace lockstep {
namespace {

constexpr int kRanks = 2;
constexpr int64_t kRows = 32;  // of a batch
constexpr int kParts = 4;
constexpr float kRate = 1e-6F;

using Matrix =
    Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Matrices = Eigen::Map<Matrix>;
using Vectors = Eigen::Map<Eigen::RowVectorXf>;

// One request.
struct Request {
  std::string kind;
  std::string way;
  int64_t tensors = 0;
  int64_t size = 0;
  int64_t steps = 0;
  int64_t microseconds = 0;  // of paced gradients
};

// Gradients of the same tensors by one way.
struct Way {
  std::unique_ptr<Gradients> gradients;
  std::vector<absl::Span<float>> spans;  // one for each tensor
  bool overwrite = false;
  bool marks = false;  // as soon as a gradient is whole
};

bool Has(absl::string_view name, absl::string_view part) {
  return name.find(part) != absl::string_view::npos;
}

// The parameters of one request, and what steps over them do.
// Thread-safety: thread-compatible.
class Subject {
 public:
  // Makes tensors with so many elements.
  explicit Subject(const std::vector<int64_t>& counts) {
    Random random(7);
    for (const int64_t count : counts) {
      values_.emplace_back(count);
      random.FillUniform(absl::MakeSpan(values_.back()));
    }
  }
  virtual ~Subject() = default;

  Subject(const Subject&) = delete;
  Subject& operator=(const Subject&) = delete;

  // Makes what a way needs, if no step of it was done.
  absl::Status Open(const std::string& name, Communicator& group) {
    Way& way = ways_[IsRaw(name) ? "plain" : name];
    if (way.gradients != nullptr) return absl::OkStatus();
    way.overwrite = Has(name, "_overwrite");
    using Overlap = GradientsOptions::Overlap;
    const Overlap overlap = Has(name, "_on")     ? Overlap::kOn
                            : Has(name, "_auto") ? Overlap::kAuto
                                                 : Overlap::kOff;
    way.marks = Has(name, "_off") || overlap != Overlap::kOff;
    std::vector<Parameter> parameters;
    for (size_t i = 0; i < values_.size(); ++i) {
      parameters.push_back({absl::StrCat("tensor ", i), BufferOf(values_[i])});
    }
    GradientsOptions options;
    options.name = name;
    options.overwrite = way.overwrite;
    options.overlap = overlap;
    LOCKSTEP_ASSIGN_OR_RETURN(
        way.gradients,
        Gradients::Create(group, std::move(parameters), options));
    for (const GradientView& view : way.gradients->views()) {
      way.spans.push_back(SpanOf<float>(view.gradient));
    }
    return absl::OkStatus();
  }

  // Does what comes before a step and is not measured.
  virtual absl::Status Prepare(const std::string& name) {
    if (IsRaw(name)) {
      const absl::Span<float> buffer = RawBuffer();
      std::fill(buffer.begin(), buffer.end(), 1.0F);
      if (name == "copy") copy_.resize(buffer.size());
    }
    return absl::OkStatus();
  }

  // Does the step.
  virtual absl::Status Run(const std::string& name, Communicator& group) {
    if (IsRaw(name)) return RunRaw(name, group);
    Way& way = ways_[name];
    if (name == "plain") {
      Backward(way, /*add=*/false);
    } else {
      LOCKSTEP_RETURN_IF_ERROR(way.gradients->BeginStep());
      Backward(way, /*add=*/!way.overwrite);
      for (size_t i = 0; way.overwrite && !way.marks && i < values_.size();
           ++i) {
        way.gradients->MarkReady(static_cast<int64_t>(i));
      }
      LOCKSTEP_RETURN_IF_ERROR(Average(way));
    }
    Update(way);
    return absl::OkStatus();
  }

 protected:
  // Sets the gradients, or adds to them.
  virtual void Backward(Way& way, bool add) = 0;
  virtual void Update(const Way& way) {}

  // Says that the gradients from one tensor to another one are whole.
  static void Mark(const Way& way, size_t begin, size_t end) {
    for (size_t i = begin; way.marks && i < end; ++i) {
      way.gradients->MarkReady(static_cast<int64_t>(i));
    }
  }

  absl::Status Average(const Way& way) {
    StepInput input;
    input.weight = kRows;
    return way.gradients->Average(input).status();
  }

  std::vector<std::vector<float>> values_;
  std::map<std::string, Way> ways_;

 private:
  static bool IsRaw(absl::string_view name) {
    return name == "pass" || name == "copy" || name.substr(0, 3) == "raw";
  }

  // Returns all gradients of the way "plain", which lie in one block.
  absl::Span<float> RawBuffer() {
    const std::vector<absl::Span<float>>& spans = ways_["plain"].spans;
    float* const begin = spans.front().data();
    return absl::MakeSpan(begin, spans.back().end() - begin);
  }

  absl::Status RunRaw(absl::string_view name, Communicator& group) {
    const absl::Span<float> buffer = RawBuffer();
    if (name == "copy") {
      std::copy(buffer.begin(), buffer.end(), copy_.begin());
      return absl::OkStatus();
    }
    if (name != "pass") {
      const Buffer all = BufferOf(buffer);
      return Wait(group.AllReduce(all, all, ReduceOp::kSum));
    }
    for (float& element : buffer) element *= 0.5F;
    return absl::OkStatus();
  }

  std::vector<float> copy_;
};

std::vector<int64_t> CountsOfLayers(int64_t tensors, int64_t width) {
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < tensors; ++i) {
    counts.push_back(i % 2 == 0 ? width * width : width);
  }
  return counts;
}

// A stack of linear layers, as wide as its input and its output.
class Model : public Subject {
 public:
  Model(int64_t tensors, int64_t width)
      : Subject(CountsOfLayers(tensors, width)),
        width_(width),
        activations_(tensors / 2 + 1, Matrix::Constant(kRows, width, 1)),
        error_(kRows, width),
        next_error_(kRows, width) {
    // With these weights, activations are about as large in all layers.
    const float scale = std::sqrt(12.0F / static_cast<float>(width));
    for (std::vector<float>& values : values_) {
      for (float& value : values) value = (value - 0.5F) * scale;
    }
    activations_[0].setRandom();
  }

 protected:
  void Backward(Way& way, bool add) override {
    const size_t layers = values_.size() / 2;
    for (size_t i = 0; i < layers; ++i) {
      activations_[i + 1].noalias() = activations_[i] * Weights(i);
      activations_[i + 1].rowwise() +=
          Vectors(values_[2 * i + 1].data(), width_);
    }
    error_ = 2.0F / static_cast<float>(kRows * width_) *
             (activations_[layers].array() - 1);
    for (size_t i = layers; i-- > 0;) {
      Matrices weights(way.spans[2 * i].data(), width_, width_);
      Vectors bias(way.spans[2 * i + 1].data(), width_);
      if (add) {
        weights.noalias() += activations_[i].transpose() * error_;
        bias += error_.colwise().sum();
      } else {
        weights.noalias() = activations_[i].transpose() * error_;
        bias = error_.colwise().sum();
      }
      Mark(way, 2 * i, 2 * i + 2);
      if (i == 0) break;
      next_error_.noalias() = error_ * Weights(i).transpose();
      error_.swap(next_error_);
    }
  }

  void Update(const Way& way) override {
    for (size_t i = 0; i < values_.size(); ++i) {
      Vectors(values_[i].data(), values_[i].size()) -=
          kRate * Vectors(way.spans[i].data(), way.spans[i].size());
    }
  }

 private:
  Matrices Weights(size_t layer) {
    return {values_[2 * layer].data(), width_, width_};
  }

  const int64_t width_;
  std::vector<Matrix> activations_;  // the input, and each layer's output
  Matrix error_, next_error_;
};

// Gradients that come from nowhere.
class BareGradients : public Subject {
 public:
  BareGradients(int64_t tensors, int64_t size)
      : Subject(std::vector<int64_t>(tensors, size)) {}

 protected:
  void Backward(Way& way, bool add) override {
    for (const absl::Span<float> span : way.spans) {
      if (add) {
        for (float& gradient : span) gradient += 1;
      } else {
        std::fill(span.begin(), span.end(), 1.0F);
      }
    }
    Mark(way, 0, way.spans.size());
  }
};

// Gradients that take a while, as those of a backward pass do.
class PacedGradients : public Subject {
 public:
  PacedGradients(int64_t tensors, int64_t size, int64_t microseconds)
      : Subject(std::vector<int64_t>(tensors, size)),
        each_(std::chrono::microseconds(microseconds / tensors)) {}

 protected:
  void Backward(Way& way, bool add) override {
    const SteadyTime begin = SteadyNow();
    for (size_t i = way.spans.size(); i-- > 0;) {
      const SteadyTime until =
          begin + each_ * static_cast<int64_t>(way.spans.size() - i);
      do {
        for (float& gradient : way.spans[i]) gradient = add ? gradient + 1 : 1;
      } while (SteadyNow() < until);
      Mark(way, i, i + 1);
    }
  }

 private:
  const std::chrono::nanoseconds each_;
};

// The gradients of several batches of a model, added up.
class Parts : public Model {
 public:
  using Model::Model;

  absl::Status Prepare(const std::string& name) override {
    if (name == "plain" || !is_in_step_) return absl::OkStatus();
    is_in_step_ = false;
    return Average(ways_[name]);
  }

  absl::Status Run(const std::string& name, Communicator& group) override {
    Way& way = ways_[name];
    if (name == "plain") {
      for (const absl::Span<float> span : way.spans) {
        std::fill(span.begin(), span.end(), 0.0F);
      }
      for (int i = 0; i < kParts; ++i) Backward(way, /*add=*/true);
      return absl::OkStatus();
    }
    LOCKSTEP_RETURN_IF_ERROR(way.gradients->BeginStep(kParts));
    is_in_step_ = true;
    for (int i = 0; i < kParts; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(way.gradients->BeginPart(i));
      Backward(way, /*add=*/true);
    }
    return absl::OkStatus();
  }

 private:
  bool is_in_step_ = false;
};

// Returns null if there is no such kind.
std::unique_ptr<Subject> MakeSubject(const Request& request) {
  if (request.kind == "model") {
    return std::make_unique<Model>(request.tensors, request.size);
  }
  if (request.kind == "gradients") {
    return std::make_unique<BareGradients>(request.tensors, request.size);
  }
  if (request.kind == "parts") {
    return std::make_unique<Parts>(request.tensors, request.size);
  }
  if (request.kind == "paced") {
    return std::make_unique<PacedGradients>(request.tensors, request.size,
                                            request.microseconds);
  }
  return nullptr;
}

// A rank that answers requests.
// Thread-safety: thread-compatible.
class TrainingRank {
 public:
  static absl::StatusOr<std::unique_ptr<TrainingRank>> Join(World& world) {
    std::unique_ptr<TrainingRank> rank(new TrainingRank);
    for (const char* const backend : {"shm", "tcp"}) {
      GroupOptions options;
      options.name = options.backend = backend;
      LOCKSTEP_ASSIGN_OR_RETURN(rank->groups_[backend],
                                world.MakeGroup(options));
    }
    return rank;
  }

  absl::Status Answer(std::istream& requests, std::ostream& answers) {
    for (std::string line; std::getline(requests, line);) {
      Request request;
      std::istringstream words(line);
      if (!(words >> request.kind >> request.way >> request.tensors >>
            request.size >> request.steps)) {
        return absl::InvalidArgumentError(absl::StrCat("no request: ", line));
      }
      words >> request.microseconds;
      LOCKSTEP_ASSIGN_OR_RETURN(const std::string times, TimesOf(request));
      answers << times << std::endl;
    }
    return absl::OkStatus();
  }

 private:
  TrainingRank() = default;

  // Returns the nanoseconds of each step.
  absl::StatusOr<std::string> TimesOf(const Request& request) {
    const std::string what =
        absl::StrCat(request.kind, " ", request.tensors, " ", request.size, " ",
                     request.microseconds);
    if (what != what_) {
      subject_.reset();  // before the next one needs memory
      subject_ = MakeSubject(request);
      what_ = what;
    }
    if (subject_ == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("no kind: ", what));
    }
    Communicator& shm = *groups_["shm"];
    const bool is_tcp = request.way.find("tcp") != std::string::npos;
    Communicator& group = is_tcp ? *groups_["tcp"] : shm;
    LOCKSTEP_RETURN_IF_ERROR(subject_->Open(request.way, group));
    std::string times;
    for (int64_t i = 0; i < request.steps; ++i) {
      LOCKSTEP_RETURN_IF_ERROR(subject_->Prepare(request.way));
      LOCKSTEP_RETURN_IF_ERROR(Wait(shm.Barrier()));
      const SteadyTime begin = SteadyNow();
      LOCKSTEP_RETURN_IF_ERROR(subject_->Run(request.way, group));
      absl::StrAppend(
          &times,
          absl::ToInt64Nanoseconds(absl::FromChrono(SteadyNow() - begin)), " ");
    }
    return times;
  }

  std::map<std::string, std::unique_ptr<Communicator>> groups_;
  std::string what_;
  std::unique_ptr<Subject> subject_;  // of the last request
};

absl::Status Answer(World& world, std::istream& requests,
                    std::ostream& answers) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto rank, TrainingRank::Join(world));
  return rank->Answer(requests, answers);
}

absl::Status JoinAndAnswer(int number, const std::string& folder,
                           const std::string& interface) {
  WorldOptions options;
  options.interface = interface;
  if (!interface.empty()) options.token = "of two hosts on one machine";
  options.init = "file://" + folder;
  options.rank = number;
  options.size = kRanks;
  LOCKSTEP_ASSIGN_OR_RETURN(const auto world, World::Join(options));
  return Answer(*world, std::cin, std::cout);
}

absl::Status AnswerOnce() {
  std::string requests;
  for (const char* const way : {"plain", "shm", "shm_overwrite", "tcp",
                                "tcp_overwrite", "raw_tcp", "copy", "pass"}) {
    absl::StrAppend(&requests, "model ", way, " 4 8 2\n");
  }
  for (const char* const way : {"plain", "shm", "shm_overwrite"}) {
    absl::StrAppend(&requests, "gradients ", way, " 3 100 2\n");
  }
  for (const char* const way : {"plain", "shm"}) {
    absl::StrAppend(&requests, "parts ", way, " 4 8 2\n");
  }
  for (const char* const way : {"plain", "tcp_on", "tcp_auto", "tcp_off"}) {
    absl::StrAppend(&requests, "paced ", way, " 3 100 2 30\n");
  }
  absl::Status all;
  for (const absl::Status& status :
       LocalWorld(kRanks).Run([&](World& world) -> absl::Status {
         std::istringstream lines(requests);
         std::ostringstream answers;
         return Answer(world, lines, answers);
       })) {
    all.Update(status);
  }
  return all;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  const bool once = argc == 2 && absl::string_view(argv[1]) == "--once";
  if (argc != 3 && argc != 4 && !once) {
    std::cerr << "usage: training_benchmark RANK FOLDER [INTERFACE]\n"
                 "       training_benchmark --once\n";
    return 2;
  }
  const absl::Status status =
      once ? lockstep::AnswerOnce()
           : lockstep::JoinAndAnswer(std::atoi(argv[1]), argv[2],
                                     argc == 4 ? argv[3] : "");
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}
