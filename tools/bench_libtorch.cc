// Measures libtorch's torch::data::DataLoader, so that tools/bench_loader.py
// can compare Lockstep's loader with it. This is no Bazel target, since nothing
// else here needs libtorch. Compile it with g++ -std=c++17 -O3 -isystem
// /usr/include/torch/csrc/api/include, and after the file -ltorch -ltorch_cpu
// -lc10 -pthread.
//
//   bench_libtorch gather ROWS FLOATS BATCH WORKERS MAX_JOBS EPOCHS
//   bench_libtorch handoff SAMPLES BATCH WORKERS MAX_JOBS
//   bench_libtorch first SAMPLE_US BATCH WORKERS
//   bench_libtorch errors
//
// Each prints one JSON object; times are in seconds.
#include <torch/data.h>
#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

namespace data = torch::data;

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

data::DataLoaderOptions Options(int64_t batch, int64_t workers,
                                int64_t max_jobs) {
  return data::DataLoaderOptions(batch).workers(workers).max_jobs(max_jobs);
}

// Returns rows one by one, and libtorch stacks them. Its tutorials show this
// way.
class Rows : public data::datasets::Dataset<Rows, data::TensorExample> {
 public:
  explicit Rows(torch::Tensor table) : table_(std::move(table)) {}

  data::TensorExample get(size_t index) override {
    return table_[static_cast<int64_t>(index)];
  }
  torch::optional<size_t> size() const override { return table_.size(0); }

 private:
  torch::Tensor table_;
};

// Returns a whole batch by one call of libtorch.
class Selected : public data::datasets::BatchDataset<Selected, torch::Tensor> {
 public:
  explicit Selected(torch::Tensor table) : table_(std::move(table)) {}

  torch::Tensor get_batch(torch::ArrayRef<size_t> indices) override {
    const torch::Tensor wanted =
        torch::from_blob(const_cast<size_t*>(indices.data()),
                         {static_cast<int64_t>(indices.size())}, torch::kInt64);
    return table_.index_select(0, wanted);
  }
  torch::optional<size_t> size() const override { return table_.size(0); }

 private:
  torch::Tensor table_;
};

// Returns a whole batch that is copied without libtorch's operators, so that
// only the loader is measured.
class Copied : public data::datasets::BatchDataset<Copied, torch::Tensor> {
 public:
  explicit Copied(torch::Tensor table) : table_(std::move(table)) {}

  torch::Tensor get_batch(torch::ArrayRef<size_t> indices) override {
    const int64_t floats = table_.size(1);
    torch::Tensor batch =
        torch::empty({static_cast<int64_t>(indices.size()), floats});
    const float* from = table_.data_ptr<float>();
    float* to = batch.data_ptr<float>();
    for (const size_t index : indices) {
      std::memcpy(to, from + index * floats, floats * sizeof(float));
      to += floats;
    }
    return batch;
  }
  torch::optional<size_t> size() const override { return table_.size(0); }

 private:
  torch::Tensor table_;
};

int64_t RowsOf(const torch::Tensor& batch) { return batch.size(0); }
int64_t RowsOf(const data::TensorExample& batch) { return batch.data.size(0); }

// Returns the seconds of each epoch. All epochs use the same loader and
// threads.
template <typename Set>
std::vector<double> Epochs(Set set, const data::DataLoaderOptions& options,
                           int64_t epochs) {
  const int64_t rows = static_cast<int64_t>(*set.size());
  auto loader = data::make_data_loader<data::samplers::RandomSampler>(
      std::move(set), options);
  std::vector<double> seconds;
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    int64_t seen = 0;
    const Clock::time_point start = Clock::now();
    for (const auto& batch : *loader) seen += RowsOf(batch);
    seconds.push_back(SecondsSince(start));
    if (seen != rows) throw std::runtime_error("an epoch lost rows");
  }
  return seconds;
}

std::string List(const std::vector<double>& values) {
  std::string list;
  for (const double value : values) {
    list += (list.empty() ? "" : ", ") + std::to_string(value);
  }
  return "[" + list + "]";
}

