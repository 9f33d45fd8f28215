#!/bin/sh
# Writes four tar files of samples for examples/shards.cc:
#
#   make_shards.sh FOLDER FILE...
#
# Each line of the files that has 20 characters or more is a sample: its text is a
# member, such as 7.txt, and the number of its file another one, 7.cls. The same files
# give the same tar files.
set -eu
folder=$1
shift
mkdir -p "$folder/members"
label=0
first=0
for file in "$@"; do
  awk -v folder="$folder/members" -v label="$label" -v sample="$first" '
    length($0) >= 20 {
      name = folder "/" ++sample
      print > (name ".txt"); close(name ".txt")
      print label > (name ".cls"); close(name ".cls")
    }' "$file"
  label=$((label + 1))
  first=$(find "$folder/members" -name '*.cls' | wc -l)
done
cd "$folder/members"
for shard in 0 1 2 3; do
  for sample in $(seq $((shard + 1)) 4 "$first"); do
    printf '%s.cls\n%s.txt\n' "$sample" "$sample"
  done |
    tar --create --format=ustar --owner=0 --group=0 --mtime=@0 --mode=644 \
      --files-from=- --file="../train-$shard.tar"
done
rm -r "$PWD"
