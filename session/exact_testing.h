// A trainer whose gradients are exact, for tests: its result has one digest on
// any number of ranks. It learns a function of eight numbers, which are those
// of a sample, or the first ones of a packed row.
#ifndef LOCKSTEP_SESSION_EXACT_TESTING_H_
#define LOCKSTEP_SESSION_EXACT_TESTING_H_

#include <signal.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "lockstep/base/dtype.h"
#include "lockstep/base/fingerprint.h"
#include "lockstep/base/language.h"
#include "lockstep/base/option_table.h"
#include "lockstep/base/random.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/collective/buffer.h"
#include "lockstep/gradients/gradients.h"
#include "lockstep/loader/batch.h"
#include "lockstep/loader/dataset.h"
#include "lockstep/loader/field.h"
#include "lockstep/loader/loader.h"
#include "lockstep/plugin/registry.h"
#include "lockstep/session/session.h"
#include "lockstep/session/sums.h"

namespace lockstep {

inline constexpr int64_t kExactInputs = 8;
inline constexpr int64_t kExactHidden = 12;
inline constexpr int64_t kExactTable = 10'000;  // more than the smallest bucket
inline constexpr double kExactRate = 0.2;       // at the beginning

// ---- The data.

struct MadeOptions {
  int64_t size = 500;
  int64_t broken_every = 0;  // each so many-th sample can't be read; 0: none
  bool documents = false;    // samples have 1 to 5 numbers
};

inline void BindOptions(MadeOptions& options, OptionTable& table) {
  table.Add("size", &options.size, "How many samples there are.");
  table.Add("broken_every", &options.broken_every, "Which can't be read.");
  table.Add("documents", &options.documents, "Whether lengths differ.");
}

// Samples of random numbers, with some noise that is new in each epoch.
// Thread-safety: thread-safe.
class Made : public Dataset {
 public:
  explicit Made(const MadeOptions& options)
      : options_(options),
        fields_({{"x",
                  DType::kF32,
                  {options.documents ? -1 : kExactInputs},
                  options.documents ? 5 : 0}}) {}
  int64_t size() const override { return options_.size; }
  absl::Span<const FieldSpec> fields() const override { return fields_; }
  absl::Status Read(int64_t index, SampleContext& context,
                    SampleRow& row) override {
    if (options_.broken_every > 0 && index % options_.broken_every == 1) {
      return absl::DataLossError("a bad sector");
    }
    Random random(RandomKey(7, 8, 0), index);
    std::vector<float> x(static_cast<size_t>(Length(index)));
    for (float& each : x) {
      each = 2 * static_cast<float>(random.Uniform()) - 1;
      each += 0.1F * static_cast<float>(context.rng().Uniform());
    }
    return row.Copy<float>(0, x);
  }
  absl::StatusOr<Column> ReadColumn(absl::string_view name) override {
    if (name != "length") return Dataset::ReadColumn(name);
    std::vector<int64_t> lengths;
    for (int64_t i = 0; i < size(); ++i) lengths.push_back(Length(i));
    return lengths;
  }

 private:
  int64_t Length(int64_t index) const {
    return options_.documents ? 1 + index % 5 : kExactInputs;
  }

  const MadeOptions options_;
  const std::vector<FieldSpec> fields_;
};

inline absl::Status RegisterMade(PluginRegistry& registry) {
  return registry.Add<Dataset, MadeOptions>(
      "made", "Random numbers.",
      [](const PluginContext&, const MadeOptions& options)
          -> absl::StatusOr<std::shared_ptr<Dataset>> {
        return std::make_shared<Made>(options);
      });
}

// ---- The model.

// A layer of rectified sums, and a sum of these and of an element of a table,
// which the row chooses.
struct ExactModel {
  std::vector<float> hidden, hidden_bias, output, table;
  absl::Span<float> hidden_gradient, hidden_bias_gradient, output_gradient,
      table_gradient;
  std::vector<float> momentum;

  ExactModel()
      : hidden(kExactInputs * kExactHidden),
        hidden_bias(kExactHidden),
        output(kExactHidden),
        table(kExactTable),
        momentum(hidden.size() + hidden_bias.size() + output.size() +
                 table.size()) {
    Random random(RandomKey(9, 9, 0), 0);
    for (float& each : hidden)
      each = static_cast<float>(random.Uniform()) - 0.5F;
    for (float& each : output)
      each = static_cast<float>(random.Uniform()) - 0.5F;
  }

  std::vector<Parameter> parameters() {
    return {{"hidden", BufferOf(hidden)},
            {"hidden_bias", BufferOf(hidden_bias)},
            {"output", BufferOf(output)},
            {"table", BufferOf(table)}};
  }