void Gather(const std::vector<int64_t>& args) {
  const int64_t rows = args[0], floats = args[1], epochs = args[5];
  const data::DataLoaderOptions options = Options(args[2], args[3], args[4]);
  const torch::Tensor table = torch::ones({rows, floats});
  const std::vector<std::pair<std::string, std::vector<double>>> ways = {
      {"stack",
       Epochs(Rows(table).map(data::transforms::Stack<data::TensorExample>()),
              options, epochs)},
      {"index_select", Epochs(Selected(table), options, epochs)},
      {"memcpy", Epochs(Copied(table), options, epochs)}};
  std::string best, all;
  for (const auto& [way, seconds] : ways) {
    best += ", \"" + way + "\": " +
            std::to_string(*std::min_element(seconds.begin(), seconds.end()));
    all += (all.empty() ? "\"" : ", \"") + way + "\": " + List(seconds);
  }
  std::cout << "{\"torch\": \"" << TORCH_VERSION << "\", \"rows\": " << rows
            << best << ", \"all\": {" << all << "}}\n";
}

// Has samples that take no time.
class Nothing : public data::datasets::Dataset<Nothing, int> {
 public:
  explicit Nothing(size_t size) : size_(size) {}

  int get(size_t index) override { return static_cast<int>(index); }
  torch::optional<size_t> size() const override { return size_; }

 private:
  size_t size_;
};

void HandOff(const std::vector<int64_t>& args) {
  auto loader = data::make_data_loader<data::samplers::SequentialSampler>(
      Nothing(args[0]), Options(args[1], args[2], args[3]));
  int64_t batches = 0;
  const Clock::time_point start = Clock::now();
  for (const auto& batch : *loader) batches += batch.empty() ? 0 : 1;
  std::cout << "{\"batch\": " << SecondsSince(start) / batches
            << ", \"batches\": " << batches << "}\n";
}

// Has samples that take time, but use no processor.
class Sleeping : public data::datasets::Dataset<Sleeping, int> {
 public:
  explicit Sleeping(int64_t microseconds) : time_(microseconds) {}

  int get(size_t index) override {
    std::this_thread::sleep_for(time_);
    return static_cast<int>(index);
  }
  torch::optional<size_t> size() const override { return 1 << 20; }

 private:
  std::chrono::microseconds time_;
};

void First(const std::vector<int64_t>& args) {
  const Clock::time_point start = Clock::now();
  auto loader = data::make_data_loader<data::samplers::SequentialSampler>(
      Sleeping(args[0]), Options(args[1], args[2], 2 * args[2]));
  const size_t samples = loader->begin()->size();
  std::cout << "{\"first\": " << SecondsSince(start)
            << ", \"samples\": " << samples << "}\n";
}

// Throws at every tenth sample.
class Failing : public data::datasets::Dataset<Failing, int> {
 public:
  int get(size_t index) override {
    if (index % 10 == 9) throw std::runtime_error("a bad sample");
    return static_cast<int>(index);
  }
  torch::optional<size_t> size() const override { return 1000; }
};

// Continues after each error until the loader says that the epoch has ended.
void Errors(const std::vector<int64_t>&) {
  auto loader = data::make_data_loader<data::samplers::SequentialSampler>(
      Failing(), Options(1, 2, 4));
  int64_t good = 0, errors = 0;
  auto at = loader->begin();
  const auto end = loader->end();
  bool ended = at == end;  // Fetches sample 0, which is good.
  while (!ended) {
    ++good;
    for (bool failed = true; failed;) {
      try {
        ++at;
        failed = false;
      } catch (const data::WorkerException&) {
        ++errors;
      }
    }
    ended = at == end;
  }
  std::cout << "{\"good\": " << good << ", \"errors\": " << errors
            << ", \"samples\": 1000}\n";
}

struct Case {
  std::string name;
  size_t arguments;
  void (*run)(const std::vector<int64_t>&);
};

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(1);  // The workers run in parallel.
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (const Case& each :
       {Case{"gather", 6, Gather}, Case{"handoff", 4, HandOff},
        Case{"first", 3, First}, Case{"errors", 0, Errors}}) {
    if (words.empty() || words[0] != each.name) continue;
    if (words.size() != each.arguments + 1) break;
    std::vector<int64_t> numbers;
    for (size_t i = 1; i < words.size(); ++i) {
      numbers.push_back(std::stoll(words[i]));
    }
    each.run(numbers);
    return 0;
  }
  std::cerr << "usage: see the top of tools/bench_libtorch.cc\n";
  return 2;
}
