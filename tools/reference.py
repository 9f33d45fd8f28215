"""Makes copies of the public headers that doxygen understands, for tools/reference.

  python3 tools/reference.py FOLDER

In a copy, each comment is a comment of doxygen on the declaration before or after it.
Private and internal parts are removed. All other parts are in the same line as in the
header, so that warnings name the right line. A comment that would get lost is an error.
"""

import os
import pathlib
import re
import sys

import public_headers

TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|/\*.*?\*/|//.*|.')


def escape(prose):
    """Returns prose in which doxygen finds no commands; `this` becomes code."""
    parts = re.split("`([^`]+)`", prose)
    for i, part in enumerate(parts):
        part = re.sub(r"[\\@<>&#%\"]|--+", r"\\\g<0>", part)
        part = part.replace("...", "&hellip;")  # A summary would end after the dots.
        parts[i] = f"<code>{part}</code>" if i % 2 else part
    return "".join(parts)


def to_doxygen(comment):
    """Returns the lines of a comment for doxygen. Their number stays the same.

    The given lines have no slashes. Lines that are indented by two more are code, or a
    table if they do not look like code. Neither is changed.
    """
    lines, prose, block = [], [], []

    def end_prose():
        if prose:
            lines.extend(escape("\n".join(prose)).split("\n"))
            prose.clear()

    def end_block():
        blanks = []
        while block and not block[-1]:
            blanks.append(block.pop())
        if block:
            is_code = any(re.search(r";( *//.*)?$|\w\(", line) for line in block)
            begin = "@code{.cpp}" if is_code else "@code{.unparsed}"
            if lines:
                lines[-1] += f" {begin}"
            else:
                block[0] = f"{begin} {block[0]}"
            block[-1] += " @endcode"
        lines.extend(block + blanks)
        block.clear()

    is_in_list = False
    for line in comment:
        is_indented = line.startswith("   ")
        is_in_list = line.startswith(" * ") or is_in_list and is_indented
        if is_indented and not is_in_list or block and not line:
            end_prose()
            block.append(line[3:])
        else:
            end_block()
            prose.append(re.sub(r"^ \* ", " - ", line)[1:])
    end_prose()
    end_block()
    return lines


def without_templates(code):
    """Returns code without the parameters and arguments of templates."""
    innermost = r"\s*<[^<>]*>\s*"
    while re.search(innermost, code):
        code = re.sub(innermost, " ", code)
    return re.sub(r"^\s*template\b", "", code).strip()


def split(line):
    """Returns the code of a line, with empty strings, and the comment after it."""
    code = comment = ""
    for token in TOKEN.findall(line):
        if token.startswith("//"):
            comment = token[2:]
        elif token[0] in "\"'":
            code += '""'
        elif not token.startswith("/*"):
            code += token
    return code, "" if re.match(" (NOLINT|IWYU)", comment) else comment


