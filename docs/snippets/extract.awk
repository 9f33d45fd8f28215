# Prints one block of a document: the one whose opening fence has `language` and
# `name`. C++ gets a #line, so that a compiler's messages tell the place in the
# document. Fails unless there is exactly one such block.
#
#   awk -v language=cpp -v name=ring -f extract.awk docs/plugin.md
BEGIN { found = 0 }
/^ *```/ {
  if (inside) {
    inside = printing = 0
  } else {
    inside = 1
    indent = match($0, /`/) - 1
    if ($1 == "```" language && $2 == name) {
      found++
      printing = 1
      if (language == "cpp") printf "#line %d \"%s\"\n", NR + 1, FILENAME
    }
  }
  next
}
printing { print substr($0, indent + 1) }
END {
  if (found != 1) {
    printf "%s has %d blocks of %s called %s, and not 1\n", \
      FILENAME, found, language, name >"/dev/stderr"
    exit 1
  }
}
