// This program measures the time that bare libjpeg-turbo takes to decode
// images, for bench_images.py.
//
//   bench_turbojpeg FOLDER
//
// FOLDER has tar files, whose members *.jpg are read into memory. Two threads
// decode them by tjDecompress2 at 1/1 and at 1/2 of their size, each with a
// handle that it keeps, at the highest quality. The program prints one JSON
// object, with seconds per image, of the fastest of the epochs of two seconds:
// "1/1" and "1/2" into one buffer for each thread, and "1/1 batches" and "1/2
// batches" into as many buffers as six batches have. No thread takes the
// pixels.
#include <turbojpeg.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kBatch = 64;
constexpr std::size_t kMostBytes = 1000000000;  // of the buffers together

using Jpeg = std::vector<unsigned char>;
using Pixels = std::unique_ptr<unsigned char[]>;

[[noreturn]] void Fail(const std::string& why) {
  std::fprintf(stderr, "bench_turbojpeg: %s\n", why.c_str());
  std::exit(1);
}

// Appends the images of a tar file with plain headers.
void ReadShard(const std::string& path, std::vector<Jpeg>& images) {
  constexpr std::size_t kBlock = 512;
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> tar{std::istreambuf_iterator<char>(file), {}};
  std::size_t at = 0;
  while (at + kBlock <= tar.size() && tar[at] != '\0') {
    const std::string name(tar.data() + at);
    const std::size_t size = std::strtoull(tar.data() + at + 124, nullptr, 8);
    at += kBlock;
    if (name.size() > 4 && name.substr(name.size() - 4) == ".jpg") {
      images.emplace_back(tar.begin() + static_cast<std::ptrdiff_t>(at),
                          tar.begin() + static_cast<std::ptrdiff_t>(at + size));
    }
    at += (size + kBlock - 1) / kBlock * kBlock;
  }
}

// Decodes images by two threads.
class Decoder {
 public:
  // Each thread has `buffers` buffers, for the largest image of all.
  Decoder(const std::vector<Jpeg>& images, int divisor, std::size_t buffers)
      : images_(images), scale_{1, divisor} {
    for (int thread = 0; thread < 2; ++thread) {
      handles_[thread] = tjInitDecompress();
      if (handles_[thread] == nullptr) Fail(tjGetErrorStr2(nullptr));
    }
    std::size_t largest = 0;
    for (const Jpeg& image : images) {
      int width = 0;
      int height = 0;
      ReadHeader(handles_[0], image, width, height);
      largest = std::max(largest, static_cast<std::size_t>(width) *
                                      static_cast<std::size_t>(height) * 3);
    }
    buffers =
        std::min(buffers, std::max<std::size_t>(kMostBytes / largest / 2, 1));
    for (std::vector<Pixels>& pixels : pixels_) {
      for (std::size_t i = 0; i < buffers; ++i) {
        pixels.push_back(std::make_unique<unsigned char[]>(largest));
      }
    }
  }
  ~Decoder() {
    for (const tjhandle handle : handles_) tjDestroy(handle);
  }
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // Returns the seconds that all images take.
  double DecodeAll() {
    const auto begin = std::chrono::steady_clock::now();
    next_ = 0;
    std::thread other([this] { Decode(1); });
    Decode(0);
    other.join();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         begin)
        .count();
  }

 private:
  // Sets the size that an image is decoded to.
  void ReadHeader(tjhandle handle, const Jpeg& image, int& width,
                  int& height) const {
    int subsampling = 0;
    int colours = 0;
    if (tjDecompressHeader3(handle, image.data(), image.size(), &width, &height,
                            &subsampling, &colours) != 0) {
      Fail(tjGetErrorStr2(handle));
    }
    width = TJSCALED(width, scale_);
    height = TJSCALED(height, scale_);
  }

  void Decode(int thread) {
    const tjhandle handle = handles_[thread];
    std::size_t buffer = 0;
    for (std::size_t i = next_++; i < images_.size(); i = next_++) {
      const Jpeg& image = images_[i];
      int width = 0;
      int height = 0;
      ReadHeader(handle, image, width, height);
      unsigned char* const to = pixels_[thread][buffer].get();
      buffer = (buffer + 1) % pixels_[thread].size();
      if (tjDecompress2(handle, image.data(), image.size(), to, width,
                        /*pitch=*/0, height, TJPF_RGB, /*flags=*/0) != 0) {
        Fail(tjGetErrorStr2(handle));
      }
    }
  }

  const std::vector<Jpeg>& images_;
  const tjscalingfactor scale_;
  tjhandle handles_[2] = {};
  std::vector<Pixels> pixels_[2];
  std::atomic<std::size_t> next_{0};
};

double SecondsOf(const std::vector<Jpeg>& images, int divisor,
                 std::size_t buffers) {
  Decoder decoder(images, divisor, buffers);
  decoder.DecodeAll();
  double best = 0;
  double sum = 0;
  while (sum < 2.0) {
    const double seconds = decoder.DecodeAll();
    if (sum == 0 || seconds < best) best = seconds;
    sum += seconds;
  }
  return best / static_cast<double>(images.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) Fail("the argument should be a folder");
  std::vector<std::string> shards;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    if (entry.path().extension() == ".tar") shards.push_back(entry.path());
  }
  std::sort(shards.begin(), shards.end());
  std::vector<Jpeg> images;
  for (const std::string& shard : shards) ReadShard(shard, images);
  if (images.empty()) Fail("there are no images");
  constexpr std::size_t kBuffers = 6 * kBatch / 2;  // of each thread
  std::printf(
      "{\"1/1\": %.9f, \"1/1 batches\": %.9f, \"1/2\": %.9f, "
      "\"1/2 batches\": %.9f}\n",
      SecondsOf(images, 1, 1), SecondsOf(images, 1, kBuffers),
      SecondsOf(images, 2, 1), SecondsOf(images, 2, kBuffers));
}