class Copy:
    """Makes the copy of one header, line by line."""

    def __init__(self, header):
        self.header = header
        self.group = re.sub(r"\W", "_", header)
        self.lines = public_headers.public_part(header).split("\n")
        self.copy = []
        # The kind of each open brace: that of a namespace, a class, ..., or of a body.
        self.scopes = []
        # The beginning of a declaration that has not ended yet.
        self.statement = ""
        # The last declaration with a comment, while others follow right below it.
        self.explained = None
        # True if there is a heading above, in the same class.
        self.is_in_section = False
        self.complaints = []

    def make(self):
        """Makes the copy, and returns what is wrong with the header."""
        comment = self.comment_at(0)
        if not comment:
            return [f"{self.header}:1: there is no comment about the header"]
        # The header is one group, since doxygen shows all of a group on one page.
        lines = to_doxygen(comment)
        lines[0] = f"@header{{{self.group},lockstep/{self.header}}} {lines[0]}"
        lines[-1] += " @{"
        self.copy = ["/// " + line for line in lines]
        while len(self.copy) < len(self.lines):
            i = len(self.copy)
            line = self.lines[i]
            if line.startswith("#"):
                while self.lines[i].endswith("\\"):
                    i += 1
                self.copy.extend(self.lines[len(self.copy) : i + 1])
            elif line.lstrip().startswith("//"):
                self.add_comment(self.comment_at(i))
            else:
                self.add_code(line)
        self.copy[-1] += "/** @} */\n"
        return self.complaints

    def comment_at(self, i):
        """Returns the lines of the comment that begins in line i, without slashes."""
        comment = []
        while self.lines[i].lstrip().startswith("//"):
            comment.append(self.lines[i].lstrip()[2:])
            i += 1
        return comment

    def is_among_declarations(self):
        """Returns True if a declaration may begin here."""
        return "body" not in self.scopes and not self.statement.strip()

    def add_comment(self, comment):
        """Adds a comment, which is about the code after it."""
        i = len(self.copy)
        indent = re.match(" *", self.lines[i]).group()
        behind = self.lines[i + len(comment)].strip()
        if "body" in self.scopes:
            self.copy.extend(self.lines[i : i + len(comment)])
        elif comment[0].startswith(" ---- "):
            title = escape(" ".join(comment)[6:].replace("`", ""))
            self.copy.append(f"{indent}{self.end_section()}/** @name {title} */ /** @{{ */")
            self.is_in_section = True
            self.copy.extend([""] * (len(comment) - 1))
        else:
            self.copy.extend(f"{indent}/// {line}" for line in to_doxygen(comment))
            if self.statement.strip() or re.match(r"$|\}|\w+:$|#(?!define)", behind):
                self.complain(i, "this comment stands before no declaration")
            if len(self.scopes) > 2 and "(" in behind:
                self.complain(i, "doxygen misplaces comments on functions of a class within a"
                              " class; say it in the comment on the inner class")

    def end_section(self):
        """Returns the text that ends a section of a class, or "" if there is none."""
        end = "/** @} */ " if self.is_in_section else ""
        self.is_in_section = False
        return end

    def add_code(self, line):
        """Adds a line of code, and the next lines if its comment continues there."""
        i = len(self.copy)
        code, comment = split(line)
        if not code.strip():
            self.explained = None
        elif self.is_among_declarations():
            line = self.refer(i, line, comment)
        if re.match(r"namespace lockstep\b.*\{", code):
            line = f"{line} /** @addtogroup {self.group} */ /** @{{ */"
        elif code.startswith("}") and self.scopes == ["namespace"]:
            line, comment = "/** @} */ }", ""
        elif re.match(r" (public|protected):|\};", code):
            line = self.end_section() + line
        self.follow(code)
        self.copy.append(line)
        if not comment or "body" in self.scopes:
            return
        if self.statement.strip():
            self.complain(i, "this comment stands within a declaration")
        column = len(line) - len(comment) - 2
        comment = [comment]
        for more in self.lines[i + 1 :]:
            if not re.match(" " * column + "//", more):
                break
            comment.append(more.strip()[2:])
        comment = to_doxygen(comment)
        self.copy[i] = f"{line[:column]}///< {comment[0]}"
        self.copy.extend(" " * column + f"///< {text}" for text in comment[1:])

    def refer(self, i, line, comment):
        """Returns a line in which a declaration begins.

        If it has no comment, and stands right below a declaration that has one, it gets a
        reference to that.
        """
        name = self.name_at(i)
        if self.copy[i - 1].lstrip().startswith("/// "):
            self.explained = name
        elif comment or not name:
            self.explained = None
        elif self.explained:
            line = f"/*! @brief See {self.explained}. */ {line}"
        return line

    def name_at(self, i):
        """Returns the name of the function or field that is declared in line i."""
        code = ""
        while not re.search("[;{}]", code):
            code += split(self.lines[i])[0] + "\n"
            i += 1
        if "override" in code:  # Doxygen gives it the comment of the base class.
            return None
        code = without_templates(code)
        if re.match(r"(class|struct|enum|friend|using|namespace|\w+:)\s", code):
            return None
        found = re.match(r"[^=;{(]*?(?<![~\w])(\w+)\s*([=;{(])", code)
        if not found:
            return None
        name, end = found.groups()
        return f"{name}()" if end == "(" else name

    def follow(self, code):
        """Follows scopes and statements through a line of code."""
        for token in re.findall("[{};,]|[^{};,]+", code + "\n"):
            is_enum = self.scopes[-1:] == ["enum"]
            if token == "{":
                kind = re.match(
                    r"(?:inline )?(namespace|class|struct|union|enum)\b",
                    without_templates(self.statement),
                )
                self.scopes.append(kind.group(1) if kind else "body")
            elif token == "}":
                self.scopes.pop()
            if token in "{};" or is_enum:
                self.statement = ""
            elif "body" not in self.scopes:
                self.statement += token
        if re.fullmatch(r"\s*\w+:\s*", self.statement):
            self.statement = ""

    def complain(self, i, what):
        """Notes that something is wrong with a line."""
        self.complaints.append(f"{self.header}:{i + 1}: {what}")


def first_sentence(header):
    """Returns the first sentence of the comment about a header, without its full stop."""
    comment = re.match(r"(?:// .*\n)+", public_headers.public_part(header)).group()
    paragraph = comment.split("\n//  ")[0].replace("\n// ", " ")[3:].strip()
    return re.split(r"(?<!\.)\. ", paragraph)[0].rstrip(".:")


def main_page(headers):
    """Returns the page that lists the headers."""
    lines = ["/** @mainpage Public headers"]
    package = None
    for header in headers:
        if os.path.dirname(header) != package:
            package = os.path.dirname(header)
            lines.append(f"<h2>{package}</h2>")
        group = re.sub(r"\W", "_", header)
        lines.append(f"@ref {group} <br> {escape(first_sentence(header))}")
        lines.append("")
    return "\n".join(lines + ["*/\n"])


def main():
    headers = public_headers.public_headers()
    folder = pathlib.Path(sys.argv[1])
    complaints = []
    for header in headers:
        copy = Copy(header)
        complaints += copy.make()
        path = folder / "lockstep" / header
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(copy.copy))
    if complaints:
        sys.exit("\n".join(complaints))
    (folder / "main_page.dox").write_text(main_page(headers))


if __name__ == "__main__":
    main()