  absl::Status Bind(const Gradients& gradients) {
    LOCKSTEP_ASSIGN_OR_RETURN(hidden_gradient, gradients.Of<float>("hidden"));
    LOCKSTEP_ASSIGN_OR_RETURN(hidden_bias_gradient,
                              gradients.Of<float>("hidden_bias"));
    LOCKSTEP_ASSIGN_OR_RETURN(output_gradient, gradients.Of<float>("output"));
    LOCKSTEP_ASSIGN_OR_RETURN(table_gradient, gradients.Of<float>("table"));
    return absl::OkStatus();
  }

  // Returns the loss of a row, and adds its gradients if `adds` is true.
  double Row(const float* x, bool adds) {
    float active[kExactHidden];
    const auto chosen =
        static_cast<size_t>(std::fabs(x[5]) * 1e6F) % table.size();
    float result = table[chosen];
    for (size_t j = 0; j < kExactHidden; ++j) {
      float sum = hidden_bias[j];
      for (size_t i = 0; i < kExactInputs; ++i) {
        sum += hidden[j * kExactInputs + i] * x[i];
      }
      active[j] = std::max(sum, 0.0F);
      result += output[j] * active[j];
    }
    const float wanted = x[0] * x[1] - x[2] * x[3] + 0.3F * x[4];
    const float error = result - wanted;
    if (adds) {
      table_gradient[chosen] += error;
      for (size_t j = 0; j < kExactHidden; ++j) {
        output_gradient[j] += error * active[j];
        if (active[j] <= 0) continue;
        const float back = error * output[j];
        hidden_bias_gradient[j] += back;
        for (size_t i = 0; i < kExactInputs; ++i) {
          hidden_gradient[j * kExactInputs + i] += back * x[i];
        }
      }
    }
    return double{error} * double{error};
  }

  void Update(float rate) {
    size_t next = 0;
    const auto update = [&](std::vector<float>& values,
                            absl::Span<const float> gradient) {
      for (size_t i = 0; i < values.size(); ++i) {
        float& speed = momentum[next++];
        speed = 0.9F * speed + gradient[i];
        values[i] -= rate * speed;
      }
    };
    update(hidden, hidden_gradient);
    update(hidden_bias, hidden_bias_gradient);
    update(output, output_gradient);
    update(table, table_gradient);
  }
};

// ---- The trainer.

struct ExactTrainerOptions {
  int64_t epochs = 19;
  bool marks = false;  // says when gradients are whole
  GradientsOptions::Overlap overlap = GradientsOptions::Overlap::kOff;
  int64_t bucket_bytes = 0;
  // This rank kills itself in this step.
  int64_t kill_rank = -1;
  int64_t kill_step = -1;
};

inline void BindOptions(ExactTrainerOptions& options, OptionTable& table) {
  table.Add("epochs", &options.epochs, "How often all samples come.");
  table.Add("kill_rank", &options.kill_rank, "The rank that kills itself.");
  table.Add("kill_step", &options.kill_step, "The step in which it does so.");
}

// Returns the loss of a batch, adds its gradients if `adds` is true, and sets
// `tokens` to the number of samples in its rows.
inline absl::StatusOr<double> LossOf(const Batch& batch, bool adds,
                                     ExactModel& model, double& tokens) {
  LOCKSTEP_ASSIGN_OR_RETURN(const auto x, batch.Values<float>("x"));
  double loss = 0;
  tokens = 0;
  for (int64_t row = 0; row < batch.valid(); ++row) {
    loss += model.Row(&x[static_cast<size_t>(row * kExactInputs)], adds);
    const auto splits = batch.sample_splits();
    tokens +=
        splits.empty() ? 1 : static_cast<double>(splits[row + 1] - splits[row]);
  }
  return loss;
}

inline std::string DigestOfAll(const ExactModel& model,
                               const std::vector<double>& told) {
  std::string all;
  for (const std::vector<float>* const part :
       {&model.hidden, &model.hidden_bias, &model.output, &model.table,
        &model.momentum}) {
    all.append(reinterpret_cast<const char*>(part->data()),
               part->size() * sizeof(float));
  }
  all.append(reinterpret_cast<const char*>(told.data()),
             told.size() * sizeof(double));
  return DigestOf(all).ToString();
}

// Trains, and sets `digest` to that of all state at the end.
inline absl::Status TrainExactly(Session& session,
                                 const ExactTrainerOptions& options,
                                 std::string* digest) {
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const train, session.MakeLoader("train"));
  LOCKSTEP_ASSIGN_OR_RETURN(Loader* const test, session.MakeLoader("test"));
  ExactModel model;
  GradientsOptions how;
  how.overlap = options.overlap;
  how.bucket_bytes = options.bucket_bytes;
  LOCKSTEP_ASSIGN_OR_RETURN(Gradients* const gradients,
                            session.MakeGradients(model.parameters(), how));
  LOCKSTEP_RETURN_IF_ERROR(model.Bind(*gradients));
  LOCKSTEP_RETURN_IF_ERROR(session.AddState("momentum", &model.momentum));
  // The learning rate, the best loss, and what depends on all means so far.
  std::vector<double> told = {kExactRate,
                              std::numeric_limits<double>::infinity(), 0};
  LOCKSTEP_RETURN_IF_ERROR(session.AddState("told", &told));
  LOCKSTEP_RETURN_IF_ERROR(session.Restore());

