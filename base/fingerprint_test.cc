#include "lockstep/base/fingerprint.h"

#include <string>

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(Digest, GivesTheKnownAnswers) {
  EXPECT_EQ(DigestOf("").ToString(), "00000000000000000000000000000000");
  EXPECT_EQ(DigestOf("hello").ToString(), "cbd8a7b341bd9b025b1e906a48ae1d19");
  EXPECT_EQ(DigestOf("The quick brown fox jumps over the lazy dog").ToString(),
            "e34bbc7bbc071b6c7a433ca9c49a9347");
}

std::string Bytes(const Digest128& digest) {
  std::string bytes;
  for (const uint64_t word : {digest.low, digest.high}) {
    for (int i = 0; i < 8; ++i) {
      bytes += static_cast<char>(word >> (8 * i) & 0xff);
    }
  }
  return bytes;
}

// Digests texts of every length from 0 to 255, so every length of the last
// partial block. The expected value is the digest of all these digests,
// computed by another implementation of MurmurHash3.
TEST(Digest, OfEveryLength) {
  std::string digests, text;
  for (int i = 0; i < 256; ++i) {
    digests += Bytes(DigestOf(text));
    text += static_cast<char>(i);
  }
  EXPECT_EQ(DigestOf(digests).ToString(), "094b2be001c08d449f3dda46c00be481");
}

Fingerprint Make(const std::string& seed, const std::string& order) {
  Fingerprint fingerprint;
  fingerprint.Add("seed", seed);
  fingerprint.Add("order", order);
  return fingerprint;
}

TEST(Fingerprint, IsTheSameInEveryRelease) {
  const Fingerprint fingerprint = Make("7", "native");
  EXPECT_EQ(fingerprint.summary().ToString(),
            "269a61285a7db97ef1b165573752b076");
  EXPECT_EQ(fingerprint.fields()[0].name, "seed");
  EXPECT_EQ(fingerprint.fields()[0].digest, DigestOf("7").low);
}

TEST(Fingerprint, NamesTheFirstDifference) {
  const Fingerprint mine = Make("7", "native");
  EXPECT_EQ(FirstDifference(mine, Make("7", "native")), "");
  EXPECT_EQ(FirstDifference(mine, Make("8", "native")), "seed");
  EXPECT_EQ(FirstDifference(mine, Make("7", "torch")), "order");
  EXPECT_EQ(FirstDifference(mine, Make("8", "torch")), "seed");
  EXPECT_EQ(mine.summary(), Make("7", "native").summary());
  EXPECT_NE(mine.summary(), Make("7", "torch").summary());
}

TEST(Fingerprint, MissingFieldIsADifference) {
  const Fingerprint shorter = Make("7", "native");
  Fingerprint longer = shorter;
  longer.Add("world", "2");
  EXPECT_EQ(FirstDifference(shorter, longer), "world");
  EXPECT_EQ(FirstDifference(longer, shorter), "world");
  EXPECT_EQ(FirstDifference(Fingerprint(), shorter), "seed");
}

TEST(Fingerprint, NameAndOrderCount) {
  Fingerprint ab, ba, renamed;
  ab.Add("a", "1");
  ab.Add("b", "1");
  ba.Add("b", "1");
  ba.Add("a", "1");
  renamed.Add("a", "1");
  renamed.Add("c", "1");
  EXPECT_NE(ab.summary(), ba.summary());
  EXPECT_NE(ab.summary(), renamed.summary());
  EXPECT_EQ(FirstDifference(ab, renamed), "b");
}

}  // namespace
}  // namespace lockstep
