#!/bin/sh
# Writes 64 small PNG images for examples/images.cc, in a folder for each class:
#
#   make_images.sh FOLDER
#
# Those in FOLDER/cold are rather blue, and those in FOLDER/warm are rather red. The
# same call gives the same files. gzip compresses the pixels, and its checksums are
# those that PNG needs.
set -eu
folder=$1
width=24
height=20

# Writes the bytes whose values are given, one to a word.
bytes() {
  # shellcheck disable=SC2059  # the formats are octal bytes
  printf "$(printf '\\%03o' "$@")"
}

# Writes a number as four bytes.
number() {
  bytes $(($1 / 16777216)) $(($1 / 65536 % 256)) $(($1 / 256 % 256)) $(($1 % 256))
}

# Writes the file $2 as a chunk of the kind $1.
chunk() {
  number "$(wc -c <"$2")"
  { printf '%s' "$1" && cat "$2"; } >chunk
  cat chunk
  # gzip ends with the checksum of its input, whose lowest byte comes first.
  # shellcheck disable=SC2046  # eight words
  set -- $(gzip -nc chunk | tail -c 8 | od -An -tu1)
  bytes "$4" "$3" "$2" "$1"
}

# Writes the rows of an image as PNG stores them, one value of a byte to a line: a 0
# and three bytes for each pixel. $1 is the class, and $2 the number of the image.
rows() {
  awk -v warm="$1" -v seed="$2" -v width=$width -v height=$height 'BEGIN {
    state = seed * 7919 + 17
    for (y = 0; y < height; ++y) {
      print 0
      for (x = 0; x < width; ++x) {
        for (c = 0; c < 3; ++c) {
          state = (state * 1103515 + 12345) % 2147483
          print 90 + (warm ? 2 - c : c) * 20 + state % 80
        }
      }
    }
  }'
}

mkdir -p "$folder/cold" "$folder/warm"
work=$(mktemp -d)
folder=$(cd "$folder" && pwd)
cd "$work"
for image in $(seq 0 63); do
  class=$((image % 2))
  rows $class "$image" >values
  awk '{ printf "\\%03o", $1 }' values >octal
  # shellcheck disable=SC2059  # the format is octal bytes
  printf "$(cat octal)" >pixels
  { number $width; number $height; bytes 8 2 0 0 0; } >header
  # A zlib stream is what gzip has between its header and its checksum, and a
  # checksum of its own, Adler-32.
  {
    bytes 120 156
    gzip -nc pixels | tail -c +11 | head -c -8
    # shellcheck disable=SC2046  # four words
    bytes $(awk 'BEGIN { a = 1 } { a = (a + $1) % 65521; b = (b + a) % 65521 }
      END { print int(b / 256), b % 256, int(a / 256), a % 256 }' values)
  } >data
  : >nothing
  name=$folder/$([ $class = 0 ] && echo cold || echo warm)/$image.png
  {
    bytes 137 80 78 71 13 10 26 10
    chunk IHDR header
    chunk IDAT data
    chunk IEND nothing
  } >"$name"
done
cd "$folder"
rm -r "$work"