  const auto tell = [&](double value) { told[2] = 0.9 * told[2] + value; };
  for (const int64_t epoch : session.Epochs(*train, options.epochs)) {
    for (Step& step : session.Steps(*train, epoch)) {
      const bool dies = session.rank() == options.kill_rank &&
                        session.steps() + 1 == options.kill_step;
      for (const Batch& batch : step) {
        double tokens = 0;
        LOCKSTEP_ASSIGN_OR_RETURN(const double loss,
                                  LossOf(batch, true, model, tokens));
        for (int64_t i = 3; options.marks && i >= 0; --i) {
          gradients->MarkReady(i);
        }
        step.AddWeight(static_cast<int64_t>(tokens));
        step.Add("loss", loss);
        step.Add("loss of rows", loss, static_cast<double>(batch.valid()));
        if (dies && batch.part() % 2 == options.kill_step % 2) {
          ::raise(SIGKILL);
        }
      }
      LOCKSTEP_RETURN_IF_ERROR(step.Average(*gradients));
      if (dies) ::raise(SIGKILL);
      if (gradients->last().skipped) continue;
      tell(gradients->last().norm);
      tell(step.mean("loss"));
      tell(step.mean("loss of rows"));
      LOCKSTEP_RETURN_IF_ERROR(gradients->ClipByNorm(0.5));
      model.Update(static_cast<float>(told[0]));
    }
    LOCKSTEP_ASSIGN_OR_RETURN(
        const Evaluation tested,
        session.Evaluate(*test, [&](const Batch& batch, Sums& sums) {
          double tokens = 0;
          LOCKSTEP_ASSIGN_OR_RETURN(const double loss,
                                    LossOf(batch, false, model, tokens));
          sums.Add("loss", loss);
          sums.Add("loss of tokens", loss, tokens);
          return absl::OkStatus();
        }));
    const double mean = tested.mean("loss of tokens");
    tell(tested.mean("loss"));
    tell(mean);
    if (mean >= told[1]) told[0] *= 0.5;  // it is on a plateau
    told[1] = std::min(told[1], mean);
  }
  *digest = absl::StrCat(DigestOfAll(model, told), " after ", session.steps(),
                         " steps, rate ", told[0], ", loss ", told[1]);
  return absl::OkStatus();
}

// ---- The job.

// The settings of a job for TrainExactly.
struct ExactJob {
  int64_t shards = 24;
  bool exact = true;  // if not, the loaders have the same shards all the same
  int64_t micro_batch_size = 0;
  bool packed = false;
  std::string path;  // of checkpoints; empty: none
  int64_t every_steps = 0;

  std::string Text() const {
    const std::string own = exact ? "" : absl::StrCat(", shards = ", shards);
    const std::string train =
        packed
            ? absl::StrCat(
                  "sampler = {name = \"packed\", row_length = 8, "
                  "window_batches = 3, seed = 7, global_batch_size = 24, tail "
                  "= \"uneven\"",
                  own,
                  "}\ndataset = {name = \"made\", size = 700, documents = "
                  "true}\n")
            : absl::StrCat(
                  "on_error = \"skip\"\nsampler = {name = \"native_shuffle\", "
                  "seed = 3, global_batch_size = 48, tail = \"uneven\"",
                  own,
                  "}\ndataset = {name = \"made\", size = 500, broken_every = "
                  "97}\n");
    std::string text = absl::StrCat(
        "[gradients]\nexact = ", exact ? "true" : "false",
        "\nshards = ", shards,
        "\n[progress]\nevery = \"0s\"\n[loader.train]\nnum_workers = 0\nseed = "
        "5\nmicro_batch_size = ",
        micro_batch_size, "\n", train,
        "[loader.test]\nnum_workers = 0\nseed = 6\ndataset = {name = \"made\", "
        "size = 130}\nsampler = {name = \"sequential\", global_batch_size = "
        "48, tail = \"mask\"",
        own, "}\n");
    if (path.empty()) return text;
    return absl::StrCat(text, "[checkpoint]\npath = \"", path,
                        "\"\nevery_steps = ", every_steps, "\n");
  }
};

}  // namespace lockstep

#endif  // LOCKSTEP_SESSION_EXACT_TESTING_H_
